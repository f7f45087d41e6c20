"""Do plans of whom to evict take turns between namespaces, and is one made only where it could help?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import CycleResult, Placement, Preemption
from domain.model.devices import GPU, GPU_MILLI
from domain.model.events import NodeUpserted, PodDeleted, PodUpserted
from domain.model.pods import PodSpec
from domain.model.profiles import BUILT_IN_PROFILES
from domain.queue.queue import Queue
from tests.values import node, pod, template

AT_MS = 1_700_000_000_000
NODES = 12


def asking(name: str, cpu: int, priority: int, namespace: str = "hog", on: str = "") -> PodSpec:
    return pod(name, template(cpu, priority=priority), namespace=namespace, on=on)


def full(nodes: int = NODES, **settings: tuple[int, int]) -> Scheduler:
    """Return nodes of 4 cores, each with two pods of priority 0 that ask for 2."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1, preempts=True, **settings)  # type: ignore[arg-type]
    for i in range(nodes):
        scheduler.fold(NodeUpserted(node(f"n{i}")))
        for k in range(2):
            scheduler.fold(PodUpserted(asking(f"low{i}-{k}", 2_000, 0, "low", f"n{i}")))
    scheduler.cycle(AT_MS)
    return scheduler


def names(result: CycleResult, kind: type[Placement | Preemption]) -> list[str]:
    return [each.pod.name for each in result.verdicts if isinstance(each, kind)]


@pytest.fixture
def plans_of_a_cycle(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let a cycle have work enough for so many plans on all nodes, and for trying all of the pods."""
    monkeypatch.setattr("domain.cycle.schedule.cycle_work_max", 7_000)
    monkeypatch.setattr("domain.queue.turns._PLAN", 1_500)
    return 4


def test_a_namespace_with_many_unlike_pods_of_high_priority_does_not_hold_up_others(
    plans_of_a_cycle: int,
) -> None:
    scheduler = full()
    for i in range(8):
        scheduler.fold(PodUpserted(asking(f"hog{i}", 3_000 + i, 10)))
    scheduler.fold(PodUpserted(asking("urgent", 3_000, 5, "other")))
    scheduler.fold(NodeUpserted(node("roomy", cpu=1_000)))
    scheduler.fold(PodUpserted(asking("small", 1_000, 0, "other")))
    first = scheduler.cycle(AT_MS)
    assert names(first, Preemption) == [f"hog{i}" for i in range(plans_of_a_cycle)]
    assert names(first, Placement) == ["small"], "it needs no plan"
    assert len(first.tried) == 1, "no other was tried"
    second = scheduler.cycle(AT_MS)
    assert "urgent" in names(second, Preemption), "its namespace had none yet"
    promised = names(first, Preemption) + names(second, Preemption)
    while scheduler.has_work:
        promised += names(scheduler.cycle(AT_MS), Preemption)
    assert Counter(promised) == Counter([*(f"hog{i}" for i in range(8)), "urgent"])


def test_a_group_whose_pods_all_have_nodes_nominated_does_not_back_off() -> None:
    scheduler = full(backoff_ms=(1_000, 10_000))
    scheduler.cycle_pods_max = 2
    for i in range(6):
        scheduler.fold(PodUpserted(asking(f"high{i}", 3_000, 10)))
    promised = [names(scheduler.cycle(AT_MS), Preemption) for _ in range(3)]
    assert [len(each) for each in promised] == [2, 2, 2]


def parked(queue: Queue) -> list[str]:
    return [key for group in queue.groups.values() if group.parked for key in group.pods]


def test_a_parked_group_is_planned_again_only_where_a_node_could_be_cleared_for_it() -> None:
    scheduler = full(nodes=2)
    scheduler.fold(PodUpserted(asking("top", 1_000, 10, on="n0")))
    scheduler.fold(PodUpserted(asking("top1", 1_000, 10, on="n1")))
    scheduler.fold(PodUpserted(asking("wide", 4_000, 10)))
    assert names(scheduler.cycle(AT_MS), Placement) == []
    assert parked(scheduler.queue) == ["hog/wide"]
    scheduler.fold(PodDeleted("low", "low0-0"))
    assert scheduler.cycle(AT_MS).attempts == [], "all of lower priority could have gone before"
    scheduler.fold(PodDeleted("hog", "top1"))
    assert names(scheduler.cycle(AT_MS), Preemption) == ["wide"]


def test_what_is_promised_to_others_of_no_lower_priority_is_no_room_that_could_be_cleared() -> None:
    scheduler = full(nodes=1)
    scheduler.fold(PodUpserted(asking("first", 3_000, 10)))
    assert names(scheduler.cycle(AT_MS), Preemption) == ["first"]
    scheduler.fold(PodUpserted(asking("second", 3_500, 10)))
    scheduler.cycle(AT_MS)
    assert parked(scheduler.queue) == ["hog/second"]
    scheduler.fold(PodDeleted("low", "low0-0"))
    assert scheduler.cycle(AT_MS).attempts == []
    assert parked(scheduler.queue) == ["hog/second"]


@pytest.mark.parametrize("asks", [{GPU_MILLI: 800}, {GPU: 1}])
def test_a_device_that_others_share_is_no_room_that_could_be_cleared(asks: Mapping[str, int]) -> None:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1, preempts=True)
    scheduler.fold(NodeUpserted(node("n0", cpu=64_000, extended={GPU: 1})))
    for name, milli, priority in (("low", 300, 0), ("top", 300, 10), ("other", 300, 10)):
        of = template(100, priority=priority, requests={GPU_MILLI: milli})
        scheduler.fold(PodUpserted(pod(name, of, on="n0")))
    scheduler.fold(PodUpserted(pod("high", template(100, priority=10, requests=asks))))
    assert names(scheduler.cycle(AT_MS), Preemption) == []
    scheduler.fold(PodDeleted("default", "other"))
    assert scheduler.cycle(AT_MS).attempts == [], "the device is shared by a pod of its priority"
    scheduler.fold(PodDeleted("default", "top"))
    assert names(scheduler.cycle(AT_MS), Preemption) == ["high"]
