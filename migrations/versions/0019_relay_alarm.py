"""Say in the ledger what is wrong with a shard's topic of decisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_COLUMNS = (
    sa.Column("alarm", sa.Text, comment="what is wrong with the topic of decisions; null: nothing"),
    sa.Column(
        "compared_offset",
        sa.BigInteger,
        nullable=False,
        server_default="0",
        comment="below this offset of the topic, what is not the ledger's was reported",
    ),
)


def upgrade() -> None:
    """Add the columns."""
    for column in _COLUMNS:
        op.add_column("relay_cursor", column)


def downgrade() -> None:
    """Drop the columns."""
    for column in _COLUMNS:
        op.drop_column("relay_cursor", column.name)
