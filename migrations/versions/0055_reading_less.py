"""Of a node, and between two near moments, no more of the past is read than was there.

What closed may be asked for up to a second moment. Where few decisions name the nodes that are asked about,
their placements are found by these. What ended before the past was kept is not there at any moment.
"""

from __future__ import annotations

from alembic import op

revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None
works_from = "0050"  # a build of before asks the same views and functions

LIFESPANS = [2 * 4**number for number in range(10)]
"""The classes: what lasts less than each of these; what lasts longer, or was opened by another shard."""
NO_END = 1 << 62


_LIFESPAN = f"""
CREATE OR REPLACE FUNCTION past.lifespan(
    opened_by integer, opened_batch bigint, closed_by integer, closed_batch bigint
) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN opened_by = closed_by
        THEN pg_catalog.width_bucket(
            closed_batch - opened_batch, '{{{",".join(map(str, LIFESPANS))}}}'::bigint[]
        )
        ELSE {len(LIFESPANS)} END
$$
"""
_CLASS = "past.lifespan(opened_by, opened_batch, closed_by, closed_batch)"

# The server takes a function of one query for that query itself. OFFSET 0 has it look into the index for each
# shard and class, whatever it believes of what is there.
_CLOSED_BETWEEN = (
    f"""
CREATE FUNCTION past.closed_between(batches bigint[], seqs bigint[], until bigint[])
RETURNS SETOF public.placements LANGUAGE sql STABLE ROWS 100000 AS $$
    SELECT p.*
    FROM unnest(batches, until) WITH ORDINALITY AS s (batch, until, at)
    CROSS JOIN unnest('{{{",".join(map(str, [*(each - 1 for each in LIFESPANS), NO_END]))}}}'::bigint[])
        WITH ORDINALITY AS class (longest, at)
    CROSS JOIN LATERAL (
        SELECT * FROM public.placements
        WHERE closed_by = s.at - 1 AND {_CLASS} = class.at - 1
            AND closed_batch > s.batch AND closed_batch <= least(s.batch + class.longest, s.until) OFFSET 0
    ) AS p WHERE p.seq < (SELECT seqs)[p.shard + 1]
$$
""",
    """
CREATE OR REPLACE FUNCTION past.closed_since() RETURNS SETOF public.placements
LANGUAGE sql STABLE ROWS 100000 AS $$
    SELECT * FROM past.closed_between(past.batches(), past.seqs(), NULL)
$$
""",
    # For builds of before, which ask for the difference of two moments by it.
    """
CREATE OR REPLACE FUNCTION past.closed_since(batches bigint[], seqs bigint[]) RETURNS SETOF public.placements
LANGUAGE sql STABLE ROWS 100000 AS $$
    SELECT * FROM past.closed_between(batches, seqs, NULL)
$$
""",
)
# As the invariant requested-is-the-sum says, of all nodes (null) or of some. Where few decisions name those,
# their placements are found by these. Equal pods of a node are counted before anything is joined to them.
_HELD = """
CREATE OR REPLACE FUNCTION past.held(names text[]) RETURNS TABLE (node text, resource text, held bigint)
LANGUAGE sql STABLE AS $$
    WITH asked AS MATERIALIZED (
        SELECT DISTINCT unnest(names) AS node
    ), size AS MATERIALIZED (
        SELECT names IS NOT NULL AND count(*) <= 5000 AS is_few FROM (
            SELECT FROM asked a CROSS JOIN LATERAL (
                SELECT FROM public.decisions d WHERE d.node = a.node LIMIT 5001
            ) AS named LIMIT 5001
        ) AS counted
    ), placed AS (
        SELECT p.node, p.signature, p.life FROM past.open_placements p WHERE p.counted AND names IS NULL
        UNION ALL
        SELECT p.node, p.signature, p.life FROM past.open_placements p
        WHERE p.counted AND NOT (SELECT is_few FROM size) AND p.node IN (SELECT node FROM asked)
            AND names IS NOT NULL
        UNION ALL
        SELECT p.node, p.signature, p.life FROM (SELECT node FROM asked WHERE (SELECT is_few FROM size)) AS a
        CROSS JOIN LATERAL (SELECT shard, seq FROM public.decisions d WHERE d.node = a.node OFFSET 0) AS d
        JOIN past.placements p USING (shard, seq)
        WHERE p.node = a.node AND p.counted AND p.released_at_ms IS NULL
    ), held AS MATERIALIZED (
        SELECT p.node, p.signature, p.life::jsonb->'devices' AS devices, count(*) AS pods
        FROM placed p GROUP BY p.node, p.signature, devices
    ), amounts AS MATERIALIZED (
        SELECT t.signature, a.key, a.value::bigint AS amount
        FROM public.templates t
        CROSS JOIN LATERAL jsonb_each_text((t.spec->'requests')::jsonb || '{"pods": 1}') AS a
        WHERE t.signature IN (SELECT signature FROM held)
    )
    SELECT h.node, a.key, sum(h.pods * a.amount)::bigint
    FROM held h JOIN amounts a USING (signature) GROUP BY h.node, a.key
    UNION ALL
    SELECT h.node, 'nvidia.com/gpu#' || i.device, sum(h.pods * CASE
        WHEN coalesce((t.spec->'requests'->>'nvidia.com/gpu')::bigint, 0) > 0 THEN 1000
        ELSE (t.spec->'requests'->>'berth.dev/gpu-milli')::bigint
    END)::bigint
    FROM held h JOIN public.templates t USING (signature)
    CROSS JOIN LATERAL jsonb_array_elements_text(h.devices) AS i (device)
    WHERE h.devices IS NOT NULL GROUP BY h.node, i.device
$$
"""
# For callers that look rows up by their keys. Of what ended before the past was kept no batch is known that
# closed it: that had ended at each moment that is.
_IS_OPEN = """(p.released_at_ms IS NULL
    OR coalesce(p.closed_batch > (SELECT past.batches())[p.closed_by + 1], false))"""
_PLACEMENTS = f"""
CREATE OR REPLACE VIEW past.placements AS
SELECT p.shard, p.seq, p.pod_uid, p.namespace, p.name, NULL::bigint AS resource_version, p.signature,
    coalesce((
        SELECT coalesce(l.labels, '{{}}') FROM public.past_labels l WHERE (l.shard, l.seq) = (p.shard, p.seq)
            AND l.until_batch > (SELECT past.batches())[l.until_by + 1] ORDER BY l.recorded_at LIMIT 1
    ), p.labels) AS labels,
    p.node, p.adopted, p.bound_at_ms, CASE WHEN NOT {_IS_OPEN} THEN p.released_at_ms END AS released_at_ms,
    p.recorded_at, CASE WHEN NOT {_IS_OPEN} THEN p.released_recorded_at END AS released_recorded_at,
    p.life, p.counted, p.orphaned, p.home, p.gang
FROM public.placements p
WHERE p.opened_batch IS NULL OR p.opened_batch <= (SELECT past.batches())[p.opened_by + 1]
"""


def upgrade() -> None:
    """Replace what reads the past, and let each role that closes placements compute their classes."""
    for statement in (_LIFESPAN, *_CLOSED_BETWEEN, _PLACEMENTS, _HELD):
        op.execute(statement)
    op.execute("GRANT EXECUTE ON FUNCTION past.lifespan TO PUBLIC")
    op.execute(
        "COMMENT ON FUNCTION past.closed_between IS 'placements that were open when the shards were at these "
        "batches and decisions, and ended until those batches; null: have ended since'"
    )
