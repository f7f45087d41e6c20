"""Reading the whole ledger back: one snapshot, streamed, with repeated texts kept once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from domain.model.errors import Fenced, RefoldNeeded
from domain.model.hosting import ReplicasSaid, WaitSaid
from domain.model.limits import tombstones_max
from domain.model.nodes import NodeSpec
from domain.model.pods import PodLife, PodTemplate
from domain.model.usage import QualityRecord, SeriesRecord, UsageRecord
from domain.state.nominations import Victim
from domain.state.remembering import fair_share
from services.adapters.postgres import inbox, rows, sql, sql_guards
from services.adapters.postgres.connections import Connection
from services.ports.journal import BATCHES
from services.ports.ledger import (
    ConfigRow,
    Lease,
    LedgerBase,
    LedgerPart,
    MoveRow,
    NodeRow,
    NominationRow,
    PendingPod,
    PlacementOpened,
    PodTombstone,
    ProfileRow,
    UsageRow,
)

ROWS_PER_FETCH = 1_000
"""So many rows at a time are read without a turn of the event loop: 10 ms."""

_decode_spec = msgspec.json.Decoder(NodeSpec).decode
_decode_template = msgspec.json.Decoder(PodTemplate).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_series = msgspec.json.Decoder(dict[str, SeriesRecord]).decode
_decode_quality = msgspec.json.Decoder(QualityRecord).decode
_decode_victims = msgspec.json.Decoder(tuple[Victim, ...]).decode
_decode_life = msgspec.json.Decoder(PodLife).decode
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode


async def load_base(connection: Connection) -> LedgerBase:
    """See ``Ledger.load_base``. Cost: about 4 µs and 400 bytes per open placement."""
    async with _snapshot(connection):
        return await _base(connection)


async def load_part(connection: Connection, leases: Sequence[Lease], *, gone: bool = False) -> LedgerPart:
    """See ``Ledger.load_part``."""
    async with _snapshot(connection):
        return await _part(connection, leases, gone=gone)


async def load_all(connection: Connection) -> tuple[LedgerBase, LedgerPart]:
    """See ``Ledger.load_all``."""
    async with _snapshot(connection):
        base = await _base(connection)
        owned = range(base.shards_count)
        many = await _all(_part_rows(connection, owned))
        head = await read_head(connection, owned)
        return base, LedgerPart(shards_count=base.shards_count, **head, **many)


def _snapshot(connection: Connection) -> Any:
    return connection.transaction(isolation="repeatable_read", readonly=True)


async def _base(connection: Connection) -> LedgerBase:
    shards_count, log_time_ms, refold, secret = await connection.fetchrow(sql.LOAD_SHARDS)
    if refold:
        raise RefoldNeeded(
            "the pods of this ledger were written by an earlier version, without spread constraints and "
            "affinity terms, and would be placed wrongly; run `berth refold` once: they are read from "
            "the log again, and every pod stays where it is"
        )
    return LedgerBase(
        batches=dict(map(tuple, await connection.fetch(sql.LOAD_BATCHES, BATCHES))),
        lanes={tuple(row)[:2]: row["next_offset"] for row in await connection.fetch(inbox.LOAD_LANES)},
        seq_next=dict(map(tuple, await connection.fetch(sql.LOAD_SEQS))),
        guards=dict(map(tuple, await connection.fetch(sql_guards.LOAD))),
        shards_count=shards_count,
        log_time_ms=log_time_ms or 0,
        seal_secret=secret,
        **await _all(_base_rows(connection)),
    )


async def _part(connection: Connection, leases: Sequence[Lease], *, gone: bool) -> LedgerPart:
    owned = [lease.shard for lease in leases]
    shards = await connection.fetch(sql.READ_SHARDS, owned)
    if {row["shard"]: row["epoch"] for row in shards} != dict(leases):
        raise Fenced("a shard to load has left the epoch of its lease")
    rows = _part_rows(connection, owned)
    if gone:
        rows["gone"] = _tombstones(connection, owned)
    head, many = await read_head(connection, owned), await _all(rows)
    return LedgerPart(shards_count=await connection.fetchval(sql.COUNT_SHARDS), **head, **many)


async def _all(parts: Mapping[str, AsyncIterator[Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {kind: [each async for each in rows] for kind, rows in parts.items()}
    found["templates"] = dict(found["templates"])
    return found


async def read_head(connection: Connection, owned: Sequence[int]) -> dict[str, Any]:
    """Return the fields of ``LedgerPart`` that are few values: offsets and counters."""
    shards = await connection.fetch(sql.READ_SHARDS, owned)
    offsets = await connection.fetch(sql.LOAD_OFFSETS, owned)
    return {
        "offsets": {(row["shard"], row["topic"], row["partition"]): row["next_offset"] for row in offsets},
        "refold_below": {
            (row["shard"], row["topic"], row["partition"]): row["refold_below"]
            for row in offsets
            if (row["refold_below"] or 0) > row["next_offset"]
        },
        "seq_next": {row["shard"]: row["seq_next"] for row in shards},
        "dead_seq_next": {row["shard"]: row["dead_seq_next"] for row in shards},
        "log_time_ms": max((row["log_time_ms"] for row in shards), default=0),
        "scale_seq": await connection.fetchval(sql.LAST_SCALE),
    }


def read_parts(connection: Connection, owned: Sequence[int]) -> Iterator[tuple[str, AsyncIterator[Any]]]:
    """Yield the fields of ``LedgerState`` that are many rows, each to be read once, in this order."""
    yield from _base_rows(connection).items()
    yield from _part_rows(connection, owned).items()


def _part_rows(connection: Connection, owned: Sequence[int]) -> dict[str, AsyncIterator[Any]]:
    owned = list(owned)
    return {
        "templates": _templates(connection, sql.LOAD_TEMPLATES_PENDING, owned),
        "pending": _pending(connection, owned),
        "orphaned": (row[0] async for row in _stream(connection, sql.LOAD_ORPHANED, owned)),
        "forwarded": inbox.forwarded(_stream(connection, inbox.LOAD_FORWARDED, owned)),
    }


def _base_rows(connection: Connection) -> dict[str, AsyncIterator[Any]]:
    return {
        "nodes": _nodes(connection),
        "templates": _templates(connection, sql.LOAD_TEMPLATES_PLACED),
        "placements": _placements(connection),
        "nominations": (
            NominationRow(**{**dict(row), "victims": _decode_victims(row["victims"] or "[]")})
            async for row in _stream(connection, sql.LOAD_NOMINATIONS)
        ),
        "moves": (MoveRow(**dict(row)) async for row in _stream(connection, sql.LOAD_MOVES)),
        "profiles": (
            ProfileRow(**{**dict(row), "spec": row["spec"] and _decode_object(row["spec"])})
            async for row in _stream(connection, sql.LOAD_PROFILES)
        ),
        "config": (
            ConfigRow(**{**dict(row), "object": row["object"] and _decode_object(row["object"])})
            async for row in _stream(connection, sql.LOAD_CONFIG)
        ),
        "usage": (
            UsageRow(
                UsageRecord(
                    node=node,
                    at_ms=at_ms,
                    series=_decode_series(series),
                    quality=None if quality is None else _decode_quality(quality),
                ),
                sent_by,
            )
            async for node, at_ms, series, quality, sent_by in _stream(connection, sql.LOAD_USAGE)
        ),
        "tombstones": _tombstones(connection, None),
        "replicas": (ReplicasSaid(**dict(row)) async for row in _stream(connection, sql.LOAD_HOSTED)),
        "waits": (WaitSaid(*row) async for row in _stream(connection, sql.LOAD_HOSTED_WAITS)),
    }


async def _stream(connection: Connection, query: str, *values: Any) -> AsyncIterator[Any]:
    """Yield the rows one by one. A million at once would take more memory than the state made of them."""
    cursor = await connection.cursor(query, *values)
    while found := await cursor.fetch(ROWS_PER_FETCH):
        for row in found:
            yield row


async def _tombstones(connection: Connection, shards: list[int] | None) -> AsyncIterator[PodTombstone]:
    """Yield as many as a worker remembers: of more, the namespaces with most of them lose their oldest."""
    counts = [row["count"] for row in await connection.fetch(sql.COUNT_TOMBSTONES, shards)]
    latest = (sql.LOAD_LATEST_TOMBSTONES, shards, max(1, fair_share(counts, tombstones_max)))
    found = latest if sum(counts) > tombstones_max else (sql.LOAD_TOMBSTONES, shards)
    once = _Once()
    async for namespace, name, uid, resource_version, shard, at_ms in _stream(connection, *found):
        yield PodTombstone(
            namespace=once.one(namespace),
            name=name,
            uid=uid,
            resource_version=resource_version,
            shard=shard,
            at_ms=at_ms,
        )


def _templates(connection: Connection, query: str, *values: Any) -> AsyncIterator[tuple[bytes, PodTemplate]]:
    return (
        (row["signature"], _decode_template(row["spec"])) async for row in _stream(connection, query, *values)
    )


async def _nodes(connection: Connection) -> AsyncIterator[NodeRow]:
    found = await connection.fetch(sql.RESOURCES)
    ids = rows.ResourceIds({row["name"]: row["id"] for row in found})
    async for row in _stream(connection, sql.LOAD_NODES):
        yield NodeRow(
            id=row["id"],
            name=row["name"],
            version=row["version"],
            spec_count=row["spec_count"],
            spec=_decode_spec(row["spec"]),
            deleted=row["deleted"],
            requested=ids.amounts(row["requested"]),
        )


class _Once:
    """Keeps one object per repeated value."""

    def __init__(self) -> None:
        self._texts: dict[Any, Any] = {}
        self._labels: dict[str | None, dict[str, str]] = {None: {}}

    def one(self, value: Any) -> Any:
        return self._texts.setdefault(value, value)

    def labels(self, text: str | None) -> dict[str, str]:
        found = self._labels.get(text)
        if found is None:
            found = self._labels[text] = _decode_labels(text or "{}")
        return found

    def life(self, text: str | None) -> PodLife | None:
        if text is None:
            return None
        life = _decode_life(text)
        controller = life.controller and self.one(life.controller)  # pods of one owner share it
        return msgspec.structs.replace(life, controller=controller)


def _placements(connection: Connection) -> AsyncIterator[PlacementOpened]:
    once = _Once()
    return (
        PlacementOpened(
            pod_uid=uid,
            namespace=once.one(namespace),
            name=name,
            resource_version=resource_version,
            signature=once.one(signature),
            labels=once.labels(labels),
            node=once.one(node),
            adopted=adopted,
            shard=shard,
            seq=seq,
            at_ms=at_ms,
            life=once.life(life),
            counted=counted,
            home=home,
            gang=once.one(gang),
        )
        async for (
            uid,
            namespace,
            name,
            resource_version,
            signature,
            labels,
            node,
            adopted,
            shard,
            seq,
            at_ms,
            life,
            counted,
            home,
            gang,
        ) in _stream(connection, sql.LOAD_PLACEMENTS)
    )


def _pending(connection: Connection, owned: list[int]) -> AsyncIterator[PendingPod]:
    once = _Once()
    return (
        PendingPod(
            pod_uid=uid,
            namespace=once.one(namespace),
            name=name,
            resource_version=resource_version,
            signature=once.one(signature),
            labels=once.labels(labels),
            shard=shard,
            arrival=arrival,
            since_ms=since_ms,
            sent_by=once.one(sent_by),
            tried=tried,
            life=once.life(life),
            gang=once.one(gang),
        )
        async for (
            uid,
            namespace,
            name,
            resource_version,
            signature,
            labels,
            shard,
            arrival,
            since_ms,
            sent_by,
            tried,
            life,
            gang,
        ) in _stream(connection, sql.LOAD_PENDING, owned)
    )
