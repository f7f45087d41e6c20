"""What was open at a moment and has ended since is found by how long it lasted, however long the history is.

What closed since a moment may be most of the history, and so may what opened before it. So what closed is
kept by the class of its lifespan, in batches of the shard that closed it: of a class that lasts less than n
batches, all that was open at a batch closed within the next n. Of what is read for it at least a quarter was
there, where pods come and go steadily.
"""

from __future__ import annotations

from alembic import op

revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None
works_from = "0050"  # a build of before asks the same views, and reads the index in more places

LIFESPANS = [2 * 4**number for number in range(10)]
"""The classes: what lasts less than each of these; what lasts longer, or was opened by another shard."""
NO_END = 1 << 62

_LIFESPAN = f"""
CREATE FUNCTION past.lifespan(opened_by integer, opened_batch bigint, closed_by integer, closed_batch bigint)
RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN opened_by = closed_by
        THEN width_bucket(closed_batch - opened_batch, '{{{",".join(map(str, LIFESPANS))}}}'::bigint[])
        ELSE {len(LIFESPANS)} END
$$
"""
_CLASS = "past.lifespan(opened_by, opened_batch, closed_by, closed_batch)"
_INDEX = f"""
CREATE INDEX placements_lifespan ON placements (closed_by, {_CLASS}, closed_batch)
WHERE closed_batch IS NOT NULL
"""

# The server takes a function of one query for that query itself. OFFSET 0 has it look into the index for each
# shard and class, whatever it believes of what is there.
_CLOSED_SINCE = (
    f"""
CREATE FUNCTION past.closed_since(batches bigint[], seqs bigint[]) RETURNS SETOF public.placements
LANGUAGE sql STABLE ROWS 100000 AS $$
    SELECT p.*
    FROM unnest(batches) WITH ORDINALITY AS s (batch, at)
    CROSS JOIN unnest('{{{",".join(map(str, [*(each - 1 for each in LIFESPANS), NO_END]))}}}'::bigint[])
        WITH ORDINALITY AS class (longest, at)
    CROSS JOIN LATERAL (
        SELECT * FROM public.placements
        WHERE closed_by = s.at - 1 AND {_CLASS} = class.at - 1
            AND closed_batch > s.batch AND closed_batch <= s.batch + class.longest OFFSET 0
    ) AS p WHERE p.seq < (SELECT seqs)[p.shard + 1]
$$
""",
    """
CREATE OR REPLACE FUNCTION past.closed_since() RETURNS SETOF public.placements
LANGUAGE sql STABLE ROWS 100000 AS $$
    SELECT * FROM past.closed_since(past.batches(), past.seqs())
$$
""",
    "DROP FUNCTION past.closing()",
)
_SAYS = {
    "past.lifespan": "the class of how many batches a placement lasted",
    "past.closed_since(bigint[], bigint[])": "placements that were open when the shards were at these "
    "batches and decisions, and have ended since",
}


def upgrade() -> None:
    """Replace the index of what closed, and what reads it."""
    for statement in (_LIFESPAN, _INDEX, *_CLOSED_SINCE):
        op.execute(statement)
    for function, says in _SAYS.items():
        op.execute(f"COMMENT ON FUNCTION {function} IS '{says}'")
    op.execute("DROP INDEX placements_closed")
