"""What was decided and requested over time, in rows that are kept longer than what they count."""

from __future__ import annotations

from alembic import op

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None
works_from = "0050"  # as of the migration before

_TABLES = """
CREATE TABLE rollup_cursors (
    shard integer PRIMARY KEY,
    seq bigint NOT NULL DEFAULT 0
);
CREATE TABLE rollup_counts (
    step_ms bigint NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    outcome text NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (step_ms, kind, name, outcome)
) WITH (fillfactor = 60);
CREATE TABLE rollup_samples (
    step_ms bigint PRIMARY KEY,
    at_ms bigint NOT NULL
);
CREATE TABLE rollup_gauges (
    step_ms bigint NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    pods numeric,
    pending_pods numeric,
    requested_cpu_milli numeric,
    requested_memory_bytes numeric,
    allocatable_cpu_milli numeric,
    allocatable_memory_bytes numeric,
    measured_cpu_milli numeric,
    measured_memory_bytes numeric,
    PRIMARY KEY (step_ms, kind, name)
);
"""
_ABOUT = {
    "rollup_cursors": "up to which decision of a shard all are counted; moved in the transaction that counts",
    "rollup_counts": "decisions by step of log time, namespace or node, and outcome",
    "rollup_samples": "the steps that were sampled, and at which log time",
    "rollup_gauges": "what was requested, offered and measured then, by namespace or node",
}


def upgrade() -> None:
    """Create the tables. Whoever rolls up counts from the first decision that is kept."""
    for statement in filter(str.strip, _TABLES.split(";\n")):
        op.execute(statement)
    for table, says in _ABOUT.items():
        op.execute(f"COMMENT ON TABLE {table} IS '{says}'")
