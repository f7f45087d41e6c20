"""The invariants of the ledger that SQL alone can check: each a named query for the rows that break it."""

from __future__ import annotations

from typing import NamedTuple

from domain.model.limits import batch_decisions_max, poll_records_max
from services.adapters.postgres.invariants_inbox import INBOX
from services.adapters.postgres.invariants_journal import JOURNAL
from services.adapters.postgres.invariants_nodes import DEVICES, OVERCOMMITTED, VERSIONS
from services.adapters.postgres.invariants_pods import LIVING_TWICE
from services.adapters.postgres.invariants_preemption import PREEMPTION

_BATCH_DECISIONS_MAX = 2 * (batch_decisions_max + poll_records_max)


class Invariant(NamedTuple):
    """A rule, and the query for the rows that break it. A ``warning`` may have a cause outside of berth."""

    name: str
    says: str
    query: str
    warning: bool = False


# What each open placement holds of its node: its requests, one of ``pods``, and what it takes of its
# devices.
_HELD = """
    SELECT o.node, r.key AS resource, sum(o.pods * r.value::bigint)::bigint AS held
    FROM (
        SELECT node, signature, count(*) AS pods FROM placements
        WHERE released_at_ms IS NULL AND counted GROUP BY node, signature
    ) AS o
    JOIN templates t USING (signature)
    CROSS JOIN LATERAL jsonb_each_text((t.spec->'requests')::jsonb || '{"pods": 1}') AS r
    GROUP BY o.node, r.key
    UNION ALL
    SELECT d.node, d.resource, sum(d.milli)::bigint FROM ({devices}) AS d GROUP BY d.node, d.resource
""".replace("{devices}", DEVICES)

_VECTORS = """
    SELECT n.name AS node, r.name AS resource, v.requested, CASE
            WHEN r.name LIKE 'nvidia.com/gpu#%' THEN 1000
            WHEN r.name = 'berth.dev/gpu-milli' AND coalesce(n.allocatable[r.id], 0) = 0
                THEN 1000 * coalesce(n.allocatable[g.id], 0)
            ELSE coalesce(n.allocatable[r.id], 0)
        END AS allocatable
    FROM nodes n
    CROSS JOIN LATERAL unnest(n.requested) WITH ORDINALITY AS v (requested, id)
    JOIN resources r ON r.id = v.id
    LEFT JOIN resources g ON g.name = 'nvidia.com/gpu'
    WHERE v.requested > 0 AND NOT n.deleted
"""

INVARIANTS: tuple[Invariant, ...] = (
    Invariant(
        "one-placement-per-pod",
        "no pod has two placements at the same time",
        # The decisions of a pod are one shard's, in the order of their seqs.
        """
        SELECT * FROM (
            SELECT pod_uid, shard, seq, node, released_at_ms, lead(bound_at_ms) OVER pod AS next_bound_at_ms
            FROM (
                SELECT pod_uid, shard, seq, node, released_at_ms, bound_at_ms FROM @placements AS p
                UNION ALL
                SELECT pod_uid, shard, seq, node, released_at_ms, bound_at_ms
                FROM placements p JOIN @spans AS s USING (shard)
                WHERE p.released_at_ms IS NULL AND p.seq < s.lo
            ) AS p WINDOW pod AS (PARTITION BY shard, pod_uid ORDER BY seq)
        ) AS spans
        WHERE next_bound_at_ms IS NOT NULL
            AND (released_at_ms IS NULL OR released_at_ms > next_bound_at_ms)
        """,
    ),
    Invariant(
        "released-after-bound",
        "no placement ends, in log time, before it began",
        """
        SELECT pod_uid, bound_at_ms, released_at_ms FROM @placements AS p WHERE released_at_ms < bound_at_ms
        """,
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
        OVERCOMMITTED,
    ),
    Invariant(
        "device-given-twice",
        "no device has more than 1000 thousandths taken by pods that berth placed there",
        f"""
        SELECT node, resource, sum(milli) AS taken FROM ({DEVICES}) AS d WHERE is_decided
        GROUP BY node, resource HAVING sum(milli) > 1000
        """,
    ),
    Invariant(
        "over-allocatable",
        "nodes hold no more than they offer; adopted or resized pods and shrunk nodes may bring it about",
        f"SELECT * FROM ({_VECTORS}) AS v WHERE requested > allocatable",
        warning=True,
    ),
    Invariant(
        "decisions-without-hole",
        "the decisions that a shard keeps are numbered up to seq_next - 1",
        """
        SELECT s.shard, s.lo AS first_expected, s.hi AS seq_next, count(d.seq) AS count, min(d.seq) AS first,
            max(d.seq) AS last
        FROM @spans AS s LEFT JOIN @decisions AS d USING (shard) GROUP BY s.shard, s.lo, s.hi
        HAVING count(d.seq) <> s.hi - s.lo OR min(d.seq) <> s.lo OR max(d.seq) <> s.hi - 1
        """,
    ),
    Invariant(
        "dead-letters-without-hole",
        "a shard keeps its dead letters from the last that the relay has published up to dead_seq_next - 1",
        """
        SELECT s.shard, s.dead_seq_next, r.dead_letters_seq, count(x.seq) AS count, max(x.seq) AS last
        FROM shards s LEFT JOIN relay_cursor r USING (shard)
        LEFT JOIN dead_letters x ON x.shard = s.shard AND x.seq >= coalesce(r.dead_letters_seq, 0)
        GROUP BY s.shard, s.dead_seq_next, r.dead_letters_seq
        HAVING count(x.seq) <> s.dead_seq_next - greatest(coalesce(r.dead_letters_seq, 0), 1)
            OR coalesce(max(x.seq), 0) <> s.dead_seq_next - 1
        """,
    ),
    Invariant(
        "scales-without-hole",
        "scales are kept from the last published one up to the newest, and all that is said has one",
        """
        SELECT r.scales_seq, count(x.seq) AS count, max(x.seq) AS last,
            (SELECT max(seq) FROM hosted_replicas) AS said
        FROM relay_cursor r LEFT JOIN scales x ON x.seq >= r.scales_seq
        WHERE r.shard = 0 GROUP BY r.scales_seq
        HAVING count(x.seq) <> coalesce(max(x.seq) - greatest(r.scales_seq, 1) + 1, 0)
            OR coalesce((SELECT max(seq) FROM hosted_replicas), 0) > coalesce(max(x.seq), 0)
            OR r.scales_seq > coalesce(max(x.seq), 0)
        """,
    ),
    Invariant(
        "placement-has-decision",
        "every placement was opened by the decision with its number",
        """
        SELECT p.shard, p.seq, p.pod_uid, p.node, p.adopted, d.outcome, d.node AS decided_node
        FROM @placements AS p LEFT JOIN @decisions AS d USING (shard, seq)
        WHERE (d.pod_uid, d.node) IS DISTINCT FROM (p.pod_uid, p.node)
            OR d.outcome NOT IN ('bound', 'adopted', 'resized')
            OR (d.outcome <> 'resized' AND (d.outcome = 'adopted') <> p.adopted)
        """,
    ),
    # Of a pod that was placed and left in one batch no placement was ever written.
    Invariant(
        "decision-has-placement",
        "every decision that places a pod opened a placement",
        f"""
        SELECT d.shard, d.seq, d.pod_uid, d.outcome, d.node
        FROM @decisions AS d LEFT JOIN @placements AS p USING (shard, seq)
        WHERE d.outcome IN ('bound', 'adopted', 'resized') AND p.seq IS NULL AND NOT EXISTS (
            SELECT FROM decisions e
            WHERE e.shard = d.shard AND e.seq > d.seq AND e.seq <= d.seq + {_BATCH_DECISIONS_MAX}
                AND e.pod_uid = d.pod_uid AND e.recorded_at = d.recorded_at
                AND e.outcome IN ('adopted', 'resized', 'released')
        )
        """,
    ),
    Invariant(
        "released-is-over",
        "a pod that was released, or could not be bound, has no open placement from before",
        """
        SELECT d.shard, d.seq, d.pod_uid, p.node, p.seq AS placed_seq
        FROM @decisions AS d JOIN placements p
            ON coalesce(p.home, p.shard) = d.shard AND p.pod_uid = d.pod_uid AND p.released_at_ms IS NULL
                AND (p.shard <> d.shard OR p.seq < d.seq)
        WHERE d.outcome IN ('released', 'bind-failed')
        """,
    ),
    Invariant(
        "placed-or-pending",
        "no pod is placed and waits at the same time",
        """
        SELECT p.pod_uid, p.node, w.shard, w.arrival
        FROM placements p JOIN pending w ON w.pod_uid = p.pod_uid AND w.shard = coalesce(p.home, p.shard)
        WHERE p.released_at_ms IS NULL
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
            FROM (
                SELECT shard, seq, epoch FROM @decisions AS d
                UNION ALL
                SELECT d.shard, d.seq, d.epoch
                FROM decisions d JOIN @spans AS s ON d.shard = s.shard AND d.seq = s.lo - 1
            ) AS d
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
        "decided-versions-chain",
        "no two decisions led to one version of a node, and each shard's versions of it grow",
        VERSIONS,
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
        FROM @cycles AS c CROSS JOIN LATERAL (
            SELECT profile, profile_revision
            FROM json_to_record(c.doc::json) AS one (profile text, profile_revision bigint)
            UNION ALL SELECT by->>0, (by->>1)::bigint FROM jsonb_array_elements(c.revisions) AS by
        ) AS d
        WHERE d.profile_revision > 1 AND NOT EXISTS (
            SELECT FROM profiles p
            WHERE p.name = d.profile AND p.revision = d.profile_revision AND p.spec IS NOT NULL
        )
        """,
    ),
    *(Invariant(*each) for each in (*LIVING_TWICE, *JOURNAL, *INBOX, *PREEMPTION)),
)
"""``@decisions``, ``@placements``, ``@cycles`` and ``@journal`` stand for the rows that an audit looks at,
``@chain`` for those of the journal and the one before them. ``@spans`` are the shards with the first seq that
is kept, the first of the audit and the next after it; ``@batches`` the first and last batch of each journal.
"""


def unconfirmed(seconds: int) -> Invariant:
    """Return the rule that something is heard of a placed pod in time. It is asked on request alone.

    A newer version of the pod or its start says that a runner of pods took note of the decision.
    """
    return Invariant(
        "unconfirmed",
        f"of each pod that berth placed something was heard within {seconds} s",
        f"""
        SELECT p.shard, p.seq, p.pod_uid, p.namespace, p.name, p.node, p.recorded_at
        FROM placements p JOIN decisions d USING (shard, seq)
        WHERE p.released_at_ms IS NULL AND d.outcome = 'bound'
            AND p.recorded_at < now() - interval '{seconds} s'
            AND p.resource_version::text IS NOT DISTINCT FROM
                convert_from(d.payload, 'UTF8')::json->'pod'->>'resource_version'
            AND coalesce(p.life::json->>'start_time', '') = ''
        ORDER BY p.recorded_at
        """,
        warning=True,
    )
