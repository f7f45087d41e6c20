"""Every query of the API and the command line, as SQLAlchemy Core over the ledger's metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import aggregate_order_by

from domain.model.decisions import Attempt
from domain.model.nodes import NodeSpec
from domain.model.pods import PodTemplate
from domain.model.usage import UsageRecord
from services.adapters.postgres import schema as t
from services.adapters.postgres.access import Access
from services.adapters.postgres.connections import WORKER
from services.adapters.postgres.rows import ResourceIds
from services.adapters.postgres.selects import (
    bound_pods,
    decision_conditions,
    page_of_pods,
    pending_pods,
    texts,
)
from services.ports.ledger import DeadLetter, GroupAttempts, NodeRow, ProfileRow
from services.ports.store import (
    EXAMPLES_MAX,
    Counts,
    DecisionFilter,
    DecisionRow,
    NodeState,
    PlacementSpan,
    PodFilter,
    PodState,
    Pulse,
    ShardOffset,
    ShardState,
    WaitingGroup,
)

_activity = sa.table(
    "pg_stat_activity",
    sa.column("pid"),
    sa.column("datname"),
    sa.column("application_name"),
    sa.column("backend_start"),
)
_schema = sa.table("alembic_version", sa.column("version_num", sa.Text))
_decode_attempt = msgspec.json.Decoder(Attempt).decode


def _columns(table: sa.Table, row: type[NamedTuple]) -> list[sa.Column[Any]]:
    """Return the table's columns in the order of the row's fields."""
    return [table.c[name] for name in row._fields]


_DECISION = _columns(t.decisions, DecisionRow)
_DEAD_LETTER = [column for column in t.dead_letters.c if column.name != "recorded_at"]
_PROFILE = [t.profiles.c[name] for name in ProfileRow.__struct_fields__]


def _template(spec: dict[str, Any] | None) -> PodTemplate | None:
    return None if spec is None else msgspec.convert(spec, PodTemplate)


class PostgresStore(Access):
    """The ``Store`` port on Postgres."""

    # ------------------------------------------------------------------------------------------ health

    async def pulse(self) -> Pulse:
        """Read the revision, and count the workers by the connection that each of them holds."""
        is_worker = sa.and_(
            _activity.c.application_name == WORKER, _activity.c.datname == sa.func.current_database()
        )
        workers = sa.select(sa.func.count()).select_from(_activity).where(is_worker)
        revision = sa.select(sa.func.max(_schema.c.version_num))
        statement = sa.select(revision.scalar_subquery(), workers.scalar_subquery())
        return (await self._all(Pulse, statement))[0]

    async def counts(self) -> Counts:
        """Count what the metrics show. Only the count of pending pods is not cheap."""
        nodes = sa.select(sa.func.count()).select_from(t.nodes).where(~t.nodes.c.deleted)
        pending = sa.select(sa.func.count()).select_from(t.pending)
        statement = sa.select(nodes.scalar_subquery(), pending.scalar_subquery())
        return (await self._all(Counts, statement))[0]

    async def shards(self) -> Sequence[ShardState]:
        """Read all shards with their relay cursors. An owner without a connection does not count."""
        s, r = t.shards.c, t.relay_cursor.c
        joined = t.shards.outerjoin(t.relay_cursor, s.shard == r.shard)
        started = sa.func.coalesce(_activity.c.backend_start == s.owner_started, True)
        alive = sa.exists().where(_activity.c.pid == s.owner_pid, started)
        return await self._all(
            ShardState,
            sa.select(
                s.shard,
                sa.case((sa.and_(s.lease_until > sa.func.now(), alive), s.owner)).label("owner"),
                s.epoch,
                s.lease_until,
                s.seq_next,
                s.dead_seq_next,
                s.log_time_ms,
                sa.case((r.lease_until > sa.func.now(), r.owner)).label("relay_owner"),
                sa.func.coalesce(r.decisions_seq, 0),
                sa.func.coalesce(r.dead_letters_seq, 0),
            )
            .select_from(joined)
            .order_by(s.shard),
        )

    async def offsets(self) -> Sequence[ShardOffset]:
        """Read all offset rows."""
        o = t.shard_offsets.c
        columns = _columns(t.shard_offsets, ShardOffset)
        return await self._all(ShardOffset, sa.select(*columns).order_by(o.shard, o.topic, o.partition))

    # ------------------------------------------------------------------------------------ nodes and pods

    async def _nodes(self, *which: sa.ColumnElement[bool], limit: int = 1) -> list[NodeState]:
        """Walk the unique index on the name. Resource names are read last, so that none is missing."""
        n, s = t.nodes.c, t.node_specs.c
        spec = sa.and_(s.node_id == n.id, s.version == n.spec_version)
        found = await self._rows(
            sa.select(n.id, n.name, n.version, n.deleted, n.requested, s.spec, s.at_ms, s.sent_by)
            .select_from(t.nodes.outerjoin(t.node_specs, spec))
            .where(*which)
            .order_by(n.name)
            .limit(limit)
        )
        names = await self._rows(sa.select(t.resources.c.name, t.resources.c.id))
        ids = ResourceIds(dict(map(tuple, names)))
        return [
            NodeState(
                NodeRow(
                    id=row.id,
                    name=row.name,
                    version=row.version,
                    spec=msgspec.convert(row.spec, NodeSpec),
                    requested=ids.amounts(row.requested),
                    deleted=row.deleted,
                ),
                row.at_ms,
                row.sent_by,
            )
            for row in found
        ]

    async def nodes(self, limit: int, after: str | None, name: str | None) -> Sequence[NodeState]:
        """Read a page of live nodes."""
        which = [~t.nodes.c.deleted]
        if after is not None:
            which.append(t.nodes.c.name > after)
        if name is not None:
            which.append(t.nodes.c.name.contains(name, autoescape=True))
        return await self._nodes(*which, limit=limit)

    async def node(self, name: str) -> NodeState | None:
        """Read one node."""
        return next(iter(await self._nodes(t.nodes.c.name == name)), None)

    async def usage(self, node: str) -> UsageRecord | None:
        """Read one node's window."""
        row = await self._row(sa.select(t.node_usage).where(t.node_usage.c.node == node))
        found = None if row is None else {str(name): value for name, value in row._mapping.items()}
        return None if found is None else msgspec.convert(found, UsageRecord, str_keys=True)

    async def pods(self, which: PodFilter, limit: int, after: str | None) -> Sequence[PodState]:
        """Merge open placements and pending pods, both read along their index on the uid."""
        parts = []
        if which.phase != "pending":
            parts.append(page_of_pods(bound_pods(), t.placements, which, limit, after))
        if which.phase != "bound" and which.node is None:
            parts.append(page_of_pods(pending_pods(), t.pending, which, limit, after))
        if not parts:
            return []
        both = sa.union_all(*(sa.select(part.subquery()) for part in parts)).subquery()
        return await self._pods(both, both.c.pod_uid, limit)

    async def _pods(self, both: sa.Subquery, order: sa.ColumnElement[Any], limit: int) -> list[PodState]:
        """Read rows of ``bound_pods`` and ``pending_pods``, with their templates."""
        joined = both.outerjoin(t.templates, t.templates.c.signature == both.c.signature)
        gone = sa.select(t.nodes.c.deleted).where(t.nodes.c.name == both.c.node).scalar_subquery()
        query = sa.select(both, t.templates.c.spec, sa.func.coalesce(gone, False).label("orphaned"))
        query = query.select_from(joined).order_by(order).limit(limit)
        return [
            PodState._make((*row[:-2], _template(row.spec), row.orphaned))._replace(
                labels=msgspec.json.decode(row.labels or "{}")
            )
            for row in await self._rows(query)
        ]

    async def pod(self, namespace: str, name: str) -> PodState | None:
        """Look among the pending pods, then follow the pod's decisions to an open placement."""
        d, p = t.decisions.c, t.placements.c
        placed = (
            bound_pods()
            .select_from(t.placements.join(t.decisions, sa.and_(p.shard == d.shard, p.seq == d.seq)))
            .where(d.namespace == namespace, d.name == name, p.released_at_ms.is_(None))
        )
        waiting = pending_pods().where(t.pending.c.namespace == namespace, t.pending.c.name == name)
        both = sa.union_all(placed, waiting).subquery()
        return next(iter(await self._pods(both, both.c.since_ms.desc(), 1)), None)

    async def pod_placements(self, namespace: str, name: str, limit: int) -> Sequence[PlacementSpan]:
        """Follow the pod's decisions to its placements."""
        d, p = t.decisions.c, t.placements.c
        joined = t.placements.join(t.decisions, sa.and_(p.shard == d.shard, p.seq == d.seq))
        return await self._all(
            PlacementSpan,
            sa.select(*_columns(t.placements, PlacementSpan))
            .select_from(joined)
            .where(d.namespace == namespace, d.name == name)
            .order_by(p.bound_at_ms.desc(), p.seq.desc())
            .limit(limit),
        )

    async def template(self, signature: bytes) -> PodTemplate | None:
        """Read one template."""
        row = await self._row(sa.select(t.templates.c.spec).where(t.templates.c.signature == signature))
        return _template(row and row.spec)

    # ----------------------------------------------------------------------------------------- decisions

    async def decisions(
        self, which: DecisionFilter, limit: int, after: tuple[int, int] | None, newest_first: bool
    ) -> Sequence[DecisionRow]:
        """Read a page: of one pod along its index, else of each shard along its primary key."""
        d = t.decisions.c
        where = decision_conditions(which)
        if after is not None:
            at = sa.tuple_(d.seq, d.shard)
            where.append(at < after if newest_first else at > after)
        order = [d.seq.desc(), d.shard.desc()] if newest_first else [d.seq, d.shard]
        if which.name is not None or which.shard is not None:
            query = sa.select(*_DECISION).where(*where).order_by(*order).limit(limit)
            return await self._all(DecisionRow, query)
        page = (
            sa.select(*_DECISION)
            .where(d.shard == t.shards.c.shard, *where)
            .order_by(order[0])
            .limit(limit)
            .correlate(t.shards)
            .lateral("page")
        )
        merged = [page.c.seq.desc(), page.c.shard.desc()] if newest_first else [page.c.seq, page.c.shard]
        everything = t.shards.join(page, sa.true())
        query = sa.select(page).select_from(everything).order_by(*merged).limit(limit)
        return await self._all(DecisionRow, query)

    async def latest_decisions(self, pods: Sequence[str]) -> Sequence[DecisionRow]:
        """Look each pod up along the index on its name."""
        d, pod = t.decisions.c, texts(pods)
        namespace, name = (sa.func.split_part(pod.c.id, "/", at) for at in (1, 2))
        found = sa.select(*_DECISION).where(d.namespace == namespace, d.name == name)
        last = found.order_by(d.seq.desc()).limit(1).lateral("last")
        query = sa.select(last).select_from(pod.join(last, sa.true())).order_by(pod.c.id.collate("C"))
        return await self._all(DecisionRow, query)

    async def decision(self, shard: int, seq: int) -> DecisionRow | None:
        """Read one decision."""
        d = t.decisions.c
        query = sa.select(*_DECISION).where(d.shard == shard, d.seq == seq)
        return next(iter(await self._all(DecisionRow, query)), None)

    async def attempt(self, shard: int, seq: int) -> Attempt | None:
        """Read one attempt."""
        c = t.cycles.c
        row = await self._row(sa.select(c.doc).where(c.shard == shard, c.seq == seq))
        return None if row is None else _decode_attempt(row.doc)

    async def pending(self, shard: int | None, signature: bytes | None = None) -> Sequence[WaitingGroup]:
        """Group the pending pods and join why they wait."""
        p, g = t.pending.c, t.pending_groups.c
        key = aggregate_order_by(p.namespace + "/" + p.name, p.arrival)
        groups = sa.select(
            p.shard,
            p.signature,
            sa.func.count().label("count"),
            sa.func.min(p.since_ms).label("since_ms"),
            sa.func.min(p.arrival).label("arrival"),
            sa.func.array_agg(key).label("all_pods"),
        ).group_by(p.shard, p.signature)
        if shard is not None:
            groups = groups.where(p.shard == shard)
        if signature is not None:
            groups = groups.where(p.signature == signature)
        some = groups.subquery()
        reasons = sa.and_(g.shard == some.c.shard, g.signature == some.c.signature)
        joined = some.outerjoin(t.pending_groups, reasons).outerjoin(
            t.templates, t.templates.c.signature == some.c.signature
        )
        found = await self._rows(
            sa.select(
                some.c.shard,
                some.c.signature,
                some.c.count,
                some.c.since_ms,
                some.c.all_pods[1:EXAMPLES_MAX].label("examples"),
                g.reasons,
                g.unresolvable,
                g.cycle_seq,
                g.at_ms,
                t.templates.c.spec,
            )
            .select_from(joined)
            .order_by(some.c.count.desc(), some.c.shard, some.c.arrival)
        )
        return [WaitingGroup._make((*row[:-1], _template(row.spec))) for row in found]

    async def group_attempts(self, shard: int, signature: bytes) -> Sequence[GroupAttempts]:
        """Walk the primary key."""
        g = t.group_attempts.c
        query = sa.select(t.group_attempts).where(g.shard == shard, g.signature == signature)
        return [GroupAttempts(**row._mapping) for row in await self._rows(query.order_by(g.number))]

    async def deadletters(self, limit: int, after: tuple[int, int] | None) -> Sequence[DeadLetter]:
        """Read a page of dead letters, latest first."""
        x = t.dead_letters.c
        query = sa.select(*_DEAD_LETTER).order_by(x.seq.desc(), x.shard.desc()).limit(limit)
        return await self._letters(query if after is None else query.where(sa.tuple_(x.seq, x.shard) < after))

    async def new_deadletters(self, since: Mapping[int, int]) -> Sequence[DeadLetter]:
        """Walk the primary key of each shard."""
        x = t.dead_letters.c
        new = [sa.and_(x.shard == shard, x.seq >= seq) for shard, seq in since.items()]
        return await self._letters(sa.select(*_DEAD_LETTER).where(sa.or_(*new)).order_by(x.shard, x.seq))

    async def _letters(self, query: sa.Executable) -> list[DeadLetter]:
        rows = [row._asdict() for row in await self._rows(query)]
        return [DeadLetter(offset=row.pop("log_offset"), **row) for row in rows]

    # ------------------------------------------------------------------------------------------ profiles

    async def profiles(self, limit: int, after: str | None) -> Sequence[ProfileRow]:
        """Read the last revision of each name, unless it is a deletion."""
        p = t.profiles.c
        name = p.name.collate("C")  # the order in which the built-in ones are merged with them
        last = sa.select(p.name, sa.func.max(p.revision).label("revision")).group_by(p.name).subquery()
        joined = t.profiles.join(last, sa.and_(p.name == last.c.name, p.revision == last.c.revision))
        query = sa.select(*_PROFILE).select_from(joined).where(p.spec.is_not(None))
        query = query if after is None else query.where(name > after)
        return [ProfileRow(**row._mapping) for row in await self._rows(query.order_by(name).limit(limit))]

    async def profile_revisions(self, name: str, limit: int, revision: int | None) -> Sequence[ProfileRow]:
        """Walk the primary key backwards."""
        p = t.profiles.c
        query = sa.select(*_PROFILE).where(p.name == name).order_by(p.revision.desc()).limit(limit)
        query = query if revision is None else query.where(p.revision == revision)
        return [ProfileRow(**row._mapping) for row in await self._rows(query)]
