"""Brings what is open to the shard by whose partition its events come, once there are more shards.

Decisions stay in the shard that made them, and a placement stays beside its decision: ``placements.home``
names the shard that reads its pod's events now. What waits, and what is remembered as gone, has no such tie,
and moves.
"""

from __future__ import annotations

from typing import Any

from services.adapters.postgres.connections import BULK, Connection, fresh
from services.adapters.postgres.invariants_pods import LIVING_TWICE
from services.codec.partition import partition_for

_ROWS_PER_TURN = 10_000
_TOLD_MAX = 10

_HOMES = """
CREATE TEMP TABLE homes (namespace text, name text, shard int, source int, uid text) ON COMMIT DROP
"""
_NAMES = """
SELECT namespace, name, max(gang) AS gang, max(pod_uid) AS uid FROM (
    SELECT namespace, name, gang, pod_uid FROM placements WHERE released_at_ms IS NULL
    UNION ALL SELECT namespace, name, gang, pod_uid FROM pending
    UNION ALL SELECT namespace, name, NULL, NULL FROM pod_tombstones
) AS known GROUP BY namespace, name
"""
# A uid that two producers gave to two pods stays where it is: both rows might come to one shard.
_PLACEMENTS = """
UPDATE placements p SET home = h.shard FROM homes h
WHERE p.released_at_ms IS NULL AND (p.namespace, p.name) = (h.namespace, h.name)
    AND coalesce(p.home, p.shard) <> h.shard AND NOT EXISTS (
        SELECT FROM placements o
        WHERE o.pod_uid = p.pod_uid AND o.released_at_ms IS NULL AND (o.shard, o.seq) <> (p.shard, p.seq)
    )
"""
_PENDING = """
UPDATE pending w SET shard = h.shard FROM homes h
WHERE (w.namespace, w.name) = (h.namespace, h.name) AND w.shard <> h.shard
    AND NOT EXISTS (SELECT FROM pending o WHERE o.pod_uid = w.pod_uid AND o.shard <> w.shard)
"""
# The cycle that explains a wait is in the shard before; the next attempt brings another.
_GROUPS = """
INSERT INTO pending_groups (shard, signature, reasons, unresolvable, cycle_seq, at_ms)
SELECT DISTINCT ON (w.shard, w.signature) w.shard, w.signature, g.reasons, g.unresolvable, 0, g.at_ms
FROM pending w JOIN pending_groups g USING (signature)
ORDER BY w.shard, w.signature, g.at_ms DESC
ON CONFLICT DO NOTHING
"""
_EMPTY_GROUPS = """
DELETE FROM pending_groups g
WHERE NOT EXISTS (SELECT FROM pending w WHERE (w.shard, w.signature) = (g.shard, g.signature))
"""
# A worker that reads a late duplicate knows by its tombstone not to hand it over.
_TOMBSTONES = """
UPDATE pod_tombstones t SET shard = h.source FROM homes h
WHERE (t.namespace, t.name) = (h.namespace, h.name) AND t.shard <> h.source
"""
_NOMINATIONS = """
UPDATE nominations n SET shard = h.shard FROM homes h
WHERE (n.namespace, n.name) = (h.namespace, h.name) AND n.shard <> h.shard
"""
_VICTIMS = """
UPDATE evictions e SET victim_shard = h.shard FROM homes h
WHERE (e.namespace, e.name) = (h.namespace, h.name) AND e.victim_shard <> h.shard
"""
_PREEMPTORS = """
UPDATE evictions e SET preemptor_shard = n.shard FROM nominations n
WHERE e.preemptor_uid = n.pod_uid AND e.preemptor_shard <> n.shard
"""
_MOVES = """
UPDATE moves m SET shard = h.shard FROM homes h
WHERE (m.namespace, m.name) = (h.namespace, h.name) AND m.shard <> h.shard
"""
_MOVED = "UPDATE shard_offsets SET moved_below = next_offset WHERE topic = 'berth.pods'"
# A pod of a gang comes to the gang's home, also one that was not there: nothing is under way.
_FORGET_FORWARDED = "DELETE FROM forwarded"
_FORWARD = """
INSERT INTO forwarded (shard, key, home, uid)
SELECT source, namespace || '/' || name, shard, uid FROM homes WHERE shard <> source
"""
_STATEMENTS = (
    *(_PLACEMENTS, _PENDING, _GROUPS, _EMPTY_GROUPS, _TOMBSTONES),
    *(_NOMINATIONS, _VICTIMS, _PREEMPTORS, _MOVES, _MOVED, _FORGET_FORWARDED, _FORWARD),
)


async def rehome(connection: Connection, shards: int) -> None:
    """Bring all that is open to the shard of its key, of so many. The caller holds all shards.

    Cost: about 10 µs for each pod.
    """
    await connection.execute(_HOMES)
    cursor = await connection.cursor(_NAMES)
    while found := await cursor.fetch(_ROWS_PER_TURN):
        homes = [_home(row, shards) for row in found]
        await connection.copy_records_to_table("homes", records=homes)
    await connection.execute("ANALYZE homes")
    for statement in _STATEMENTS:
        await connection.execute(statement)


async def living_twice(dsn: str) -> list[str]:
    """Return lines that name pods which live twice; none where there are none. Their owner is unknown.

    A uid in two shards stayed where it was. Pods of one name came to one shard, which knows one of them.
    """
    lines = []
    async with fresh(dsn, "berth-init", BULK) as connection:
        for _, _, query, _ in LIVING_TWICE:
            found = await connection.fetch(f"SELECT * FROM ({query}) AS twice LIMIT {_TOLD_MAX + 1}")
            lines += [_told(row) for row in found[:_TOLD_MAX]] + ["  and more"] * (len(found) > _TOLD_MAX)
    head = "pods that live twice, as `berth audit` warns; mend their producer, and send them again:"
    return [head, *lines] if lines else []


def _told(row: Any) -> str:
    pod = row["pod_uid"] if "pod_uid" in row else f"{row['namespace']}/{row['name']}"
    first, *others = map(str, sorted(set(row["shards"])))
    where = f"in shards {first} and {', '.join(others)}" if others else f"twice in shard {first}"
    return f"  {pod} {where}"


def _home(row: Any, shards: int) -> tuple[str, str, int, int, str | None]:
    """Return whose a pod is, with the shard that reads its events."""
    namespace, name, gang, uid = row
    source = home = partition_for(_key(namespace, name), None, shards)
    if gang and uid:
        home = partition_for(f"{namespace}/{gang}".encode(), None, shards)
    return namespace, name, home, source, uid


def _key(namespace: str, name: str) -> bytes:
    """Return the key of an object's events. A node, too, is remembered; it has no namespace."""
    return (f"{namespace}/{name}" if namespace else name).encode()
