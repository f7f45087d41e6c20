"""The ``Store`` port on Postgres: every question about pods, nodes and configuration, along an index."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import msgspec
import sqlalchemy as sa

from domain.model.config import NAMESPACE, SEEN_BY_ALL
from domain.model.decisions import Attempt
from domain.model.limits import raw_bytes_shown_max
from domain.model.nodes import NodeSpec
from domain.model.pods import PodLife, PodTemplate
from domain.model.usage import UsageRecord
from services.adapters.postgres import schema as t
from services.adapters.postgres.access import PostgresCallers
from services.adapters.postgres.bills import PostgresBills
from services.adapters.postgres.chronicle import PostgresChronicle
from services.adapters.postgres.engine import Engine, Pool
from services.adapters.postgres.exports import PostgresExports
from services.adapters.postgres.field import PostgresFields
from services.adapters.postgres.gangs import page_of_gangs
from services.adapters.postgres.past import PostgresPast, requested_of
from services.adapters.postgres.processes import PostgresProcesses
from services.adapters.postgres.rollups import PostgresOverTime
from services.adapters.postgres.rows import ResourceIds
from services.adapters.postgres.selects import (
    DECISION,
    LAST_OF_BATCH,
    LATEST_FIRST,
    OF_TEMPLATE,
    attempts_of,
    bound_pods,
    decision_conditions,
    examples_of,
    groups_of_pending,
    letters,
    page_of_pods,
    pending_pods,
    places_of,
    pods_decided,
    pods_of_node,
    seen_letters,
    texts,
    uid_ahead,
    within,
)
from services.adapters.postgres.tail import PostgresTail
from services.codec.attempts import unpack_attempt
from services.ports.chronicle import Chronicle
from services.ports.exports import Exports
from services.ports.field import Fields
from services.ports.ledger import ConfigRow, DeadLetter, GroupAttempts, NodeRow, ProfileRow
from services.ports.log import Span
from services.ports.past import Moment, Past
from services.ports.rollups import OverTime
from services.ports.store import (
    Bills,
    Callers,
    ConfigFilter,
    DecisionFilter,
    DecisionRow,
    GangState,
    NodeState,
    NominatedPod,
    PlacementSpan,
    PodFilter,
    PodState,
    Processes,
    QueuePlace,
    RefusedRecord,
    Rows,
    WaitingGroup,
)
from services.ports.tail import Tail

_decode_attempt = msgspec.json.Decoder(Attempt).decode
_CONFIG = [t.config_objects.c[name] for name in ConfigRow.__struct_fields__]
_PROFILE = [t.profiles.c[name] for name in ProfileRow.__struct_fields__]

WALKED_MAX = 20_000
"""How many pods a page of those of one QoS class looks at, in some 0.1 to 0.7 s."""
FEW = 100_000
"""Decisions of the namespaces that are asked for that are read all, in some 0.1 to 0.5 s."""


class PostgresStore:
    """The ``Store`` port on Postgres; ``engine`` asks its questions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.processes: Processes = PostgresProcesses(engine)
        self.callers: Callers = PostgresCallers(engine)
        self.bills: Bills = PostgresBills(engine)
        self.past: Past = PostgresPast(engine)
        self.moment: Moment | None = None
        self.fields: Fields = PostgresFields(engine)
        self.exports: Exports = PostgresExports(engine)
        self.over_time: OverTime = PostgresOverTime(engine)
        self.tail: Tail = PostgresTail(engine)
        self.chronicle: Chronicle = PostgresChronicle(engine)
        self.seen: Collection[str] | None = None

    async def aclose(self) -> None:
        """See ``Store.aclose``."""
        await self._engine.aclose()

    def seen_by(self, namespaces: Collection[str] | None) -> Self:
        """Return this store, on the same connections, with fewer namespaces."""
        narrowed = copy.copy(self)
        narrowed.seen = namespaces
        return narrowed

    def as_of(self, moment: Moment) -> Self:
        """Return this store, on the same connections, as it was at a moment."""
        narrowed = copy.copy(self)
        narrowed._engine, narrowed.moment = self._engine.as_of(moment), moment
        return narrowed

    @property
    def _open(self) -> sa.Table:
        """What to read all open placements of."""
        return t.placements if self.moment is None else t.open_placements

    async def nodes(self, limit: int, after: str | None, name: str | None) -> Rows[NodeState]:
        """Read a page of live nodes."""
        which = [~t.nodes.c.deleted]
        if after is not None:
            which.append(t.nodes.c.name > after)
        if name is not None:
            which.append(t.nodes.c.name.contains(name, autoescape=True))
        return await _nodes(self._engine, *which, limit=limit, pool=Pool.LISTS)

    async def node(self, name: str) -> NodeState | None:
        """Read one node."""
        return next(iter(await _nodes(self._engine, t.nodes.c.name == name)), None)

    async def usage(self, node: str) -> UsageRecord | None:
        """Read one node's window."""
        row = await self._engine.row(sa.select(t.node_usage).where(t.node_usage.c.node == node))
        found = None if row is None else {str(name): value for name, value in row._mapping.items()}
        return None if found is None else msgspec.convert(found, UsageRecord, str_keys=True)

    async def pods(self, which: PodFilter, limit: int, after: str | None) -> Rows[PodState]:
        """Merge open placements and pending pods, both read along an index."""
        parts, until = [], await _until(self._engine, which, after)
        if which.phase != "pending":
            table = t.placements
            if which.node is not None:
                bound = bound_pods().where(pods_of_node(which.node))
            elif which.gang is None and await _has_few(self._engine, which.namespace, self.seen):
                bound = bound_pods().where(pods_decided(which.namespace, self.seen))
            else:
                table = self._open
                bound = bound_pods(table)
            parts.append(page_of_pods(bound, table, which, self.seen, limit + 1, after, until))
        if which.phase in (None, "pending") and which.node is None:
            parts.append(page_of_pods(pending_pods(), t.pending, which, self.seen, limit + 1, after, until))
        if not parts:
            return Rows()
        both = sa.union_all(*(sa.select(part.subquery()) for part in parts)).subquery()
        found = await _pods(self._engine, both, limit, "pod_uid")
        return Rows(found, more=found.more, reached=until or "")

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
        found = await _pods(self._engine, both, 1, "since_ms", descending=True, pool=Pool.LOOKUPS)
        return next(iter(found), None)

    async def pod_placements(self, namespace: str, name: str, limit: int) -> Sequence[PlacementSpan]:
        """Follow the pod's decisions to its placements."""
        d, p = t.decisions.c, t.placements.c
        joined = t.placements.join(t.decisions, sa.and_(p.shard == d.shard, p.seq == d.seq))
        return await self._engine.all(
            PlacementSpan,
            sa.select(*(p[column] for column in PlacementSpan._fields))
            .select_from(joined)
            .where(d.namespace == namespace, d.name == name, *within(d.namespace, self.seen))
            .order_by(p.bound_at_ms.desc(), p.seq.desc())
            .limit(limit),
        )

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
        if (
            which.name is None
            and which.shard is None
            and not await _has_few(self._engine, which.namespace, self.seen)
        ):
            page = (
                query.where(d.shard == t.shards.c.shard)
                .order_by(d.seq.desc() if newest_first else d.seq)
                .limit(limit + 1)
                .correlate(t.shards)
                .lateral("of_shard")
            )
            query = sa.select(page).select_from(t.shards.join(page, sa.true()))
        size = sa.func.octet_length(query.selected_columns.payload)
        rows = await self._engine.page(
            query, limit, size, ["seq", "shard"], descending=newest_first, pool=pool
        )
        return _decisions(rows)

    async def pod_decisions(self, namespace: str, name: str, limit: int) -> Rows[DecisionRow]:
        """Read what was decided of a name along its index, and sort it."""
        d = t.decisions.c
        where = (d.namespace == namespace, d.name == name, *within(d.namespace, self.seen))
        moments = [d.decided_at_ms, LAST_OF_BATCH.label("is_last")]
        query, size = sa.select(*DECISION, *moments).where(*where), sa.func.octet_length(d.payload)
        by = ["decided_at_ms", "recorded_at", "is_last", "seq", "shard"]
        return _decisions(await self._engine.page(query, limit, size, by, descending=True, pool=Pool.LOOKUPS))

    async def latest_decisions(self, pods: Sequence[str]) -> Rows[DecisionRow]:
        """Look each pod up along the index on its name."""
        d, pod = t.decisions.c, texts(pods)
        namespace, name = (sa.func.split_part(pod.c.id, "/", at) for at in (1, 2))
        found = sa.select(*DECISION).where(d.namespace == namespace, d.name == name)
        found = found.where(*within(d.namespace, self.seen))
        last = found.order_by(*LATEST_FIRST).limit(1).lateral("last")
        query = sa.select(last, pod.c.id.collate("C").label("pod")).select_from(pod.join(last, sa.true()))
        size = sa.func.octet_length(last.c.payload)
        return _decisions(await self._engine.page(query, len(pods), size, ["pod"], pool=Pool.INTAKE))

    async def known_versions(self, pods: Sequence[str]) -> dict[str, int]:
        """Look each pod up among those that wait, and follow its last decision to an open placement."""
        d, p, w, pod = t.decisions.c, t.placements.c, t.pending.c, texts(pods)
        namespace, name = (sa.func.split_part(pod.c.id, "/", at) for at in (1, 2))
        named = sa.select(d.pod_uid).where(d.namespace == namespace, d.name == name)
        last = named.order_by(*LATEST_FIRST).limit(1).correlate(pod).scalar_subquery()
        placed = sa.select(p.resource_version).where(p.pod_uid == last, p.released_at_ms.is_(None))
        waits = sa.select(w.resource_version).where(w.namespace == namespace, w.name == name).limit(1)
        version = sa.func.coalesce(*(each.correlate(pod).scalar_subquery() for each in (placed, waits)))
        rows = await self._engine.rows(
            sa.select(pod.c.id, version.label("version")).where(*within(namespace, self.seen)), Pool.INTAKE
        )
        return {row.id: row.version for row in rows if row.version is not None}

    async def decision(self, shard: int, seq: int) -> DecisionRow | None:
        """Read one decision."""
        d = t.decisions.c
        query = sa.select(*DECISION).where(d.shard == shard, d.seq == seq, *within(d.namespace, self.seen))
        return next(iter(await self._engine.all(DecisionRow, query)), None)

    async def pending(
        self,
        shard: int | None,
        signature: bytes | None = None,
        limit: int = 1000,
        after: tuple[int, int, bytes] | None = None,
        *,
        oldest_first: bool = False,
    ) -> Rows[WaitingGroup]:
        """Count the pending pods by group, then read of the page's groups their pods and why they wait."""
        g = t.pending_groups.c
        some = groups_of_pending(shard, signature, self.seen, limit + 1, after, oldest_first=oldest_first)
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
            some.c.rank,
        ).select_from(joined)
        size = sa.func.coalesce(sa.func.octet_length(sa.cast(g.reasons, sa.Text)), 0)
        pool = Pool.LISTS if signature is None else Pool.LOOKUPS
        rows = await self._engine.page(query, limit, size, ["rank", "shard", "signature"], pool=pool)
        last = len(WaitingGroup._fields) - 1
        groups = (WaitingGroup._make((*row[:last], template_of(row.spec))) for row in rows)
        return Rows(groups, more=rows.more)

    async def queue_places(self, groups: Sequence[WaitingGroup]) -> dict[tuple[int, bytes], QueuePlace]:
        """Count the pending pods of the shards by group, and walk the primary key of attempts."""
        if not groups:
            return {}
        asked = [(each.shard, each.signature, each.since_ms) for each in groups]
        attempts = {
            (a.shard, bytes(a.signature)): int(a.times) for a in await self._engine.rows(attempts_of(asked))
        }
        rows = await self._engine.rows(places_of(asked), Pool.LISTS)
        return {
            (row.shard, bytes(row.signature)): QueuePlace(
                attempts_count=attempts.get((row.shard, bytes(row.signature)), 0),
                groups_before=row.groups_before,
                pods_before=int(row.pods_before or 0),
            )
            for row in rows
        }

    async def nominations(self, limit: int, after: tuple[str, int] | None) -> Rows[NominatedPod]:
        """Read a page along the primary key, each with its victims along their index."""
        n, e = t.nominations.c, t.evictions.c
        left = sa.select(e.namespace + "/" + e.name).order_by(e.victim_uid)
        left = left.where(e.preemptor_uid == n.pod_uid, e.preemptor_shard == n.shard)
        left = left.where(*within(e.namespace, self.seen)).correlate(t.nominations)
        query = sa.select(
            *(n[name] for name in NominatedPod._fields[:-2]),
            sa.func.array(left.scalar_subquery(), type_=sa.ARRAY(sa.Text)).label("victims"),
            OF_TEMPLATE,
        ).select_from(t.nominations.outerjoin(t.templates, t.templates.c.signature == n.signature))
        query = query.where(*within(n.namespace, self.seen))
        if after is not None:
            query = query.where(sa.tuple_(n.pod_uid, n.shard) > after)
        rows = await self._engine.page(query, limit, sa.func.octet_length(n.name), ["pod_uid", "shard"])
        last = len(NominatedPod._fields) - 1
        found = (NominatedPod._make((*row[:last], template_of(row.spec))) for row in rows)
        return Rows(found, more=rows.more)

    async def gangs(
        self, namespace: str | None, name: str | None, limit: int, after: tuple[str, str] | None
    ) -> Rows[GangState]:
        """Read a page along the indexes by name, each with its pods along the indexes by gang."""
        query = page_of_gangs(namespace, name, self.seen, limit + 1, after, self._open)
        size = sa.func.coalesce(sa.func.octet_length(sa.cast(query.selected_columns.reasons, sa.Text)), 0)
        pool = Pool.LISTS if name is None else Pool.LOOKUPS
        rows = await self._engine.page(query, limit, size, ["namespace", "name"], pool=pool)
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
        return await _letters(self._engine, query, limit, ["seq", "shard"], Pool.LISTS, descending=True)

    async def deadletter(self, shard: int, seq: int) -> RefusedRecord | None:
        """Read one dead letter."""
        x = t.dead_letters.c
        query = letters(None).where(x.shard == shard, x.seq == seq)
        if self.seen is not None:
            query = query.where(seen_letters(self.seen))
        return next(iter(await _letters(self._engine, query, 1, ["seq"], Pool.LOOKUPS)), None)

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
        return await _letters(self._engine, query, most, ["shard", "seq"], Pool.INTAKE)

    async def template(self, signature: bytes) -> PodTemplate | None:
        """Read one template."""
        row = await self._engine.row(
            sa.select(t.templates.c.spec).where(t.templates.c.signature == signature)
        )
        return template_of(row and row.spec)

    async def attempt(self, shard: int, seq: int) -> Attempt | None:
        """Walk the primary key backwards, to the row that holds the attempt."""
        c = t.cycles.c
        query = sa.select(c.seq, c.doc, c.attempts).where(c.shard == shard, c.seq <= seq)
        row = await self._engine.row(query.order_by(c.seq.desc()).limit(1))
        if row is None:
            return None
        if row.attempts is not None:
            return unpack_attempt(row.attempts, shard, seq)
        return _decode_attempt(row.doc) if row.seq == seq else None

    async def group_attempts(self, shard: int, signature: bytes) -> Sequence[GroupAttempts]:
        """Walk the primary key."""
        g = t.group_attempts.c
        columns = [g[name] for name in GroupAttempts.__struct_fields__]
        query = sa.select(*columns).where(g.shard == shard, g.signature == signature)
        return [GroupAttempts(**row._mapping) for row in await self._engine.rows(query.order_by(g.number))]

    async def profiles(self, limit: int, after: str | None) -> Rows[ProfileRow]:
        """Read the last revision of each name, unless it is a deletion."""
        p = t.profiles.c
        name = p.name.collate("C").label("name")  # the order in which the built-in ones are merged with them
        last = sa.select(p.name, sa.func.max(p.revision).label("revision")).group_by(p.name).subquery()
        joined = t.profiles.join(last, sa.and_(p.name == last.c.name, p.revision == last.c.revision))
        columns = [name if column.name == "name" else column for column in _PROFILE]
        query = sa.select(*columns).select_from(joined).where(p.spec.is_not(None))
        query = query if after is None else query.where(p.name.collate("C") > after)
        return await _profiles(self._engine, query, limit, "name")

    async def profile_revisions(self, name: str, limit: int, revision: int | None) -> Rows[ProfileRow]:
        """Walk the primary key backwards."""
        p = t.profiles.c
        query = sa.select(*_PROFILE).where(p.name == name)
        query = query if revision is None else query.where(p.revision == revision)
        return await _profiles(self._engine, query, limit, "revision", descending=True)

    async def config(
        self, which: ConfigFilter, limit: int, after: tuple[str, str, str] | None
    ) -> Rows[ConfigRow]:
        """Walk the primary key."""
        c = t.config_objects.c
        asked = ((c.kind, which.kind), (c.namespace, which.namespace), (c.name, which.name))
        where = [column == value for column, value in asked if value is not None]
        if after is not None:
            where.append(sa.tuple_(c.kind, c.namespace, c.name) > after)
        if self.seen is not None:
            seen = sorted(self.seen)
            of_cluster = sa.or_(
                c.kind.in_(sorted(SEEN_BY_ALL)), sa.and_(c.kind == NAMESPACE, c.name.in_(seen))
            )
            where.append(sa.or_(c.namespace.in_(seen), of_cluster))
        query = sa.select(*_CONFIG).where(c.object.is_not(None), *where)
        size = sa.func.octet_length(sa.cast(c.object, sa.Text))
        names = ConfigRow.__struct_fields__
        pool = Pool.LISTS if which.name is None else Pool.LOOKUPS
        rows = await self._engine.page(query, limit, size, ["kind", "namespace", "name"], pool=pool)
        found = (ConfigRow(**{name: row._mapping[name] for name in names}) for row in rows)
        return Rows(found, more=rows.more)


def template_of(spec: dict[str, Any] | None) -> PodTemplate | None:
    """Return a template of the ledger."""
    return None if spec is None else msgspec.convert(spec, PodTemplate)


async def _has_few(engine: Engine, namespace: str | None, seen: Collection[str] | None) -> bool:
    """Return whether the namespaces that are asked for have few enough decisions to read all of them.

    The tables have no order by namespace, since each decision would pay for it. So few rows are read and
    sorted; where there are many, the next page is near wherever one looks.
    """
    asked = seen if namespace is None else [namespace]
    if asked is None:
        return False
    some = sa.select(sa.true()).where(*within(t.decisions.c.namespace, asked)).limit(FEW + 1).subquery()
    found = await engine.rows(sa.select(sa.func.count()).select_from(some), Pool.LISTS)
    return bool(found) and int(found[0][0]) <= FEW


async def _until(engine: Engine, which: PodFilter, after: str | None) -> str | None:
    """Return up to which uid a page of pods looks for rare ones; None: to the end, or they are not rare."""
    is_rare = which.qos_class is not None or which.phase == "orphaned"
    if not is_rare or which.node is not None or which.gang is not None:
        return None
    found = await engine.rows(uid_ahead(WALKED_MAX, after), Pool.LISTS)
    return str(found[0][0]) if found else None


async def _nodes(
    engine: Engine, *which: sa.ColumnElement[bool], limit: int = 1, pool: Pool = Pool.LOOKUPS
) -> Rows[NodeState]:
    """Walk the unique index on the name. Resource names are read last, so that none is missing."""
    n, s = t.nodes.c, t.node_specs.c
    spec = sa.and_(s.node_id == n.id, s.version == n.spec_version)
    query = (
        sa.select(n.id, n.name, n.version, n.deleted, n.requested, s.spec, s.at_ms, s.sent_by)
        .select_from(t.nodes.outerjoin(t.node_specs, spec))
        .where(*which)
    )
    size = sa.func.octet_length(sa.cast(s.spec, sa.Text))
    found = await engine.page(query, limit, size, ["name"], pool=pool)
    if engine.is_past:
        held = await requested_of(engine, [row.name for row in found])
    else:
        names = await engine.rows(sa.select(t.resources.c.name, t.resources.c.id), pool)
        ids = ResourceIds(dict(map(tuple, names)))
        held = {row.name: ids.amounts(row.requested) for row in found}
    states = (
        NodeState(
            NodeRow(
                id=row.id,
                name=row.name,
                version=row.version,
                spec=msgspec.convert(row.spec, NodeSpec),
                requested=held.get(row.name, {}),
                deleted=row.deleted,
            ),
            row.at_ms,
            row.sent_by,
        )
        for row in found
    )
    return Rows(states, more=found.more)


async def _pods(
    engine: Engine,
    both: sa.Subquery,
    limit: int,
    by: str,
    *,
    descending: bool = False,
    pool: Pool = Pool.LISTS,
) -> Rows[PodState]:
    """Read rows of ``bound_pods`` and ``pending_pods``, with what matters of their templates."""
    joined = both.outerjoin(t.templates, t.templates.c.signature == both.c.signature)
    gone = sa.select(t.nodes.c.deleted).where(t.nodes.c.name == both.c.node).scalar_subquery()
    query = sa.select(both, OF_TEMPLATE, sa.func.coalesce(gone, False).label("orphaned"))
    size = sa.func.coalesce(sa.func.octet_length(both.c.labels), 0)
    rows = await engine.page(query.select_from(joined), limit, size, [by], descending=descending, pool=pool)
    last = len(PodState._fields)
    pods = (
        PodState._make((*row[: last - 2], template_of(row.spec), row.orphaned))._replace(
            labels=msgspec.json.decode(row.labels or "{}"),
            devices=msgspec.json.decode(row.life or "{}", type=PodLife).devices,
        )
        for row in rows
    )
    return Rows(pods, more=rows.more)


async def _letters(
    engine: Engine,
    query: sa.Select[Any],
    limit: int,
    by: Sequence[str],
    pool: Pool,
    *,
    descending: bool = False,
) -> Rows[RefusedRecord]:
    c = query.selected_columns
    size = sa.func.octet_length(c.raw) + sa.func.octet_length(c.message)
    rows = await engine.page(query, limit, size, by, descending=descending, pool=pool)
    names = DeadLetter.__struct_fields__
    found = (
        RefusedRecord(DeadLetter(**{name: row._mapping[name] for name in names}), row.raw_bytes)
        for row in rows
    )
    return Rows(found, more=rows.more)


async def _profiles(
    engine: Engine, query: sa.Select[Any], limit: int, by: str, *, descending: bool = False
) -> Rows[ProfileRow]:
    size = sa.func.coalesce(sa.func.octet_length(sa.cast(t.profiles.c.spec, sa.Text)), 0)
    rows = await engine.page(query, limit, size, [by], descending=descending, pool=Pool.LOOKUPS)
    names = ProfileRow.__struct_fields__
    found = (ProfileRow(**{name: row._mapping[name] for name in names}) for row in rows)
    return Rows(found, more=rows.more)


def _decisions(rows: Rows[sa.Row[Any]]) -> Rows[DecisionRow]:
    width = len(DecisionRow._fields)
    return Rows((DecisionRow._make(row[:width]) for row in rows), more=rows.more)
