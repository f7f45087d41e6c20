"""Why groups waited, over time; and of decisions the profile that they were made by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table, the columns and the indexes."""
    op.create_table(
        "group_attempts",
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("signature", sa.LargeBinary, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False, comment="counts within the group, from 1"),
        sa.Column("at_ms", sa.BigInteger, nullable=False, comment="of the first attempt with these reasons"),
        sa.Column("last_at_ms", sa.BigInteger, nullable=False, comment="of the last one"),
        sa.Column("times", sa.BigInteger, nullable=False, comment="how many of them were noted"),
        sa.Column("profile", sa.Text, nullable=False),
        sa.Column("profile_revision", sa.BigInteger, nullable=False, comment="0: there is no such profile"),
        sa.Column("nodes_count", sa.BigInteger, nullable=False),
        sa.Column("reasons", JSONB, nullable=False, comment="nodes per reason code"),
        sa.Column("unresolvable", sa.Boolean, nullable=False),
        sa.Column("cycle_seq", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("shard", "signature", "number"),
        comment="why the pods of a signature waited, over time: the first few attempts and the latest",
    )
    op.add_column("decisions", sa.Column("profile", sa.Text, comment="null: decided before it had a column"))
    op.add_column(
        "decisions",
        sa.Column("profile_revision", sa.BigInteger, comment="null: no profile was asked, or as for profile"),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_column("decisions", "profile_revision")
    op.drop_column("decisions", "profile")
    op.drop_table("group_attempts")
