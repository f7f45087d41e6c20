"""A tombstone per uid: what is remembered of one pod of a name keeps no later pod of the name out."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_TABLE, _KEY = "pod_tombstones", "pod_tombstones_pkey"


def upgrade() -> None:
    """Widen the key. Each name keeps the tombstone that it has."""
    op.drop_constraint(_KEY, _TABLE, type_="primary")
    op.create_primary_key(_KEY, _TABLE, ["namespace", "name", "uid"])


def downgrade() -> None:
    """Keep the last tombstone of each name."""
    op.execute(
        "DELETE FROM pod_tombstones t USING pod_tombstones later"
        " WHERE (later.namespace, later.name) = (t.namespace, t.name)"
        " AND (later.at_ms, later.uid) > (t.at_ms, t.uid)"
    )
    op.drop_constraint(_KEY, _TABLE, type_="primary")
    op.create_primary_key(_KEY, _TABLE, ["namespace", "name"])
