"""How fast the API answers about millions of decisions, now and of the past, while batches are committed.

A generator writes a lived history into an empty ledger, by SQL alone, with the columns, keys and records that
workers write: each second a batch places pods, and those that were placed ``life`` seconds before leave. Then
each question is asked many times, with names and moments that a seeded generator draws.

The clock starts when a request is handed to the API's application in this process, and stops when all of its
answer is there. The network is not in it; the database is a server of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import asyncpg
import httpx
import msgspec

from benchmarks.machine import describe
from domain.model.decisions import Attempt, Candidate, Decision, Outcome
from domain.model.pods import PodTemplate
from ops.child import environment, python_module, python_path
from ops.postgres import PostgresServer
from services import bootstrap
from services.api.formats import cursor, instant
from services.codec.attempts import encode_attempt, pack_attempts
from services.codec.encode import encode_decision, template_fragment
from services.ports.journal import BATCHES, JournalRow
from services.ports.ledger import (
    BatchCluster,
    BatchDecisions,
    BatchJournal,
    BatchOffsets,
    BatchPods,
    CommitBatch,
    Committed,
    Lease,
    NodeClaim,
    OffsetAdvance,
    PlacementClosed,
    PlacementOpened,
)
from services.ports.log import PODS_TOPIC, TopicPartition
from services.worker.collector import BRIEFLY, collect_rarely

BEGIN_MS = 1_767_225_600_000  # 2026-01-01
SHARDS = 4
NAMESPACES = 50
TEMPLATES = 1_000
WAITING = 20
"""Pods that begin to wait in a second, each for as long as others are placed."""
FEED_BYTES = 20_000
BESIDE = ("a pod's story", " at T")
"""What is asked beside commits, too."""
CLOCK = "a request is handed to the API in this process; all of its answer is there"

_T = TypeVar("_T")


class Size(NamedTuple):
    """How much is generated: decisions, two for each pod, and pods a second of log time."""

    decisions: int = 10_000_000
    nodes: int = 5_000
    rate: int = 1_000
    life: int = 100  # seconds that a pod stays, and a multiple of SHARDS

    @property
    def seconds(self) -> int:
        """How long the history is; a batch a second."""
        return self.decisions // (2 * self.rate)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question, how often it was asked, and how long the answers took."""

    question: str
    times: int
    p50_ms: float
    p99_ms: float
    answer_bytes: int


class Commits(msgspec.Struct, frozen=True, kw_only=True):
    """How long commits of 2,000 decisions took that another process offered at a rate, and the rate reached.

    A commit that is due while one is under way begins when that has ended.
    """

    beside: str
    batches: int
    offered_per_second: int
    placed_per_second: int
    p50_ms: float
    p99_ms: float


class QueryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured; ``commits`` alone, and beside the questions."""

    nodes: int
    decisions: int
    shards: int
    placed: int
    generated_seconds: float
    asked: Sequence[Asked]
    commits: Sequence[Commits]
    clock: str
    machine: dict[str, Any]


def _record(outcome: Outcome) -> str:
    """Return a record of a decision, for SQL's ``format``: pod number, seq, shard, node, time, namespace."""
    made = Decision(
        shard=999_999_001,
        epoch=1,
        seq=999_999_002,
        pod_uid="uid-@pod",
        namespace="ns-@space",
        name="pod-@pod",
        resource_version=1,
        outcome=outcome,
        node="node-@node",
        decided_at_ms=BEGIN_MS,
        profile="default-scheduler",
        profile_revision=1,
        signature=b"@" * 16,
        cycle_seq=999_999_003,
        score=91.5,
    )
    fragment = template_fragment(PodTemplate(requests=REQUESTS), made.signature)
    text = encode_decision(made, fragment, {"app": "web"}, 17, "key:ops").decode()
    return (
        text.replace("%", "%%")
        .replace("999999001", "%1$s")
        .replace("999999002", "%2$s")
        .replace("999999003", "%3$s")
        .replace("@pod", "%4$s")
        .replace("@space", "%5$s")
        .replace("@node", "%6$s")
        .replace(("@" * 16).encode().hex(), "%7$s")
    )


REQUESTS = {"cpu": 500, "memory": 1 << 30}


def _attempt() -> bytes:
    best = tuple(Candidate(node=f"node-{n}", score=91.5, parts={"NodeResourcesFit": 91.5}) for n in range(5))
    attempt = Attempt(
        signature=bytes(16),
        profile="default-scheduler",
        profile_revision=1,
        seed=0,
        generation=1,
        nodes_count=5_000,
        feasible_count=4_000,
        reasons={"insufficient:cpu": 1_000},
        candidates=best,
        pods_count=10,
        bound_count=10,
    )
    return pack_attempts([1], [msgspec.Raw(encode_attempt(attempt))])


# Batch k of the history, from 0, is batch k / SHARDS + 1 of shard k % SHARDS. It places the pods k * rate and
# on, and lets those go that batch k - life placed, which is of the same shard.
_GENERATE = """
INSERT INTO resources VALUES (1, 'cpu'), (2, 'memory'), (3, 'pods');
INSERT INTO nodes (id, name, version, spec_version, allocatable, requested)
SELECT n, 'node-' || n, 1, 1, '{{64000,274877906944,256}}', '{{0,0,0}}' FROM generate_series(1, {nodes}) AS n;
INSERT INTO node_specs (node_id, version, spec, at_ms, set_by, set_batch)
SELECT n, 1, jsonb_build_object('name', 'node-' || n, 'uid', 'n' || n, 'resource_version', 1,
        'labels', jsonb_build_object('zone', 'z' || n % 3),
        'allocatable', '{{"cpu": 64000, "memory": 274877906944, "pods": 256}}'::jsonb), {begin}, 0, 1
FROM generate_series(1, {nodes}) AS n;
INSERT INTO templates
SELECT decode(md5(t::text), 'hex'), '{{"requests": {{"cpu": 500, "memory": 1073741824}}}}'
FROM generate_series(0, {templates} - 1) AS t;
INSERT INTO decisions (shard, seq, epoch, pod_uid, namespace, name, outcome, node, profile, profile_revision,
    signature, cycle_seq, decided_at_ms, recorded_at, payload)
SELECT k % {shards}, first + slot, 1, 'uid-' || pod, 'ns-' || pod % {namespaces}, 'pod-' || pod,
    CASE WHEN slot < {rate} THEN 'bound' ELSE 'released' END, 'node-' || node, 'default-scheduler', 1,
    signature, first, {begin} + k * 1000, to_timestamp(({begin} + k * 1000) / 1000),
    convert_to(format(
        CASE WHEN slot < {rate} THEN $record${bound}$record$ ELSE $record${released}$record$ END,
        k % {shards}, first + slot, first, pod, pod % {namespaces}, node, encode(signature, 'hex')), 'UTF8')
FROM (
    SELECT k, slot, k / {shards} * 2 * {rate} + 1 AS first, pod, pod * 7919 % {nodes} + 1 AS node,
        decode(md5((pod % {templates})::text), 'hex') AS signature
    FROM generate_series({from_k}, {to_k} - 1) AS k CROSS JOIN generate_series(0, 2 * {rate} - 1) AS slot
    CROSS JOIN LATERAL (
        SELECT CASE WHEN slot < {rate} THEN k * {rate} + slot
            ELSE (k - {life}) * {rate} + slot - {rate} END::bigint AS pod
    ) AS p WHERE pod >= 0
) AS made;
INSERT INTO placements (shard, seq, pod_uid, namespace, name, resource_version, signature, labels, node,
    adopted, bound_at_ms, released_at_ms, recorded_at, released_recorded_at, opened_by, opened_batch,
    closed_by, closed_batch)
SELECT k % {shards}, k / {shards} * 2 * {rate} + 1 + slot, 'uid-' || pod, 'ns-' || pod % {namespaces},
    'pod-' || pod, 1, decode(md5((pod % {templates})::text), 'hex'), '{{"app":"web"}}',
    'node-' || pod * 7919 % {nodes} + 1, false, {begin} + k * 1000,
    CASE WHEN is_over THEN {begin} + (k + {life}) * 1000 END, to_timestamp(({begin} + k * 1000) / 1000),
    CASE WHEN is_over THEN to_timestamp(({begin} + (k + {life}) * 1000) / 1000) END,
    k % {shards}, k / {shards} + 1, CASE WHEN is_over THEN k % {shards} END,
    CASE WHEN is_over THEN (k + {life}) / {shards} + 1 END
FROM (
    SELECT k, slot, k::bigint * {rate} + slot AS pod, k + {life} < {seconds} AS is_over
    FROM generate_series({from_k}, {to_k} - 1) AS k CROSS JOIN generate_series(0, {rate} - 1) AS slot
) AS made;
INSERT INTO past_pending (removed_by, removed_batch, pod_uid, shard, namespace, name, signature, arrival,
    since_ms, added_by, added_batch)
SELECT k % {shards}, (k + {life}) / {shards} + 1, 'wait-' || k || '-' || w, k % {shards},
    'ns-' || w % {namespaces}, 'wait-' || k || '-' || w, decode(md5((w % {templates})::text), 'hex'), k,
    {begin} + k * 1000, k % {shards}, k / {shards} + 1
FROM generate_series({from_k}, least({to_k}, {seconds} - {life}) - 1) AS k
CROSS JOIN generate_series(1, {waiting}) AS w;
INSERT INTO cycles (shard, seq, last_seq, revisions, attempts)
SELECT k % {shards}, k / {shards} * 2 * {rate} + 1, (k / {shards} + 1) * 2 * {rate}, '[]', $1
FROM generate_series({from_k}, {to_k} - 1) AS k;
INSERT INTO journal (shard, batch, renewed, lanes, record_order, seqs, log_time_ms, decisions_hash, effects,
    worker, recorded_at, feed)
SELECT k % {shards}, k / {shards} + 1, false, '[]', '', json_build_object(
        (k % {shards})::text,
        json_build_array(k / {shards} * 2 * {rate} + 1, (k / {shards} + 1) * 2 * {rate} + 1)),
    {begin} + k * 1000, '', '{{}}', 'w' || k % {shards}, to_timestamp(({begin} + k * 1000) / 1000), (
        SELECT decode(string_agg(md5(k::text || i), ''), 'hex') FROM generate_series(1, {feed} / 16) AS i)
FROM generate_series({from_k}, {to_k} - 1) AS k ORDER BY k
"""
_FINISH = """
INSERT INTO pending (pod_uid, namespace, name, signature, shard, arrival, since_ms, added_by, added_batch)
SELECT 'wait-' || k || '-' || w, 'ns-' || w % {namespaces}, 'wait-' || k || '-' || w,
    decode(md5((w % {templates})::text), 'hex'), k % {shards}, k, {begin} + k * 1000, k % {shards},
    k / {shards} + 1
FROM generate_series({seconds} - {life}, {seconds} - 1) AS k CROSS JOIN generate_series(1, {waiting}) AS w;
INSERT INTO pending_groups (shard, signature, reasons, unresolvable, cycle_seq, at_ms)
SELECT DISTINCT shard, signature, '{{"insufficient:cpu": 5000}}'::jsonb, false, 1, {begin} FROM pending;
INSERT INTO group_attempts (shard, signature, number, at_ms, last_at_ms, times, profile, profile_revision,
    nodes_count, reasons, unresolvable, cycle_seq)
SELECT shard, signature, 1, {begin}, {begin}, 1, 'default-scheduler', 1, {nodes}, reasons, false, 1
FROM pending_groups;
UPDATE shards SET seq_next = {seconds} / {shards} * 2 * {rate} + 1,
    log_time_ms = {begin} + ({seconds} - 1) * 1000;
UPDATE nodes SET requested = ARRAY[500 * p.count, 1073741824 * p.count, p.count] FROM (
    SELECT node, count(*) FROM placements WHERE released_at_ms IS NULL GROUP BY node
) AS p WHERE p.node = nodes.name
"""
_STEP = 100
"""Seconds of log time that a statement generates."""


async def generate(dsn: str, size: Size, report: Callable[[str], None] = lambda _: None) -> float:
    """Fill an empty ledger; return how many seconds that took."""
    started = time.perf_counter()
    await bootstrap.initialise(bootstrap.Place(dsn, None), SHARDS)
    connection = await asyncpg.connect(dsn)
    try:
        texts = {"bound": _record(Outcome.BOUND), "released": _record(Outcome.RELEASED)}
        told: dict[str, Any] = {
            **size._asdict(),
            **texts,
            "seconds": size.seconds,
            "begin": BEGIN_MS,
            "shards": SHARDS,
            "namespaces": NAMESPACES,
            "templates": TEMPLATES,
            "waiting": WAITING,
            "feed": FEED_BYTES,
        }
        attempt = _attempt()
        for at in range(0, size.seconds, _STEP):
            span = {"from_k": at, "to_k": min(at + _STEP, size.seconds)}
            statements = _GENERATE.format(**told, **span).split(";\n")
            for statement in statements[4 * (at > 0) :]:
                await connection.execute(statement, *([attempt] if "$1" in statement else []))
            report(f"{2 * size.rate * span['to_k']:,} of {size.decisions:,} decisions")
        for statement in _FINISH.format(**told).split(";\n"):
            await connection.execute(statement)
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()
    return time.perf_counter() - started


# ------------------------------------------------------------------------------------------------- questions

Ask = Callable[[httpx.AsyncClient, random.Random], Awaitable[int]]


def _get(target: Callable[[random.Random], str]) -> Ask:
    async def ask(client: httpx.AsyncClient, draw: random.Random) -> int:
        answer = await client.get(target(draw))
        assert answer.status_code == 200, answer.text[:500]
        return len(answer.content)

    return ask


def _pages(target: Callable[[random.Random], str]) -> Ask:
    """Ask for all pages of a list."""

    async def ask(client: httpx.AsyncClient, draw: random.Random) -> int:
        path, held, after = target(draw), 0, ""
        while True:
            answer = await client.get(path + (f"&cursor={after}" if after else ""))
            assert answer.status_code == 200, answer.text[:500]
            held += len(answer.content)
            after = answer.json()["next"] or ""
            if not after:
                return held

    return ask


def questions(size: Size) -> dict[str, tuple[int, Ask]]:
    """Return each question, and how often it is asked."""
    last = size.seconds - 1

    def pod(draw: random.Random) -> int:
        return draw.randrange(size.seconds * size.rate)

    def batch(k: int) -> str:
        return f"batch:{k % SHARDS}:{k // SHARDS + 1}"

    def at(draw: random.Random) -> str:
        """Return a moment somewhere in the history."""
        return batch(draw.randrange(size.life, last))

    def hour(draw: random.Random) -> str:
        begin = draw.randrange(max(1, last - 3_600))
        return f"from={batch(begin)}&until={batch(min(begin + 3_600, last))}"

    def decision(draw: random.Random) -> str:
        k = draw.randrange(last)
        return f"{k % SHARDS}-{k // SHARDS * 2 * size.rate + 1}"

    def name(draw: random.Random) -> str:
        number = pod(draw)
        return f"ns-{number % NAMESPACES}/pod-{number}"

    def placed(draw: random.Random) -> str:
        """Return a pod at a moment after it came."""
        number = pod(draw)
        k = draw.randrange(min(number // size.rate + 1, last), size.seconds)
        return f"/v1/pods/ns-{number % NAMESPACES}/pod-{number}?at={batch(k)}"

    def node(draw: random.Random) -> str:
        return f"node-{draw.randrange(1, size.nodes)}"

    def filtered(draw: random.Random) -> str:
        return f"/v1/decisions?limit=100&namespace=ns-{draw.randrange(NAMESPACES)}&node={node(draw)}"

    def far(draw: random.Random) -> str:
        """Return the page of a reader who walks through all decisions."""
        seq = draw.randrange(1, size.seconds // SHARDS * size.rate)
        return f"/v1/decisions?limit=100&cursor={cursor(seq, 0)}"

    def exported(draw: random.Random) -> str:
        """Return the decisions of 50 batches: 50 * 2 * rate of them."""
        begin = BEGIN_MS + draw.randrange(size.life, max(size.life + 1, last - 50)) * 1_000
        since, until = (instant(at_ms) for at_ms in (begin, begin + 50_000))
        return f"/v1/export/decisions?format=csv&since={since}&until={until}"

    return {
        "a pod's story": (500, _get(lambda draw: f"/v1/pods/{name(draw)}")),
        "an explanation": (300, _get(lambda draw: f"/v1/decisions/{decision(draw)}/explanation")),
        "decisions by filter": (100, _get(filtered)),
        "decisions, first page": (100, _get(lambda draw: "/v1/decisions?limit=100")),
        "decisions, a page far behind": (100, _get(far)),
        "pending": (100, _get(lambda draw: "/v1/pending?limit=100")),
        "totals now": (50, _get(lambda draw: "/v1/totals")),
        "totals at T": (50, _get(lambda draw: f"/v1/totals?at={at(draw)}")),
        "1,000 nodes at T": (50, _get(lambda draw: f"/v1/nodes?limit=1000&at={at(draw)}")),
        "all nodes at T": (20, _pages(lambda draw: f"/v1/nodes?limit=1000&at={at(draw)}")),
        "the cluster at T": (50, _get(lambda draw: f"/v1/field?at={at(draw)}")),
        "a node at T": (50, _get(lambda draw: f"/v1/nodes/{node(draw)}?at={at(draw)}")),
        "a pod at T": (50, _get(placed)),
        "pending at T": (50, _get(lambda draw: f"/v1/pending?limit=100&at={at(draw)}")),
        f"an export of {100 * size.rate:,} decisions as CSV": (5, _get(exported)),
        "diff over an hour": (5, _get(lambda draw: f"/v1/diff?{hour(draw)}")),
    }


async def ask_all(
    dsn: str,
    size: Size,
    named: Sequence[str] = ("",),
    seed: int = 0,
    report: Callable[[str], None] = lambda _: None,
) -> list[Asked]:
    """Ask each question many times, one after another; or only those with one of these in their names."""
    found = []
    async with bootstrap.open_app(bootstrap.Place(dsn, None), keys_required=False) as app:
        collect_rarely(BRIEFLY)  # as the process of an API does
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://berth", timeout=120) as client:
            for question, (times, ask) in questions(size).items():
                if not any(part in question for part in named):
                    continue
                draw, took, held = random.Random(seed), [], 0
                await ask(client, draw)  # the first one prepares statements
                for _ in range(times):
                    started = time.perf_counter()
                    held = await ask(client, draw)
                    took.append((time.perf_counter() - started) * 1_000)
                took.sort()
                found.append(
                    Asked(
                        question=question,
                        times=times,
                        p50_ms=round(took[len(took) // 2], 1),
                        p99_ms=round(took[min(len(took) - 1, round(0.99 * len(took)))], 1),
                        answer_bytes=held,
                    )
                )
                report(f"{question}: {found[-1].p50_ms} ms")
    return found


# ------------------------------------------------------------------------------------------- commits beside

PODS = 2_000
"""Pods that a commit places, and that leave by it."""
STAY = 10
"""After so many commits a pod leaves, so that a node's pods do not grow with the time that is measured."""


async def commit_until(ended: threading.Event, dsn: str, per_second: int) -> tuple[list[float], float]:
    """Commit batches at a rate, as the owner of shard 0, until it is said to be the end.

    Returns how long each took, in milliseconds, and the seconds of all of them.
    """
    ledger = bootstrap.open_ledger(bootstrap.Place(dsn, None))
    took = []
    try:
        (lease,) = await ledger.acquire("benchmark", 3_600, [0])
        await ledger.ensure_offsets(lease, {TopicPartition(topic, 0): 0 for topic in (PODS_TOPIC, BATCHES)})
        base = await ledger.load_base()
        versions = {node.id: node.version for node in base.nodes}
        seq, batch = await _counted(dsn)
        there = deque[list[Decision]]()
        began = due = time.perf_counter()
        while not ended.is_set():
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            due += PODS / per_second
            leaving = there.popleft() if len(there) == STAY else []
            made = _placing(lease, seq, batch, versions, leaving)
            started = time.perf_counter()
            assert isinstance(await ledger.commit(made), Committed)
            took.append((time.perf_counter() - started) * 1_000)
            there.append([decided for decided, _ in made.decisions.made[:PODS]])
            seq, batch = seq + PODS + len(leaving), batch + 1
        stopped = time.perf_counter()
        await ledger.release([lease])
    finally:
        await ledger.aclose()
    return took, max(stopped, due) - began


async def _counted(dsn: str) -> tuple[int, int]:
    """Return the next seq of shard 0, and its last batch, from which the counter of its batches goes on."""
    connection = await asyncpg.connect(dsn)
    try:
        seq = await connection.fetchval("SELECT seq_next FROM shards WHERE shard = 0")
        batch = await connection.fetchval("SELECT max(batch) FROM journal WHERE shard = 0")
        counted = "UPDATE shard_offsets SET next_offset = $1 WHERE shard = 0 AND topic = $2"
        await connection.execute(counted, batch, BATCHES)
        return seq, batch
    finally:
        await connection.close()


def _placing(
    lease: Lease, first: int, batch: int, versions: dict[int, int], leaving: Sequence[Decision]
) -> CommitBatch:
    """Return the batch that places pods on the first nodes, as many on each, and by which others leave."""
    at_ms, signature = BEGIN_MS + 10**9 + batch, hashlib.md5(b"0", usedforsecurity=False).digest()
    count = next(count for count in (1_000, 500, 100, 10) if count <= len(versions))
    each = PODS // count
    made, opened = [], []
    fragment = template_fragment(PodTemplate(requests=REQUESTS), signature)
    for seq in range(first, first + PODS):
        of = {"shard": lease.shard, "seq": seq, "pod_uid": f"new-{seq}", "namespace": "ns-1"}
        pod: dict[str, Any] = {**of, "name": f"new-{seq}", "resource_version": 1, "signature": signature}
        node = f"node-{seq % count + 1}"
        decided = Decision(
            **pod,
            epoch=lease.epoch,
            outcome=Outcome.BOUND,
            node=node,
            decided_at_ms=at_ms,
            profile="default-scheduler",
            cycle_seq=first,
        )
        made.append((decided, encode_decision(decided, fragment, {"app": "web"}, 17, "key:ops")))
        opened.append(PlacementOpened(**pod, labels={"app": "web"}, node=node, adopted=False, at_ms=at_ms))
    for seq, placed in enumerate(leaving, first + PODS):
        decided = msgspec.structs.replace(
            placed, seq=seq, outcome=Outcome.RELEASED, decided_at_ms=at_ms, cycle_seq=0
        )
        made.append((decided, encode_decision(decided, fragment, {"app": "web"}, 17, "key:ops")))
    claims, changes = [], each * (2 if leaving else 1)
    for number in range(1, count + 1):
        seen: dict[str, Any] = {"version_seen": versions[number], "spec_count_seen": 1, "changes": changes}
        delta = {} if leaving else {"cpu": each}
        claims.append(NodeClaim(id=number, name=f"node-{number}", delta=delta, **seen))
        versions[number] += changes
    row = JournalRow(
        shard=lease.shard,
        batch=batch + 1,
        seqs={lease.shard: (first, first + len(made))},
        log_time_ms=at_ms,
        decisions_hash=b"",
        effects={},
        worker="benchmark",
        feed=b"x" * FEED_BYTES,
    )
    advances = [OffsetAdvance(lease.shard, BATCHES, 0, lease.epoch, batch, batch + 1)]
    return CommitBatch(
        offsets=BatchOffsets(advances=advances, seq_next={lease.shard: first + len(made)}, log_time_ms=at_ms),
        cluster=BatchCluster(claims=claims),
        pods=BatchPods(
            opened=opened,
            closed=[PlacementClosed(pod_uid=placed.pod_uid, at_ms=at_ms) for placed in leaving],
        ),
        decisions=BatchDecisions(made=made),
        journal=BatchJournal(row=row),
    )


async def committing(dsn: str, per_second: int, beside: str, work: Awaitable[_T]) -> tuple[Commits, _T]:
    """Commit in a process of its own, as a worker does, until this work is done; return what it returned."""
    process = await asyncio.create_subprocess_exec(
        *python_module("benchmarks.query", dsn, str(per_second)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd="/",
        env=environment(PYTHONPATH=python_path()),
    )
    assert process.stdin is not None
    try:
        done = await work
    finally:
        process.stdin.close()  # the end of its input is the end of its work
        out, _ = await process.communicate()
    took, passed = msgspec.json.decode(out, type=tuple[list[float], float])
    took.sort()
    commits = Commits(
        beside=beside,
        batches=len(took),
        offered_per_second=per_second,
        placed_per_second=round(PODS * len(took) / passed),
        p50_ms=round(statistics.median(took), 1),
        p99_ms=round(took[min(len(took) - 1, round(0.99 * len(took)))], 1),
    )
    return commits, done


async def measure(
    dsn: str, size: Size, per_second: int, report: Callable[[str], None], seconds: float = 20.0
) -> QueryReport:
    """Generate a history, ask of it, and commit beside that."""
    described = describe()
    generated = await generate(dsn, size, report)
    report("asking")
    asked = await ask_all(dsn, size, report=report)
    alone, _ = await committing(dsn, per_second, "nothing", asyncio.sleep(seconds))
    report("asking beside commits")
    asking = ask_all(dsn, size, BESIDE, report=report)
    placing, beside = await committing(dsn, per_second, "questions about the past", asking)
    named = [msgspec.structs.replace(each, question=f"{each.question}, beside commits") for each in beside]
    return QueryReport(
        nodes=size.nodes,
        decisions=size.decisions,
        shards=SHARDS,
        placed=size.life * size.rate,
        generated_seconds=round(generated, 1),
        asked=[*asked, *named],
        commits=[alone, placing],
        clock=CLOCK,
        machine=described,
    )


def run(size: Size, per_second: int, dsn: str = "") -> QueryReport:
    """Measure on a database that is given, or on a server that is started for it."""
    if dsn:
        return asyncio.run(measure(dsn, size, per_second, _tell))
    with tempfile.TemporaryDirectory(prefix="berth-query-") as scratch:
        Path(scratch).chmod(0o755)  # the server may run as another account
        with PostgresServer(Path(scratch) / "postgres") as started:
            return asyncio.run(measure(started, size, per_second, _tell))


def _tell(progress: str) -> None:
    sys.stderr.write(f"{progress}\n")


def _commit_until_input_ends(dsn: str, per_second: str) -> None:
    ended = threading.Event()

    def await_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=await_end, daemon=True).start()
    took = asyncio.run(commit_until(ended, dsn, int(per_second)))
    sys.stdout.write(msgspec.json.encode(took).decode())


if __name__ == "__main__":
    _commit_until_input_ends(*sys.argv[1:])
