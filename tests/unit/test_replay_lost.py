"""Which batches does a replay refuse because the log lost what they were made from?"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.history import MemoryHistory
from services.adapters.memory.log import MemoryLog
from services.ports.journal import Checkpoint, JournalRow, Lane, Owned, Start, pack_order
from services.ports.log import PODS_TOPIC, USAGE_TOPIC, Entry, TopicPartition, topic_specs
from services.ports.positions import LogFault
from services.replay.lost import Lost, is_behind_losses
from services.replay.tape import LogTooShort, Tape
from tests.contract.conftest import SteppingClock

PODS = TopicPartition(PODS_TOPIC, 1)


def fault(code: str, **more: Any) -> LogFault:
    """Return what a worker found under epoch 5: the log ends at 40, and 50 was next."""
    told = {"first": 0, "end": 40, "goes_on_at": 0, "resync_below": 40, "topic_id": None, **more}
    return LogFault(**{"shard": 1, "epoch": 5, "at": PODS, "code": code, "next_offset": 50, **told})


def row(lo: int, hi: int, epoch: int, at: TopicPartition = PODS) -> JournalRow:
    """Return a batch of a worker that had just taken shard 1."""
    shard = at.partition
    lane = Lane(shard=shard, topic=at.topic, partition=at.partition, lo=lo, hi=hi)
    return JournalRow(shard=0, batch=9, lanes=[lane], owned=[Owned(leases={shard: epoch})])


@pytest.mark.parametrize(
    ("code", "lo", "hi", "epoch", "is_refused"),
    [
        ("tail-lost", 30, 40, 4, False),  # below what was lost
        ("tail-lost", 38, 41, 4, True),
        ("tail-lost", 0, 12, 5, True),  # read again: of each key only its latest record counts
        ("tail-lost", 40, 45, 5, False),
        ("recreated", 0, 3, 4, True),  # none of it is the log's any more
        ("recreated", 40, 41, 5, False),
        ("truncated", 30, 40, 4, False),  # the tape says so where it begins too late
        ("truncated", 30, 40, 6, True),
    ],
)
def test_a_batch_is_refused_where_the_log_is_not_as_it_read_it(
    code: str, lo: int, hi: int, epoch: int, is_refused: bool
) -> None:
    why = Lost([fault(code)], {1: 3}).why_not(row(lo, hi, epoch))
    assert bool(why) is is_refused
    assert not why or f"of berth.pods/1 ({code}; the table log_faults has it under epoch 5)" in why


def test_other_partitions_and_measurements_are_not_touched() -> None:
    assert not Lost([fault("recreated")], {}).why_not(row(0, 50, 4, TopicPartition(PODS_TOPIC, 0)))
    usage = TopicPartition(USAGE_TOPIC, 1)
    measured = fault("tail-lost", at=usage, resync_below=None)
    assert not Lost([measured], {}).why_not(row(0, 10, 6, usage))


def test_a_replay_of_all_begins_behind_what_was_lost() -> None:
    def taken(epoch: int, offset: int) -> Checkpoint:
        start = Start(
            worker="w",
            build="",
            seed=0,
            usage_window_seconds=1,
            profiles={},
            writers={},
            leases={1: epoch},
            offsets=[],
        )
        return Checkpoint(shard=0, batch=3, start=start, offsets={(1, *PODS): offset})

    found = [fault("tail-lost")]
    assert not is_behind_losses(taken(4, 50), found)
    assert not is_behind_losses(taken(5, 39), found)
    assert is_behind_losses(taken(5, 40), found)
    assert is_behind_losses(taken(4, 50), [])


def test_a_batch_is_planned_again_though_the_log_lost_what_others_took() -> None:
    log, other = MemoryLog(SteppingClock()), TopicPartition(PODS_TOPIC, 0)

    async def take(at: TopicPartition) -> list[bytes | None]:
        await log.ensure_topics(topic_specs(2))
        log.add(other, [Entry(b"k", each) for each in (b"a", b"b", b"c")])
        reader = await log.reader()
        tape = Tape(reader, MemoryHistory(MemoryDatabase(2)), {PODS: 40, other: 0})
        lo = 0 if at == other else 40
        batch = msgspec.structs.replace(row(lo, lo + 2, 5, at), order=pack_order([0, 0]))
        return [record.value for record in await tape.read_batch(batch)]

    assert asyncio.run(take(other)) == [b"a", b"b"]
    with pytest.raises(LogTooShort, match="took what the log no longer has"):
        asyncio.run(take(PODS))
