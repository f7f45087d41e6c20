"""The invariants of the ledger that SQL alone can check: each a named query for the rows that break it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from services.adapters.postgres.connections import BULK, fresh
from services.adapters.postgres.invariants_journal import JOURNAL

ROWS_MAX = 100


class Invariant(NamedTuple):
    """A rule, and the query for the rows that break it. A ``warning`` may have a cause outside of berth."""

    name: str
    says: str
    query: str
    warning: bool = False


class Violation(NamedTuple):
    """An invariant that does not hold, with the first ``ROWS_MAX`` offending rows."""

    name: str
    says: str
    warning: bool
    rows: Sequence[Mapping[str, Any]]


# What each open placement holds of its node: its template's requests, and one of ``pods``.
_HELD = """
    SELECT o.node, r.key AS resource, sum(o.pods * r.value::bigint)::bigint AS held
    FROM (
        SELECT node, signature, count(*) AS pods FROM placements
        WHERE released_at_ms IS NULL GROUP BY node, signature
    ) AS o
    JOIN templates t USING (signature)
    CROSS JOIN LATERAL jsonb_each_text((t.spec->'requests')::jsonb || '{"pods": 1}') AS r
    GROUP BY o.node, r.key
"""

_VECTORS = """
    SELECT n.name AS node, r.name AS resource, v.requested, coalesce(n.allocatable[r.id], 0) AS allocatable
    FROM nodes n
    CROSS JOIN LATERAL unnest(n.requested) WITH ORDINALITY AS v (requested, id)
    JOIN resources r ON r.id = v.id
    WHERE v.requested > 0 AND NOT n.deleted
"""

# Replays opening and closing in the order of the node's versions, which are fenced. A transaction's time is
# when it began, so with several writers it says nothing of their order. A placement ends with its pod's next
# decision. Where that names another node, the end comes right behind what the same shard had decided on this
# one. Within a version, closing comes first. The sum after each placement that berth decided is compared with
# the spec that it saw: the last one up to its version, or the one of its own transaction, which was folded
# before. A pod that was resized where it runs was not placed by berth with that size.
_OVERCOMMITTED = """
WITH told AS MATERIALIZED (
    SELECT shard, seq, pod_uid, node, outcome, recorded_at,
        substring(encode(payload, 'escape') FROM '"node_version":(\\d+)')::bigint AS version
    FROM decisions WHERE outcome NOT IN ('orphaned', 'returned', 'unschedulable', 'unresolvable')
), lives AS (
    SELECT *, lead(seq) OVER pod AS end_seq, lead(node) OVER pod AS end_node, lead(version) OVER pod AS ended
    FROM told WINDOW pod AS (PARTITION BY shard, pod_uid ORDER BY seq)
), moves AS (
    SELECT p.node, p.signature, d.version, p.seq, p.shard, 1 AS change, p.pod_uid, d.recorded_at,
        d.outcome IN ('adopted', 'resized') AS is_given
    FROM placements p LEFT JOIN told d USING (shard, seq)
    UNION ALL
    SELECT p.node, p.signature, CASE WHEN d.end_node = p.node THEN d.ended ELSE (
            SELECT max(t.version) FROM told t
            WHERE t.node = p.node AND t.shard = p.shard AND t.seq < d.end_seq
        ) END, d.end_seq, p.shard, -1, p.pod_uid, NULL, true
    FROM placements p LEFT JOIN lives d USING (shard, seq) WHERE p.released_at_ms IS NOT NULL
), sums AS (
    SELECT m.*, r.key AS resource, sum(m.change * r.value::bigint) OVER (
        PARTITION BY m.node, r.key ORDER BY m.version NULLS FIRST, m.seq, m.change, m.shard
        ROWS UNBOUNDED PRECEDING
    ) AS held
    FROM moves m
    JOIN templates t USING (signature)
    CROSS JOIN LATERAL jsonb_each_text((t.spec->'requests')::jsonb || '{"pods": 1}') AS r
    WHERE r.value::bigint > 0
)
SELECT s.node, s.resource, s.held, offered.amount AS allocatable, s.pod_uid, s.shard, s.seq
FROM sums s
JOIN nodes n ON n.name = s.node
CROSS JOIN LATERAL (
    SELECT CASE WHEN h.deleted THEN 0 ELSE coalesce((h.spec->'allocatable'->>s.resource)::bigint, 0) END
        AS amount
    FROM node_specs h
    WHERE h.node_id = n.id AND (h.version <= s.version OR h.recorded_at = s.recorded_at)
    ORDER BY h.version DESC LIMIT 1
) AS offered
WHERE s.is_given IS NOT TRUE AND s.held > offered.amount
"""

INVARIANTS: tuple[Invariant, ...] = (
    Invariant(
        "one-placement-per-pod",
        "no pod has two placements at the same time",
        # The decisions of a pod are one shard's, in the order of their seqs.
        """
        SELECT * FROM (
            SELECT pod_uid, shard, seq, node, released_at_ms, lead(bound_at_ms) OVER pod AS next_bound_at_ms
            FROM placements WINDOW pod AS (PARTITION BY pod_uid ORDER BY shard, seq)
        ) AS spans
        WHERE next_bound_at_ms IS NOT NULL
            AND (released_at_ms IS NULL OR released_at_ms > next_bound_at_ms)
        """,
    ),
    Invariant(
        "released-after-bound",
        "no placement ends, in log time, before it began",
        "SELECT pod_uid, bound_at_ms, released_at_ms FROM placements WHERE released_at_ms < bound_at_ms",
    ),
    Invariant(
        "requested-is-the-sum",
        "what a node says is requested is the sum over its open placements",
        f"""
        WITH held AS ({_HELD}), told AS (
            SELECT n.name AS node, r.name AS resource, v.requested
            FROM nodes n
            CROSS JOIN LATERAL unnest(n.requested) WITH ORDINALITY AS v (requested, id)
            LEFT JOIN resources r ON r.id = v.id
        )
        SELECT node, resource, coalesce(held, 0) AS held, coalesce(requested, 0) AS requested
        FROM held FULL JOIN told USING (node, resource)
        WHERE coalesce(held, 0) <> coalesce(requested, 0) AND node IN (SELECT name FROM nodes)
        """,
    ),
    Invariant(
        "never-over-allocatable",
        "no placement that berth decided took its node over what it offered",
        _OVERCOMMITTED,
    ),
    Invariant(
        "over-allocatable",
        "nodes hold no more than they offer; adopted or resized pods and shrunk nodes may bring it about",
        f"SELECT * FROM ({_VECTORS}) AS v WHERE requested > allocatable",
        warning=True,
    ),
    Invariant(
        "decisions-without-hole",
        "the decisions of a shard are numbered from 1 to seq_next - 1",
        """
        SELECT s.shard, s.seq_next, count(d.seq) AS count, min(d.seq) AS first, max(d.seq) AS last
        FROM shards s LEFT JOIN decisions d USING (shard) GROUP BY s.shard, s.seq_next
        HAVING count(d.seq) <> s.seq_next - 1 OR min(d.seq) <> 1 OR max(d.seq) <> s.seq_next - 1
        """,
    ),
    Invariant(
        "dead-letters-without-hole",
        "the dead letters that a shard keeps are numbered up to dead_seq_next - 1",
        """
        SELECT s.shard, s.dead_seq_next, count(x.seq) AS count, min(x.seq) AS first, max(x.seq) AS last
        FROM shards s LEFT JOIN dead_letters x USING (shard) GROUP BY s.shard, s.dead_seq_next
        HAVING count(x.seq) <> max(x.seq) - min(x.seq) + 1 OR coalesce(max(x.seq), 0) <> s.dead_seq_next - 1
        """,
    ),
    Invariant(
        "placement-has-decision",
        "every placement was opened by the decision with its number",
        """
        SELECT p.shard, p.seq, p.pod_uid, p.node, p.adopted, d.outcome, d.node AS decided_node
        FROM placements p LEFT JOIN decisions d USING (shard, seq)
        WHERE (d.pod_uid, d.node) IS DISTINCT FROM (p.pod_uid, p.node)
            OR d.outcome NOT IN ('bound', 'adopted', 'resized')
            OR (d.outcome <> 'resized' AND (d.outcome = 'adopted') <> p.adopted)
        """,
    ),
    Invariant(
        "placed-or-pending",
        "no pod is placed and waits at the same time",
        """
        SELECT p.pod_uid, p.node, w.shard, w.arrival
        FROM placements p JOIN pending w USING (pod_uid) WHERE p.released_at_ms IS NULL
        """,
    ),
    Invariant(
        "groups-have-pods",
        "every pending group has a pod that waits",
        """
        SELECT g.shard, g.signature FROM pending_groups g
        WHERE NOT EXISTS (SELECT FROM pending p WHERE (p.shard, p.signature) = (g.shard, g.signature))
        """,
    ),
    Invariant(
        "templates-are-known",
        "every open placement and every pending pod has its template",
        """
        SELECT DISTINCT u.signature FROM (
            SELECT signature FROM placements WHERE released_at_ms IS NULL
            UNION ALL SELECT signature FROM pending
        ) AS u LEFT JOIN templates t USING (signature) WHERE t.signature IS NULL
        """,
    ),
    Invariant(
        "offsets-under-epoch",
        "no offset row is ahead of its shard's epoch",
        """
        SELECT o.shard, o.topic, o.partition, o.epoch, s.epoch AS shard_epoch
        FROM shard_offsets o LEFT JOIN shards s USING (shard) WHERE s.shard IS NULL OR o.epoch > s.epoch
        """,
    ),
    Invariant(
        "epochs-in-order",
        "a decision never carries an older epoch than the one before it, nor a newer one than its shard",
        """
        SELECT d.shard, d.seq, d.epoch, d.epoch_before, s.epoch AS shard_epoch
        FROM (
            SELECT shard, seq, epoch, lag(epoch) OVER (PARTITION BY shard ORDER BY seq) AS epoch_before
            FROM decisions
        ) AS d JOIN shards s USING (shard)
        WHERE d.epoch < d.epoch_before OR d.epoch > s.epoch
        """,
    ),
    Invariant(
        "published-was-committed",
        "the relay's cursors are not ahead of the ledger",
        """
        SELECT r.shard, r.decisions_seq, s.seq_next, r.dead_letters_seq, s.dead_seq_next
        FROM relay_cursor r LEFT JOIN shards s USING (shard)
        WHERE s.shard IS NULL OR r.decisions_seq >= s.seq_next OR r.dead_letters_seq >= s.dead_seq_next
        """,
    ),
    Invariant(
        "node-versions-chain",
        "a node's current spec is the last of its history, and none is newer than the node",
        """
        SELECT n.id, n.name, n.version, n.spec_version, h.last
        FROM nodes n FULL JOIN (
            SELECT node_id, max(version) AS last FROM node_specs GROUP BY node_id
        ) AS h ON h.node_id = n.id
        WHERE h.last IS DISTINCT FROM n.spec_version OR h.last > n.version
        """,
    ),
    Invariant(
        "allocatable-is-the-spec",
        "what a node offers, and whether it is gone, is as in its current spec",
        """
        SELECT n.id, n.name, n.deleted, h.deleted AS spec_deleted, r.name AS resource
        FROM nodes n
        JOIN node_specs h ON h.node_id = n.id AND h.version = n.spec_version
        CROSS JOIN resources r
        WHERE n.deleted <> h.deleted
            OR coalesce(n.allocatable[r.id], 0) <> coalesce((h.spec->'allocatable'->>r.name)::bigint, 0)
        """,
    ),
    Invariant(
        "profile-revisions-chain",
        "the revisions of a profile have no hole",
        """
        SELECT name, min(revision) AS first, max(revision) AS last, count(*) AS revisions
        FROM profiles GROUP BY name HAVING count(*) <> max(revision) - min(revision) + 1
        """,
    ),
    Invariant(
        "cycles-by-a-known-revision",
        "a cycle names a revision that an event brought, or the first one",
        """
        SELECT c.shard, c.seq, d.profile, d.profile_revision
        FROM cycles c, json_to_record(c.doc::json) AS d (profile text, profile_revision bigint)
        WHERE d.profile_revision > 1 AND NOT EXISTS (
            SELECT FROM profiles p
            WHERE p.name = d.profile AND p.revision = d.profile_revision AND p.spec IS NOT NULL
        )
        """,
    ),
    *(Invariant(*each) for each in JOURNAL),
)


async def check(dsn: str) -> list[Violation]:
    """Return the broken invariants of one snapshot of the ledger, warnings included.

    Raises
    ------
    Unavailable
        The server does not answer.
    """
    violations = []
    async with (
        fresh(dsn, "berth-invariants", BULK) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        for invariant in INVARIANTS:
            found = await connection.fetch(f"SELECT * FROM ({invariant.query}) AS broken LIMIT {ROWS_MAX}")
            if found:
                rows = [dict(row) for row in found]
                violations.append(Violation(invariant.name, invariant.says, invariant.warning, rows))
    return violations
