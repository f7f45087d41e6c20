"""Does the intake know a hole of the log from a record that is late, and sit faults of the log out?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest

from domain.model.errors import LogTruncated, Unavailable
from services.adapters.memory.log import MemoryLog, MemoryReader
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Entry, Record, TopicPartition, TopicSpec
from services.worker.beginning import _read, _Span
from services.worker.intake import Intake
from tests.contract.conftest import SteppingClock

NODES, PODS = TopicPartition(NODES_TOPIC, 0), TopicPartition(PODS_TOPIC, 0)


class _Reader(MemoryReader):
    """Counts the polls; before each one ``trickle`` more records come to the pods."""

    def __init__(self, log: MemoryLog, trickle: int = 0) -> None:
        super().__init__(log)
        self._trickle = trickle
        self.polls_count = 0

    async def poll(self, records_max: int, timeout_seconds: float) -> Sequence[Record]:
        self.polls_count += 1
        assert self.polls_count < 50, "waits for a record that will never come"
        if self._trickle:
            self._log.add(PODS, [Entry(b"pod", b"later")] * self._trickle)
        return await super().poll(records_max, timeout_seconds)


async def _log() -> MemoryLog:
    log = MemoryLog(SteppingClock())
    await log.ensure_topics([TopicSpec(NODES_TOPIC, 1, True), TopicSpec(PODS_TOPIC, 1, True)])
    return log


async def test_a_transaction_marker_at_the_end_is_not_waited_for() -> None:
    log = await _log()
    log.add(PODS, [Entry(b"k", b"v")])
    log.mark(PODS)
    reader = _Reader(log)
    intake = Intake(reader)
    await intake.add({NODES: 0, PODS: 0})
    assert [record.value for record in await intake.next_batch(10, 0.1)] == [b"v"]
    assert reader.polls_count <= 2


async def test_a_partition_that_ends_with_a_marker_does_not_hold_up_one_that_trickles() -> None:
    """Every fetch found something elsewhere, so the worker never asked what is behind the marker."""
    log = await _log()
    log.add(NODES, [Entry(b"node", b"v")])
    log.mark(NODES)
    log.add(PODS, [Entry(b"pod", b"first")])
    reader = _Reader(log, trickle=1)
    intake = Intake(reader)
    await intake.add({NODES: 0, PODS: 0})
    taken = await intake.next_batch(1000, 0.1)
    assert [record.value for record in taken][:2] == [b"v", b"first"]


class _FailingReader(MemoryReader):
    """Half of all calls fail, as with a partition that has no leader for a while."""

    def __init__(self, log: MemoryLog, seed: int) -> None:
        super().__init__(log)
        self._random = Random(seed)

    def _fail(self) -> None:
        if self._random.random() < 0.5:
            raise Unavailable("injected")

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._fail()
        await super().assign(positions)

    async def poll(self, records_max: int, timeout_seconds: float) -> Sequence[Record]:
        self._fail()
        return await super().poll(records_max, timeout_seconds)

    async def end_offsets(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, int]:
        self._fail()
        return await super().end_offsets(partitions)

    async def position(self, at: TopicPartition) -> int:
        self._fail()
        return await super().position(at)


@pytest.mark.parametrize("seed", range(5))
async def test_a_log_that_fails_at_times_gives_the_same_records(
    seed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every fault of the log made the worker forget all that it had read."""
    monkeypatch.setattr("services.backoff.Backoff.next_ms", lambda self: 0)
    log = await _log()
    for turn in range(20):
        log.add((NODES, PODS)[turn % 2], [Entry(b"k", b"%d" % turn)])
        log.mark(NODES)
    faults: list[None] = []
    intake = Intake(_FailingReader(log, seed), lambda: faults.append(None))
    await intake.add({NODES: 0, PODS: 0})
    taken: list[Record] = []
    while len(taken) < 20:
        taken += await intake.next_batch(3, 0.1)
    assert [record.value for record in taken] == [b"%d" % turn for turn in range(20)]
    assert faults
    said = [each.getMessage() for each in caplog.records]
    assert said[:2] == ["waiting for the log: injected", "the log answers again"]


async def test_a_position_that_the_log_does_not_hold_is_no_fault_to_sit_out() -> None:
    log = await _log()
    log.add(PODS, [Entry(b"k", b"v")] * 5)
    log.truncate(PODS, 3)
    intake = Intake(MemoryReader(log))
    await intake.add({NODES: 0, PODS: 0})
    with pytest.raises(LogTruncated):
        await intake.next_batch(10, 0.1)


async def test_it_goes_on_where_it_was_after_its_reader_was_used_for_another_partition() -> None:
    """So begins a worker that reads a partition again, and then learns that another one has the shard."""
    log = await _log()
    log.add(NODES, [Entry(b"node", b"first")])
    log.add(PODS, [Entry(b"pod", b"first")])
    reader = _Reader(log)
    intake = Intake(reader)
    await intake.add({NODES: 0})
    assert [record.value for record in await intake.next_batch(10, 0.1)] == [b"first"]
    await reader.assign({PODS: 0})
    await intake.go_on()
    log.add(NODES, [Entry(b"node", b"second")])
    assert [record.value for record in await intake.next_batch(10, 0.1)] == [b"second"]


class _ClaimingReader(MemoryReader):
    """The nodes' producer has a clock that is ahead: its records count as written when they are fetched."""

    now_ms = 2_000_000_000_000

    async def poll(self, records_max: int, timeout_seconds: float) -> Sequence[Record]:
        self.now_ms += 1
        return [
            record._replace(timestamp_ms=self.now_ms, claimed=True) if record.topic == NODES_TOPIC else record
            for record in await super().poll(records_max, timeout_seconds)
        ]


async def test_a_producer_whose_clock_runs_ahead_does_not_wait_for_all_others() -> None:
    """Nor do they wait for it: of two backlogs each gets its share of every few batches."""
    log = await _log()
    for _ in range(400):
        log.add(NODES, [Entry(b"node", b"v")] * 5)
        log.add(PODS, [Entry(b"pod", b"v")] * 5)
    intake = Intake(_ClaimingReader(log))
    await intake.add({NODES: 0, PODS: 0})
    taken = [record.topic for _ in range(20) for record in await intake.next_batch(50, 0.1)]
    assert len(taken) == 1_000
    assert min(taken.count(NODES_TOPIC), taken.count(PODS_TOPIC)) > 200


async def test_two_producers_whose_clocks_run_ahead_do_not_wait_for_each_other() -> None:
    class _All(_ClaimingReader):
        async def poll(self, records_max: int, timeout_seconds: float) -> Sequence[Record]:
            return [r._replace(claimed=True) for r in await super().poll(records_max, timeout_seconds)]

    log = await _log()
    log.add(NODES, [Entry(b"node", b"v")] * 2_000)
    log.add(PODS, [Entry(b"pod", b"v")] * 2_000)
    intake = Intake(_All(log))
    await intake.add({NODES: 0, PODS: 0})
    taken = [record.topic for _ in range(20) for record in await intake.next_batch(50, 0.1)]
    assert min(taken.count(NODES_TOPIC), taken.count(PODS_TOPIC)) > 200


class _GrowingReader(_Reader):
    """Records come before and after the end is asked for, so some behind it are read, and wait."""

    grows = True

    async def end_offsets(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, int]:
        self._log.add(PODS, [Entry(b"pod", b"before")] * self.grows)
        ends = await super().end_offsets(partitions)
        self._log.add(PODS, [Entry(b"pod", b"behind")] * self.grows)
        return ends


async def test_a_log_that_lost_what_was_read_ahead_is_noticed() -> None:
    """Nothing of the partition was asked for again, as there were records of it, and none of them came."""
    log = await _log()
    log.add(PODS, [Entry(b"pod", b"first")])
    reader = _GrowingReader(log)
    intake = Intake(reader)
    await intake.add({NODES: 0, PODS: 0})
    assert [record.value for record in await intake.next_batch(10, 0.1)] == [b"first", b"before"]
    reader.grows = False
    del log.partition(PODS).slots[1:]
    with pytest.raises(LogTruncated, match=r"berth.pods/0 ends at 1 and does not hold 3"):
        await intake.next_batch(10, 0.1)


async def test_what_comes_after_another_lost_tail_is_not_passed_over() -> None:
    """A partition is read again, and loses its tail once more between the first look and the second."""
    log = await _log()
    log.add(PODS, [Entry(b"a", b"old"), Entry(b"b", b"old"), Entry(b"b", b"new"), Entry(b"a", b"new")])
    reader = MemoryReader(log)
    span = _Span(first=0, below=4, moved_below=0, shards_count=1)
    latest, keys = await _read(reader, PODS, span, lambda: None)
    assert keys == {b"a", b"b"}
    del log.partition(PODS).slots[1:]
    log.add(PODS, [Entry(b"c", b"x"), Entry(b"d", b"x"), Entry(b"e", b"x")])
    intake = Intake(reader)
    await intake.add({PODS: 0}, {PODS: latest})
    assert [record.key for record in await intake.next_batch(10, 0.1)] == [b"c", b"d", b"e"]
