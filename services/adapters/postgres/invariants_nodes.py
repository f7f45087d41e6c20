"""The invariants of nodes over time: what they hold after each decision, and their versions."""

from __future__ import annotations

# Which version of its node a decision led to: the last key of its record. A regular expression would take
# ten times as long.
_TOLD = """split_part(split_part(
    encode(substring(payload FROM octet_length(payload) - 40), 'escape'), '{key}', 2), '}}', 1)"""
VERSION = """
    CASE WHEN translate({told}, '0123456789', '') = '' THEN nullif({told}, '')::bigint END
""".format(told=_TOLD.format(key='"node_version":'))

_LAST_VERSION = 2**63 - 1

# What each open placement takes of each of its devices. A pod that was resized where it runs, or adopted, was
# not placed with that by berth.
DEVICES = """
    SELECT p.node, 'nvidia.com/gpu#' || i.device AS resource, CASE
            WHEN coalesce((t.spec->'requests'->>'nvidia.com/gpu')::bigint, 0) > 0 THEN 1000
            ELSE (t.spec->'requests'->>'berth.dev/gpu-milli')::bigint
        END AS milli,
        NOT p.adopted AND (
            SELECT d.outcome = 'bound' FROM decisions d WHERE (d.shard, d.seq) = (p.shard, p.seq)
        ) AS is_decided
    FROM placements p JOIN templates t USING (signature)
    CROSS JOIN LATERAL jsonb_array_elements_text(p.life::jsonb->'devices') AS i (device)
    WHERE p.released_at_ms IS NULL AND p.counted AND p.life IS NOT NULL
"""

# A node with devices offers thousandths of them even where it does not say so.
_OFFERS = """coalesce((h.spec->'allocatable'->>{name})::bigint, CASE WHEN {name} = 'berth.dev/gpu-milli'
            THEN 1000 * (h.spec->'allocatable'->>'nvidia.com/gpu')::bigint END, 0)"""

# Goes back from what is requested now, since the ledger forgets old history. Opening and closing come in the
# order of the node's versions, which are fenced: a transaction's time is when it began, so with several
# writers it says nothing of their order. A placement ends with its pod's next decision; since shards were
# added, maybe with one of another shard, which its transaction tells (``moved``). Where that names
# another node, the end comes right behind what the same shard had decided on this one. Within a version,
# closing comes first. The sum after each placement that berth decided is compared with the spec that it saw:
# the last one up to its version, or the one of its own transaction, which was folded before. A pod that was
# resized where it runs was not placed by berth with that size. A pod that was adopted before its worker knew
# the node tells no version: it counts there only at its end, as nothing says since when. Only nodes are
# looked at that can have held too much: what is requested now, with all that ended meanwhile, is more than
# the least that they offered.
OVERCOMMITTED = f"""
WITH told AS MATERIALIZED (
    SELECT shard, seq, pod_uid, namespace, name, node, signature, outcome, recorded_at, {VERSION} AS version
    FROM @decisions AS d WHERE outcome IN ('bound', 'adopted', 'resized', 'released', 'bind-failed')
), lives AS (
    SELECT *, lag(seq) OVER pod AS before, lead(seq) OVER pod AS end_seq, lead(node) OVER pod AS end_node,
        lead(version) OVER pod AS ended
    FROM told WINDOW pod AS (PARTITION BY shard, pod_uid ORDER BY seq)
), moved AS MATERIALIZED (
    SELECT DISTINCT ON (p.shard, p.seq) p.shard, p.seq, d.shard AS end_shard, d.seq AS end_seq,
        d.node AS end_node, d.version AS ended
    FROM @placements AS p
    JOIN told d ON d.shard = p.home AND d.pod_uid = p.pod_uid AND d.recorded_at = p.released_recorded_at
    WHERE p.home <> p.shard ORDER BY p.shard, p.seq, d.seq
), placed AS (
    SELECT p.node, p.signature, p.pod_uid, p.adopted, p.shard, p.seq, d.version, d.recorded_at, d.outcome,
        p.released_at_ms IS NULL AS is_open, coalesce(m.end_shard, p.shard) AS end_shard,
        coalesce(m.end_seq, d.end_seq) AS end_seq, CASE
            WHEN m.seq IS NULL AND d.end_node = p.node THEN d.ended
            WHEN m.end_node = p.node THEN m.ended WHEN m.seq IS NOT NULL THEN d.version
        END AS ended
    FROM @placements AS p JOIN lives d USING (shard, seq) LEFT JOIN moved m USING (shard, seq)
    WHERE p.counted
), moves AS (
    SELECT node, signature, version, seq, shard, 1 AS change, pod_uid, recorded_at,
        outcome = 'bound' AS is_decided
    FROM placed WHERE version IS NOT NULL OR NOT adopted
    UNION ALL
    SELECT node, signature, CASE WHEN is_open THEN {_LAST_VERSION} ELSE ended END, coalesce(end_seq, seq),
        end_shard, 1, pod_uid, NULL, false
    FROM placed WHERE version IS NULL AND adopted
    UNION ALL
    SELECT node, signature, ended, end_seq, end_shard, -1, pod_uid, NULL, false
    FROM placed WHERE NOT is_open
    UNION ALL
    SELECT d.node, d.signature, d.version, d.seq, d.shard, -1, d.pod_uid, NULL, false
    FROM lives d
    WHERE d.before IS NULL AND d.outcome IN ('released', 'bind-failed') AND d.node IS NOT NULL
        AND NOT EXISTS (SELECT FROM moved m WHERE (m.end_shard, m.end_seq) = (d.shard, d.seq))
    UNION ALL
    SELECT e.node, e.signature, CASE WHEN e.node = d.node THEN d.version END, d.seq, d.shard, -1, d.pod_uid,
        NULL, false
    FROM lives d CROSS JOIN LATERAL (
        SELECT p.node, p.signature FROM decisions e JOIN placements p USING (shard, seq)
        JOIN @spans AS s ON s.shard = e.shard AND e.seq < s.lo
        WHERE (e.namespace, e.name) = (d.namespace, d.name) AND e.pod_uid = d.pod_uid
            AND p.released_recorded_at = d.recorded_at AND coalesce(p.home, p.shard) = d.shard
            AND p.counted
        LIMIT 1
    ) AS e
    WHERE d.before IS NULL AND d.outcome IN ('adopted', 'resized')
        AND EXISTS (SELECT FROM @spans AS s WHERE s.first < s.lo)
), ordered AS (
    SELECT node, signature, seq, shard, change, pod_uid, recorded_at, is_decided,
        coalesce(version, max(version) OVER (PARTITION BY node, shard ORDER BY seq)) AS version
    FROM moves
), amounts AS MATERIALIZED (
    SELECT t.signature, r.key AS resource, r.value::bigint AS amount
    FROM templates t
    CROSS JOIN LATERAL jsonb_each_text((t.spec->'requests')::jsonb || '{{"pods": 1}}') AS r
    WHERE t.signature IN (SELECT signature FROM moves) AND r.value::bigint > 0
), ended AS (
    SELECT e.node, a.resource, sum(e.pods * a.amount) AS amount
    FROM (SELECT node, signature, count(*) AS pods FROM moves WHERE change < 0 GROUP BY node, signature) AS e
    JOIN amounts a USING (signature) GROUP BY e.node, a.resource
), suspects AS MATERIALIZED (
    SELECT n.id, n.name AS node, r.name AS resource, v.requested
    FROM nodes n
    CROSS JOIN LATERAL unnest(n.requested) WITH ORDINALITY AS v (requested, id)
    JOIN resources r ON r.id = v.id
    LEFT JOIN ended e ON e.node = n.name AND e.resource = r.name
    WHERE v.requested + coalesce(e.amount, 0) > (
        SELECT min(CASE WHEN h.deleted THEN 0 ELSE {_OFFERS.format(name="r.name")} END)
        FROM node_specs h WHERE h.node_id = n.id
    )
), looked_at AS MATERIALIZED (
    SELECT * FROM ordered WHERE node IN (SELECT node FROM suspects)
), sums AS (
    SELECT o.*, n.id, n.resource, n.requested - coalesce(sum(o.change * a.amount) OVER (
        PARTITION BY n.id, n.resource ORDER BY o.version NULLS FIRST, o.seq, o.change, o.shard
        ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
    ), 0) AS held
    FROM looked_at o JOIN suspects n USING (node) JOIN amounts a USING (signature, resource)
)
SELECT s.node, s.resource, s.held, offered.amount AS allocatable, s.pod_uid, s.shard, s.seq
FROM sums s
CROSS JOIN LATERAL (
    SELECT CASE WHEN h.deleted THEN 0 ELSE {_OFFERS.format(name="s.resource")} END AS amount
    FROM node_specs h
    WHERE h.node_id = s.id AND (h.version <= s.version OR h.recorded_at = s.recorded_at)
    ORDER BY h.version DESC LIMIT 1
) AS offered
WHERE s.is_decided AND s.held > offered.amount
"""


# Two writers that both saw a version would both lead to the next one. What pods did on a node before the
# ledger knew it is not of its versions, and a node's first specs may be gone: so only what is younger.
# A pod may be adopted on a node that the ledger has and its worker has not heard of yet: it tells no version.
VERSIONS = f"""
WITH told AS (
    SELECT d.shard, d.seq, d.node, d.outcome, d.recorded_at, {VERSION} AS version
    FROM @decisions AS d
    WHERE outcome IN ('bound', 'adopted', 'resized', 'released', 'bind-failed') AND node IS NOT NULL
), begun AS (
    SELECT n.id, n.name AS node, n.version AS now, (
        SELECT h.recorded_at FROM node_specs h WHERE h.node_id = n.id ORDER BY h.version LIMIT 1
    ) AS at
    FROM nodes n
), chain AS (
    SELECT t.*, b.now, lag(version) OVER node AS version_before, lag(shard) OVER node AS shard_before,
        lag(seq) OVER node AS seq_before
    FROM told t JOIN begun b USING (node)
    WHERE t.recorded_at > b.at AND (version IS NOT NULL OR outcome = 'bound')
    WINDOW node AS (PARTITION BY b.id ORDER BY version)
)
SELECT node, shard, seq, version, now, version_before, shard_before, seq_before
FROM chain WHERE version IS NULL OR version > now OR version = version_before
    OR (shard = shard_before AND seq < seq_before)
"""
