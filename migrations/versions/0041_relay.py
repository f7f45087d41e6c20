"""Note the generation of a shard's decisions, which is raised where a ledger was set back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    generation = sa.Column(
        "generation",
        sa.BigInteger,
        nullable=False,
        server_default="0",
        comment="when the topic was last found to hold what is not the ledger's, in ms; 0: never",
    )
    op.add_column("relay_cursor", generation)


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("relay_cursor", "generation")
