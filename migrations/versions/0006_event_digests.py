"""A digest of each event accepted by id, so that another event under the same id is seen."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_COMMENT = "SHA-256 of type, object and at; null: not kept then"


def upgrade() -> None:
    """Add the column."""
    op.add_column("ingested_events", sa.Column("digest", sa.LargeBinary, comment=_COMMENT))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("ingested_events", "digest")
