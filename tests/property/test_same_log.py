"""Does the same log give the same decisions? Yes if it is complete at the start; not if it grew meanwhile.

A worker folds what is in the log before it places. Where a log is followed live, a batch ends where the log
ended at that moment; read again as a whole it is cut elsewhere, and pods meet other nodes and other pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

import orjson
import pytest
from prometheus_client import CollectorRegistry

from domain.cycle import schedule as schedule_module
from domain.model.profiles import BUILT_IN_PROFILES
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.ledger import MemoryLedger
from services.adapters.memory.log import MemoryLog
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Entry, TopicPartition, topic_specs
from services.worker.metrics import WorkerMetrics
from services.worker.run import Worker, WorkerSettings
from tests.builders import event, node_manifest, pod_manifest
from tests.contract.ledgers import ManualClock
from tests.depth import some

SHARDS = 2
T = TypeVar("T")
Events = Sequence[tuple[str, Entry]]


def of_node(name: str, kind: str = "ADDED") -> tuple[str, Entry]:
    return NODES_TOPIC, Entry(name.encode(), orjson.dumps(event(kind, node_manifest(name, cpu=4))))


def of_pod(name: str, kind: str = "ADDED", cpu: int = 1) -> tuple[str, Entry]:
    return PODS_TOPIC, Entry(
        f"default/{name}".encode(), orjson.dumps(event(kind, pod_manifest(name, cpu=cpu)))
    )


def some_events(random: Random) -> Events:
    """Return pods that come, and some that go, while nodes come one by one."""
    found = [of_node("n0"), of_node("n1")]
    for i in range(40):
        found.append(of_pod(f"p{i}", cpu=random.choice((1, 2))))
        if random.random() < 0.3:
            found.append(of_pod(f"p{random.randrange(i + 1)}", "DELETED"))
        if random.random() < 0.2:
            found.append(of_node(f"n{i}"))
    return found


async def _here(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    return work(*args, **kwargs)


async def _decisions(pieces: Sequence[Events]) -> list[bytes]:
    """Return the decision records of a worker that finds the first piece, and each other once it is done."""
    clock, database = ManualClock(), MemoryDatabase(SHARDS)
    log = MemoryLog(clock)
    await log.ensure_topics(topic_specs(SHARDS))
    settings = WorkerSettings(name="w", seed=3, poll_seconds=0.01, profiles=BUILT_IN_PROFILES)
    ledger = MemoryLedger(database, clock)
    worker = Worker(log, ledger, settings, WorkerMetrics(CollectorRegistry()), _here)
    writer, running = await log.writer(), None
    ends = {TopicPartition(topic, p): 0 for topic in (NODES_TOPIC, PODS_TOPIC) for p in range(SHARDS)}
    async with asyncio.timeout(60):
        for piece in pieces:
            for topic, entry in piece:
                clock.time_ms += 1
                await writer.append(topic, [entry])
            running = running or asyncio.create_task(worker.run())
            ends = {at: len(log.partition(at).records) for at in ends}
            while not all(
                (row := database.offsets.get((at.partition, *at))) and row.next_offset == end
                for at, end in ends.items()
            ):
                assert not running.done()
                await asyncio.sleep(0.005)
            for _ in range(200):  # nothing here waits for anything else: pods that were woken are placed, too
                await asyncio.sleep(0)
    if running is not None:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return [payload for shard in range(SHARDS) for _, payload in database.decisions[shard]]


def decisions(*pieces: Events) -> list[bytes]:
    return asyncio.run(_decisions(pieces))


def told(records: Sequence[bytes]) -> list[tuple[str, str, str | None]]:
    found = [orjson.loads(record) for record in records]
    return [(each["pod"]["name"], each["outcome"], each["node"]) for each in found]


@pytest.mark.parametrize("seed", some(range(8)))
def test_a_log_that_is_complete_gives_the_same_bytes_every_time(seed: int) -> None:
    events = some_events(Random(seed))
    once = decisions(events)
    assert len(once) > 30
    assert decisions(events) == once


@pytest.mark.parametrize("seed", some(range(3)))
def test_pods_that_wait_their_turn_are_decided_in_a_quiet_log_and_the_same_every_time(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = some_events(Random(seed))
    at_once = {name for name, _, _ in told(decisions(events))}
    monkeypatch.setattr(schedule_module, "cycle_work_max", 70)  # a pod or two per batch
    in_turn = decisions(events)
    assert {name for name, _, _ in told(in_turn)} == at_once
    assert decisions(events) == in_turn


def test_a_log_that_grew_while_it_was_read_may_give_others_when_it_is_read_again() -> None:
    """What README says: a pod that came and went is placed only where the worker looked in between."""
    came, went = [of_node("n"), of_pod("p")], [of_pod("p", "DELETED")]
    assert told(decisions(came, went)) == [("p", "bound", "n"), ("p", "released", "n")]
    assert told(decisions([*came, *went])) == [("p", "released", None)]


def test_pods_of_a_log_that_grew_may_be_on_other_nodes_when_it_is_read_again() -> None:
    """Without any deletion: the pod was placed before the better node came."""
    full = of_pod("full", cpu=3)
    lived = told(decisions([of_node("first"), full, of_pod("p")], [of_node("second")]))
    again = told(decisions([of_node("first"), full, of_pod("p"), of_node("second")]))
    assert ("p", "bound", "first") in lived
    assert {node for _, _, node in again} == {"first", "second"}
