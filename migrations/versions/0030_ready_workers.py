"""Say which workers are ready to take shards, and how each gets on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; a worker says at its next heartbeat that it is ready."""
    ready = sa.Column(
        "ready", sa.Boolean, nullable=False, server_default=sa.false(), comment="to take shards"
    )
    figures = sa.Column("figures", sa.JSON, comment="how it gets on (Figures)")
    op.add_column("workers", ready)
    op.add_column("workers", figures)


def downgrade() -> None:
    """Forget who is ready."""
    op.drop_column("workers", "figures")
    op.drop_column("workers", "ready")
