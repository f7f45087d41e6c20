"""The API's questions about processes: shards and their owners, workers, and how far all have come."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import aggregate_order_by

from domain.model.actions import ActionKind, NodeAction
from domain.model.hosting import ReplicasSaid
from domain.model.limits import heartbeat_seconds_max
from services.adapters.postgres import schema as t
from services.adapters.postgres.engine import Engine, Pool
from services.adapters.postgres.revision import WORKS_FROM
from services.adapters.postgres.selects import within
from services.adapters.postgres.sql_outbox import LEDGER_NAME
from services.ports.ledger import ActionRow, Figures
from services.ports.pods import MoveRow
from services.ports.store import (
    ActionState,
    Counts,
    OwnerFilter,
    OwnerSpan,
    Pulse,
    Rows,
    ShardOffset,
    ShardState,
    WorkerState,
)

_OF_ACTION = ("node", "at_ms", "quality", "reason", "amount", "times", "policy", "uid")
_schema = sa.table("alembic_version", sa.column("version_num", sa.Text))


class PostgresProcesses:
    """The ``Processes`` port on Postgres."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def pulse(self) -> Pulse:
        """Read the revision, and count the workers whose heartbeat is fresh."""
        w = t.workers.c
        fresh = w.seen_at > sa.func.clock_timestamp() - datetime.timedelta(seconds=heartbeat_seconds_max)
        up = sa.and_(w.stopped_at.is_(None), fresh)
        workers = sa.select(sa.func.count()).select_from(t.workers).where(up)
        works_from = sa.func.max(sa.literal_column(WORKS_FROM, sa.Text))
        revision = sa.func.max(_schema.c.version_num)
        statement = sa.select(revision, workers.scalar_subquery(), works_from).select_from(_schema)
        return (await self._engine.all(Pulse, statement, Pool.HEALTH))[0]

    async def counts(self) -> Counts:
        """Count what the metrics show. Only the count of pending pods is not cheap."""
        nodes = sa.select(sa.func.count()).select_from(t.nodes).where(~t.nodes.c.deleted)
        pending = sa.select(sa.func.count()).select_from(t.pending)
        audits = t.audits.c
        age = sa.extract("epoch", sa.func.now() - audits.at).cast(sa.Float)
        last = [sa.select(each).order_by(audits.at.desc()).limit(1) for each in (age, audits.ok)]
        statement = sa.select(*(each.scalar_subquery() for each in (nodes, pending, *last)))
        return (await self._engine.all(Counts, statement))[0]

    async def shards(self) -> Sequence[ShardState]:
        """Read all shards with their relay cursors and leases. A lease that ran out does not count."""
        s, r, w, p = (each.c for each in (t.shards, t.relay_cursor, t.worker_leases, t.relay_leases))
        joined: sa.FromClause = t.shards
        for other in (t.relay_cursor, t.worker_leases, t.relay_leases):
            joined = joined.outerjoin(other, s.shard == other.c.shard)
        joined = joined.outerjoin(t.workers, w.holder == t.workers.c.incarnation)
        holds = w.expires_at > sa.func.clock_timestamp()
        publishes = p.expires_at > sa.func.clock_timestamp()
        found = await self._engine.all(
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
        found = await self._engine.all(WorkerState, query, Pool.HEALTH)
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
        found = await self._engine.all(OwnerSpan, query)
        return Rows(found[:limit], more=len(found) > limit)

    async def actions(
        self, node: str | None, seen: Collection[str] | None, limit: int, before: int | None
    ) -> Rows[ActionState]:
        """Walk the primary key backwards, or of one node the index by node."""
        a = t.node_actions.c
        where = [] if node is None else [a.node == node]
        where += [] if before is None else [a.id < before]
        where += [] if seen is None else [sa.or_(a.namespace == "", a.namespace.in_(sorted(seen)))]
        query = sa.select(t.node_actions).where(*where)
        page = await self._engine.page(query, limit, sa.func.octet_length(a.reason), ["id"], descending=True)
        return Rows(map(action_state, page), more=page.more)

    async def replicas(
        self,
        namespace: str | None,
        name: str | None,
        seen: Collection[str] | None,
        limit: int,
        after: tuple[str, str] | None,
    ) -> Rows[ReplicasSaid]:
        """Walk the primary key of a table of a few hundred rows."""
        h = t.hosted_replicas.c
        where = [column == value for column, value in ((h.namespace, namespace), (h.name, name)) if value]
        where += [] if seen is None else [h.namespace.in_(sorted(seen))]
        where += [] if after is None else [sa.tuple_(h.namespace, h.name) > after]
        query = sa.select(t.hosted_replicas).where(*where)
        page = await self._engine.page(query, limit, sa.func.octet_length(h.reason), ["namespace", "name"])
        names = ReplicasSaid.__struct_fields__
        return Rows((ReplicasSaid(**{n: row._mapping[n] for n in names}) for row in page), more=page.more)

    async def moves(self, node: str, seen: Collection[str] | None) -> Sequence[MoveRow]:
        """Read the few rows of the node along the primary key."""
        m = t.moves.c
        query = sa.select(t.moves).where(m.node == node, m.is_open, *within(m.namespace, seen))
        rows = await self._engine.rows(query.order_by(m.pod_uid, m.shard))
        return [MoveRow(**row._mapping) for row in rows]

    async def offsets(self) -> Sequence[ShardOffset]:
        """Read all offset rows."""
        o = t.shard_offsets.c
        columns = [o[name] for name in ShardOffset._fields]
        query = sa.select(*columns).order_by(o.shard, o.topic, o.partition)
        return await self._engine.all(ShardOffset, query, Pool.HEALTH)


def action_state(row: sa.Row[Any]) -> ActionState:
    """Return a row of what an agent did."""
    pod = f"{row.namespace}/{row.name}" if row.namespace else ""
    fields = {name: row._mapping[name] for name in _OF_ACTION}
    action = NodeAction(kind=ActionKind(row.kind), pod=pod, **fields)
    return ActionState(row.id, ActionRow(action, row.logged_ms, row.sent_by))
