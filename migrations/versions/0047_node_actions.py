"""What the agents of nodes did, a history for people; and the node to which an agent's key is limited."""

from __future__ import annotations

from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None
works_from = "0045"  # a build of then has no such records, and makes dead letters of them

_ACTIONS = """
CREATE TABLE node_actions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node text NOT NULL,
    at_ms bigint NOT NULL,
    logged_ms bigint NOT NULL,
    kind text NOT NULL,
    quality text NOT NULL,
    amount bigint,
    times integer NOT NULL,
    reason text NOT NULL,
    policy text NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    uid text NOT NULL,
    sent_by text
);
CREATE INDEX node_actions_node ON node_actions (node, id);
"""
_ABOUT = {
    "at_ms": "when it was done, as the agent says",
    "logged_ms": "log time of the record",
    "quality": "of the box, or of the pod",
    "amount": "thousandths of a core, or bytes; null: as much as there is, or the kind has none",
    "times": "acts that the row stands for, the last of them said",
    "policy": "name@version of what ordered it; empty: the defaults",
    "namespace": "of the pod that was ended, as name and uid; empty: it was done to a box",
}


def upgrade() -> None:
    """Create the table, and the column of keys."""
    for statement in filter(str.strip, _ACTIONS.split(";\n")):
        op.execute(statement)
    op.execute("COMMENT ON TABLE node_actions IS 'what the agents of nodes did, in the order of the log'")
    for column, says in _ABOUT.items():
        op.execute(f"COMMENT ON COLUMN node_actions.{column} IS '{says}'")
    op.execute("ALTER TABLE api_keys ADD COLUMN node text")
    op.execute("COMMENT ON COLUMN api_keys.node IS 'of the role agent: the one node that it is for'")
