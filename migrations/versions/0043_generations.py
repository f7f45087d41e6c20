"""Note the generation of a shard's decisions, which is raised where a ledger was set back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None
works_from = "0043"  # an older relay would publish on under the name of a ledger that was set back


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
