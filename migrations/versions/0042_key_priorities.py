"""The highest priority that pods of a key may ask for, and the priority classes that they may name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None
works_from = "0042"  # older ones let every key ask for any priority


def upgrade() -> None:
    """Add the columns. Pods of a key with namespaces ask from now on for priority 0 and less, by number."""
    most = sa.Column("priority_max", sa.Integer, comment="null: 0 with namespaces or priority_classes")
    op.add_column("api_keys", most)
    classes: sa.Column[list[str]] = sa.Column(
        "priority_classes", ARRAY(sa.Text), comment="null: none with namespaces or priority_max"
    )
    op.add_column("api_keys", classes)


def downgrade() -> None:
    """Drop the columns."""
    op.drop_column("api_keys", "priority_classes")
    op.drop_column("api_keys", "priority_max")
