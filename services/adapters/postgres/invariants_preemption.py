"""The invariants of preemption: name, what it says, and the query for the rows that break it."""

from __future__ import annotations

# What a decision's record says of preemption. Few decisions have it, so that the record may be read as JSON.
_TOLD = "(convert_from(d.payload, 'UTF8')::json->'preemption'->>'{key}')"
_NOMINATED = _TOLD.format(key="nominated")
_PREEMPTOR = _TOLD.format(key="preemptor")
_MIGRATION = "(convert_from(d.payload, 'UTF8')::json->'migration')"

PREEMPTION = (
    (
        "evicted-for-a-nomination",
        "a pod that was evicted for another has to leave the node that the same transaction nominated for it",
        f"""
        SELECT d.shard, d.seq, d.pod_uid, d.node, {_NOMINATED} AS nominated, {_PREEMPTOR} AS preemptor
        FROM @decisions AS d WHERE d.outcome = 'evicted' AND {_MIGRATION} IS NULL AND NOT EXISTS (
            SELECT FROM decisions n
            WHERE n.shard = d.shard AND n.seq = split_part({_NOMINATED}, '-', 2)::bigint
                AND n.outcome = 'nominated' AND n.node = d.node AND n.pod_uid = {_PREEMPTOR}
                AND n.recorded_at = d.recorded_at
        )
        """,
    ),
    # A nominated pod waits for its node alone: whatever is decided of it next ends the nomination.
    (
        "nominations-end",
        "a pod with a nominated node was bound or lost the nomination next, or has it still",
        """
        SELECT d.shard, d.seq, d.pod_uid, d.node, e.outcome AS next_outcome
        FROM @decisions AS d LEFT JOIN LATERAL (
            SELECT e.outcome FROM decisions e
            WHERE (e.namespace, e.name) = (d.namespace, d.name) AND e.pod_uid = d.pod_uid
                AND CASE WHEN e.shard = d.shard THEN e.seq > d.seq ELSE e.recorded_at > d.recorded_at END
            ORDER BY e.recorded_at, e.seq LIMIT 1
        ) AS e ON true
        WHERE d.outcome = 'nominated' AND CASE
            WHEN e.outcome IS NULL THEN NOT EXISTS (
                SELECT FROM nominations n WHERE n.pod_uid = d.pod_uid AND n.node = d.node
            )
            ELSE e.outcome NOT IN ('bound', 'cleared', 'conflict')
        END
        """,
    ),
    (
        "nominated-pods-wait",
        "a pod with a nominated node waits",
        """
        SELECT n.pod_uid, n.shard, n.node FROM nominations n
        WHERE NOT EXISTS (SELECT FROM pending p WHERE (p.pod_uid, p.shard) = (n.pod_uid, n.shard))
        """,
    ),
    (
        "evictions-are-open",
        "a pod that has to leave runs on the node that is nominated for its preemptor",
        """
        SELECT e.victim_uid, e.victim_shard, e.preemptor_uid, n.node, p.node AS runs_on
        FROM evictions e
        LEFT JOIN nominations n ON (n.pod_uid, n.shard) = (e.preemptor_uid, e.preemptor_shard)
        LEFT JOIN placements p ON p.pod_uid = e.victim_uid AND coalesce(p.home, p.shard) = e.victim_shard
            AND p.released_at_ms IS NULL
        WHERE n.node IS NULL OR p.node IS DISTINCT FROM n.node
        """,
    ),
    (
        "moved-from-its-node",
        "a pod that has to leave a hot node counted there when that was decided",
        f"""
        SELECT d.shard, d.seq, d.pod_uid, d.node, {_MIGRATION}->>'from' AS hot_node
        FROM @decisions AS d WHERE d.outcome = 'evicted' AND {_MIGRATION} IS NOT NULL AND (
            {_MIGRATION}->>'from' IS DISTINCT FROM d.node OR NOT EXISTS (
                SELECT FROM placements p WHERE p.pod_uid = d.pod_uid AND p.node = d.node
                    AND p.recorded_at <= d.recorded_at
                    AND (p.released_recorded_at IS NULL OR p.released_recorded_at >= d.recorded_at)
            )
        )
        """,
    ),
    (
        "moves-are-open",
        "a pod that has to leave a hot node runs there, and no other pod is to have its room",
        """
        SELECT m.pod_uid, m.shard, m.node, p.node AS runs_on, e.preemptor_uid
        FROM moves m
        LEFT JOIN placements p ON p.pod_uid = m.pod_uid AND coalesce(p.home, p.shard) = m.shard
            AND p.released_at_ms IS NULL
        LEFT JOIN evictions e ON e.victim_uid = m.pod_uid AND e.victim_shard = m.shard
        WHERE m.is_open AND (p.node IS DISTINCT FROM m.node OR e.victim_uid IS NOT NULL)
        """,
    ),
    # A worker that evicts a pod again has heard before that it was spared, or that it runs anew.
    (
        "evicted-once",
        "no pod is evicted twice for one placement, unless spared between",
        """
        SELECT d.shard, d.seq, d.pod_uid, e.shard AS shard_before, e.seq AS seq_before
        FROM @decisions AS d JOIN decisions e
            ON (e.namespace, e.name) = (d.namespace, d.name) AND e.pod_uid = d.pod_uid
            AND e.outcome = 'evicted'
            AND CASE WHEN e.shard = d.shard THEN e.seq < d.seq ELSE e.recorded_at < d.recorded_at END
        WHERE d.outcome = 'evicted' AND NOT EXISTS (
            SELECT FROM decisions s
            WHERE (s.namespace, s.name) = (d.namespace, d.name) AND s.pod_uid = d.pod_uid
                AND s.outcome = 'spared'
                AND CASE WHEN s.shard = e.shard THEN s.seq > e.seq ELSE s.recorded_at >= e.recorded_at END
                AND CASE WHEN s.shard = d.shard THEN s.seq < d.seq ELSE s.recorded_at <= d.recorded_at END
        ) AND NOT EXISTS (
            SELECT FROM placements p WHERE p.pod_uid = d.pod_uid AND p.recorded_at > e.recorded_at
                AND p.recorded_at <= d.recorded_at
        )
        """,
    ),
)
