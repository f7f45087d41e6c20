"""Let the shard that reads an event hand it over to the one that decides for the pod's gang."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables, empty."""
    op.create_table(
        "inbox",
        sa.Column("home", sa.Integer, nullable=False, comment="the shard that decides"),
        sa.Column("source", sa.Integer, nullable=False, comment="the shard that read the event"),
        sa.Column("number", sa.BigInteger, nullable=False, comment="next_offset of ~handed/HOME before it"),
        sa.Column("log_offset", sa.BigInteger, nullable=False, comment="in the partition of the source"),
        sa.Column("key", sa.LargeBinary),
        sa.Column("value", sa.LargeBinary),
        sa.Column("at_ms", sa.BigInteger, nullable=False, comment="when the log took it"),
        sa.Column("seal", sa.LargeBinary, comment="who sent it, sealed; null: nobody says so"),
        sa.PrimaryKeyConstraint("home", "source", "number"),
        comment="events of pods that another shard decides for; read ones stay as long as the journal",
    )
    op.create_table(
        "forwarded",
        sa.Column("shard", sa.Integer, nullable=False, comment="the shard that reads the events"),
        sa.Column("key", sa.Text, nullable=False, comment="namespace/name of a pod"),
        sa.Column("home", sa.Integer, nullable=False, comment="the shard to which all of them go"),
        sa.Column("uid", sa.Text, nullable=False, comment="of the last pod of this name there"),
        sa.Column(
            "gone_number", sa.BigInteger, comment="of the event by which it was deleted; null: it was not"
        ),
        sa.Column("gone_at_ms", sa.BigInteger, comment="log time of that"),
        sa.PrimaryKeyConstraint("shard", "key"),
        comment="keys of pods whose events go to another shard",
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("forwarded")
    op.drop_table("inbox")
