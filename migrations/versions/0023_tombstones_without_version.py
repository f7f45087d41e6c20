"""Remember pods that are gone and whose events had no resource version."""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Allow a tombstone without a version."""
    op.alter_column("pod_tombstones", "resource_version", nullable=True, comment="null: its events had none")


def downgrade() -> None:
    """Forget the tombstones without a version."""
    op.execute("DELETE FROM pod_tombstones WHERE resource_version IS NULL")
    op.alter_column(
        "pod_tombstones", "resource_version", nullable=False, existing_comment="null: its events had none"
    )
