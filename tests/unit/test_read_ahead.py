"""Do pods of a higher priority that the log holds behind a batch come before those of the batch?"""

from __future__ import annotations

from random import Random

import pytest

from domain.model.limits import batch_bytes_max
from services.adapters.memory.log import MemoryLog
from services.ports.ledger import CommitBatch, Committed
from services.ports.log import PODS_TOPIC, Entry, Record, TopicPartition, TopicSpec
from services.worker import intake as intake_module
from services.worker import read_ahead
from services.worker.intake import Intake
from tests.builders import Json, node_manifest, pod_manifest, priority_class_manifest
from tests.contract.conftest import SteppingClock
from tests.property.site import Site


def low(count: int, priority: int | None = 1) -> list[Json]:
    return [pod_manifest(f"low{i}", cpu="1", priority=priority) for i in range(count)]


def with_node(*pods: Json) -> tuple[Site, list[Record]]:
    """Return a site whose one node has room for one pod, and the records of these."""
    site = Site()
    site.tell("ADDED", node_manifest("n", cpu="1"))
    return site, site.records([("ADDED", pod, 1_700_000_000_000) for pod in pods])


def commit(site: Site, records: list[Record], due: int) -> CommitBatch:
    batch = site.planner.plan_batch(records, due=due)
    assert site.database.apply(batch) == Committed()
    return batch


def placed(site: Site) -> set[str]:
    return {row.opened.name for row in site.database.open_placements.values()}


def test_a_pod_of_a_higher_priority_behind_a_batch_comes_first() -> None:
    site, records = with_node(*low(10), pod_manifest("high", cpu="1", priority=2), *low(3))
    commit(site, records, due=4)
    assert placed(site) == {"high"}
    assert len(site.planner.held) == 3, "what is behind the pod waits for its own batch"


@pytest.mark.parametrize("priority", [0, 1, None])
def test_nothing_is_folded_ahead_for_pods_of_no_higher_priority(priority: int | None) -> None:
    site, records = with_node(*low(10), pod_manifest("other", cpu="1", priority=priority))
    commit(site, records, due=4)
    assert placed(site) == {"low0"}
    assert len(site.planner.held) == 7


def test_a_parked_pod_that_a_node_would_wake_does_not_take_the_room_either() -> None:
    site = Site()
    site.tell("ADDED", low(1)[0])
    more = [node_manifest("n", cpu="1"), pod_manifest("high", cpu="1", priority=2)]
    commit(site, site.records([("ADDED", each, 1_700_000_000_000) for each in more]), due=1)
    assert placed(site) == {"high"}


@pytest.mark.parametrize(
    "behind",
    [
        pod_manifest("gated", cpu="1", priority=2, spec={"schedulingGates": [{"name": "quota"}]}),
        pod_manifest("there", cpu="1", priority=2, node_name="m"),
        pod_manifest("done", cpu="1", priority=2, phase="Succeeded"),
    ],
    ids=["gated", "bound", "finished"],
)
def test_a_pod_that_is_not_to_be_placed_draws_nothing_ahead(behind: Json) -> None:
    site, records = with_node(*low(5), behind)
    commit(site, records, due=2)
    assert len(site.planner.held) == 4


def test_news_of_a_pod_that_is_known_draw_nothing_ahead() -> None:
    site, _ = with_node()
    site.tell("ADDED", pod_manifest("high", cpu="1", priority=2))
    again = pod_manifest("high", cpu="1", priority=2, labels={"a": "b"})
    events = [*low(5), again]
    commit(site, site.records([("MODIFIED", each, 1_700_000_000_000) for each in events]), due=2)
    assert len(site.planner.held) == 4


def test_a_change_of_configuration_ends_what_is_read_ahead() -> None:
    """It is a batch of its own. What is behind it is looked at once it is in force."""
    site, _ = with_node()
    urgent = pod_manifest("high", cpu="1", spec={"priorityClassName": "urgent"})
    manifests = [*low(3), priority_class_manifest("urgent", 9), *low(8)[3:], urgent]
    records = site.records([("ADDED", each, 1_700_000_000_000) for each in manifests])
    commit(site, records, due=2)
    assert placed(site) == {"low0"}
    assert len(site.planner.held) == 8
    while site.planner.held:
        commit(site, [], due=1)
        held = {record.key for record in site.planner.held}
        assert (b"default/low3" in held) is (b"default/high" in held), "they are folded together"
    site.tell("DELETED", pod_manifest("low0", cpu="1", priority=1))
    assert placed(site) == {"high"}


def test_a_flood_of_priorities_is_read_ahead_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "read_ahead_records_max", 6)
    pods = [pod_manifest(f"p{i}", cpu="1m", priority=i) for i in range(40)]
    site = Site()
    site.planner.scheduler.cycle_pods_max = 2
    site.tell("ADDED", node_manifest("n", cpu="1"))
    records = site.records([("ADDED", pod, 1_700_000_000_000) for pod in pods])
    commit(site, records, due=2)
    folded = [40 - len(site.planner.held)]
    while site.planner.held:
        commit(site, [], due=2)
        folded.append(40 - len(site.planner.held))
        assert len(site.planner.ledger_view.untried) <= 8
    assert folded == [8, *range(10, 42, 2)], "as many as are tried, and those ahead stay as many as they were"


@pytest.mark.parametrize("seed", range(8))
def test_a_replay_of_what_was_folded_decides_the_same(seed: int) -> None:
    random = Random(seed)
    pods = [
        pod_manifest(f"p{i}", cpu=random.choice("12"), priority=random.choice((None, 1, 5)))
        for i in range(60)
    ]
    first, again = Site(), Site()
    manifests = [node_manifest("n", cpu="4"), *pods[:20], node_manifest("m", cpu="7"), *pods[20:]]
    left = first.records([("ADDED", each, 1_700_000_000_000) for each in manifests])
    sizes = set()
    while left:
        before = first.planner.positions()
        held, due = list(first.planner.held), random.randrange(1, 8)
        commit(first, left[len(held) : len(held) + due + 20], due)
        after = first.planner.positions()
        folded = [r for r in left if r.offset < after[TopicPartition(r.topic, r.partition)]]
        assert folded == left[: len(folded)]
        assert before != after
        again.database.apply(again.planner.plan_batch(folded, is_recorded=True))
        sizes.add(len(folded) - due)
        left = left[len(folded) :]
    assert max(sizes) > 0, "some were folded ahead"
    assert again.database.decisions == first.database.decisions


async def test_the_intake_reads_as_much_further_as_it_may() -> None:
    log = MemoryLog(SteppingClock())
    await log.ensure_topics([TopicSpec(PODS_TOPIC, 1, True)])
    at = TopicPartition(PODS_TOPIC, 0)
    log.add(at, [Entry(b"k", b"%d" % i) for i in range(100)])
    intake = Intake(await log.reader())
    await intake.add({at: 0})
    read = await intake.next_batch(10, 0.1, (), 50)
    assert (len(read), intake.due) == (60, 10)
    held = read[10:]
    read = await intake.next_batch(10, 0.0, held, 50)
    assert ([record.offset for record in read], intake.due) == ([*range(60, 70)], 10)
    held = [*held, *read]
    assert len(await intake.next_batch(10, 0.0, held, 0)) == 0, "less is read ahead after trouble"
    assert intake.due == 10
    rest = await intake.next_batch(10, 0.0, held[57:], 50)
    assert ([record.offset for record in rest], intake.due) == ([*range(70, 100)], 10)
    await intake.next_batch(10, 0.0, rest[-4:], 50)
    assert intake.due == 4


async def test_a_batch_of_large_records_is_as_large_as_without_what_is_read_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake_module, "read_ahead_bytes_max", batch_bytes_max // 2)
    log = MemoryLog(SteppingClock())
    await log.ensure_topics([TopicSpec(PODS_TOPIC, 1, True)])
    at, size = TopicPartition(PODS_TOPIC, 0), batch_bytes_max // 8
    log.add(at, [Entry(b"k", b"x" * size)] * 40)
    alone, intake = Intake(await log.reader()), Intake(await log.reader())
    held: list[Record] = []
    for each in (alone, intake):
        await each.add({at: 0})
    for _ in range(3):
        batch = await alone.next_batch(100, 0.1)
        read = await intake.next_batch(100, 0.0 if held else 0.1, held, 500)
        assert intake.due == len(batch) == 8
        held += read
        assert sum(len(record.value or b"") for record in held) <= batch_bytes_max * 3 // 2
        assert held[:8] == batch
        held = held[8:]
