"""Let the ledger say when time alone lets a worker decide something, so that ticks come for it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a worker tells it with its next batch."""
    said = "log time at which time alone lets something be decided"
    op.add_column("shards", sa.Column("due_ms", sa.BigInteger, comment=said))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("shards", "due_ms")
