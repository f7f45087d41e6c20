"""Which pods have to leave hot nodes, and how long these nodes rest after that."""

from __future__ import annotations

from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None
works_from = "0045"  # a build of then moves no pods, and passes over moves: it never closes one

_MOVES = """
CREATE TABLE moves (
    node text NOT NULL,
    pod_uid text NOT NULL,
    shard integer NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    target text NOT NULL,
    decided_by integer NOT NULL,
    at_ms bigint NOT NULL,
    expires_ms bigint NOT NULL,
    rests_until_ms bigint NOT NULL,
    is_open boolean NOT NULL,
    PRIMARY KEY (node, pod_uid, shard)
);
CREATE UNIQUE INDEX moves_open ON moves (pod_uid, shard) WHERE is_open
"""
_ABOUT = {
    "shard": "of the pod",
    "target": "where a dry run found room for the pod",
    "decided_by": "the shard that decided",
    "at_ms": "log time of the decision",
    "expires_ms": "log time from which the pod may stay, if it is there yet",
    "rests_until_ms": "log time until which no other pod has to leave the node; then the row goes",
    "is_open": "the pod has not left, and may not stay yet",
}


def upgrade() -> None:
    """Create the table."""
    for statement in filter(str.strip, _MOVES.split(";\n")):
        op.execute(statement)
    op.execute("COMMENT ON TABLE moves IS 'pods that have to leave hot nodes, until these have rested'")
    for column, says in _ABOUT.items():
        op.execute(f"COMMENT ON COLUMN moves.{column} IS '{says}'")
