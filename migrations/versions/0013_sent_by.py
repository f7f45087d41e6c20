"""Who sent it: a name beside what an event changed, the seal of a record, and the secret of the seals."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_TABLES = ("node_specs", "pending", "dead_letters", "profiles", "config_objects", "node_usage")
_COMMENT = "who sent the event; null: from before this was noted"


def upgrade() -> None:
    """Add the columns, and draw the secret."""
    for table in _TABLES:
        op.add_column(table, sa.Column("sent_by", sa.Text, comment=_COMMENT))
    comment = "who sent it, sealed; null: nobody says so"
    op.add_column("log_records", sa.Column("seal", sa.LargeBinary, comment=comment))
    seals = op.create_table(
        "log_seal",
        sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False, comment="1"),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.CheckConstraint("id = 1", name="log_seal_one"),
        comment="the secret by which APIs seal a sender's name and workers check it",
    )
    op.bulk_insert(seals, [{"id": 1, "secret": secrets.token_bytes(32)}])


def downgrade() -> None:
    """Drop them. Names in records that stay in a log can then be verified no more."""
    op.drop_table("log_seal")
    op.drop_column("log_records", "seal")
    for table in _TABLES:
        op.drop_column(table, "sent_by")
