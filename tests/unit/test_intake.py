"""Does the intake know a hole of the log from a record that is late?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.adapters.memory.log import MemoryLog, MemoryReader
from services.ports.log import PODS_TOPIC, Entry, Record, TopicPartition, TopicSpec
from services.worker.intake import Intake
from tests.contract.ledgers import ManualClock

AT = TopicPartition(PODS_TOPIC, 0)


class HoleyReader(MemoryReader):
    """Reads a partition whose last offset is a transaction's marker."""

    empty_polls_count = 0

    async def poll(self, records_max: int, timeout_seconds: float) -> Sequence[Record]:
        records = await super().poll(records_max, 0)
        self.empty_polls_count += not records
        return records

    async def end_offsets(self) -> Mapping[TopicPartition, int]:
        return {at: end + 1 for at, end in (await super().end_offsets()).items()}

    async def position(self, at: TopicPartition) -> int:
        return await super().position(at) + 1


async def test_a_transaction_marker_at_the_end_is_not_waited_for() -> None:
    log = MemoryLog(ManualClock())
    await log.ensure_topics([TopicSpec(PODS_TOPIC, 1, True)])
    await (await log.writer()).append(PODS_TOPIC, [Entry(b"k", b"v")])
    reader = HoleyReader(log)
    intake = Intake(reader, {AT: 0})
    await intake.start()
    assert [record.value for record in await intake.next_batch(10, 0.1)] == [b"v"]
    assert reader.empty_polls_count == 1
