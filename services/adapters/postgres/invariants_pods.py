"""The invariants of live pods: no uid in two shards, and no name twice.

Both are warnings: a producer that chooses partitions itself, or gives one uid to two pods, brings it about.
"""

from __future__ import annotations

_LIVE = """(
    SELECT namespace, name, pod_uid, coalesce(home, shard) AS shard
    FROM placements WHERE released_at_ms IS NULL
    UNION ALL SELECT namespace, name, pod_uid, shard FROM pending
)"""
LIVING_TWICE = (
    (
        "uid-in-one-shard",
        "no pod lives in two shards; producers that give one uid to two pods may bring it about",
        """
        SELECT pod_uid, array_agg(shard ORDER BY shard) AS shards FROM (
            SELECT pod_uid, coalesce(home, shard) AS shard FROM placements WHERE released_at_ms IS NULL
            UNION ALL SELECT pod_uid, shard FROM pending
        ) AS live GROUP BY pod_uid HAVING min(shard) <> max(shard)
        """,
        True,
    ),
    (
        "one-pod-per-name",
        "no two pods that live have one name; producers that choose partitions may bring it about",
        # Names are counted first, which takes half the time: hardly any comes twice.
        f"""
        SELECT namespace, name, array_agg(pod_uid ORDER BY shard, pod_uid) AS uids,
            array_agg(shard ORDER BY shard, pod_uid) AS shards
        FROM {_LIVE} AS live WHERE (namespace, name) IN (
            SELECT namespace, name FROM {_LIVE} AS counted GROUP BY namespace, name HAVING count(*) > 1
        ) GROUP BY namespace, name HAVING min(pod_uid) <> max(pod_uid)
        """,
        True,
    ),
)
