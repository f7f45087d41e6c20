"""The ``Chronicle`` port on Postgres: each source along its index, behind a place of any other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from domain.model.nodes import NodeSpec
from services.adapters.postgres import schema as t
from services.adapters.postgres.engine import Engine, Pool
from services.adapters.postgres.processes import action_state
from services.adapters.postgres.selects import DECISION, LAST_OF_BATCH, within
from services.ports.chronicle import (
    JournalKept,
    PastAction,
    PastDecision,
    PastFault,
    PastPlace,
    PastSpec,
    Rank,
    Window,
    recorded_at,
    recorded_us,
)
from services.ports.journal import BATCHES
from services.ports.pods import DecisionRow
from services.ports.rows import Rows


class PostgresChronicle:
    """The ``Chronicle`` port on Postgres."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def of_pod(
        self, namespace: str, name: str, seen: Collection[str] | None, window: Window
    ) -> Rows[PastDecision]:
        """See ``Chronicle.of_pod``: read along the index by name, and sorted."""
        d = t.decisions.c
        return await self._decisions([d.namespace == namespace, d.name == name], seen, window)

    async def on_node(self, node: str, seen: Collection[str] | None, window: Window) -> Rows[PastDecision]:
        """See ``Chronicle.on_node``: read along the index by node, and sorted."""
        return await self._decisions([t.decisions.c.node == node], seen, window)

    async def _decisions(
        self, which: list[sa.ColumnElement[bool]], seen: Collection[str] | None, window: Window
    ) -> Rows[PastDecision]:
        d = t.decisions.c
        order = [d.decided_at_ms, d.recorded_at, LAST_OF_BATCH, d.seq, d.shard]
        query = sa.select(*DECISION, d.decided_at_ms, LAST_OF_BATCH.label("is_last"))
        query = query.where(*which, *within(d.namespace, seen), *_behind(order, Rank.DECISION, window))
        by = ["decided_at_ms", "recorded_at", "is_last", "seq", "shard"]
        rows = await self._page(query, sa.func.octet_length(d.payload), by, window)
        width = len(DecisionRow._fields)
        found = (PastDecision(_place(row), DecisionRow._make(row[:width])) for row in rows)
        return Rows(found, more=rows.more)

    async def specs(self, node: str, window: Window) -> Rows[PastSpec]:
        """See ``Chronicle.specs``: walk the primary key."""
        s, n = t.node_specs.c, t.nodes.c
        f = t.node_specs.alias("f")
        first = sa.select(sa.func.min(f.c.version)).where(f.c.node_id == s.node_id).scalar_subquery()
        order = [s.at_ms, s.recorded_at, sa.false(), s.version]
        query = (
            sa.select(s.at_ms, s.recorded_at, s.version, s.spec, s.deleted, s.sent_by, first.label("first"))
            .select_from(t.nodes.join(t.node_specs, s.node_id == n.id))
            .where(n.name == node, *_behind(order, Rank.SPEC, window))
        )
        size = sa.func.octet_length(sa.cast(s.spec, sa.Text))
        rows = await self._page(query, size, ["at_ms", "recorded_at", "version"], window)
        found = (
            PastSpec(
                PastPlace(row.at_ms, recorded_us(row.recorded_at), Rank.SPEC, False, row.version, 0),
                row.version,
                msgspec.convert(row.spec, NodeSpec),
                row.deleted,
                row.sent_by,
                row.version == row.first,
            )
            for row in rows
        )
        return Rows(found, more=rows.more)

    async def actions(
        self, nodes: Sequence[str], pod: str | None, seen: Collection[str] | None, window: Window
    ) -> Rows[PastAction]:
        """See ``Chronicle.actions``: read along the index by node, and sorted."""
        a, never = t.node_actions.c, sa.literal(recorded_at(0))
        order = [a.logged_ms, never, sa.false(), a.id]
        query = sa.select(t.node_actions).where(a.node.in_(sorted(nodes)))
        if pod is not None:
            namespace, _, name = pod.partition("/")
            query = query.where(a.namespace == namespace, a.name == name)
        if seen is not None:
            query = query.where(sa.or_(a.namespace == "", a.namespace.in_(sorted(seen))))
        query = query.where(*_behind(order, Rank.ACTION, window))
        rows = await self._page(query, sa.func.octet_length(a.reason), ["logged_ms", "id"], window)
        found = (
            PastAction(PastPlace(each.row.logged_ms, 0, Rank.ACTION, False, each.number, 0), each)
            for each in map(action_state, rows)
        )
        return Rows(found, more=rows.more)

    async def faults(self, shard: int) -> Sequence[PastFault]:
        """See ``Chronicle.faults``; there are few."""
        f = t.log_faults.c
        query = sa.select(t.log_faults).where(f.partition == shard).order_by(f.found_at)
        return [
            PastFault(
                PastPlace(_ms(row.found_at), recorded_us(row.found_at), Rank.FAULT, False, row.epoch, shard),
                row.topic,
                row.partition,
                row.epoch,
                row.code,
                row.next_offset,
                row.goes_on_at,
            )
            for row in await self._engine.rows(query)
        ]

    async def journal(self, shard: int) -> JournalKept | None:
        """See ``Chronicle.journal``."""
        j, o = t.journal.c, t.shard_offsets.c
        counted = sa.select(o.next_offset).where(o.shard == shard, o.topic == BATCHES, o.partition == 0)
        query = sa.select(
            sa.func.min(j.batch), sa.func.max(j.batch), sa.func.count(), counted.scalar_subquery()
        ).where(j.shard == shard)
        row: Any = (await self._engine.rows(query))[0]
        first, last, count, batches = row[0], row[1], row[2], row[3]
        if first is None:
            return None
        last = max(last, batches or 0)
        return JournalKept(first, last, last - first + 1 - count)

    async def _page(
        self, query: sa.Select[Any], size: sa.ColumnElement[int], by: Sequence[str], window: Window
    ) -> Rows[sa.Row[Any]]:
        descending, pool = window.newest_first, Pool.LOOKUPS
        return await self._engine.page(query, window.limit, size, by, descending=descending, pool=pool)


def _behind(order: list[sa.ColumnElement[Any]], rank: Rank, window: Window) -> list[sa.ColumnElement[bool]]:
    """Return the conditions of a window on what has this rank; ``order`` begins with the two times."""
    at_ms, recorded, *rest = order
    where = [] if window.since_ms is None else [at_ms >= window.since_ms]
    where += [] if window.until_ms is None else [at_ms < window.until_ms]
    after = window.after
    if after is None:
        return where
    times = sa.tuple_(at_ms, recorded)
    moment = sa.tuple_(sa.literal(after.at_ms), sa.literal(recorded_at(after.recorded_us)))
    if rank == after.rank:
        mine = [after.at_ms, recorded_at(after.recorded_us), after.is_last, after.number, after.shard]
        whole = sa.tuple_(at_ms, recorded, *rest)
        other = sa.tuple_(*map(sa.literal, mine[: len(order)]))
        where.append(whole < other if window.newest_first else whole > other)
    elif (rank > after.rank) == window.newest_first:  # of the same moment it went before
        where.append(times < moment if window.newest_first else times > moment)
    else:
        where.append(times <= moment if window.newest_first else times >= moment)
    return where


def _place(row: Any) -> PastPlace:
    return PastPlace(
        row.decided_at_ms, recorded_us(row.recorded_at), Rank.DECISION, row.is_last, row.seq, row.shard
    )


def _ms(at: Any) -> int:
    return recorded_us(at) // 1000
