"""What is measured by quality (co-location) stands beside each node's usage.

Which pods a measurement covers follows from when they were placed, so ``marks`` are read no more. The column
stays for workers of revision 0044 that still run while others start; it goes with a later revision.
"""

from __future__ import annotations

from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None
works_from = "0045"  # a build of before reads ``marks`` of every row when it starts


def upgrade() -> None:
    """Change the database."""
    op.execute("ALTER TABLE node_usage ADD COLUMN quality json, ALTER COLUMN marks DROP NOT NULL")
    op.execute("COMMENT ON COLUMN node_usage.quality IS 'QualityRecord; null: not measured by quality'")
    op.execute("COMMENT ON COLUMN node_usage.marks IS 'of builds at 0044: shard to the next seq when folded'")
