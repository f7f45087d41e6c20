"""Remember of each pod of a forwarded name where its events go: late ones of earlier pods, too."""

from __future__ import annotations

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

_TABLE, _KEY = "forwarded", "forwarded_pkey"


def upgrade() -> None:
    """Widen the key. Each name keeps the row that it has."""
    op.drop_constraint(_KEY, _TABLE, type_="primary")
    op.create_primary_key(_KEY, _TABLE, ["shard", "key", "uid"])
    _say("pods whose events go to another shard", "of a pod of this name")


def downgrade() -> None:
    """Keep the row of the last pod of each name."""
    op.execute("DELETE FROM forwarded WHERE gone_number IS NULL AND gone_at_ms IS NOT NULL")
    op.drop_constraint(_KEY, _TABLE, type_="primary")
    op.create_primary_key(_KEY, _TABLE, ["shard", "key"])
    _say("keys of pods whose events go to another shard", "of the last pod of this name there")


def _say(table: str, uid: str) -> None:
    op.create_table_comment(_TABLE, table)
    op.alter_column(_TABLE, "uid", comment=uid)
