"""Finds moments of the past, and what differs between two (``migrations/versions/0050_past.py``)."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from domain.model.nodes import NodeSpec
from services.adapters.postgres import schema as t
from services.adapters.postgres.engine import Engine, Pool
from services.adapters.postgres.selects import within
from services.ports.past import (
    CHANGES_MAX,
    BatchId,
    Changes,
    Moment,
    NodeChange,
    OutOfReach,
    PodChange,
    Totals,
)

_MOMENT = """
WITH at AS MATERIALIZED (SELECT ({position}) AS position)
SELECT at.position, past.reach() AS reach, cut.batch, cut.log_time_ms, cut.seq
FROM at CROSS JOIN LATERAL past.cut(at.position) AS cut WHERE at.position IS NOT NULL ORDER BY cut.shard
"""
_AT_TIME = _MOMENT.format(position="past.position_at(:at_ms)")
_AT_BATCH = _MOMENT.format(position="SELECT position FROM journal WHERE shard = :shard AND batch = :batch")
_REACHED = "SELECT log_time_ms FROM journal WHERE position > :position ORDER BY position LIMIT 1"
_JOURNAL = "SELECT min(batch) AS first, max(batch) AS last FROM journal WHERE shard = :shard"

_CUTS = """
cuts AS MATERIALIZED (
    SELECT (at - 1)::int AS shard, b1, b2, q1, q2
    FROM unnest(CAST(:b1 AS bigint[]), CAST(:b2 AS bigint[]), CAST(:q1 AS bigint[]), CAST(:q2 AS bigint[]))
        WITH ORDINALITY AS u (b1, b2, q1, q2, at)
)"""


def _began(by: str, batch: str, at: str) -> str:
    return f"({batch} IS NULL OR {batch} <= (CAST(:{at} AS bigint[]))[{by} + 1])"


def _lasts(by: str, batch: str, at: str) -> str:
    return f"({batch} IS NULL OR {batch} > (CAST(:{at} AS bigint[]))[{by} + 1])"


def _held(table: str, begin: str, end: str, at: str) -> str:
    """Say that a fact of a row held at a moment; ``begin`` and ``end`` are how its columns begin."""
    began = _began(f"{table}.{begin}_by", f"{table}.{begin}_batch", at)
    return f"({began} AND {_lasts(f'{table}.{end}_by', f'{table}.{end}_batch', at)})"


_PLACED = "p.shard, p.seq, p.pod_uid, p.namespace, p.name, p.node"
_OF_PLACED = f"{_PLACED}, p.opened_by, p.opened_batch, p.closed_by, p.closed_batch"
_WAITED = "w.pod_uid, w.namespace, w.name, w.added_by, w.added_batch"
# What was open at one of the moments, and not at both: what was there and closed between them, and what
# opened between them and was still there. Of what opened between them either all is read, or, where that is
# much, what was open at the second moment.
_CLOSED = f"""
    SELECT {_OF_PLACED}
    FROM past.closed_between(CAST(:b1 AS bigint[]), CAST(:q1 AS bigint[]), CAST(:b2 AS bigint[])) p"""
_OPENED = f"""
    SELECT {_OF_PLACED} FROM cuts CROSS JOIN LATERAL (
        SELECT * FROM public.placements c WHERE c.shard = cuts.shard AND c.seq >= cuts.q1 AND c.seq < cuts.q2
            AND (c.released_at_ms IS NULL OR c.closed_batch > (CAST(:b2 AS bigint[]))[c.closed_by + 1])
        OFFSET 0
    ) p"""
_OPENED_OF_MANY = f"""
    SELECT {_OF_PLACED} FROM past.closed_between(CAST(:b2 AS bigint[]), CAST(:q2 AS bigint[]), NULL) p
    WHERE p.seq >= (CAST(:q1 AS bigint[]))[p.shard + 1]
    UNION ALL
    SELECT {_OF_PLACED} FROM public.placements p WHERE p.released_at_ms IS NULL
        AND p.seq >= (CAST(:q1 AS bigint[]))[p.shard + 1] AND p.seq < (CAST(:q2 AS bigint[]))[p.shard + 1]"""
_MANY = 200_000
"""Decisions between two moments, of which not all are read."""

_PODS = f"""
WITH {_CUTS}, touched AS ({_CLOSED} UNION ALL {{opened}}
), waits AS (
    SELECT {_WAITED}, NULL::int AS removed_by, NULL::bigint AS removed_batch FROM public.pending w
    UNION ALL SELECT {_WAITED}, w.removed_by, w.removed_batch FROM cuts JOIN public.past_pending w
        ON w.removed_by = cuts.shard AND w.removed_batch > cuts.b1
), evicted AS (
    SELECT DISTINCT d.pod_uid FROM cuts JOIN public.decisions d
        ON d.outcome = 'evicted' AND d.shard = cuts.shard AND d.seq >= cuts.q1 AND d.seq < cuts.q2
), states AS (
    SELECT p.pod_uid, p.namespace, p.name, p.node, {_held("p", "opened", "closed", "b1")} AS before,
        {_held("p", "opened", "closed", "b2")} AS after FROM touched p
    UNION ALL
    SELECT w.pod_uid, w.namespace, w.name, NULL, {_held("w", "added", "removed", "b1")},
        {_held("w", "added", "removed", "b2")} FROM waits w
), pods AS (
    SELECT pod_uid, namespace, name, max(node) FILTER (WHERE before) AS node_before,
        max(node) FILTER (WHERE after) AS node_after,
        coalesce(bool_or(before) FILTER (WHERE node IS NULL), false) AS waited_before,
        coalesce(bool_or(after) FILTER (WHERE node IS NULL), false) AS waits_after
    FROM states WHERE (before OR after) AND (CAST(:seen AS text[]) IS NULL OR namespace = ANY(:seen))
    GROUP BY pod_uid, namespace, name
)
SELECT *, pod_uid IN (SELECT pod_uid FROM evicted) AS evicted FROM pods
WHERE node_before IS DISTINCT FROM node_after OR waited_before <> waits_after
ORDER BY pod_uid LIMIT {CHANGES_MAX + 1}
"""


def _spec_at(at: str) -> str:
    return f"""LEFT JOIN LATERAL (
    SELECT h.version, CASE WHEN NOT h.deleted THEN h.spec END AS spec FROM public.node_specs h
    WHERE h.node_id = n.id AND {_began("h.set_by", "h.set_batch", at)} ORDER BY h.version DESC LIMIT 1
) AS {at} ON true"""


_NODES = f"""
SELECT n.name, b1.spec AS before, b2.spec AS after FROM public.nodes n {_spec_at("b1")} {_spec_at("b2")}
WHERE n.id IN (
    SELECT h.node_id FROM public.node_specs h
    WHERE h.set_batch IS NOT NULL AND NOT {_began("h.set_by", "h.set_batch", "b1")}
        AND {_began("h.set_by", "h.set_batch", "b2")}
) AND b1.spec IS DISTINCT FROM b2.spec
ORDER BY n.name LIMIT {CHANGES_MAX + 1}
"""


class PostgresPast:
    """The ``Past`` port on Postgres."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def _ask(self, text: str, **values: Any) -> Sequence[sa.Row[Any]]:
        statement = sa.text(text).bindparams(**values)
        return await self._engine.rows(statement, Pool.PAST)

    async def moment(self, at: int | BatchId) -> Moment:
        """See ``Past.moment``."""
        if isinstance(at, int):
            rows = await self._ask(_AT_TIME, at_ms=at)
        else:
            rows = await self._ask(_AT_BATCH, shard=at.shard, batch=at.batch)
        if not rows:
            assert not isinstance(at, int), "there is a position at each time"
            raise await self._unknown(at)
        position, reach = rows[0].position, rows[0].reach
        if position < reach:
            first = next(iter(await self._ask(_REACHED, position=reach)), None)
            since = "" if first is None else f"; it reaches back to {_instant(first.log_time_ms)}"
            raise OutOfReach(f"the past is not known as far back as {_named(at)}{since}")
        times = [row.log_time_ms for row in rows if row.log_time_ms is not None]
        batches, seqs = [row.batch for row in rows], [row.seq for row in rows]
        return Moment(position, max(times, default=0), batches, seqs)

    async def _unknown(self, at: BatchId) -> OutOfReach:
        """Return the error that says which batches of a shard are kept."""
        kept = (await self._ask(_JOURNAL, shard=at.shard))[0]
        has = "no batch is kept" if kept.first is None else f"it has {kept.first} to {kept.last}"
        return OutOfReach(f"the journal of shard {at.shard} has no batch {at.batch}: {has}")

    async def totals(self, moment: Moment | None, seen: Sequence[str] | None) -> Totals:
        """See ``Past.totals``."""
        return await _totals(self._engine if moment is None else self._engine.as_of(moment), seen)

    async def changes(self, before: Moment, after: Moment, seen: Sequence[str] | None) -> Changes:
        """See ``Past.changes``."""
        batches = {"b1": list(before.batches), "b2": list(after.batches)}
        cuts = {**batches, "q1": list(before.seqs), "q2": list(after.seqs)}
        namespaces = None if seen is None else sorted(seen)
        is_many = sum(after.seqs) - sum(before.seqs) > _MANY
        asked = (_pods_of_many if is_many else _pods_of_few).bindparams(**cuts, seen=namespaces)
        pods = [PodChange(**row._mapping) for row in await self._engine.rows(asked, Pool.PAST)]
        nodes = [
            NodeChange(row.name, _spec(row.before), _spec(row.after))
            for row in await self._engine.rows(_nodes.bindparams(**batches), Pool.PAST)
        ]
        more = max(len(pods), len(nodes)) > CHANGES_MAX
        return Changes(pods[:CHANGES_MAX], nodes[:CHANGES_MAX], more)


_NUMBERS = sa.ARRAY(sa.BigInteger)


def _pods(opened: str) -> sa.TextClause:
    return sa.text(_PODS.replace("{opened}", opened)).bindparams(
        *(sa.bindparam(name, type_=_NUMBERS) for name in ("b1", "b2", "q1", "q2")),
        sa.bindparam("seen", type_=sa.ARRAY(sa.Text)),
    )


_pods_of_few, _pods_of_many = _pods(_OPENED), _pods(_OPENED_OF_MANY)
_nodes = sa.text(_NODES).bindparams(*(sa.bindparam(name, type_=_NUMBERS) for name in ("b1", "b2")))


def _spec(value: Any) -> NodeSpec | None:
    found = msgspec.json.decode(value) if isinstance(value, str | bytes) else value
    return None if found is None else msgspec.convert(found, NodeSpec)


def _instant(at_ms: int) -> str:
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).isoformat()


def _named(at: int | BatchId) -> str:
    return _instant(at) if isinstance(at, int) else f"batch {at.batch} of shard {at.shard}"


# Pods on nodes that are gone count nowhere.
_HELD_OF_ALL = sa.text(
    "SELECT h.resource, sum(h.held) AS held FROM past.held(NULL) h JOIN nodes n ON n.name = h.node "
    "WHERE NOT n.deleted GROUP BY h.resource"
)
_SUM = (
    "SELECT r.name AS resource, sum(v.amount) AS held FROM nodes n "
    "CROSS JOIN LATERAL unnest(n.{}) WITH ORDINALITY AS v (amount, at) "
    "JOIN resources r ON r.id = v.at WHERE NOT n.deleted GROUP BY r.name"
)
_TAKEN, _OFFERED = sa.text(_SUM.format("requested")), sa.text(_SUM.format("allocatable"))
# What nodes offered is not kept but in their specs.
_OFFERED_THEN = sa.text(
    "SELECT a.key AS resource, sum(a.value::bigint) AS held FROM nodes n "
    "JOIN node_specs s ON s.node_id = n.id AND s.version = n.spec_version "
    "CROSS JOIN LATERAL jsonb_each_text(s.spec->'allocatable') AS a WHERE NOT n.deleted GROUP BY a.key"
)
_HELD_OF = sa.text("SELECT node, resource, held FROM past.held(CAST(:names AS text[]))").bindparams(
    sa.bindparam("names", type_=sa.ARRAY(sa.Text))
)


async def requested_of(engine: Engine, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return what the pods of these nodes asked for together, at the engine's moment."""
    found: dict[str, dict[str, int]] = {}
    for row in await engine.rows(_HELD_OF.bindparams(names=list(names)), Pool.PAST):
        if row.held:
            found.setdefault(row.node, {})[row.resource] = row.held
    return found


async def _totals(engine: Engine, seen: Sequence[str] | None) -> Totals:
    """Return the sums over the cluster, of now or as of the engine's moment."""
    open_placements = t.open_placements if engine.is_past else t.placements
    n, p, w = t.nodes.c, open_placements.c, t.pending.c
    groups = sa.select(w.shard, w.signature).where(*within(w.namespace, seen)).distinct().subquery()
    # What pods were told last is not kept of the past, but what was deleted is.
    gone = p.node.in_(sa.select(n.name).where(n.deleted)) if engine.is_past else p.orphaned
    placed = (
        sa.select(sa.func.count().label("bound"), sa.func.count().filter(gone).label("orphaned"))
        .where(p.released_at_ms.is_(None), *within(p.namespace, seen))
        .subquery()
    )
    waiting = sa.select(sa.func.count()).select_from(t.pending).where(*within(w.namespace, seen))
    counts = sa.select(
        placed,
        sa.select(sa.func.count()).select_from(t.nodes).where(~n.deleted).scalar_subquery().label("nodes"),
        waiting.scalar_subquery().label("pending"),
        sa.select(sa.func.count()).select_from(groups).scalar_subquery().label("groups"),
    )
    counted = (await engine.rows(counts, Pool.LISTS))[0]
    offered = await engine.rows(_OFFERED_THEN if engine.is_past else _OFFERED, Pool.LISTS)
    requested: Counter[str] = Counter()
    for row in await engine.rows(_HELD_OF_ALL if engine.is_past else _TAKEN, Pool.LISTS):
        requested[row.resource] += int(row.held)
    return Totals(
        nodes_count=counted.nodes,
        allocatable={row.resource: int(row.held) for row in offered if row.held},
        requested={name: amount for name, amount in requested.items() if amount},
        bound_count=counted.bound,
        orphaned_count=counted.orphaned,
        pending_count=counted.pending,
        groups_count=counted.groups,
    )
