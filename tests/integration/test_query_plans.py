"""Do the hot statements use their indexes, on full tables and with plans made while they were empty?"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any

import asyncpg
import orjson
import pytest
import pytest_asyncio
import sqlalchemy as sa

from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.store import MemoryStore
from services.adapters.postgres import rollups, sql, sql_nodes, sql_outbox, tail
from services.adapters.postgres.connections import COMMON, EXPORT, HOT, Limits, fresh
from services.adapters.postgres.engine import Engine, Pool
from services.adapters.postgres.exports import export_statement
from services.adapters.postgres.migrate import init_shards
from services.adapters.postgres.rows import texts_array
from services.adapters.postgres.store import PostgresStore
from services.ports.access import AccessFilter
from services.ports.bills import BillBy, BillFilter
from services.ports.chronicle import Chronicle, PastPlace, Rank, Window
from services.ports.exports import SCHEMAS, ExportFilter, What
from services.ports.log import Span
from services.ports.past import Moment
from services.ports.rollups import STEP_MS, By, OverTime, UsageFilter
from services.ports.store import (
    Bills,
    Callers,
    ConfigFilter,
    DecisionFilter,
    PodFilter,
    Processes,
    Store,
    WaitingGroup,
)
from tests.servers import MakeDatabase

ROWS = 20_000
HOUR_MS = 3_600_000
SOME = 500

TEAM = "CASE WHEN i % 1000 = 1 THEN 'rare' ELSE 'ns' END"
"""A namespace that has nearly all, and one that has few."""
GANG = "CASE WHEN i % 2 = 1 THEN 'g' || i / 20 END"
"""Half of the pods are in gangs of ten."""

FILL = f"""
INSERT INTO nodes SELECT i, 'n' || i, 1, 1, false, '{{8}}', '{{0}}' FROM generate_series(1, {ROWS}) AS i;
INSERT INTO placements (shard, seq, pod_uid, namespace, name, signature, node, adopted, bound_at_ms,
    released_at_ms, gang)
SELECT i % 4, i / 4 + 1, 'uid' || i, {TEAM}, 'p' || i, '\\x00', 'n' || i, false, 1,
    CASE WHEN i % 10 = 0 THEN 2 END, {GANG}
FROM generate_series(0, {ROWS} - 1) AS i;
INSERT INTO pending (pod_uid, namespace, name, signature, shard, arrival, since_ms, gang)
SELECT 'uid' || i, {TEAM}, 'p' || i, decode(lpad(to_hex(i % 100), 2, '0'), 'hex'), i % 4, i, 1, {GANG}
FROM generate_series(1, {ROWS}) AS i;
INSERT INTO pending_groups
SELECT i % 4, decode(lpad(to_hex(i % 100), 2, '0'), 'hex'), '{{}}', false, 1, 1
FROM generate_series(0, 99) AS i;
INSERT INTO decisions (shard, seq, epoch, pod_uid, namespace, name, outcome, node, profile, profile_revision,
    signature, cycle_seq, decided_at_ms, payload)
SELECT i % 4, i / 4 + 1, 1, 'uid' || i, {TEAM}, 'p' || i,
    CASE WHEN i % 1000 = 0 THEN 'unschedulable' ELSE 'bound' END,
    'n' || i % 5000, 'default-scheduler', i / 1000, convert_to('group-' || i / 100, 'UTF8'), 0, i,
    convert_to(repeat(md5(i::text), 18), 'UTF8')
FROM generate_series(0, {ROWS} - 1) AS i;
INSERT INTO group_attempts
SELECT i % 4, convert_to('group-' || i / 64, 'UTF8'), i, 1, 1, 1, 'p', 1, 1, '{{}}', false, 0
FROM generate_series(0, {ROWS} - 1) AS i;
INSERT INTO dead_letters (shard, seq, topic, partition, log_offset, key, raw, code, path, message, at_ms)
SELECT i % 4, i / 4 + 1, 'berth.pods', 0, 1, convert_to({TEAM} || '/p' || i, 'UTF8'), '', '', '', '', 1
FROM generate_series(0, {ROWS} - 1) AS i;
INSERT INTO nominations (pod_uid, shard, namespace, name, signature, node, at_ms, expires_ms)
SELECT 'uid' || i, i % 4, {TEAM}, 'p' || i, '\\x00', 'n' || i, 1, 2 FROM generate_series(1, {ROWS}) AS i;
INSERT INTO evictions SELECT 'uid' || i, i % 4, {TEAM}, 'p' || i, 'uid' || i / 4, i / 4 % 4
FROM generate_series(1, {ROWS}) AS i;
INSERT INTO moves SELECT 'n' || i, 'uid' || i, i % 4, {TEAM}, 'p' || i, 'n0', i % 4, 1, 2, 3, true
FROM generate_series(1, {ROWS}) AS i;
INSERT INTO config_objects (kind, namespace, name, object, at_ms)
SELECT 'Service', {TEAM}, 's' || i, '{{}}', 1 FROM generate_series(1, {ROWS}) AS i;
INSERT INTO config_objects (kind, namespace, name, object, at_ms)
SELECT 'PodGroup', 'ns', 'g' || i, '{{}}', 1 FROM generate_series(0, {ROWS} / 20) AS i;
INSERT INTO bill_hours
SELECT i::bigint * {HOUR_MS}, {TEAM}, 'low', 'low', 'cpu', 1, 1, 1 FROM generate_series(1, {ROWS}) AS i;
INSERT INTO node_actions (node, at_ms, logged_ms, kind, quality, times, reason, policy, namespace, name, uid)
SELECT 'n' || i % 100, i, i, 'idle', 'low', 1, '', '', '', '', '' FROM generate_series(1, {ROWS}) AS i;
INSERT INTO rollup_counts
SELECT i::bigint * {STEP_MS}, 'node', 'n', 'bound', 1 FROM generate_series(1, {ROWS}) AS i;
INSERT INTO rollup_samples SELECT i::bigint * {STEP_MS}, i FROM generate_series(1, {ROWS}) AS i;
INSERT INTO rollup_gauges (step_ms, kind, name)
SELECT i::bigint * {STEP_MS}, 'node', 'n' FROM generate_series(1, {ROWS}) AS i;
INSERT INTO node_usage SELECT 'n' || i, 1, '{{}}', '{{}}' FROM generate_series(1, {ROWS}) AS i;
INSERT INTO access_log (minute_ms, digest, at_ms, last_at_ms, times, caller, roles, address, method, route,
    target, status, code, duration_ms, spans)
SELECT i, '', i, i, 1, 'key:' || i % 100, '{{}}', '', '', '', '', 200 + i % 300, '', 1, '[]'
FROM generate_series(1, {ROWS}) AS i;
INSERT INTO cycles (shard, seq, doc) SELECT i % 4, i / 4 + 1, '' FROM generate_series(0, {ROWS} - 1) AS i;
INSERT INTO ingested_events (holder, id) SELECT 'h', 'e' || i FROM generate_series(0, {ROWS} - 1) AS i;
INSERT INTO access_log (minute_ms, digest, at_ms, last_at_ms, times, caller, roles, address, method, route,
    target, status, code, duration_ms, spans)
SELECT i * 60000, decode(md5(i::text), 'hex'), i * 60000 + 1, i * 60000 + 9, 2, 'key:a' || i % 100,
    '{{admin}}', '::1', 'GET', '/v1/pods', '/v1/pods', CASE WHEN i % 500 = 0 THEN 401 ELSE 200 END, '',
    3, '[]'
FROM generate_series(0, {ROWS} - 1) AS i;
INSERT INTO shard_offsets SELECT i % 4, 't', i, 1, 0 FROM generate_series(0, 99) AS i;
INSERT INTO journal (shard, batch, renewed, lanes, record_order, seqs, log_time_ms, decisions_hash, effects)
SELECT i % 4, i / 4 + 1, false, '[]', '', '{{}}', i, '', '{{}}' FROM generate_series(0, {ROWS} - 1) AS i;
"""

_SHARDS = [0, 1, 2, 3]
_IDS = list(range(1, SOME + 1))
_UIDS = [f"uid{i}" for i in _IDS]
_ONES = [1] * SOME
_MARK = (0, 7)
"""The batch that a row is dated by."""
_OWN = [0, 1]
_BYTES = [i.to_bytes(1, "big") for i in range(100)]


def _texts(*columns: Sequence[object]) -> tuple[str, ...]:
    return tuple(texts_array(map(str, column)) for column in columns)


HOT_STATEMENTS: dict[str, tuple[str, tuple[Any, ...], set[str]]] = {
    "advance offsets": (
        sql.ADVANCE_OFFSETS,
        (_SHARDS, ["t"] * 4, _SHARDS, [1] * 4, [0] * 4, [1] * 4),
        {"shard_offsets_pkey"},
    ),
    "advance shards": (
        sql.ADVANCE_SHARDS,
        (_SHARDS, [0] * 4, [1] * 4, [2] * 4, [1] * 4, [1] * 4, 5, uuid.UUID(int=0), 9),
        {"shards_pkey"},
    ),
    "take facts": (
        sql_nodes.take_facts(2),
        _texts(_IDS, _ONES, _ONES, ["NULL"] * SOME, [False] * SOME, _ONES, _ONES, [0] * SOME),
        {"nodes_pkey"},
    ),
    "grant claims": (
        sql_nodes.grant_claims(2),
        _texts(_IDS, _ONES, _ONES, _ONES, [True] * SOME, [True] * SOME, _ONES, [0] * SOME),
        {"nodes_pkey"},
    ),
    "close placements": (
        sql.CLOSE_PLACEMENTS,
        (_UIDS, [3] * SOME, _OWN, *_MARK),
        {"placements_open", "placements_pkey", "evictions_pkey", "moves_open"},
    ),
    "end nominations": (
        sql.END_NOMINATIONS,
        (_UIDS, _OWN),
        {"nominations_pkey", "evictions_preemptor"},
    ),
    "spare moves": (sql.SPARE_MOVES, (["n7", "n8"], _OWN), {"moves_pkey"}),
    "forget moves": (sql.FORGET_MOVES, (["n7", "n8"], _OWN), {"moves_pkey"}),
    "count placements": (sql.COUNT_PLACEMENTS, (_UIDS, _OWN), {"placements_open"}),
    "tell placements": (sql.TELL_PLACEMENTS, (_UIDS, [True] * SOME, _OWN), {"placements_open"}),
    "load who was told": (sql.LOAD_ORPHANED, (_OWN,), {"placements_orphaned"}),
    "refresh placements": (
        sql.REFRESH_PLACEMENTS,
        (_UIDS, [3] * SOME, [None] * SOME, [None] * SOME, _OWN, *_MARK),
        {"placements_open"},
    ),
    "remove pending": (sql.REMOVE_PENDING, (_UIDS, _OWN, *_MARK), {"pending_pkey"}),
    "remove empty groups": (
        sql.REMOVE_EMPTY_GROUPS,
        ([i % 4 for i in range(100)], _BYTES, *_MARK),
        {"pending_groups_pkey", "pending_group"},
    ),
    "resolve offsets": (
        sql.READ_OFFSETS,
        (_SHARDS, ["t"] * 4, _SHARDS),
        {"shard_offsets_pkey"},
    ),
}

OUTBOX_STATEMENTS: dict[str, tuple[str, tuple[Any, ...], set[str]]] = {
    "decisions to publish": (sql_outbox.DECISIONS_AFTER, (1, ROWS // 8, 100), {"decisions_pkey"}),
    "decisions in the topic": (sql_outbox.DECISIONS_OF, (1, [3, ROWS // 8]), {"decisions_pkey"}),
    "dead letters to publish": (sql_outbox.DEAD_LETTERS_AFTER, (1, ROWS // 8, 100), {"dead_letters_pkey"}),
}


@pytest_asyncio.fixture
async def dsn(database: MakeDatabase, embedded_dsn: str) -> AsyncIterator[str]:
    """Return a ledger with four shards and nothing else."""
    dsn = await database(embedded_dsn)
    await init_shards(dsn, 4)
    yield dsn


async def _fill(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(FILL)
    await connection.close()


def _scans(plan: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Return the indexes that a plan uses, and the tables that it reads whole."""
    indexes, whole = set(), set()
    if "Index Name" in plan:
        indexes.add(plan["Index Name"])
    if plan["Node Type"] == "Seq Scan":
        whole.add(plan["Relation Name"])
    for part in plan.get("Plans", ()):
        inner_indexes, inner_whole = _scans(part)
        indexes |= inner_indexes
        whole |= inner_whole
    return indexes, whole


async def _plan(connection: Any, statement: str, values: tuple[Any, ...]) -> dict[str, Any]:
    """Explain as prepared: the generic plan, which is what a long-lived connection runs."""
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    (text,) = await connection.fetchrow(f"EXPLAIN (FORMAT JSON) {statement}", *values)
    return dict(orjson.loads(text)[0]["Plan"])


async def _keeps_its_index(
    connection: Any, statement: str, values: tuple[Any, ...], expected: set[str]
) -> None:
    indexes, whole = _scans(await _plan(connection, statement, values))
    assert (indexes, whole) == (expected, set())


@pytest.mark.parametrize("analysed", [True, False])
async def test_hot_statements_use_their_indexes_on_full_tables(dsn: str, analysed: bool) -> None:
    await _fill(dsn)
    if analysed:
        async with fresh(dsn, "analyse") as connection:
            await connection.execute("ANALYZE")
    for cases, limits in ((HOT_STATEMENTS, HOT), (OUTBOX_STATEMENTS, COMMON)):
        async with fresh(dsn, "plans", limits) as connection:
            for statement, values, expected in cases.values():
                await _keeps_its_index(connection, statement, values, expected)


@pytest.mark.parametrize("case", HOT_STATEMENTS)
async def test_plans_made_on_empty_tables_are_the_same(dsn: str, case: str) -> None:
    statement, values, expected = HOT_STATEMENTS[case]
    async with fresh(dsn, "plans", HOT) as connection:
        await _keeps_its_index(connection, statement, values, expected)


_SET_MOMENT = (
    "SELECT set_config('berth.batches', '{400,400,400,400}', true), "
    "set_config('berth.seqs', '{4000,4000,4000,4000}', true)"
)
_DATE = """
UPDATE placements SET opened_by = shard, opened_batch = seq / 10,
    closed_by = CASE WHEN released_at_ms IS NOT NULL THEN shard END,
    closed_batch = CASE WHEN released_at_ms IS NOT NULL THEN seq / 10 + 20 END
"""
_WAITED = """
INSERT INTO past_pending (removed_by, removed_batch, pod_uid, shard, namespace, name, signature, arrival,
    since_ms)
SELECT i % 4, i / 40, 'w' || i, i % 4, 'ns', 'w' || i, '', i, 1 FROM generate_series(1, 20000) AS i
"""
PAST: dict[str, tuple[Callable[[PostgresStore], Awaitable[Any]], set[str]]] = {
    "a pod": (lambda s: s.pod("ns", "p7"), {"decisions_pod", "placements_pkey", "past_pending_pod"}),
    "where a pod was": (lambda s: s.pod_placements("ns", "p7", 9), {"decisions_pod", "placements_pkey"}),
    "a node": (lambda s: s.node("n7"), {"nodes_name_key"}),
    "the pods of a node": (
        lambda s: s.pods(PodFilter(node="n7", phase="bound"), 9, None),
        {"decisions_node", "placements_pkey"},
    ),
    "all pods": (lambda s: s.pods(PodFilter(phase="bound"), 9, None), {"placements_lifespan"}),
    "an object": (
        lambda s: s.config(ConfigFilter("Service", "ns", "s7"), 1, None),
        {"config_objects_pkey"},
    ),
}


class Explaining(Engine):
    """Explains the statements of the API's store instead of running them."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.plans: list[dict[str, Any]] = []

    async def rows(self, statement: Any, pool: Pool = Pool.LOOKUPS) -> list[Any]:
        """See ``Engine.rows``."""
        async with self._engines[Pool.PAST if self._moment else pool].connect() as connection:
            if self._moment is not None:
                await connection.exec_driver_sql(_SET_MOMENT)
            text = str(statement.compile(connection.engine, compile_kwargs={"literal_binds": True}))
            found = await connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {text}")
            self.plans.append(found.scalar_one()[0]["Plan"])
        return []


async def _is_rare(engine: Engine, namespace: str | None, seen: Collection[str] | None) -> bool:
    return "rare" in (namespace, *(seen or ()))


API_READS: dict[str, tuple[Callable[[PostgresStore], Awaitable[Any]], set[str]]] = {
    "a page of the access log": (
        lambda store: store.callers.accesses(AccessFilter(since_ms=10**9), 9, (10**9 + 10**7, b"d")),
        {"access_log_pkey"},
    ),
    "what a key asked for": (
        lambda store: store.callers.accesses(AccessFilter(caller="key:a7"), 100, None),
        {"access_log_caller"},
    ),
    "failed logins": (
        lambda store: store.callers.accesses(AccessFilter(status=401), 100, None),
        {"access_log_status"},
    ),
    "a page of nodes": (lambda store: store.nodes(100, "n5", None), {"nodes_name_key"}),
    "nodes by a part of their name": (lambda store: store.nodes(100, None, "77"), {"nodes_name_key"}),
    "a node": (lambda store: store.node("n7"), {"nodes_name_key"}),
    "what was measured on a node": (lambda store: store.usage("n7"), {"node_usage_pkey"}),
    "the bill of a day": (
        lambda store: store.bills.total(BillFilter(since_ms=HOUR_MS, until_ms=25 * HOUR_MS)),
        {"bill_hours_pkey"},
    ),
    "the bill of a namespace": (
        lambda store: store.bills.lines(BillFilter(namespaces=("rare",)), BillBy.DAY, 100, None),
        {"bill_hours_namespace"},
    ),
    "a page of configuration": (
        lambda store: store.config(ConfigFilter(), 100, ("Service", "ns", "s5")),
        {"config_objects_pkey"},
    ),
    "configuration that somebody sees who sees few": (
        lambda store: store.seen_by({"rare"}).config(ConfigFilter("Service"), 100, None),
        {"config_objects_pkey"},
    ),
    "a configuration object": (
        lambda store: store.config(ConfigFilter("Service", "ns", "s5"), 1, None),
        {"config_objects_pkey"},
    ),
    "pods that wait": (lambda store: store.pods(PodFilter(phase="pending"), 100, None), {"pending_pkey"}),
    "how far to look for pods of a quality": (
        lambda store: store.pods(PodFilter(qos_class="BestEffort"), 100, "uid5"),
        {"placements_open", "pending_pkey"},
    ),
    "pods of a namespace that has many": (
        lambda store: store.pods(PodFilter(namespace="ns"), 100, "uid5"),
        {"placements_open", "pending_pkey"},
    ),
    "pods of a namespace that has few": (
        lambda store: store.pods(PodFilter(namespace="rare"), 100, None),
        {"decisions_pod", "placements_pkey", "pending_pod"},
    ),
    "pods that somebody sees who sees few": (
        lambda store: store.seen_by({"rare", "none"}).pods(PodFilter(), 100, None),
        {"decisions_pod", "placements_pkey", "pending_pod"},
    ),
    "pods of a node that somebody sees": (
        lambda store: store.seen_by({"ns"}).pods(PodFilter(node="n7", phase="bound"), 100, None),
        {"decisions_node", "placements_pkey"},
    ),
    "decisions of a namespace that has many": (
        lambda store: store.decisions(DecisionFilter(namespace="ns"), 100, None, True),
        {"decisions_pkey"},
    ),
    "decisions of a namespace that has few": (
        lambda store: store.decisions(DecisionFilter(namespace="rare"), 100, None, True),
        {"decisions_pod"},
    ),
    "decisions that somebody sees who sees few": (
        lambda store: store.seen_by({"rare"}).decisions(DecisionFilter(), 100, (9, 1), False),
        {"decisions_pod"},
    ),
    "decisions of a shard": (
        lambda store: store.decisions(DecisionFilter(shard=1), 100, (ROWS // 8, 1), True),
        {"decisions_pkey"},
    ),
    "the page of decisions after one": (
        lambda store: store.decisions(DecisionFilter(), 100, (ROWS // 8, 1), False),
        {"decisions_pkey"},
    ),
    "the versions of pods": (
        lambda store: store.known_versions(["ns/p7", "ns/p8"]),
        {"decisions_pod", "placements_open", "pending_pod"},
    ),
    "decisions of pods by their names": (
        lambda store: store.latest_decisions(["ns/p7", "ns/p8"]),
        {"decisions_pod"},
    ),
    "usage over time": (
        lambda store: store.over_time.points(UsageFilter(0, 9 * STEP_MS, STEP_MS, By.NODE), 100, (7, "n")),
        {"rollup_counts_pkey", "rollup_gauges_pkey", "rollup_samples_pkey"},
    ),
    "nominations": (lambda store: store.nominations(100, ("uid5", 1)), {"nominations_pkey"}),
    "moves": (lambda store: store.processes.moves("n7", None), {"moves_pkey"}),
    "gangs": (
        lambda store: store.gangs(None, None, 100, ("ns", "g5")),
        {"config_objects_pkey", "pending_gang", "placements_gang"},
    ),
    "gangs of who sees few": (
        lambda store: store.seen_by({"rare"}).gangs("rare", None, 100, None),
        {"config_objects_pkey", "pending_gang", "placements_gang"},
    ),
    "a gang": (
        lambda store: store.gangs("ns", "g7", 1, None),
        {"config_objects_pkey", "pending_gang", "placements_gang"},
    ),
    "pods of a gang": (
        lambda store: store.pods(PodFilter(namespace="ns", gang="g7"), 100, None),
        {"placements_gang", "pending_gang"},
    ),
    "what waits": (lambda store: store.pending(None, None, 100, (7, 1, b"7")), {"pending_group"}),
    "what waits in a shard": (lambda store: store.pending(1), {"pending_group"}),
    "the group of a pod": (lambda store: store.pending(1, b"\7"), {"pending_group"}),
    "what waits of who sees few": (lambda store: store.seen_by({"rare"}).pending(None), {"pending_pod"}),
    "where a group stands": (
        lambda store: store.queue_places([WaitingGroup(1, b"\7", 1, 0, (), *[None] * 5)]),
        {"group_attempts_pkey"},  # its second question counts what waits in the shard, as a list does
    ),
    "dead letters": (lambda store: store.deadletters(100, (ROWS // 8, 1)), {"dead_letters_pkey"}),
    "dead letters of who sees few": (
        lambda store: store.seen_by({"rare"}).deadletters(100, None),
        {"dead_letters_key"},
    ),
    "what agents did": (
        lambda store: store.processes.actions(None, None, 100, ROWS // 2),
        {"node_actions_pkey"},
    ),
    "what the agent of a node did": (
        lambda store: store.processes.actions("n7", None, 100, ROWS // 2),
        {"node_actions_node"},
    ),
    "a dead letter": (lambda store: store.deadletter(1, 7), {"dead_letters_pkey"}),
    "the dead letters of a request": (
        lambda store: store.new_deadletters({1: ROWS // 4 - 9}, [Span("berth.pods", 0, 1, 9)]),
        {"dead_letters_pkey"},
    ),
    "who asked for what": (
        lambda store: store.callers.accesses(AccessFilter(), 100, (ROWS // 2, b"")),
        {"access_log_pkey"},
    ),
    "what the keys of a name were used for": (
        lambda store: store.callers.accesses(AccessFilter(caller="key:7"), 100, None),
        {"access_log_caller"},
    ),
    "what was refused": (
        lambda store: store.callers.accesses(AccessFilter(status=403), 100, None),
        {"access_log_status"},
    ),
    "an attempt": (lambda store: store.attempt(1, 7), {"cycles_pkey"}),
    "event ids": (lambda store: store.callers.known_events("h", ["e7", "e8"]), {"ingested_events_pkey"}),
    "a page of pods": (
        lambda store: store.pods(PodFilter(), 100, "uid5"),
        {"placements_open", "pending_pkey", "nodes_name_key"},
    ),
    "a pod": (
        lambda store: store.pod("ns", "p7"),
        {"decisions_pod", "placements_pkey", "pending_pod", "nodes_name_key"},
    ),
    "where a pod was": (
        lambda store: store.pod_placements("ns", "p7", 10),
        {"decisions_pod", "placements_pkey"},
    ),
    "decisions of a pod": (
        lambda store: store.decisions(DecisionFilter(namespace="ns", name="p7"), 10, None, True),
        {"decisions_pod"},
    ),
    "the history of a pod": (lambda store: store.pod_decisions("ns", "p7", 10), {"decisions_pod"}),
    "the latest decisions": (
        lambda store: store.decisions(DecisionFilter(), 10, None, True),
        {"decisions_pkey"},
    ),
    "decisions of a node": (
        lambda store: store.decisions(DecisionFilter(node="n7"), 10, None, True),
        {"decisions_node"},
    ),
    "decisions with an outcome that is rare": (
        lambda store: store.decisions(DecisionFilter(outcome="unschedulable"), 10, None, True),
        {"decisions_outcome"},
    ),
    "decisions since a moment": (
        lambda store: store.decisions(DecisionFilter(since_ms=ROWS - 40), 100, None, False),
        {"decisions_ranges"},
    ),
    "decisions by a revision of a profile": (
        lambda store: store.decisions(
            DecisionFilter(profile="default-scheduler", profile_revision=3), 1000, None, True
        ),
        {"decisions_ranges"},
    ),
    "decisions of a group": (
        lambda store: store.decisions(DecisionFilter(signature=b"group-7"), 100, None, True),
        {"decisions_ranges"},
    ),
    "pods of a node": (
        lambda store: store.pods(PodFilter(node="n7", phase="bound"), 100, None),
        {"decisions_node", "placements_pkey"},
    ),
    "why a group waited": (
        lambda store: store.group_attempts(1, b"group-7"),
        {"group_attempts_pkey"},
    ),
    "a decision": (lambda store: store.decision(1, 7), {"decisions_pkey"}),
}


ON_SMALL_TABLES = {
    "replicas",
    "pulse",
    "owners",
    "workers",
    "shards",
    "offsets",
    "template",
    "profiles",
    "profile_revisions",
    "keys",
    "grant",
    "session",
    "seal_secret",
}
"""Reads of what has few rows: shards, templates, profiles, keys, their sessions."""
COUNTS = {"counts"}
"""Counts what is pending and reads all of it, for the metrics."""
WRITES = {
    "record_events",
    "forget_events",
    "note_accesses",
    "forget_accesses",
    "create_key",
    "revoke_key",
    *("begin_session", "end_session", "forget_sessions"),
    "aclose",
}


class Noting:
    """Notes which methods of a store and of its parts are called."""

    def __init__(self, noted: Any, called: set[str]) -> None:
        self._noted, self.called = noted, called

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._noted, name)
        if name == "seen_by":
            return lambda namespaces: Noting(found(namespaces), self.called)
        if not inspect.iscoroutinefunction(found):
            return Noting(found, self.called)
        self.called.add(name)
        return found


async def test_every_read_has_its_plan_looked_at() -> None:
    store: Any = Noting(MemoryStore(MemoryDatabase(4, lambda: 0)), set())
    for read, _ in API_READS.values():
        await read(store)
    ports = {**vars(Store), **vars(Processes), **vars(Callers), **vars(Bills), **vars(OverTime)}
    public = {name for name, each in ports.items() if inspect.iscoroutinefunction(each)}
    assert public - ON_SMALL_TABLES - COUNTS - WRITES == store.called


async def test_what_programs_ask_the_api_goes_by_an_index(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.adapters.postgres.store._has_few", _is_rare)
    monkeypatch.setattr("services.adapters.postgres.store.WALKED_MAX", 100)  # of many more, as in production
    await _fill(dsn)
    async with fresh(dsn, "analyse") as connection:
        await connection.execute("ANALYZE")
    engine = Explaining(dsn)
    store = PostgresStore(engine)
    empty = {"shards", "templates", "node_specs", "pending_groups"}  # or nearly: an index would not pay
    for name, (read, expected) in API_READS.items():
        engine.plans.clear()
        await read(store)
        indexes, whole = _scans(engine.plans[0])
        assert expected <= indexes, name  # it may lean on the primary key besides
        counted = {"pending"} if name == "what waits" else set()  # all of it, to find the largest groups
        assert not whole - empty - counted, name
    await store.aclose()


async def test_beside_placing_large_tables_are_read_by_an_index(dsn: str) -> None:
    """A slice of the roll-up, and the times and namespaces of an export."""
    await _fill(dsn)
    decisions = SCHEMAS[What.DECISIONS]
    rare, late = ExportFilter(namespaces=["rare"]), ExportFilter(since_ms=ROWS - 40)
    cases = (
        (rollups._COUNT, (1, ROWS // 8, 100), "decisions_pkey"),
        (*export_statement(decisions, late), "decisions_ranges"),
        (*export_statement(decisions, rare), "decisions_pod"),
    )
    async with fresh(dsn, "plans", EXPORT) as connection:
        await connection.execute("ANALYZE")
        for statement, values, index in cases:
            assert index in _scans(await _plan(connection, statement, tuple(values)))[0]


AFTER = PastPlace(9, 9, Rank.ATTEMPT, False, 1, 0)

PAST_READS: dict[str, tuple[Callable[[PostgresStore], Awaitable[Any]], set[str]]] = {
    "of_pod": (lambda s: s.chronicle.of_pod("ns", "p7", None, Window(100, AFTER)), {"decisions_pod"}),
    "on_node": (lambda s: s.chronicle.on_node("n7", ["ns"], Window(100, AFTER, True)), {"decisions_node"}),
    "specs": (lambda s: s.chronicle.specs("n7", Window(100, AFTER)), {"nodes_name_key"}),
    "actions": (
        lambda s: s.chronicle.actions(["n7", "n8"], "ns/p7", None, Window(100, AFTER)),
        {"node_actions_node"},
    ),
}


async def test_a_history_goes_by_indexes(dsn: str) -> None:
    await _fill(dsn)
    async with fresh(dsn, "analyse") as connection:
        await connection.execute("ANALYZE")
    engine = Explaining(dsn)
    store = PostgresStore(engine)
    for name, (read, expected) in PAST_READS.items():
        engine.plans.clear()
        await read(store)
        indexes, whole = _scans(engine.plans[0])
        assert expected <= indexes, name
        assert not whole - {"node_specs"}, name  # which is empty here
    public = {name for name, each in vars(Chronicle).items() if inspect.iscoroutinefunction(each)}
    assert public == PAST_READS.keys() | {"faults", "journal"}, "there are few faults; a journal is counted"
    await store.aclose()


TAIL_STATEMENTS: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "how far the journal is complete": (
        tail.LOOK,
        {"settled": ROWS - 9, "position": ROWS - 9},
        {"journal_position"},
    ),
    "what batches did": (tail.ROWS, {"after": ROWS - 9, "until": ROWS}, {"journal_position"}),
    "their decisions": (
        tail.DECISIONS,
        {"shards": [0, 1], "los": [1, 1], "his": [4, 4]},
        {"decisions_pkey"},
    ),
    "what is kept": (tail.SPOT, {"position": ROWS // 2}, {"journal_pkey", "journal_position"}),
    "where the journals end": (tail.BOUNDS, {}, {"journal_pkey"}),
    "when batches were": (tail.MOMENTS, {"shards": [0, 1], "batches": [7, 8]}, {"journal_pkey"}),
}


async def test_a_stream_goes_by_indexes(dsn: str) -> None:
    await _fill(dsn)
    async with fresh(dsn, "analyse") as connection:
        await connection.execute("ANALYZE")
    engine = Engine(dsn)
    for name, (statement, values, expected) in TAIL_STATEMENTS.items():
        given = [sa.bindparam(key, value, tail.type_of(value)) for key, value in values.items()]
        explaining = sa.text(f"EXPLAIN (FORMAT JSON) {statement}").bindparams(*given)
        (found,) = await engine.rows(explaining, Pool.TAIL)
        indexes, whole = _scans(found[0][0]["Plan"])
        assert expected <= indexes, name
        assert not whole - {"shards", "ledger_name"}, name
    await engine.aclose()


async def test_the_past_goes_by_indexes(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.adapters.postgres.store._has_few", _is_rare)
    await _fill(dsn)
    async with fresh(dsn, "analyse") as connection:
        await connection.execute(_DATE)
        await connection.execute(_WAITED)
        await connection.execute("ANALYZE")
    engine = Explaining(dsn)
    store = PostgresStore(engine).as_of(Moment(1, 1, [400] * 4, [4000] * 4))
    for name, (read, expected) in PAST.items():
        engine.plans.clear()
        await read(store)
        indexes = set().union(*(_scans(plan)[0] for plan in engine.plans))
        assert expected <= indexes, (name, indexes)
    await store.aclose()


async def test_the_test_sees_a_scan(dsn: str) -> None:
    """Without the settings of the hot path the plan scans an empty table, so the settings do matter."""
    statement, values, _ = HOT_STATEMENTS["grant claims"]
    scanning = Limits({**COMMON.settings, "enable_indexscan": "off", "enable_bitmapscan": "off"}, 15)
    async with fresh(dsn, "plans", scanning) as connection:
        _, whole = _scans(await _plan(connection, statement, values))
    assert whole == {"nodes"}
