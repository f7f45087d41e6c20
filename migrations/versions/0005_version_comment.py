"""What a node's version counts, said in the schema as the decision record says it: changes, not commits."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

BEFORE = "commit counter; what the CAS compares"
NOW = "counts changes of the node and of the pods on it; what the compare-and-swap compares"


def upgrade() -> None:
    """Mend the comment."""
    op.alter_column("nodes", "version", comment=NOW, existing_comment=BEFORE)


def downgrade() -> None:
    """Put the old comment back."""
    op.alter_column("nodes", "version", comment=BEFORE, existing_comment=NOW)
