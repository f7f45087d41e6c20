"""Does time pass in a quiet log, as long as anything waits for it, and no longer?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement
from domain.model.errors import LogRefused
from domain.model.events import Event, NodeUpserted, PodDeleted, PodUpserted
from domain.model.limits import event_bytes_max, tick_ms
from domain.model.profiles import BUILT_IN_PROFILES
from services.adapters.memory.database import MemoryDatabase, OffsetRow
from services.adapters.memory.ledger import MemoryLedger
from services.adapters.memory.log import MemoryLog, MemoryWriter
from services.adapters.memory.outbox import MemoryOutbox
from services.codec.encode import event_topic_and_key
from services.ports.log import (
    DECISIONS_TOPIC,
    PODS_TOPIC,
    TICKS_TOPIC,
    Entry,
    Record,
    TopicPartition,
    topic_specs,
)
from services.ports.outbox import Timed
from services.relay.run import Relay, RelayMetrics, RelaySettings
from services.relay.ticking import UNREAD_SECONDS, UNREAD_SECONDS_MAX, Ticker
from services.worker.metrics import WorkerMetrics
from services.worker.run import BACKOFF_MS, Worker, WorkerSettings
from tests.builders import Json, event_bytes, node_manifest, pod_manifest
from tests.hosted import hosted_manifest
from tests.property.site import Site
from tests.simulation.loop import SimulatedLoop, VirtualClock
from tests.simulation.servers import SimulatedLog
from tests.values import node, pod, template

HALF, WHOLE = template(2_000), template(4_000)


def run(scheduler: Scheduler, at_ms: int, *events: Event) -> tuple[int, list[str]]:
    """Return how many attempts a cycle made, and which pods it placed."""
    for event in events:
        scheduler.fold(event)
    result = scheduler.cycle(at_ms)
    return len(result.attempts), [v.pod.name for v in result.verdicts if isinstance(v, Placement)]


def backing_off(*times_ms: int) -> Scheduler:
    """Return a scheduler with a pod that failed at these times, one attempt after the other."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1, backoff_ms=BACKOFF_MS)
    run(scheduler, 0, NodeUpserted(node("a")), PodUpserted(pod("holder", WHOLE, on="a")))
    first, *later = times_ms
    assert run(scheduler, first, PodUpserted(pod("waits", HALF))) == (1, [])
    for at_ms in later:  # a node with room that it may not use
        lure = NodeUpserted(node(f"lure-{at_ms}", unschedulable=True))
        assert run(scheduler, at_ms, lure) == (1, [])
    return scheduler


def test_what_wakes_a_group_that_backs_off_is_told_once() -> None:
    """The journal has to tell it: room that comes and goes meanwhile leaves no other trace."""
    scheduler = backing_off(5_000)
    scheduler.queue.take_put_off()
    run(scheduler, 5_200, PodUpserted(pod("fills", WHOLE, on="a")), PodDeleted("default", "fills"))
    assert not scheduler.queue.take_put_off()
    run(scheduler, 5_400, PodDeleted("default", "holder"))
    assert scheduler.queue.take_put_off()
    assert not scheduler.queue.take_put_off()
    assert run(scheduler, 5_600, PodUpserted(pod("later", WHOLE, on="a"))) == (0, [])
    assert run(scheduler, 6_000) == (1, [])


def test_room_that_comes_soon_after_an_attempt_is_tried_when_the_backoff_ends() -> None:
    scheduler = backing_off(5_000)
    assert run(scheduler, 5_400, PodDeleted("default", "holder")) == (0, [])
    assert not scheduler.has_work
    assert run(scheduler, 5_999) == (0, [])
    assert run(scheduler, 6_000) == (1, ["waits"])


def test_who_waited_for_long_is_tried_at_once() -> None:
    assert run(backing_off(5_000), 6_000, PodDeleted("default", "holder")) == (1, ["waits"])


def test_the_backoff_doubles_up_to_ten_seconds() -> None:
    times_ms = [0, 1_000, 3_000, 7_000, 15_000, 25_000]
    for count, due_ms in enumerate(times_ms[1:], 1):
        scheduler = backing_off(*times_ms[:count])
        assert run(scheduler, due_ms - 1, PodDeleted("default", "holder")) == (0, [])
        assert run(scheduler, due_ms) == (1, ["waits"])


def test_a_new_pod_of_the_group_ends_the_backoff_and_goes_behind_the_older_ones() -> None:
    scheduler = backing_off(5_000)
    run(scheduler, 5_100, PodDeleted("default", "holder"))
    assert run(scheduler, 5_200, PodUpserted(pod("new", HALF))) == (1, ["waits", "new"])


def ticked(
    ticker: Ticker, seconds: int, log_ms: int, due_ms: int | None, *, ahead: bool = False
) -> list[int]:
    """Return when a relay ticks in a log that is quiet otherwise, and of which a worker folds each tick."""
    found: list[int] = []
    for second in range(seconds):
        if ticker.is_due(Timed(log_ms, due_ms if due_ms is None or due_ms > log_ms else None), second):
            found.append(second)
            log_ms = log_ms + tick_ms if ahead else second * 1_000
    return found


def test_a_tick_is_due_when_something_timed_is() -> None:
    ticker = Ticker()
    assert ticked(ticker, 1, 0, 1) == [0], "nobody knows for how long the log was quiet before"
    assert ticked(ticker, 1_000, 0, 700_000) == [700]
    assert not ticker.is_due(None, 2_000)
    assert ticked(Ticker(), 100, 0, None) == []


def test_no_tick_is_due_while_the_log_moves_by_itself() -> None:
    ticker = Ticker()
    ticker.is_due(Timed(0, 9), 0)
    due = (ticker.is_due(Timed(900 * second, 900 * second + 3_000), second) for second in range(1, 10))
    assert not any(due)


def test_ticks_come_each_second_where_log_time_is_ahead_of_all_clocks() -> None:
    ticker = Ticker()
    ticker.is_due(Timed(9_000_000, 9_000_500), 0)
    found = ticked(ticker, 20, 9_001_000, 9_009_000, ahead=True)
    assert len(found) == 8


def test_ticks_do_not_pile_up_while_no_worker_is_up() -> None:
    ticker = Ticker()
    found = [second for second in range(3_000) if ticker.is_due(Timed(7, 5_000), second)]
    assert found[:4] == [0, UNREAD_SECONDS, 3 * UNREAD_SECONDS, 7 * UNREAD_SECONDS]
    assert found[-1] - found[-2] == UNREAD_SECONDS_MAX


class _NoTicks(MemoryLog):
    """A log that lets nobody write ticks."""

    async def writer(self) -> MemoryWriter:
        writer = await super().writer()
        append = writer.append

        async def refusing(topic: str, *more: Any, **named: Any) -> Any:
            if topic == TICKS_TOPIC:
                raise LogRefused("not allowed")
            return await append(topic, *more, **named)

        writer.append = refusing  # type: ignore[method-assign]
        return writer


async def _publish_without_ticks(loop: SimulatedLoop) -> int:
    clock = VirtualClock(loop)
    database, log = MemoryDatabase(1, clock.now_ms), _NoTicks(clock)
    await log.ensure_topics(topic_specs(1))
    writer = await log.writer()
    settings = WorkerSettings(name="w", profiles=BUILT_IN_PROFILES, backoff_ms=BACKOFF_MS)
    worker = Worker(log, MemoryLedger(database, clock), settings, WorkerMetrics(CollectorRegistry()), _here)
    relay = Relay(
        log, MemoryOutbox(database, clock), RelaySettings(name="r"), RelayMetrics(CollectorRegistry())
    )
    tasks = [asyncio.ensure_future(worker.run()), asyncio.ensure_future(relay.run())]
    for number in range(3):
        await asyncio.sleep(5)
        assert not any(task.done() for task in tasks), "the relay goes on"
        manifest = pod_manifest(f"waits{number}")
        topic, key = event_topic_and_key(manifest)
        await writer.append(topic, [Entry(key, event_bytes("ADDED", manifest))])
    await asyncio.sleep(5)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return len(log.partition(TopicPartition(DECISIONS_TOPIC, 0)).records)


def test_a_relay_that_may_not_write_ticks_publishes_all_the_same() -> None:
    loop = SimulatedLoop()
    try:
        assert loop.run_until_complete(_publish_without_ticks(loop)) == 3
    finally:
        loop.close()


async def _quiet_log(loop: SimulatedLoop, *, is_ticking: bool, ahead_ms: int = 0) -> list[str]:
    """Let room come soon after a failed attempt, and nothing after it; return how far pods came.

    ``ahead_ms`` is by how much the clock is ahead that stamps the records of pods.
    """
    clock = VirtualClock(loop)
    database, log = MemoryDatabase(1, clock.now_ms), SimulatedLog(clock)
    log.wrong_ms[TopicPartition(PODS_TOPIC, 0)] = ahead_ms
    await log.ensure_topics(topic_specs(1))
    writer = await log.writer()

    async def send(kind: str, manifest: Json) -> None:
        topic, key = event_topic_and_key(manifest)
        await writer.append(topic, [Entry(key, event_bytes(kind, manifest))])
        await asyncio.sleep(0.2)

    settings = WorkerSettings(name="w", profiles=BUILT_IN_PROFILES, backoff_ms=BACKOFF_MS)
    worker = Worker(log, MemoryLedger(database, clock), settings, WorkerMetrics(CollectorRegistry()), _here)
    relay = Relay(
        log, MemoryOutbox(database, clock), RelaySettings(name="r"), RelayMetrics(CollectorRegistry())
    )
    works: list[Callable[[], Awaitable[None]]] = [worker.run, *([relay.run] if is_ticking else [])]
    tasks = [asyncio.ensure_future(work()) for work in works]
    await asyncio.sleep(3)
    await send("ADDED", node_manifest("n", cpu=4))
    holder = pod_manifest("holder", cpu="4", node_name="n")
    await send("ADDED", holder)
    await send("ADDED", pod_manifest("waits", cpu="2"))
    await send("DELETED", holder)
    await asyncio.sleep(5)
    for task in tasks:
        task.cancel()
    await asyncio.wait(
        tasks
    )  # all of them: what is left in the middle of its end is told of when it is collected
    assert all(task.cancelled() for task in tasks)
    ticks = log.partition(TopicPartition(TICKS_TOPIC, 0)).records
    assert bool(ticks) is is_ticking
    return [row.opened.name for row in database.open_placements.values()]


async def _here(work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return work(*args, **kwargs)


@pytest.mark.parametrize("is_ticking", [True, False])
def test_a_quiet_log_ends_the_backoff(is_ticking: bool) -> None:
    loop = SimulatedLoop()
    try:
        assert loop.run_until_complete(_quiet_log(loop, is_ticking=is_ticking)) == ["waits"] * is_ticking
    finally:
        loop.close()


@pytest.mark.parametrize("ahead_ms", [500, 90_000, 10 * 365 * 86_400_000])
def test_a_quiet_log_ends_the_backoff_though_a_clock_was_ahead(ahead_ms: int) -> None:
    loop = SimulatedLoop()
    try:
        assert loop.run_until_complete(_quiet_log(loop, is_ticking=True, ahead_ms=ahead_ms)) == ["waits"]
    finally:
        loop.close()


AT_MS = 1_700_000_000_000
OF_TICKS = TopicPartition(TICKS_TOPIC, 0)
EACH_SECOND = {
    "apiVersion": "berth/v1",
    "kind": "CoLocationPolicy",
    "metadata": {"name": "quick"},
    "spec": {"replicas": {"step": "1s", "wait": "1s"}},
}


def test_a_tick_behind_log_time_is_read_though_something_is_due_each_second() -> None:
    """Else the moments that are due would come one after another, for ever, before the tick."""
    site = Site()
    site.database.offsets[0, TICKS_TOPIC, 0] = OffsetRow(0, 0)
    site.planner = site.restarted()
    site.tell("ADDED", EACH_SECOND, hosted_manifest(min=1, max=9), at_ms=AT_MS)
    for number in range(5):
        site.take([Record(*OF_TICKS, number, None, b"", AT_MS - 500)])
        assert site.planner.positions()[OF_TICKS] == number + 1
    site.tell("ADDED", pod_manifest("later"), at_ms=AT_MS + 400)
    assert [each["pod"]["name"] for each in site.decided()] == ["later"]
    last = max(site.database.journal.values(), key=lambda row: row.position)
    assert last.log_time_ms - AT_MS <= 6 * tick_ms
    assert site.database.batches_count < 20


def test_a_tick_behind_log_time_that_cannot_be_read_is_told_of_though_something_is_due() -> None:
    site = Site()
    site.database.offsets[0, TICKS_TOPIC, 0] = OffsetRow(0, 0)
    site.planner = site.restarted()
    site.tell("ADDED", EACH_SECOND, hosted_manifest(min=1, max=9), at_ms=AT_MS)
    site.take([Record(*OF_TICKS, 0, None, b"x" * (event_bytes_max + 1), AT_MS - 500)])
    assert [letter.code for letter in site.database.dead_letters[0]] == ["too-large"]
