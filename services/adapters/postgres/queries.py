"""Every query of the API and the command line, as SQLAlchemy Core over the ledger's metadata."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import aggregate_order_by

from domain.model.config import NAMESPACE, PRIORITY_CLASS
from domain.model.decisions import Attempt
from domain.model.limits import heartbeat_seconds_max
from domain.model.nodes import NodeSpec
from domain.model.pods import PodTemplate
from domain.model.usage import UsageRecord
from services.adapters.postgres import schema as t
from services.adapters.postgres.access import CallerStore
from services.adapters.postgres.engine import Pool
from services.adapters.postgres.listing import Listing, template_of
from services.adapters.postgres.revision import WORKS_FROM
from services.adapters.postgres.rows import ResourceIds
from services.adapters.postgres.sql_outbox import LEDGER_NAME
from services.codec.attempts import unpack_attempt
from services.ports.ledger import ConfigRow, Figures, GroupAttempts, NodeRow, ProfileRow
from services.ports.store import (
    ConfigFilter,
    Counts,
    NodeState,
    OwnerFilter,
    OwnerSpan,
    Pulse,
    Rows,
    ShardOffset,
    ShardState,
    WorkerState,
)

_schema = sa.table("alembic_version", sa.column("version_num", sa.Text))
_decode_attempt = msgspec.json.Decoder(Attempt).decode


def _columns(table: sa.Table, row: type[NamedTuple]) -> list[sa.Column[Any]]:
    """Return the table's columns in the order of the row's fields."""
    return [table.c[name] for name in row._fields]


_CONFIG = [t.config_objects.c[name] for name in ConfigRow.__struct_fields__]
_PROFILE = [t.profiles.c[name] for name in ProfileRow.__struct_fields__]


class PostgresStore(Listing, CallerStore):
    """The ``Store`` port on Postgres."""

    # ------------------------------------------------------------------------------------------ health

    async def pulse(self) -> Pulse:
        """Read the revision, and count the workers whose heartbeat is fresh."""
        w = t.workers.c
        fresh = w.seen_at > sa.func.clock_timestamp() - datetime.timedelta(seconds=heartbeat_seconds_max)
        up = sa.and_(w.stopped_at.is_(None), fresh)
        workers = sa.select(sa.func.count()).select_from(t.workers).where(up)
        works_from = sa.func.max(sa.literal_column(WORKS_FROM, sa.Text))
        revision = sa.func.max(_schema.c.version_num)
        statement = sa.select(revision, workers.scalar_subquery(), works_from).select_from(_schema)
        return (await self._all(Pulse, statement, Pool.HEALTH))[0]

    async def counts(self) -> Counts:
        """Count what the metrics show. Only the count of pending pods is not cheap."""
        nodes = sa.select(sa.func.count()).select_from(t.nodes).where(~t.nodes.c.deleted)
        pending = sa.select(sa.func.count()).select_from(t.pending)
        audits = t.schema_audit.audits.c
        age = sa.extract("epoch", sa.func.now() - audits.at).cast(sa.Float)
        last = [sa.select(each).order_by(audits.at.desc()).limit(1) for each in (age, audits.ok)]
        statement = sa.select(*(each.scalar_subquery() for each in (nodes, pending, *last)))
        return (await self._all(Counts, statement))[0]

    async def shards(self) -> Sequence[ShardState]:
        """Read all shards with their relay cursors and leases. A lease that ran out does not count."""
        s, r, w, p = (each.c for each in (t.shards, t.relay_cursor, t.worker_leases, t.relay_leases))
        joined: sa.FromClause = t.shards
        for other in (t.relay_cursor, t.worker_leases, t.relay_leases):
            joined = joined.outerjoin(other, s.shard == other.c.shard)
        joined = joined.outerjoin(t.workers, w.holder == t.workers.c.incarnation)
        holds = w.expires_at > sa.func.clock_timestamp()
        publishes = p.expires_at > sa.func.clock_timestamp()
        found = await self._all(
            ShardState,
            sa.select(
                s.shard,
                sa.case((holds, w.owner)).label("owner"),
                s.epoch,
                sa.case((holds, w.taken_at)).label("owned_since"),
                sa.case((holds, w.expires_at)).label("lease_until"),
                s.seq_next,
                s.dead_seq_next,
                s.log_time_ms,
                sa.case((publishes, p.owner)).label("relay_owner"),
                sa.func.coalesce(r.decisions_seq, 0),
                sa.func.coalesce(r.dead_letters_seq, 0),
                r.alarm,
                sa.literal_column(f"({LEDGER_NAME})") + sa.literal(".") + r.generation.cast(sa.Text),
                sa.case((holds, t.workers.c.figures)),
            )
            .select_from(joined)
            .order_by(s.shard),
            Pool.HEALTH,
        )
        return [each._replace(figures=msgspec.convert(each.figures, Figures | None)) for each in found]

    async def workers(self, since: datetime.datetime) -> Sequence[WorkerState]:
        """Read the workers with the shards that they hold by now. A lease that ran out does not count."""
        w, held = t.workers.c, t.worker_leases.c
        now = sa.func.clock_timestamp()
        fresh = w.seen_at > now - datetime.timedelta(seconds=heartbeat_seconds_max)
        shards = (
            sa.select(sa.func.coalesce(sa.func.array_agg(aggregate_order_by(held.shard, held.shard)), []))
            .where(held.holder == w.incarnation, held.expires_at > now)
            .scalar_subquery()
        )
        query = (
            sa.select(
                sa.cast(w.incarnation, sa.Text),
                *(w.name, w.build, w.started_at, w.seen_at, w.stopped_at),
                sa.and_(w.stopped_at.is_(None), fresh),
                *(w.ready, shards, w.figures),
            )
            .where(w.seen_at >= since)
            .order_by(w.name, w.started_at.desc())
        )
        found = await self._all(WorkerState, query, Pool.HEALTH)
        return [each._replace(figures=msgspec.convert(each.figures, Figures | None)) for each in found]

    async def owners(
        self, which: OwnerFilter, limit: int, after: tuple[datetime.datetime, int] | None
    ) -> Rows[OwnerSpan]:
        """Read the history of owners. A lease that ran out ended then."""
        o, held = t.shard_owners.c, t.worker_leases.c
        current = sa.and_(held.shard == o.shard, held.epoch == o.epoch)
        lapsed = sa.case((held.expires_at <= sa.func.clock_timestamp(), held.expires_at))
        ended = sa.func.coalesce(o.ended_at, lapsed)
        query = (
            sa.select(o.shard, o.epoch, o.owner, o.taken_at, ended)
            .select_from(t.shard_owners.outerjoin(t.worker_leases, current))
            .order_by(o.taken_at.desc(), o.shard)
            .limit(limit + 1)
        )
        if which.shard is not None:
            query = query.where(o.shard == which.shard)
        if which.since is not None:
            query = query.where(sa.or_(ended.is_(None), ended > which.since))
        if which.until is not None:
            query = query.where(o.taken_at < which.until)
        if after is not None:
            at, shard = after
            query = query.where(sa.or_(o.taken_at < at, sa.and_(o.taken_at == at, o.shard > shard)))
        found = await self._all(OwnerSpan, query)
        return Rows(found[:limit], more=len(found) > limit)

    async def offsets(self) -> Sequence[ShardOffset]:
        """Read all offset rows."""
        o = t.shard_offsets.c
        columns = _columns(t.shard_offsets, ShardOffset)
        query = sa.select(*columns).order_by(o.shard, o.topic, o.partition)
        return await self._all(ShardOffset, query, Pool.HEALTH)

    # ------------------------------------------------------------------------------------ nodes and pods

    async def _nodes(
        self, *which: sa.ColumnElement[bool], limit: int = 1, pool: Pool = Pool.LOOKUPS
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
        found = await self._page(query, limit, size, ["name"], pool=pool)
        names = await self._rows(sa.select(t.resources.c.name, t.resources.c.id), pool)
        ids = ResourceIds(dict(map(tuple, names)))
        states = (
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
        )
        return Rows(states, more=found.more)

    async def nodes(self, limit: int, after: str | None, name: str | None) -> Rows[NodeState]:
        """Read a page of live nodes."""
        which = [~t.nodes.c.deleted]
        if after is not None:
            which.append(t.nodes.c.name > after)
        if name is not None:
            which.append(t.nodes.c.name.contains(name, autoescape=True))
        return await self._nodes(*which, limit=limit, pool=Pool.LISTS)

    async def node(self, name: str) -> NodeState | None:
        """Read one node."""
        return next(iter(await self._nodes(t.nodes.c.name == name)), None)

    async def usage(self, node: str) -> UsageRecord | None:
        """Read one node's window."""
        row = await self._row(sa.select(t.node_usage).where(t.node_usage.c.node == node))
        found = None if row is None else {str(name): value for name, value in row._mapping.items()}
        return None if found is None else msgspec.convert(found, UsageRecord, str_keys=True)

    async def template(self, signature: bytes) -> PodTemplate | None:
        """Read one template."""
        row = await self._row(sa.select(t.templates.c.spec).where(t.templates.c.signature == signature))
        return template_of(row and row.spec)

    # ------------------------------------------------------------------------------------------ attempts

    async def attempt(self, shard: int, seq: int) -> Attempt | None:
        """Walk the primary key backwards, to the row that holds the attempt."""
        c = t.cycles.c
        query = sa.select(c.seq, c.doc, c.attempts).where(c.shard == shard, c.seq <= seq)
        row = await self._row(query.order_by(c.seq.desc()).limit(1))
        if row is None:
            return None
        if row.attempts is not None:
            return unpack_attempt(row.attempts, shard, seq)
        return _decode_attempt(row.doc) if row.seq == seq else None

    async def group_attempts(self, shard: int, signature: bytes) -> Sequence[GroupAttempts]:
        """Walk the primary key."""
        g = t.group_attempts.c
        query = sa.select(t.group_attempts).where(g.shard == shard, g.signature == signature)
        return [GroupAttempts(**row._mapping) for row in await self._rows(query.order_by(g.number))]

    # ------------------------------------------------------------------------------------------ profiles

    async def profiles(self, limit: int, after: str | None) -> Rows[ProfileRow]:
        """Read the last revision of each name, unless it is a deletion."""
        p = t.profiles.c
        name = p.name.collate("C").label("name")  # the order in which the built-in ones are merged with them
        last = sa.select(p.name, sa.func.max(p.revision).label("revision")).group_by(p.name).subquery()
        joined = t.profiles.join(last, sa.and_(p.name == last.c.name, p.revision == last.c.revision))
        columns = [name if column.name == "name" else column for column in _PROFILE]
        query = sa.select(*columns).select_from(joined).where(p.spec.is_not(None))
        query = query if after is None else query.where(p.name.collate("C") > after)
        return await self._profiles(query, limit, "name")

    async def profile_revisions(self, name: str, limit: int, revision: int | None) -> Rows[ProfileRow]:
        """Walk the primary key backwards."""
        p = t.profiles.c
        query = sa.select(*_PROFILE).where(p.name == name)
        query = query if revision is None else query.where(p.revision == revision)
        return await self._profiles(query, limit, "revision", descending=True)

    async def _profiles(
        self, query: sa.Select[Any], limit: int, by: str, *, descending: bool = False
    ) -> Rows[ProfileRow]:
        size = sa.func.coalesce(sa.func.octet_length(sa.cast(t.profiles.c.spec, sa.Text)), 0)
        rows = await self._page(query, limit, size, [by], descending=descending, pool=Pool.LOOKUPS)
        names = ProfileRow.__struct_fields__
        found = (ProfileRow(**{name: row._mapping[name] for name in names}) for row in rows)
        return Rows(found, more=rows.more)

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
            of_cluster = sa.or_(c.kind == PRIORITY_CLASS, sa.and_(c.kind == NAMESPACE, c.name.in_(seen)))
            where.append(sa.or_(c.namespace.in_(seen), of_cluster))
        query = sa.select(*_CONFIG).where(c.object.is_not(None), *where)
        size = sa.func.octet_length(sa.cast(c.object, sa.Text))
        names = ConfigRow.__struct_fields__
        pool = Pool.LISTS if which.name is None else Pool.LOOKUPS
        rows = await self._page(query, limit, size, ["kind", "namespace", "name"], pool=pool)
        found = (ConfigRow(**{name: row._mapping[name] for name in names}) for row in rows)
        return Rows(found, more=rows.more)
