"""What a key may do: several roles, and the namespaces, kinds and rates that it is limited to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_TEXTS = ARRAY(sa.Text)


def upgrade() -> None:
    """Add the columns; a key keeps its role. A producer sends from now on only pods and budgets."""
    op.add_column("api_keys", sa.Column("roles", _TEXTS, comment="of producer, auditor, operator and admin"))
    op.execute("UPDATE api_keys SET roles = ARRAY[role]")
    op.alter_column("api_keys", "roles", nullable=False)
    op.drop_column("api_keys", "role")
    op.add_column("api_keys", sa.Column("namespaces", _TEXTS, comment="null: all"))
    op.add_column("api_keys", sa.Column("kinds", _TEXTS, comment="kinds of events; null: those of its roles"))
    op.add_column("api_keys", sa.Column("events_per_second", sa.Integer, comment="null: no limit"))
    op.add_column("api_keys", sa.Column("bytes_per_second", sa.BigInteger, comment="null: no limit"))
    op.add_column("api_keys", sa.Column("requests_at_once", sa.Integer, comment="null: the setting's"))


def downgrade() -> None:
    """Drop the columns. A key keeps its first role."""
    op.add_column("api_keys", sa.Column("role", sa.Text, comment="producer, auditor or admin"))
    op.execute("UPDATE api_keys SET role = roles[1]")
    op.alter_column("api_keys", "role", nullable=False)
    for name in (
        "requests_at_once",
        "bytes_per_second",
        "events_per_second",
        "kinds",
        "namespaces",
        "roles",
    ):
        op.drop_column("api_keys", name)
