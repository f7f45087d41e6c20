"""Is a past decision verified by its bytes, is a change named, and does a plan answer its case alike?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
import pytest

from domain.model.decisions import Outcome
from services.adapters.memory.history import ScratchLedger
from services.codec.feed import unpack_feed
from services.ports.journal import JournalRow
from services.replay.case import NoCase
from services.replay.planning import Progress
from services.replay.tape import LogTooShort
from services.replay.verify import Verification, Verified
from services.replay.workers import CannotReplay
from tests.depth import some
from tests.history.day import Day, past, read
from tests.history.lived import (
    Lived,
    answered,
    case,
    cases_of,
    openb_day,
    recorded,
    simulated,
    verified,
    verify_some,
)


@pytest.fixture(scope="module")
def day() -> Day:
    return read()


def verify(day: Day, shard: int, seq: int, told: list[Progress] | None = None) -> Verified:
    async def report(progress: Progress) -> None:
        if told is not None:
            told.append(msgspec.structs.replace(progress))

    async def run() -> Verified:
        return await Verification(*await past(day), ScratchLedger, report).run(shard, seq)

    return asyncio.run(run())


def bound(day: Day, after: int = 0) -> int:
    """Return the seq of a decision of shard 0 that placed a pod."""
    return next(
        seq for seq, text in enumerate(day.decisions[0], 1) if '"outcome":"bound"' in text and seq > after
    )


def batch(day: Day, seq: int) -> JournalRow:
    return next(row for row in day.journal if (s := row.seqs.get(0)) is not None and s[0] <= seq < s[1])


def with_row(day: Day, row: JournalRow, **changed: Any) -> Day:
    rows = [msgspec.structs.replace(row, **changed) if each is row else each for each in day.journal]
    return Day(day.events, rows, day.decisions)


def with_record(day: Day, seq: int, text: str) -> Day:
    kept = day.decisions[0]
    return Day(day.events, day.journal, {**day.decisions, 0: [*kept[: seq - 1], text, *kept[seq:]]})


def test_a_decision_is_planned_again_from_the_checkpoint_and_no_further(day: Day) -> None:
    seq, told = bound(day, 40), list[Progress]()
    found = verify(day, 0, seq, told)
    assert (found.is_same, found.id, found.batch) == (True, f"0-{seq}", batch(day, seq).batch)
    assert told[0].batches_count == 0, "what it takes is said before the first batch"
    assert found.progress.batches_count == found.progress.total == told[0].total == found.batch


def test_a_changed_record_of_the_decision_is_named_field_by_field(day: Day) -> None:
    seq = bound(day, 40)
    text = day.decisions[0][seq - 1]
    record = msgspec.json.decode(text)
    name, node = record["pod"]["name"], record["node"]
    changed = text.replace(f'"name":"{name}"', '"name":"other"').replace(f'"node":"{node}"', '"node":"no"')
    found = verify(with_record(day, seq, changed), 0, seq)
    assert [(each.field, each.recorded, each.replayed) for each in found.differing] == [
        ("pod.name", "other", name),
        ("node", "no", node),
    ]
    assert found.was_changed, "the journal has it as it was planned again"
    assert not found.is_same
    for other in (f"{text} ", "no JSON"):
        (differing,) = verify(with_record(day, seq, other), 0, seq).differing
        assert (differing.field, differing.recorded) == ("", other)
    later = bound(day, seq)
    assert verify(with_record(day, later, "no JSON"), 0, seq).is_same, "another one is another question"


def test_a_changed_row_of_the_journal_is_named(day: Day) -> None:
    seq = bound(day, 40)
    row = batch(day, seq)
    earlier = next(each for each in day.journal if each.batch == row.batch - 1)
    fed = msgspec.structs.replace(unpack_feed(earlier.feed), counted=["x"])
    changes: list[tuple[JournalRow, str, Mapping[str, Any]]] = [
        (row, "the journal's row was changed", {"decisions_hash": b""}),
        (row, "log time", {"log_time_ms": row.log_time_ms + 1}),
        (earlier, "the rows of tombstones", {"effects": {**earlier.effects, "tombstones": "00"}}),
        (earlier, "what other workers follow", {"feed": msgspec.msgpack.encode(fed)}),
    ]
    for of, what, changed in changes:
        found = verify(with_row(day, of, **changed), 0, seq)
        assert found.beside is not None
        assert (found.beside.batch, what in found.beside.what) == (of.batch, True), found
        assert (found.is_same, found.differing) == (False, [])


def test_a_changed_record_of_the_log_is_named(day: Day) -> None:
    seq = bound(day, 40)
    name = msgspec.json.decode(day.decisions[0][seq - 1])["pod"]["name"]
    at = next(i for i, each in enumerate(day.events) if each.event["object"]["metadata"]["name"] == name)
    event = msgspec.json.decode(msgspec.json.encode(day.events[at].event))
    event["object"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "7"
    changed = msgspec.structs.replace(day.events[at], event=event)
    found = verify(
        Day([*day.events[:at], changed, *day.events[at + 1 :]], day.journal, day.decisions), 0, seq
    )
    assert "template.requests.cpu" in [each.field for each in found.differing]
    assert not found.was_changed


def test_what_is_missing_is_named(day: Day) -> None:
    seq = bound(day, 40)
    with pytest.raises(CannotReplay, match="there is no decision 0-100000"):
        verify(day, 0, 100_000)
    row = batch(day, seq)
    without = Day(day.events, [each for each in day.journal if each is not row], day.decisions)
    with pytest.raises(
        CannotReplay, match=f"the journal does not have the batch of decision 0-{seq}: it beg"
    ):
        verify(without, 0, seq)
    rows = [each for each in day.journal if each.batch != row.batch - 1]
    with pytest.raises(CannotReplay, match=f"the journal has no row of batch {row.batch - 1}"):
        verify(Day(day.events, rows, day.decisions), 0, seq)
    with pytest.raises(LogTooShort):
        verify(Day(day.events[:20], day.journal, day.decisions), 0, seq)


def _look(lived: Lived, verify_count: int, cases_count: int) -> dict[str, int]:
    """Verify some decisions, and plan some cases; return how many cases there are by outcome."""

    async def run() -> dict[str, int]:
        random = Random(1)
        found = await verify_some(lived, random, verify_count)
        assert found["same"] > 0
        assert found["different"] == 0
        counts: dict[str, int] = {}
        async for outcome, document in cases_of(lived, random, cases_count):
            if document is None:  # what a worker remembers of evictions is in no scenario
                assert outcome == Outcome.NOMINATED
                continue
            wanted = document["expect"]
            assert answered(document) == (wanted.get("node"), wanted["reasons"])
            counts[outcome] = counts.get(outcome, 0) + 1
        return counts

    return asyncio.run(run())


def test_decisions_of_the_recorded_day_are_verified_and_planned_alike() -> None:
    counts = _look(asyncio.run(recorded()), 8, 15)
    assert min(counts[Outcome.BOUND], counts[Outcome.UNSCHEDULABLE]) > 2


@pytest.mark.parametrize("preempts", [False, True])
@pytest.mark.parametrize("seed", some([0, 1, 2]))
def test_so_are_those_of_simulated_days(seed: int, preempts: bool) -> None:
    """Several workers, conflicts, gangs, moves, preemption, crashes."""
    counts = _look(simulated(seed, preempts=preempts), 8, 20)
    assert counts[Outcome.BOUND] > 3


def test_so_are_those_of_openb_by_devices() -> None:
    assert _look(asyncio.run(openb_day(600, 6)), 5, 5)[Outcome.BOUND] == 5


def test_a_decision_that_no_attempt_made_is_no_case() -> None:
    async def run() -> None:
        lived = await recorded()
        shard, seq, _ = next(each for each in lived.decisions if each[2] == Outcome.RELEASED)
        with pytest.raises(
            NoCase, match="has the outcome released: no attempt led to it; those that end in b"
        ):
            await case(lived, shard, seq)
        assert (await verified(lived, shard, seq)).is_same

    asyncio.run(run())
