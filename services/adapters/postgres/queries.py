"""Every query of the API and the command line, as SQLAlchemy Core over the ledger's metadata."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import asyncpg
import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import aggregate_order_by, insert
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from domain.model.errors import BerthError, Unavailable
from services.adapters.postgres import schema as t
from services.adapters.postgres.connections import UNANSWERED, answering, connect
from services.adapters.postgres.selects import (
    bound_pods,
    decision_conditions,
    page_of_pods,
    pending_pods,
    texts,
)
from services.ports.store import DecisionFilter, PodFilter, Row

EXAMPLES_MAX = 3
_DECISION_COLUMNS = [column for column in t.decisions.c if column.name != "payload"] + [t.decisions.c.payload]


class NotLaidDown(BerthError):
    """The database has none of the tables."""

    code = "not-ready"

    def __init__(self) -> None:
        super().__init__("the database is empty; run `berth init`")


class PostgresStore:
    """The ``Store`` port on Postgres.

    Parameters
    ----------
    dsn : str
        As asyncpg takes it, unix sockets included.
    """

    def __init__(self, dsn: str) -> None:
        async def creator() -> Any:
            return await connect(dsn, "berth-api")

        self._engine: AsyncEngine = create_async_engine(
            "postgresql+asyncpg://", async_creator=creator, pool_size=4, max_overflow=4, pool_pre_ping=True
        )

    async def aclose(self) -> None:
        """Close the pool."""
        await self._engine.dispose()

    async def _rows(self, statement: sa.Executable) -> Sequence[Row]:
        with _faults(), answering():
            async with self._engine.connect() as connection:
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                return [dict(row) for row in (await connection.execute(statement)).mappings()]

    async def _row(self, statement: sa.Executable) -> Row | None:
        rows = await self._rows(statement)
        return rows[0] if rows else None

    async def _write(self, statement: sa.Executable) -> int:
        with _faults(), answering():
            async with self._engine.begin() as connection:
                return int((await connection.execute(statement)).rowcount)

    # ------------------------------------------------------------------------------------------ health

    async def ping(self) -> None:
        """Ask the database for nothing."""
        await self._rows(sa.select(sa.literal(1)))

    async def counts(self) -> Row:
        """Count what the metrics show: cheap reads only, but for the pending pods."""
        count = sa.func.count()
        row = await self._row(
            sa.select(
                sa.select(count)
                .select_from(t.nodes)
                .where(~t.nodes.c.deleted)
                .scalar_subquery()
                .label("nodes"),
                sa.select(count).select_from(t.pending).scalar_subquery().label("pending_pods"),
            )
        )
        assert row is not None
        return row

    async def shards(self) -> Sequence[Row]:
        """Read all shards beside their relay cursors."""
        s, r = t.shards.c, t.relay_cursor.c
        joined = t.shards.outerjoin(t.relay_cursor, s.shard == r.shard)
        return await self._rows(
            sa.select(
                s.shard,
                sa.case((s.lease_until > sa.func.now(), s.owner)).label("owner"),
                s.epoch,
                s.lease_until,
                s.seq_next,
                s.dead_seq_next,
                s.log_time_ms,
                sa.case((r.lease_until > sa.func.now(), r.owner)).label("relay_owner"),
                r.decisions_seq,
                r.dead_letters_seq,
            )
            .select_from(joined)
            .order_by(s.shard)
        )

    async def offsets(self) -> Sequence[Row]:
        """Read all offset rows."""
        o = t.shard_offsets.c
        return await self._rows(sa.select(t.shard_offsets).order_by(o.shard, o.topic, o.partition))

    async def resources(self) -> dict[int, str]:
        """Read the resource dimensions."""
        return {row["id"]: row["name"] for row in await self._rows(sa.select(t.resources))}

    # ------------------------------------------------------------------------------------ nodes and pods

    def _nodes(self) -> sa.Select[Any]:
        spec = sa.and_(
            t.node_specs.c.node_id == t.nodes.c.id, t.node_specs.c.version == t.nodes.c.spec_version
        )
        return sa.select(t.nodes, t.node_specs.c.spec, t.node_specs.c.at_ms).select_from(
            t.nodes.outerjoin(t.node_specs, spec)
        )

    async def nodes(self, limit: int, after: str | None, name: str | None) -> Sequence[Row]:
        """Walk the unique index on the name."""
        query = self._nodes().where(~t.nodes.c.deleted).order_by(t.nodes.c.name).limit(limit)
        if after is not None:
            query = query.where(t.nodes.c.name > after)
        if name is not None:
            query = query.where(t.nodes.c.name.contains(name, autoescape=True))
        return await self._rows(query)

    async def node(self, name: str) -> Row | None:
        """Read one node."""
        return await self._row(self._nodes().where(t.nodes.c.name == name))

    async def usage(self, node: str) -> Row | None:
        """Read one node's window."""
        return await self._row(sa.select(t.node_usage).where(t.node_usage.c.node == node))

    async def pods(self, which: PodFilter, limit: int, after: str | None) -> Sequence[Row]:
        """Merge open placements and pending pods, both read along their index on the uid."""
        parts = []
        if which.phase != "pending":
            parts.append(page_of_pods(bound_pods(), t.placements, which, limit, after))
        if which.phase != "bound" and which.node is None:
            parts.append(page_of_pods(pending_pods(), t.pending, which, limit, after))
        if not parts:
            return []
        both = sa.union_all(*(sa.select(part.subquery()) for part in parts)).subquery()
        query = sa.select(both, t.templates.c.spec.label("template")).select_from(
            both.outerjoin(t.templates, t.templates.c.signature == both.c.signature)
        )
        return await self._rows(query.order_by(both.c.pod_uid).limit(limit))

    async def pod(self, namespace: str, name: str) -> Row | None:
        """Look among the pending pods, then follow the pod's decisions to an open placement."""
        d, p = t.decisions.c, t.placements.c
        placed = (
            bound_pods()
            .select_from(t.placements.join(t.decisions, sa.and_(p.shard == d.shard, p.seq == d.seq)))
            .where(d.namespace == namespace, d.name == name, p.released_at_ms.is_(None))
        )
        waiting = pending_pods().where(t.pending.c.namespace == namespace, t.pending.c.name == name)
        both = sa.union_all(placed, waiting).subquery()
        query = sa.select(both, t.templates.c.spec.label("template")).select_from(
            both.outerjoin(t.templates, t.templates.c.signature == both.c.signature)
        )
        return await self._row(query.order_by(both.c.since_ms.desc()).limit(1))

    async def pod_placements(self, namespace: str, name: str, limit: int) -> Sequence[Row]:
        """Follow the pod's decisions to its placements."""
        d, p = t.decisions.c, t.placements.c
        joined = t.placements.join(t.decisions, sa.and_(p.shard == d.shard, p.seq == d.seq))
        return await self._rows(
            sa.select(t.placements)
            .select_from(joined)
            .where(d.namespace == namespace, d.name == name)
            .order_by(p.bound_at_ms.desc(), p.seq.desc())
            .limit(limit)
        )

    async def template(self, signature: bytes) -> Row | None:
        """Read one template."""
        return await self._row(sa.select(t.templates).where(t.templates.c.signature == signature))

    # ----------------------------------------------------------------------------------------- decisions

    async def decisions(
        self, which: DecisionFilter, limit: int, after: tuple[int, int] | None, newest_first: bool
    ) -> Sequence[Row]:
        """Read a page: of one pod along its index, else of each shard along its primary key."""
        d = t.decisions.c
        where = decision_conditions(which)
        if after is not None:
            at = sa.tuple_(d.seq, d.shard)
            where.append(at < after if newest_first else at > after)
        order = [d.seq.desc(), d.shard.desc()] if newest_first else [d.seq, d.shard]
        if which.name is not None or which.shard is not None:
            return await self._rows(sa.select(*_DECISION_COLUMNS).where(*where).order_by(*order).limit(limit))
        page = (
            sa.select(*_DECISION_COLUMNS)
            .where(d.shard == t.shards.c.shard, *where)
            .order_by(order[0])
            .limit(limit)
            .correlate(t.shards)
            .lateral("page")
        )
        merged = [page.c.seq.desc(), page.c.shard.desc()] if newest_first else [page.c.seq, page.c.shard]
        everything = t.shards.join(page, sa.true())
        return await self._rows(sa.select(page).select_from(everything).order_by(*merged).limit(limit))

    async def decision(self, shard: int, seq: int) -> Row | None:
        """Read one decision."""
        d = t.decisions.c
        return await self._row(sa.select(*_DECISION_COLUMNS).where(d.shard == shard, d.seq == seq))

    async def cycle(self, shard: int, seq: int) -> Row | None:
        """Read one cycle."""
        c = t.cycles.c
        row = await self._row(sa.select(t.cycles).where(c.shard == shard, c.seq == seq))
        return row and {**row, "doc": msgspec.json.decode(row["doc"])}

    async def pending(self, shard: int | None, signature: bytes | None = None) -> Sequence[Row]:
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
        return await self._rows(
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
                t.templates.c.spec.label("template"),
            )
            .select_from(joined)
            .order_by(some.c.count.desc(), some.c.shard, some.c.arrival)
        )

    async def deadletters(self, limit: int, after: tuple[int, int] | None) -> Sequence[Row]:
        """Read a page of dead letters, latest first."""
        x = t.dead_letters.c
        query = sa.select(t.dead_letters).order_by(x.seq.desc(), x.shard.desc()).limit(limit)
        if after is not None:
            query = query.where(sa.tuple_(x.seq, x.shard) < after)
        return await self._rows(query)

    # ------------------------------------------------------------------------------------------ profiles

    async def profiles(self, limit: int, after: str | None) -> Sequence[Row]:
        """Read the last revision of each name where that is no deletion."""
        p = t.profiles.c
        name = p.name.collate("C")  # the order in which the built-in ones are merged with them
        last = sa.select(p.name, sa.func.max(p.revision).label("revision")).group_by(p.name).subquery()
        joined = t.profiles.join(last, sa.and_(p.name == last.c.name, p.revision == last.c.revision))
        query = sa.select(t.profiles).select_from(joined).where(p.spec.is_not(None))
        query = query if after is None else query.where(name > after)
        return await self._rows(query.order_by(name).limit(limit))

    async def profile_revisions(self, name: str, limit: int, revision: int | None) -> Sequence[Row]:
        """Walk the primary key backwards."""
        p = t.profiles.c
        query = sa.select(t.profiles).where(p.name == name).order_by(p.revision.desc()).limit(limit)
        return await self._rows(query if revision is None else query.where(p.revision == revision))

    # ----------------------------------------------------------------------------- event ids and API keys

    async def known_events(self, ids: Sequence[str]) -> set[str]:
        """Look ids up by the primary key."""
        i, wanted = t.ingested_events.c, texts(ids)
        joined = t.ingested_events.join(wanted, i.id == wanted.c.id)
        return {row["id"] for row in await self._rows(sa.select(i.id).select_from(joined))}

    async def record_events(self, ids: Sequence[str]) -> None:
        """Insert what is new."""
        statement = insert(t.ingested_events).from_select(["id"], sa.select(texts(ids)))
        await self._write(statement.on_conflict_do_nothing())

    async def keys(self) -> Sequence[Row]:
        """List the keys by age."""
        k = t.api_keys.c
        return await self._rows(
            sa.select(k.name, k.role, k.created_at, k.revoked_at).order_by(k.created_at, k.name)
        )

    async def key_role(self, key_hash: bytes) -> str | None:
        """Look a key up by its hash."""
        k = t.api_keys.c
        row = await self._row(sa.select(k.role).where(k.key_hash == key_hash, k.revoked_at.is_(None)))
        return None if row is None else str(row["role"])

    async def create_key(self, key_hash: bytes, name: str, role: str) -> None:
        """Insert a key."""
        await self._write(sa.insert(t.api_keys).values(key_hash=key_hash, name=name, role=role))

    async def revoke_key(self, name: str) -> int:
        """Stamp the keys of this name that are not revoked yet."""
        k = t.api_keys.c
        statement = sa.update(t.api_keys).where(k.name == name, k.revoked_at.is_(None))
        return await self._write(statement.values(revoked_at=sa.func.now()))


@contextlib.contextmanager
def _faults() -> Iterator[None]:
    """Say what a fault of the database means to whoever asked; all else passes."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        cause = error.orig.__cause__ if error.orig is not None else None
        if isinstance(cause, asyncpg.UndefinedTableError):
            raise NotLaidDown from error
        if error.connection_invalidated or isinstance(cause, UNANSWERED):
            raise Unavailable(f"the ledger does not answer: {cause or type(error).__name__}") from error
        raise
