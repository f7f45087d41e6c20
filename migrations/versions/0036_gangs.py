"""Let rows of live pods name their gang, so that its pods are found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

_TABLES = {"placements": "gang IS NOT NULL AND released_at_ms IS NULL", "pending": "gang IS NOT NULL"}


def upgrade() -> None:
    """Add the columns, and fill them from the templates of the pods."""
    for table, where in _TABLES.items():
        gang = sa.Column("gang", sa.Text, comment="name of its PodGroup; null: it is placed alone")
        op.add_column(table, gang)
        live = "AND p.released_at_ms IS NULL" if table == "placements" else ""
        op.execute(
            f"UPDATE {table} p SET gang = split_part(t.spec ->> 'gang', '/', 2) FROM templates t "
            f"WHERE t.signature = p.signature AND t.spec ->> 'gang' <> '' {live}"
        )
        op.create_index(f"{table}_gang", table, ["namespace", "gang"], postgresql_where=sa.text(where))


def downgrade() -> None:
    """Drop them."""
    for table in _TABLES:
        op.drop_index(f"{table}_gang", table)
        op.drop_column(table, "gang")
