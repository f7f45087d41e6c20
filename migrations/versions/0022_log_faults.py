"""Topic ids beside the offsets, what a log lost, and a name for the ledger."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns and tables. Topics of the embedded log get an id, and the ledger its name."""
    op.add_column(
        "shard_offsets",
        sa.Column("topic_id", sa.Text, comment="the log's own id of the topic; null: not noted yet"),
    )
    op.add_column(
        "shard_offsets",
        sa.Column(
            "resync_below",
            sa.BigInteger,
            comment="records below come once more, or late, after the log lost some; null: none",
        ),
    )
    op.add_column(
        "log_topics", sa.Column("id", sa.Text, comment="the topic's own: made anew, it has another")
    )
    op.execute(
        "UPDATE log_topics t SET id = w.id "
        "FROM (SELECT topic, gen_random_uuid()::text AS id FROM log_topics GROUP BY topic) w "
        "WHERE w.topic = t.topic"
    )
    op.alter_column("log_topics", "id", nullable=False)
    op.create_table(
        "log_faults",
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False, comment="of the worker that found it"),
        sa.Column("found_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("code", sa.Text, nullable=False, comment="recreated, truncated or tail-lost"),
        sa.Column("next_offset", sa.BigInteger, nullable=False, comment="where the shard would have gone on"),
        sa.Column("first_offset", sa.BigInteger, nullable=False, comment="of the log then"),
        sa.Column("end_offset", sa.BigInteger, nullable=False, comment="of the log then"),
        sa.Column("goes_on_at", sa.BigInteger, nullable=False, comment="where it goes on instead"),
        sa.PrimaryKeyConstraint("topic", "partition", "epoch"),
        comment="each time that a partition did not hold what a shard would read next",
    )
    op.create_table(
        "unmentioned",
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("key", sa.Text, nullable=False, comment="as the records of the topic have it"),
        sa.Column("uid", sa.Text, nullable=False, comment="of a pod; empty for others"),
        sa.Column("node", sa.Text, nullable=False, comment="where the pod is; empty: nowhere, or no pod"),
        sa.PrimaryKeyConstraint("topic", "partition", "epoch", "key"),
        comment="what the ledger has and a log that lost records does not mention any more",
    )
    op.create_table(
        "ledger_name",
        sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False, comment="1"),
        sa.Column("name", sa.Text, nullable=False, comment="drawn once, when the table was made"),
        sa.CheckConstraint("id = 1", name="ledger_name_one"),
        comment="which ledger this is",
    )
    op.execute("INSERT INTO ledger_name (id, name) VALUES (1, gen_random_uuid()::text)")


def downgrade() -> None:
    """Drop them."""
    for table in ("ledger_name", "unmentioned", "log_faults"):
        op.drop_table(table)
    op.drop_column("log_topics", "id")
    for column in ("resync_below", "topic_id"):
        op.drop_column("shard_offsets", column)
