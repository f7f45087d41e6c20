"""Documents that are written in bulk and read one at a time need not be understood by the database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Keep cycles as text and templates as JSON that is not taken apart: half the cost of a row."""
    op.alter_column(
        "cycles",
        "doc",
        type_=sa.Text(),
        existing_type=sa.JSON(),
        existing_nullable=False,
        comment="Cycle, as JSON",
        existing_comment="the rest of Cycle",
        postgresql_using="doc::text",
    )
    op.alter_column(
        "templates",
        "spec",
        type_=sa.JSON(),
        existing_type=JSONB(),
        existing_nullable=False,
        existing_comment="PodTemplate",
        postgresql_using="spec::json",
    )


def downgrade() -> None:
    """Have both parsed by the database again."""
    op.alter_column(
        "cycles",
        "doc",
        type_=sa.JSON(),
        existing_type=sa.Text(),
        existing_nullable=False,
        comment="the rest of Cycle",
        existing_comment="Cycle, as JSON",
        postgresql_using="doc::json",
    )
    op.alter_column(
        "templates",
        "spec",
        type_=JSONB(),
        existing_type=sa.JSON(),
        existing_nullable=False,
        existing_comment="PodTemplate",
        postgresql_using="spec::jsonb",
    )
