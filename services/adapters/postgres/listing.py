"""The API's questions about pods: where they are, what was decided, what waits, and what was refused."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import msgspec
import sqlalchemy as sa

from domain.model.limits import page_bytes_max, raw_bytes_shown_max
from domain.model.pods import PodLife, PodTemplate
from services.adapters.postgres import schema as t
from services.adapters.postgres.engine import READING, Engine, Pool, Reading
from services.adapters.postgres.gangs import page_of_gangs
from services.adapters.postgres.schema_preemption import evictions, nominations
from services.adapters.postgres.selects import (
    DECISION,
    LAST_OF_BATCH,
    LATEST_FIRST,
    OF_TEMPLATE,
    bound_pods,
    decision_conditions,
    examples_of,
    groups_of_pending,
    letters,
    page_of_pods,
    pending_pods,
    pods_decided,
    pods_of_node,
    seen_letters,
    texts,
    within,
)
from services.ports.ledger import DeadLetter
from services.ports.log import Span
from services.ports.store import (
    DecisionFilter,
    DecisionRow,
    GangState,
    PlacementSpan,
    PodFilter,
    PodState,
    Promised,
    RefusedRecord,
    Rows,
    WaitingGroup,
)

_BYTES = "bytes_of_row"

FEW = 100_000
"""Decisions of the namespaces that somebody asks for that are read all, in some 0.1 to 0.5 s."""


def template_of(spec: dict[str, Any] | None) -> PodTemplate | None:
    """Return a template of the ledger."""
    return None if spec is None else msgspec.convert(spec, PodTemplate)


class Listing(Engine):
    """The part of the ``Store`` port on Postgres that depends on the namespaces that somebody sees."""

    def __init__(self, dsn: str, reading: Reading = READING) -> None:
        super().__init__(dsn, reading)
        self.seen: Collection[str] | None = None

    def seen_by(self, namespaces: Collection[str] | None) -> Self:
        """Return this store, on the same connections, with fewer namespaces."""
        narrowed = copy.copy(self)
        narrowed.seen = namespaces
        return narrowed

    async def _page(
        self,
        query: sa.Select[Any],
        limit: int,
        size: sa.ColumnElement[int],
        by: Sequence[str],
        *,
        descending: bool = False,
        pool: Pool = Pool.LISTS,
    ) -> Rows[sa.Row[Any]]:
        """Read rows in the order of some columns, until they are ``limit`` or hold ``page_bytes_max``."""

        def order(columns: Any) -> list[sa.ColumnElement[Any]]:
            return [columns[name].desc() if descending else columns[name] for name in by]

        some = query.add_columns(size.label(_BYTES)).order_by(*order(query.selected_columns))
        page = some.limit(limit + 1).subquery("page")
        before = sa.func.sum(page.c[_BYTES]).over(order_by=order(page.c), rows=(None, -1))
        counted = sa.select(page, before.label("before"), sa.func.count().over().label("found")).subquery()
        fits = sa.func.coalesce(counted.c.before, 0) < page_bytes_max
        found = await self._rows(
            sa.select(counted).where(fits).order_by(*order(counted.c)).limit(limit), pool
        )
        return Rows(found, more=bool(found) and found[0].found > len(found))

    async def _few(self, namespace: str | None) -> bool:
        """Return whether the namespaces that are asked for have few enough decisions to read all of them.

        The tables have no order by namespace, since each decision would pay for it. So few rows are read and
        sorted; where there are many, the next page is near wherever one looks.
        """
        asked = self.seen if namespace is None else [namespace]
        if asked is None:
            return False
        some = sa.select(sa.true()).where(*within(t.decisions.c.namespace, asked)).limit(FEW + 1).subquery()
        found = await self._rows(sa.select(sa.func.count()).select_from(some), Pool.LISTS)
        return bool(found) and int(found[0][0]) <= FEW

    # ------------------------------------------------------------------------------------------------ pods

    async def pods(self, which: PodFilter, limit: int, after: str | None) -> Rows[PodState]:
        """Merge open placements and pending pods, both read along an index."""
        parts = []
        if which.phase != "pending":
            bound = bound_pods()
            if which.node is not None:
                bound = bound.where(pods_of_node(which.node))
            elif which.gang is None and await self._few(which.namespace):
                bound = bound.where(pods_decided(which.namespace, self.seen))
            parts.append(page_of_pods(bound, t.placements, which, self.seen, limit + 1, after))
        if which.phase != "bound" and which.node is None:
            parts.append(page_of_pods(pending_pods(), t.pending, which, self.seen, limit + 1, after))
        if not parts:
            return Rows()
        both = sa.union_all(*(sa.select(part.subquery()) for part in parts)).subquery()
        return await self._pods(both, limit, "pod_uid")

    async def _pods(
        self, both: sa.Subquery, limit: int, by: str, *, descending: bool = False, pool: Pool = Pool.LISTS
    ) -> Rows[PodState]:
        """Read rows of ``bound_pods`` and ``pending_pods``, with what matters of their templates."""
        joined = both.outerjoin(t.templates, t.templates.c.signature == both.c.signature)
        gone = sa.select(t.nodes.c.deleted).where(t.nodes.c.name == both.c.node).scalar_subquery()
        query = sa.select(both, OF_TEMPLATE, sa.func.coalesce(gone, False).label("orphaned"))
        size = sa.func.coalesce(sa.func.octet_length(both.c.labels), 0)
        rows = await self._page(
            query.select_from(joined), limit, size, [by], descending=descending, pool=pool
        )
        last = len(PodState._fields)
        pods = (
            PodState._make((*row[: last - 2], template_of(row.spec), row.orphaned))._replace(
                labels=msgspec.json.decode(row.labels or "{}"),
                devices=msgspec.json.decode(row.life or "{}", type=PodLife).devices,
            )
            for row in rows
        )
        return Rows(pods, more=rows.more)

    async def pod(self, namespace: str, name: str) -> PodState | None:
        """Look among the pending pods, then follow the pod's decisions to an open placement."""
        d, p = t.decisions.c, t.placements.c
        placed = (
            bound_pods()
            .select_from(t.placements.join(t.decisions, sa.and_(p.shard == d.shard, p.seq == d.seq)))
            .where(d.namespace == namespace, d.name == name, p.released_at_ms.is_(None))
            .where(*within(d.namespace, self.seen))
        )
        waiting = pending_pods().where(t.pending.c.namespace == namespace, t.pending.c.name == name)
        waiting = waiting.where(*within(t.pending.c.namespace, self.seen))
        both = sa.union_all(placed, waiting).subquery()
        found = await self._pods(both, 1, "since_ms", descending=True, pool=Pool.LOOKUPS)
        return next(iter(found), None)

    async def pod_placements(self, namespace: str, name: str, limit: int) -> Sequence[PlacementSpan]:
        """Follow the pod's decisions to its placements."""
        d, p = t.decisions.c, t.placements.c
        joined = t.placements.join(t.decisions, sa.and_(p.shard == d.shard, p.seq == d.seq))
        return await self._all(
            PlacementSpan,
            sa.select(*(p[column] for column in PlacementSpan._fields))
            .select_from(joined)
            .where(d.namespace == namespace, d.name == name, *within(d.namespace, self.seen))
            .order_by(p.bound_at_ms.desc(), p.seq.desc())
            .limit(limit),
        )

    # ------------------------------------------------------------------------------------------- decisions

    async def decisions(
        self, which: DecisionFilter, limit: int, after: tuple[int, int] | None, newest_first: bool
    ) -> Rows[DecisionRow]:
        """Read a page: of one pod along its index, else of each shard along its primary key."""
        d = t.decisions.c
        where = decision_conditions(which) + within(d.namespace, self.seen)
        if after is not None:
            at = sa.tuple_(d.seq, d.shard)
            where.append(at < after if newest_first else at > after)
        query = sa.select(*DECISION).where(*where)
        pool = Pool.LISTS if which.name is None else Pool.LOOKUPS
        if which.name is None and which.shard is None and not await self._few(which.namespace):
            page = (
                query.where(d.shard == t.shards.c.shard)
                .order_by(d.seq.desc() if newest_first else d.seq)
                .limit(limit + 1)
                .correlate(t.shards)
                .lateral("of_shard")
            )
            query = sa.select(page).select_from(t.shards.join(page, sa.true()))
        size = sa.func.octet_length(query.selected_columns.payload)
        rows = await self._page(query, limit, size, ["seq", "shard"], descending=newest_first, pool=pool)
        return _decisions(rows)

    async def pod_decisions(self, namespace: str, name: str, limit: int) -> Rows[DecisionRow]:
        """Read what was decided of a name along its index, and sort it."""
        d = t.decisions.c
        where = (d.namespace == namespace, d.name == name, *within(d.namespace, self.seen))
        moments = [d.decided_at_ms, LAST_OF_BATCH.label("is_last")]
        query, size = sa.select(*DECISION, *moments).where(*where), sa.func.octet_length(d.payload)
        by = ["decided_at_ms", "recorded_at", "is_last", "seq", "shard"]
        return _decisions(await self._page(query, limit, size, by, descending=True, pool=Pool.LOOKUPS))

    async def latest_decisions(self, pods: Sequence[str]) -> Rows[DecisionRow]:
        """Look each pod up along the index on its name."""
        d, pod = t.decisions.c, texts(pods)
        namespace, name = (sa.func.split_part(pod.c.id, "/", at) for at in (1, 2))
        found = sa.select(*DECISION).where(d.namespace == namespace, d.name == name)
        found = found.where(*within(d.namespace, self.seen))
        last = found.order_by(*LATEST_FIRST).limit(1).lateral("last")
        query = sa.select(last, pod.c.id.collate("C").label("pod")).select_from(pod.join(last, sa.true()))
        size = sa.func.octet_length(last.c.payload)
        return _decisions(await self._page(query, len(pods), size, ["pod"], pool=Pool.INTAKE))

    async def known_versions(self, pods: Sequence[str]) -> dict[str, int]:
        """Look each pod up among those that wait, and follow its last decision to an open placement."""
        d, p, w, pod = t.decisions.c, t.placements.c, t.pending.c, texts(pods)
        namespace, name = (sa.func.split_part(pod.c.id, "/", at) for at in (1, 2))
        named = sa.select(d.pod_uid).where(d.namespace == namespace, d.name == name)
        last = named.order_by(*LATEST_FIRST).limit(1).correlate(pod).scalar_subquery()
        placed = sa.select(p.resource_version).where(p.pod_uid == last, p.released_at_ms.is_(None))
        waits = sa.select(w.resource_version).where(w.namespace == namespace, w.name == name).limit(1)
        version = sa.func.coalesce(*(each.correlate(pod).scalar_subquery() for each in (placed, waits)))
        rows = await self._rows(
            sa.select(pod.c.id, version.label("version")).where(*within(namespace, self.seen)), Pool.INTAKE
        )
        return {row.id: row.version for row in rows if row.version is not None}

    async def decision(self, shard: int, seq: int) -> DecisionRow | None:
        """Read one decision."""
        d = t.decisions.c
        query = sa.select(*DECISION).where(d.shard == shard, d.seq == seq, *within(d.namespace, self.seen))
        return next(iter(await self._all(DecisionRow, query)), None)

    # -------------------------------------------------------------------------------- pending, dead letters

    async def pending(
        self,
        shard: int | None,
        signature: bytes | None = None,
        limit: int = 1000,
        after: tuple[int, int, bytes] | None = None,
    ) -> Rows[WaitingGroup]:
        """Count the pending pods by group, then read of the page's groups who they are and why they wait."""
        g = t.pending_groups.c
        some = groups_of_pending(shard, signature, self.seen, limit + 1, after)
        oldest, examples = examples_of(some, self.seen)
        reasons = sa.and_(g.shard == some.c.shard, g.signature == some.c.signature)
        joined = some.outerjoin(t.pending_groups, reasons).outerjoin(
            t.templates, t.templates.c.signature == some.c.signature
        )
        query = sa.select(
            some.c.shard,
            some.c.signature,
            some.c.count,
            oldest,
            examples,
            g.reasons,
            g.unresolvable,
            g.cycle_seq,
            g.at_ms,
            OF_TEMPLATE,
            some.c.fewer,
        ).select_from(joined)
        size = sa.func.coalesce(sa.func.octet_length(sa.cast(g.reasons, sa.Text)), 0)
        pool = Pool.LISTS if signature is None else Pool.LOOKUPS
        rows = await self._page(query, limit, size, ["fewer", "shard", "signature"], pool=pool)
        last = len(WaitingGroup._fields) - 1
        groups = (WaitingGroup._make((*row[:last], template_of(row.spec))) for row in rows)
        return Rows(groups, more=rows.more)

    async def nominations(self, limit: int, after: tuple[str, int] | None) -> Rows[Promised]:
        """Read a page along the primary key, each with its victims along their index."""
        n, e = nominations.c, evictions.c
        left = sa.select(e.namespace + "/" + e.name).order_by(e.victim_uid)
        left = left.where(e.preemptor_uid == n.pod_uid, e.preemptor_shard == n.shard)
        left = left.where(*within(e.namespace, self.seen)).correlate(nominations)
        query = sa.select(
            *(n[name] for name in Promised._fields[:-2]),
            sa.func.array(left.scalar_subquery(), type_=sa.ARRAY(sa.Text)).label("victims"),
            OF_TEMPLATE,
        ).select_from(nominations.outerjoin(t.templates, t.templates.c.signature == n.signature))
        query = query.where(*within(n.namespace, self.seen))
        if after is not None:
            query = query.where(sa.tuple_(n.pod_uid, n.shard) > after)
        rows = await self._page(query, limit, sa.func.octet_length(n.name), ["pod_uid", "shard"])
        last = len(Promised._fields) - 1
        found = (Promised._make((*row[:last], template_of(row.spec))) for row in rows)
        return Rows(found, more=rows.more)

    async def gangs(
        self, namespace: str | None, name: str | None, limit: int, after: tuple[str, str] | None
    ) -> Rows[GangState]:
        """Read a page along the indexes by name, each with its pods along the indexes by gang."""
        query = page_of_gangs(namespace, name, self.seen, limit + 1, after)
        size = sa.func.coalesce(sa.func.octet_length(sa.cast(query.selected_columns.reasons, sa.Text)), 0)
        pool = Pool.LISTS if name is None else Pool.LOOKUPS
        rows = await self._page(query, limit, size, ["namespace", "name"], pool=pool)
        return Rows((GangState._make(row[: len(GangState._fields)]) for row in rows), more=rows.more)

    async def deadletters(self, limit: int, after: tuple[int, int] | None) -> Rows[RefusedRecord]:
        """Read of each shard along its primary key, or along the index of the keys that are seen."""
        x = t.dead_letters.c
        where = [] if after is None else [sa.tuple_(x.seq, x.shard) < after]
        query = letters(raw_bytes_shown_max)
        if self.seen is None:
            page = query.where(x.shard == t.shards.c.shard, *where).order_by(x.seq.desc()).limit(limit + 1)
            of_shard = page.correlate(t.shards).lateral("of_shard")
            query = sa.select(of_shard).select_from(t.shards.join(of_shard, sa.true()))
        else:
            query = query.where(*where, seen_letters(self.seen))
        return await self._letters(query, limit, ["seq", "shard"], Pool.LISTS, descending=True)

    async def deadletter(self, shard: int, seq: int) -> RefusedRecord | None:
        """Read one dead letter."""
        x = t.dead_letters.c
        query = letters(None).where(x.shard == shard, x.seq == seq)
        if self.seen is not None:
            query = query.where(seen_letters(self.seen))
        return next(iter(await self._letters(query, 1, ["seq"], Pool.LOOKUPS)), None)

    async def new_deadletters(self, since: Mapping[int, int], spans: Sequence[Span]) -> Rows[RefusedRecord]:
        """Walk the primary key of each shard."""
        x = t.dead_letters.c
        new = [sa.and_(x.shard == shard, x.seq >= seq) for shard, seq in since.items()]
        inside = [
            sa.and_(
                x.topic == at.topic, x.partition == at.partition, x.log_offset.between(at.first, at.end - 1)
            )
            for at in spans
        ]
        query = letters(raw_bytes_shown_max).where(sa.or_(sa.false(), *new), sa.or_(sa.false(), *inside))
        most = sum(at.end - at.first for at in spans)
        return await self._letters(query, most, ["shard", "seq"], Pool.INTAKE)

    async def _letters(
        self, query: sa.Select[Any], limit: int, by: Sequence[str], pool: Pool, *, descending: bool = False
    ) -> Rows[RefusedRecord]:
        c = query.selected_columns
        size = sa.func.octet_length(c.raw) + sa.func.octet_length(c.message)
        rows = await self._page(query, limit, size, by, descending=descending, pool=pool)
        names = DeadLetter.__struct_fields__
        found = (
            RefusedRecord(DeadLetter(**{name: row._mapping[name] for name in names}), row.raw_bytes)
            for row in rows
        )
        return Rows(found, more=rows.more)


def _decisions(rows: Rows[sa.Row[Any]]) -> Rows[DecisionRow]:
    width = len(DecisionRow._fields)
    return Rows((DecisionRow._make(row[:width]) for row in rows), more=rows.more)
