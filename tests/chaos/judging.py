"""Judges a day on real servers: the auditor of the simulated days, and the ledger's own invariants."""

from __future__ import annotations

import asyncio
import multiprocessing
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgspec
import sqlalchemy as sa

from domain.colocation.pricing import BillLine
from domain.model.actions import NodeAction
from domain.model.decisions import Decision
from services.adapters.memory.database import CursorRow, MemoryDatabase, PlacementRow
from services.adapters.postgres.audit import check
from services.adapters.postgres.engine import Engine
from services.adapters.postgres.loading import read_parts
from services.adapters.postgres.past import PostgresPast
from services.ports.inbox import source_of
from services.ports.journal import Owned
from services.ports.ledger import ActionRow, DeadLetter, PlacementOpened, ProfileRow
from services.ports.log import (
    CONFIG_TOPIC,
    DECISIONS_TOPIC,
    NODES_TOPIC,
    PODS_TOPIC,
    TICKS_TOPIC,
    USAGE_TOPIC,
    Record,
    TopicPartition,
)
from services.ports.outbox import Stream
from services.ports.past import BatchId
from tests.chaos.gangs import left_out, members_of, parts
from tests.chaos.reading import read_log
from tests.chaos.servers import Servers
from tests.simulation.auditor import Auditor
from tests.simulation.invariants import Invariant
from tests.simulation.past import Then, Told
from tests.simulation.servers import SimulatedDatabase, SimulatedLog
from tests.simulation.tape import USAGE_SHARD, Commit, in_order

Found = list[tuple[str, str]]
_DECISIONS = """
SELECT shard, epoch, seq, pod_uid, namespace, name, outcome, node, decided_at_ms, profile, profile_revision,
    signature, payload
FROM decisions ORDER BY shard, seq
"""
_PLACEMENTS = """
SELECT shard, seq, pod_uid, namespace, name, signature, node, adopted, bound_at_ms, released_at_ms
FROM placements ORDER BY recorded_at, shard, seq
"""
_LETTERS = "SELECT * FROM dead_letters ORDER BY shard, seq"
_PROFILES = "SELECT name, revision, spec, resource_version, at_ms FROM profiles"
_WRITTEN = "SELECT shard, seq FROM decisions ORDER BY ctid"
_INBOX = "SELECT home, source, number, log_offset FROM inbox"
_JOURNAL = """
SELECT shard, batch, worker, owned, followed, lanes, seqs, log_time_ms FROM journal ORDER BY position
"""
_ACTIONS = "SELECT node, at_ms, logged_ms, kind, quality, reason, uid FROM node_actions ORDER BY id"
_BILL = """
SELECT hour_ms, namespace, quality, part, resource, amount, price_micro, saved_micro FROM bill_hours
"""
_WAITING = ("pending", "nominations", "evictions", "inbox", "forwarded", "config_objects")
_PLACED = "SELECT pod_uid, node FROM placements WHERE released_at_ms IS NULL"
_WAIT = "SELECT pod_uid FROM pending"
_OFFERED = """
SELECT n.name, s.spec->'allocatable' AS offered FROM nodes n
JOIN node_specs s ON s.node_id = n.id AND s.version = n.spec_version WHERE NOT n.deleted
"""
_CURSORS = "SELECT shard, decisions_seq, dead_letters_seq, alarm FROM relay_cursor"


class ReadLog:
    """What the broker holds, read with a plain client."""

    def __init__(self, records: dict[TopicPartition, list[Record]]) -> None:
        self._records = records

    def records(self, at: TopicPartition) -> list[Record]:
        """Return what a partition holds."""
        return self._records[at]

    def between(self, at: TopicPartition, lo: int, hi: int) -> list[Record]:
        """Return what a partition holds at these offsets, ``hi`` not included."""
        records = self._records[at]
        first, end = (bisect_left(records, offset, key=lambda record: record.offset) for offset in (lo, hi))
        return records[first:end]


def partitions_of_producers(shards: int) -> list[TopicPartition]:
    """Return the partitions that producers write to."""
    homes = [TopicPartition(topic, i) for topic in (NODES_TOPIC, PODS_TOPIC) for i in range(shards)]
    return [*homes, TopicPartition(CONFIG_TOPIC, 0), TopicPartition(USAGE_TOPIC, 0)]


async def read_ledger(connection: Any, shards: int) -> MemoryDatabase:
    """Return the tables that the auditor looks at."""
    tables = MemoryDatabase(shards)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        parts = dict(read_parts(connection, range(shards)))
        tables.nodes = {row.id: row async for row in parts["nodes"]}
        tables.pending = {(row.pod_uid, row.shard): row async for row in parts["pending"]}
        tables.nominations.restore([row async for row in parts["nominations"]])
        tables.moves.restore([row async for row in parts["moves"]])
        tables.measured.usage = {row.record.node: row async for row in parts["usage"]}
        for row in await connection.fetch(_ACTIONS):
            told = dict(row)
            logged_ms = told.pop("logged_ms")
            action = msgspec.convert(told, NodeAction)
            tables.measured.actions.append(ActionRow(action, logged_ms, None))
        for row in await connection.fetch(_BILL):
            line = BillLine(*row[:5], *map(int, row[5:]))
            tables.measured.bill[line[:5]] = line
        for row in await connection.fetch(_DECISIONS):
            made = dict(row)
            payload = made.pop("payload")
            decision = msgspec.convert({**made, "resource_version": None}, Decision)
            tables.decisions[row["shard"]].append((decision, payload))
        for row in await connection.fetch(_PLACEMENTS):
            told = dict(row)
            ended_ms, told["at_ms"] = told.pop("released_at_ms"), told.pop("bound_at_ms")
            placed = PlacementRow(PlacementOpened(**told, resource_version=None, labels={}), ended_ms)
            tables.placements.append(placed)
            if ended_ms is None:
                tables.open_placements[row["pod_uid"], row["shard"]] = placed
        for row in await connection.fetch(_LETTERS):
            told = dict(row)
            told["offset"] = told.pop("log_offset")
            letter = msgspec.convert({**told, "recorded_at": None}, DeadLetter)
            tables.dead_letters[row["shard"]].append(letter)
        for row in await connection.fetch(_PROFILES):
            spec = row["spec"] and msgspec.json.decode(row["spec"])
            told = dict(row) | {"spec": spec}
            tables.profiles[row["name"], row["revision"]] = ProfileRow(**told)
        for row in await connection.fetch(_CURSORS):
            published = {
                Stream.DECISIONS: row["decisions_seq"],
                Stream.DEAD_LETTERS: row["dead_letters_seq"],
            }
            tables.cursors[row["shard"]] = CursorRow(published=published, alarm=row["alarm"])
    return tables


def in_turn(
    spans: Mapping[int, Sequence[int]], written: Mapping[tuple[int, int], int]
) -> list[tuple[int, int]]:
    """Return what a batch decided in about the order in which it did: that of each shard is its numbers'.

    Where rows lie tells how those of several shards mix; but rows come to lie before earlier ones, too, where
    a transaction was undone and left room.
    """
    turns = []
    for shard, seqs in spans.items():
        latest = 0
        for seq in seqs:
            latest = max(latest, written[shard, seq])
            turns.append((latest, shard, seq))
    return [(shard, seq) for _, shard, seq in sorted(turns)]


async def read_commits(connection: Any, log: ReadLog) -> list[Commit]:
    """Return what each transaction took from the log and decided, in order, by the journal.

    Each also says what its worker knew of the others: so much of it as changed is in each row. What was
    handed over is taken by its home.
    """
    commits = []
    written = {tuple(row): at for at, row in enumerate(await connection.fetch(_WRITTEN))}
    handed = {row[:3]: row[3] for row in map(tuple, await connection.fetch(_INBOX))}
    passed_on = {(source, offset) for (_, source, _), offset in handed.items()}

    def taken(shard: int, topic: str, number: int, lo: int, hi: int) -> list[Record]:
        """Return the records of a lane."""
        source = source_of(topic)
        if source is not None:
            offsets = {handed[shard, source, each] for each in range(lo, hi)}
            return [r for r in log.records(TopicPartition(PODS_TOPIC, source)) if r.offset in offsets]
        if topic.startswith("~"):
            return []
        found = [r for r in log.records(TopicPartition(topic, number)) if lo <= r.offset < hi]
        return [r for r in found if topic != PODS_TOPIC or (shard, r.offset) not in passed_on]

    known: dict[str, tuple[dict[int, int], Sequence[int]]] = {}
    for row in await connection.fetch(_JOURNAL):
        lanes = [taken(*lane) for lane in msgspec.json.decode(row["lanes"])]
        spans = {int(shard): range(*span) for shard, span in msgspec.json.decode(row["seqs"]).items()}
        decided = in_turn(spans, written)
        followed, own = known.get(row["worker"], ({}, ()))
        for change in msgspec.json.decode(row["owned"] or b"[]", type=list[Owned]):
            followed, own = followed | dict(change.followed), sorted(change.leases)
        followed = followed | msgspec.json.decode(row["followed"] or b"{}", type=dict[int, int])
        known[row["worker"]] = followed, own
        number = row["shard"], row["batch"]
        is_ordered = len(spans) < 2
        usage_batch = None if USAGE_SHARD in own else followed.get(USAGE_SHARD, 0)
        known_then = followed, is_ordered, usage_batch, row["log_time_ms"]
        commits.append(Commit(in_order(lanes), decided, {}, number, own, *known_then))
    return commits


async def keep(servers: Servers, folder: Path) -> None:
    """Keep what tells how a bad day came about: the tables of what was decided, and in which order."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    async with servers.connected() as connection:
        for table in ("decisions", "placements", "journal", "nodes", "node_specs", "claims", *_WAITING):
            query, path = f"SELECT * FROM {table}", folder / f"{table}.csv"
            await connection.copy_from_query(query, output=path, format="csv", header=True)


async def told_by_postgres(dsn: str, numbers: Sequence[BatchId]) -> Told:
    """Return what the ledger in Postgres tells as of these batches."""
    engine = Engine(dsn)
    try:
        past = PostgresPast(engine)
        moments = [await past.moment(number) for number in numbers]
        told = []
        for moment in moments:
            then = engine.as_of(moment)
            placed = dict(map(tuple, await then.rows(sa.text(_PLACED))))
            waiting = {row.pod_uid for row in await then.rows(sa.text(_WAIT))}
            offered = {row.name: row.offered for row in await then.rows(sa.text(_OFFERED))}
            told.append(Then(placed, waiting, offered))
        return Told(told, [await past.changes(one, two, None) for one, two in pairwise(moments)])
    finally:
        await engine.aclose()


async def judge(
    servers: Servers, shards: int, acknowledged: dict[tuple[str, int, int], bytes], late_relays: int
) -> tuple[Found, int, str]:
    """Return what is wrong, by name, how many moments were compared, and all records by time.

    Nothing of berth may run.
    """
    told = [TopicPartition(DECISIONS_TOPIC, shard) for shard in range(shards)]
    partitions = [*partitions_of_producers(shards), TopicPartition(TICKS_TOPIC, 0), *told]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        reading = pool.submit(read_log, servers.kafka.bootstrap, partitions)
        log = ReadLog(await asyncio.wrap_future(reading))
    async with servers.connected() as connection:
        tables = await read_ledger(connection, shards)
        commits = await read_commits(connection, log)
        found = [("GANG_LEFT_OUT", each) for each in await left_out(connection)]
    found += [("PART_OF_A_GANG", each) for each in parts(tables, commits)]
    auditor = Auditor(cast(SimulatedLog, log), cast(SimulatedDatabase, tables))
    auditor.late_publishers = late_relays
    sent: Sequence[Record] = [record for at in partitions_of_producers(shards) for record in log.records(at)]
    auditor.tape.commits = commits
    auditor.told_of = lambda numbers: asyncio.run(told_by_postgres(servers.dsn, numbers))
    await asyncio.to_thread(auditor.judge)
    members = members_of(tables)  # what they wait for is judged above
    found += [
        (invariant.name, message)
        for invariant, message in auditor.findings.found
        if not (invariant is Invariant.NOT_DRAINED and message.partition(" ")[0] in members)
    ]
    taken = Counter((r.topic, r.partition, r.offset) for commit in commits for r in commit.records)
    differ = Counter((r.topic, r.partition, r.offset) for r in sent) - taken
    found += [("OFFSET_GAP", f"in no row of the journal: {sorted(differ)[:5]}")] if differ else []
    held = {(r.topic, r.partition, r.offset): r.value for r in sent}
    lost = [at for at, value in acknowledged.items() if held.get(at) != value]
    found += [("BROKER_LOST_A_RECORD", str(lost[:5]))] if lost else []
    for violation in await check(servers.dsn):
        if not violation.warning:
            found.append((violation.name, f"{violation.says}: {violation.rows[:3]}"))
    rows = sorted((r.timestamp_ms, *r[:5]) for at in partitions for r in log.records(at))
    return found, auditor.moments, "\n".join(" ".join(map(str, row)) for row in rows)
