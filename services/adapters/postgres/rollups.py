"""The roll-up on Postgres: a cursor for each shard, moved in the transaction that counts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from services.adapters.postgres.connections import BULK, COMMON, Session
from services.adapters.postgres.engine import Engine, Pool
from services.ports.rollups import (
    OF,
    ROWS_MAX,
    STEP_MS,
    By,
    Figure,
    UsageFilter,
    UsagePoint,
    figures_of,
)
from services.ports.store import Rows

_CURSORS = "INSERT INTO rollup_cursors (shard) SELECT shard FROM shards ON CONFLICT DO NOTHING"
_SHARDS = "SELECT shard FROM rollup_cursors ORDER BY shard"
_LOCK = "SELECT seq FROM rollup_cursors WHERE shard = $1 FOR UPDATE SKIP LOCKED"
# In one order, so that no two shards' transactions wait for each other in a circle.
_COUNT = f"""
WITH slice AS MATERIALIZED (
    SELECT seq, decided_at_ms - decided_at_ms % {STEP_MS} AS step_ms, namespace, node, outcome
    FROM decisions WHERE shard = $1 AND seq > $2 ORDER BY seq LIMIT $3
), counted AS (
    INSERT INTO rollup_counts AS c (step_ms, kind, name, outcome, count)
    SELECT step_ms, kind, name, outcome, count(*) FROM (
        SELECT step_ms, 'namespace' AS kind, namespace AS name, outcome FROM slice
        UNION ALL SELECT step_ms, 'node', node, outcome FROM slice WHERE node IS NOT NULL
    ) AS decided GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
    ON CONFLICT (step_ms, kind, name, outcome) DO UPDATE SET count = c.count + excluded.count
), moved AS (
    UPDATE rollup_cursors SET seq = (SELECT max(seq) FROM slice)
    WHERE shard = $1 AND EXISTS (SELECT FROM slice)
)
SELECT count(*) FROM slice
"""
_STEP = f"""
INSERT INTO rollup_samples (step_ms, at_ms)
SELECT at_ms - at_ms % {STEP_MS}, at_ms
FROM (SELECT max(log_time_ms) AS at_ms FROM shards) AS s WHERE at_ms > 0
ON CONFLICT DO NOTHING RETURNING step_ms
"""
# Templates are read once for each group of equal pods of a namespace.
_OF_NAMESPACES = """
INSERT INTO rollup_gauges
    (step_ms, kind, name, pods, pending_pods, requested_cpu_milli, requested_memory_bytes)
SELECT $1::bigint, 'namespace', coalesce(o.name, w.name), coalesce(o.pods, 0), coalesce(w.pods, 0),
    coalesce(o.cpu, 0), coalesce(o.memory, 0)
FROM (
    SELECT g.namespace AS name, sum(g.pods) AS pods,
        sum(g.pods * coalesce((t.spec #>> '{requests,cpu}')::numeric, 0)) AS cpu,
        sum(g.pods * coalesce((t.spec #>> '{requests,memory}')::numeric, 0)) AS memory
    FROM (
        SELECT namespace, signature, count(*) AS pods FROM placements
        WHERE released_at_ms IS NULL GROUP BY 1, 2
    ) AS g LEFT JOIN templates t ON t.signature = g.signature GROUP BY 1
) AS o FULL JOIN (SELECT namespace AS name, count(*) AS pods FROM pending GROUP BY 1) AS w ON w.name = o.name
"""
# What was measured is as old as the step before, or it is not known any more. Percent are of the capacity.
_OF_NODES = f"""
INSERT INTO rollup_gauges (step_ms, kind, name, pods, requested_cpu_milli, requested_memory_bytes,
    allocatable_cpu_milli, allocatable_memory_bytes, measured_cpu_milli, measured_memory_bytes)
SELECT $1::bigint, 'node', n.name, coalesce(n.requested[r.pods], 0), coalesce(n.requested[r.cpu], 0),
    coalesce(n.requested[r.memory], 0),
    coalesce(n.allocatable[r.cpu], 0), coalesce(n.allocatable[r.memory], 0),
    round(coalesce((s.spec #>> '{{capacity,cpu}}')::numeric, n.allocatable[r.cpu])
        * (u.series #>> '{{cpu,percent,-1}}')::numeric / 100),
    round(coalesce((s.spec #>> '{{capacity,memory}}')::numeric, n.allocatable[r.memory])
        * (u.series #>> '{{memory,percent,-1}}')::numeric / 100)
FROM nodes n
CROSS JOIN (
    SELECT max(id) FILTER (WHERE name = 'cpu') AS cpu, max(id) FILTER (WHERE name = 'memory') AS memory,
        max(id) FILTER (WHERE name = 'pods') AS pods FROM resources
) AS r
LEFT JOIN node_specs s ON s.node_id = n.id AND s.version = n.spec_version
LEFT JOIN node_usage u ON u.node = n.name AND u.at_ms >= $1::bigint - {STEP_MS}
WHERE NOT n.deleted
"""


class PostgresRollups:
    """The ``Rollups`` port on Postgres, on one connection."""

    def __init__(self, dsn: str) -> None:
        self._session = Session(dsn, "berth-rollup", COMMON)
        self._sampling = Session(dsn, "berth-rollup", BULK)

    async def count(self, rows_max: int = ROWS_MAX) -> int:
        """See ``Rollups.count``."""
        async with self._session.use() as connection:
            await connection.execute(_CURSORS)
            shards = [row["shard"] for row in await connection.fetch(_SHARDS)]
        counted = 0
        for shard in shards:
            async with self._session.use() as connection, connection.transaction():
                seq = await connection.fetchval(_LOCK, shard)
                if seq is not None:  # the next statement sees what the one before us has left
                    counted += await connection.fetchval(_COUNT, shard, seq, rows_max)
        return counted

    async def sample(self) -> bool:
        """See ``Rollups.sample``."""
        async with self._sampling.use() as connection, connection.transaction():
            step_ms = await connection.fetchval(_STEP)
            if step_ms is None:
                return False
            await connection.execute(_OF_NAMESPACES, step_ms)
            await connection.execute(_OF_NODES, step_ms)
            return True

    async def aclose(self) -> None:
        """See ``Rollups.aclose``."""
        await self._session.aclose()
        await self._sampling.aclose()


_POINTS = """
WITH counts AS (
    SELECT at_ms, name, jsonb_object_agg(outcome, count) AS decisions FROM (
        SELECT {span} AS at_ms, {name} AS name, outcome, sum(count) AS count
        FROM rollup_counts WHERE {inside} AND {counted} GROUP BY 1, 2, 3
    ) AS c GROUP BY 1, 2
), gauges AS (
    SELECT {span} AS at_ms, {name} AS name, jsonb_build_object({sums}) AS figures
    FROM rollup_gauges WHERE {inside} AND {sampled} GROUP BY 1, 2
), samples AS (
    SELECT {span} AS at_ms, count(*) AS samples FROM rollup_samples WHERE {inside} GROUP BY 1
)
SELECT at_ms, name, coalesce(samples, 0) AS samples, figures, decisions
FROM counts FULL JOIN gauges USING (at_ms, name) LEFT JOIN samples USING (at_ms)
{after} ORDER BY at_ms, name COLLATE "C" LIMIT :limit
"""
_INSIDE = "step_ms >= :since AND step_ms < :until"
_SPAN = ":since + (step_ms - :since) / :span * :span"
_SEEN = "(:all OR name = ANY (:seen))"
_OF_NAMESPACE = f"kind = 'namespace' AND {_SEEN}"
_COUNTED: Mapping[By, str] = {
    By.NAMESPACE: _OF_NAMESPACE,
    By.NODE: "kind = 'node' AND :all",
    By.CLUSTER: _OF_NAMESPACE,
}
_SAMPLED: Mapping[By, str] = {
    By.NAMESPACE: _OF_NAMESPACE,
    By.NODE: "kind = 'node'",
    By.CLUSTER: f"(kind = 'node' OR ({_OF_NAMESPACE}))",
}


def _sums(by: By) -> str:
    """Return what adds up each figure, with the number of its rows. A cluster's are those of its nodes."""
    found = []
    for figure in OF[by]:
        of_nodes = by is By.CLUSTER and figure is not Figure.PENDING_PODS
        where = f"{figure} IS NOT NULL" + (" AND kind = 'node'" if of_nodes else "")
        rows = f"FILTER (WHERE {where})"
        found.append(f"'{figure}', jsonb_build_array(coalesce(sum({figure}) {rows}, 0), count(*) {rows})")
    return ", ".join(found)


class PostgresOverTime:
    """The ``OverTime`` port on Postgres."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def points(self, which: UsageFilter, limit: int, after: tuple[int, str] | None) -> Rows[UsagePoint]:
        """Add up along the primary keys."""
        statement = _POINTS.format(
            span=_SPAN,
            inside=_INSIDE,
            name="''" if which.by is By.CLUSTER else "name",
            counted=_COUNTED[which.by],
            sampled=_SAMPLED[which.by],
            sums=_sums(which.by),
            after="" if after is None else 'WHERE (at_ms, name COLLATE "C") > (:after_ms, :after_name)',
        )
        values = {
            "since": which.since_ms,
            "until": which.until_ms,
            "span": which.span_ms,
            "limit": limit + 1,
            **_seen(which.seen),
        }
        if after is not None:
            values |= {"after_ms": after[0], "after_name": after[1]}
        rows = await self._engine.rows(_bound(statement, values), Pool.LISTS)
        return Rows((_point(row, which.by) for row in rows[:limit]), more=len(rows) > limit)


def _seen(namespaces: Collection[str] | None) -> dict[str, Any]:
    return {"all": namespaces is None, "seen": sorted(namespaces or ())}


_TYPES: Mapping[str, Any] = {"all": sa.Boolean, "seen": sa.ARRAY(sa.Text), "after_name": sa.Text}


def _bound(statement: str, values: Mapping[str, Any]) -> sa.TextClause:
    used = {name: value for name, value in values.items() if f":{name}" in statement}
    kinds: list[Any] = [
        sa.bindparam(name, value, _TYPES.get(name, sa.BigInteger)) for name, value in used.items()
    ]
    return sa.text(statement).bindparams(*kinds)


def _point(row: sa.Row[Any], by: By) -> UsagePoint:
    sums = {figure: (int(amount), int(count)) for figure, (amount, count) in (row.figures or {}).items()}
    decisions = {outcome: int(count) for outcome, count in sorted((row.decisions or {}).items())}
    return UsagePoint(row.at_ms, row.name, row.samples, figures_of(by, sums, row.samples), decisions)
