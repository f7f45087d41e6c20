"""Are scales published in order, without a hole and none twice, however often relays die?"""

from __future__ import annotations

import asyncio
import contextlib

import orjson
import pytest
from prometheus_client import CollectorRegistry

from domain.model.errors import Unavailable
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.log import MemoryLog
from services.adapters.memory.outbox import MemoryOutbox
from services.ports.ledger import BatchCluster, Scale
from services.ports.log import SCALES_TOPIC, Entry, Record, TopicPartition, topic_specs
from services.ports.outbox import Stream
from services.relay.run import Relay, RelayMetrics, RelaySettings
from tests.contract.conftest import SteppingClock

AT = TopicPartition(SCALES_TOPIC, 0)


class Forgetful(MemoryOutbox):
    """An outbox that goes away, so many times, when a relay would note what it has published."""

    def __init__(self, database: MemoryDatabase, clock: SteppingClock, faults: int) -> None:
        super().__init__(database, clock)
        self.faults = faults

    async def mark_published(self, shard: int, stream: Stream, epoch: int, seq: int) -> bool:
        if stream is Stream.SCALES and self.faults:
            self.faults -= 1
            raise Unavailable("the ledger does not answer")
        return await super().mark_published(shard, stream, epoch, seq)


class World:
    def __init__(self) -> None:
        self.clock = SteppingClock()
        self.database, self.log = MemoryDatabase(2), MemoryLog(self.clock)

    def scale(self, *seqs: int) -> None:
        scales = [Scale(seq, "a", f"w{seq % 2}", 7, orjson.dumps({"seq": seq})) for seq in seqs]
        self.database.hosted.write(BatchCluster(scales=scales))

    async def published(self, faults: int = 0) -> list[Record]:
        """Let a relay run until all is noted; return what the topic holds."""
        outbox = Forgetful(self.database, self.clock, faults)
        settings = RelaySettings(name="r", lease_seconds=0.02, lease_renewal_seconds=0.005, rows_max=2)
        await self.log.ensure_topics(topic_specs(2))
        relay = Relay(self.log, outbox, settings, RelayMetrics(CollectorRegistry()))
        running = asyncio.create_task(relay.run())
        async with asyncio.timeout(20):
            while self.database.cursors[0].published[Stream.SCALES] < self.database.hosted.scale_seq:
                await asyncio.sleep(0.01)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        return self.log.partition(AT).records


def seqs(records: list[Record]) -> list[int]:
    return [orjson.loads(record.value or b"")["seq"] for record in records]


@pytest.mark.parametrize("faults", [0, 1, 3])
async def test_scales_are_published_once_and_in_order(faults: int) -> None:
    world = World()
    world.scale(1, 2, 3, 4, 5)
    records = await world.published(faults)
    assert seqs(records) == [1, 2, 3, 4, 5]
    assert [record.key for record in records[:2]] == [b"a/w1", b"a/w0"]
    assert {record.ledger for record in records} == {b"memory.1.0"}
    world.scale(6)
    assert seqs(await world.published(faults)) == [1, 2, 3, 4, 5, 6]


async def test_what_others_wrote_is_not_taken_for_published() -> None:
    world = World()
    await world.log.ensure_topics(topic_specs(2))
    world.log.add(
        AT, [Entry(b"a/w1", orjson.dumps({"seq": 1})), Entry(b"a/w1", b"nonsense", None, b"memory.1.0")]
    )
    world.scale(1, 2)
    records = await world.published()
    assert seqs(records[2:]) == [1, 2], "one without the name of the ledger is another's"
