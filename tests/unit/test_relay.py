"""What a relay says of an outage: once, however many shards meet it and however often. And does it stop?"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from domain.model.errors import LedgerMismatch, TopicMismatch, Unavailable
from services.adapters.memory.log import MemoryLog
from services.ports.log import DECISIONS_TOPIC, topic_specs
from services.relay.run import Relay, RelayMetrics, RelaySettings
from tests.contract.conftest import SteppingClock


class Failing:
    """An outbox of three shards that does not answer for a while, then gives a shard, then is done."""

    def __init__(self, faults: int) -> None:
        self.faults = faults
        self.done = asyncio.Event()

    async def shards(self) -> int:
        return 3

    async def ledger_name(self, shard: int) -> str:
        return "ledger.1"

    async def acquire(self, shard: int, owner: str, seconds: float) -> int:
        if self.faults:
            self.faults -= 1
            raise Unavailable("the ledger does not answer")
        return 1 if shard == 0 else 0

    async def renew_lease(self, shard: int, epoch: int, seconds: float) -> bool:
        return True

    async def published(self, shard: int, stream: Any) -> int:
        self.done.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def release(self, shard: int, epoch: int) -> None:
        return None


async def test_an_outage_is_said_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    outbox = Failing(9)
    settings = RelaySettings(name="r", lease_seconds=0.01, lease_renewal_seconds=0.003)
    log = MemoryLog(SteppingClock())
    await log.ensure_topics(topic_specs(3))
    relay = Relay(log, outbox, settings, RelayMetrics(CollectorRegistry()))  # type: ignore[arg-type]
    running = asyncio.create_task(relay.run())
    await outbox.done.wait()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert [record.getMessage() for record in caplog.records] == [
        "not publishing: unavailable: the ledger does not answer",
        "publishing again",
    ]


class Leaving(Failing):
    """An outbox of one shard that is away when a relay gives its shard back."""

    async def shards(self) -> int:
        return 1

    async def release(self, shard: int, epoch: int) -> None:
        raise Unavailable("the ledger does not answer")


async def test_a_relay_that_is_told_to_stop_stops_though_the_ledger_is_away() -> None:
    outbox = Leaving(0)
    log = MemoryLog(SteppingClock())
    await log.ensure_topics(topic_specs(1))
    settings = RelaySettings(name="r", lease_seconds=0.01, lease_renewal_seconds=0.003)
    relay = Relay(log, outbox, settings, RelayMetrics(CollectorRegistry()))  # type: ignore[arg-type]
    running = asyncio.create_task(relay.run())
    await outbox.done.wait()
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=2.0)
    stopped = bool(done)
    while not running.done():
        running.cancel()
        await asyncio.sleep(0)
    assert stopped, "the relay went on"


class Holed(Failing):
    """An outbox in which the decisions of one shard have a hole."""

    def __init__(self) -> None:
        super().__init__(0)
        self.asked: list[int] = []

    async def acquire(self, shard: int, owner: str, seconds: float) -> int:
        return 1

    async def published(self, shard: int, stream: Any) -> int:
        self.asked.append(shard)
        if shard == 1:
            raise LedgerMismatch("the decisions of shard 1 have a hole after 3")
        return await super().published(shard, stream)

    async def release(self, shard: int, epoch: int) -> None:
        return None


async def test_a_hole_in_one_shard_is_said_and_does_not_keep_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, outbox = MemoryLog(SteppingClock()), Holed()
    await log.ensure_topics(topic_specs(3))
    settings = RelaySettings(name="r", lease_seconds=0.01, lease_renewal_seconds=0.003, check_seconds=0.01)
    relay = Relay(log, outbox, settings, RelayMetrics(CollectorRegistry()))  # type: ignore[arg-type]
    running = asyncio.create_task(relay.run())
    await asyncio.wait({running}, timeout=0.2)
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})
    assert outbox.asked.count(0) == outbox.asked.count(2) == 1
    assert outbox.asked.count(1) > 1, "somebody may mend it"
    assert "not publishing: ledger-mismatch: the decisions of shard 1 have a hole after 3" in caplog.messages


async def test_partitions_that_are_no_shards_end_the_relay() -> None:
    log = MemoryLog(SteppingClock())
    await log.ensure_topics(topic_specs(3))
    settings = RelaySettings(name="r", lease_seconds=0.01, lease_renewal_seconds=0.003, topics_seconds=0.01)
    relay = Relay(log, Failing(0), settings, RelayMetrics(CollectorRegistry()))  # type: ignore[arg-type]
    running = asyncio.create_task(relay.run())
    await asyncio.sleep(0.05)
    assert not running.done()
    log.grow(DECISIONS_TOPIC, 5)
    what = r"berth\.decisions has 5 partitions, and berth uses 3.* has run since, .* start this process again"
    with pytest.raises(TopicMismatch, match=what):
        async with asyncio.timeout(10):
            await running
