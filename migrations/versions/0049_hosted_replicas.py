"""How many replicas of hosted workloads there should be: what was said last, who waits, what is published."""

from __future__ import annotations

from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None
works_from = "0045"  # a build of then refuses the objects, and publishes nothing of this

_TABLES = """
CREATE TABLE hosted_replicas (
    namespace text NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    workload text NOT NULL,
    least integer NOT NULL,
    most integer NOT NULL,
    wanted integer NOT NULL,
    running integer NOT NULL,
    waiting_since_ms bigint,
    load_percent double precision,
    reason text NOT NULL,
    at_ms bigint NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (namespace, name)
);
CREATE TABLE hosted_waits (
    shard integer NOT NULL,
    namespace text NOT NULL,
    kind text NOT NULL,
    workload text NOT NULL,
    since_ms bigint NOT NULL,
    PRIMARY KEY (shard, namespace, kind, workload)
);
CREATE TABLE scales (
    seq bigint PRIMARY KEY,
    namespace text NOT NULL,
    name text NOT NULL,
    at_ms bigint NOT NULL,
    payload bytea NOT NULL
);
"""
_ABOUT = {
    "hosted_replicas": "what was said last of each HostedReplicas, by the owner of shard 0",
    "hosted_waits": "log time since when the oldest pod of a hosted workload waits in a shard",
    "scales": "each change of what is wanted, as berth.scales has it; the relay of shard 0 publishes it",
    "hosted_replicas.load_percent": "of the nodes that its pods may go to; null: nothing recent was measured",
    "hosted_replicas.seq": "of the last change of what is wanted",
    "relay_cursor.scales_seq": "the last scale that is published; of shard 0 alone",
}


def upgrade() -> None:
    """Create the tables, and the cursor of what is published."""
    for statement in filter(str.strip, _TABLES.split(";\n")):
        op.execute(statement)
    op.execute("ALTER TABLE relay_cursor ADD COLUMN scales_seq bigint NOT NULL DEFAULT 0")
    for thing, says in _ABOUT.items():
        op.execute(f"COMMENT ON {'COLUMN' if '.' in thing else 'TABLE'} {thing} IS '{says}'")
