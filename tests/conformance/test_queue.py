"""Does the queue let groups back off as published systems do, and does nobody hold up those behind him?

berth orders by priority and age alone. Gödel lets the priority decay with failed attempts, so that a head
that fails does not block the queue: ``DECAYED`` names the cases in which it has less than its priority then.
What it is for is asserted of all cases: whoever stands behind such a head is tried in the same cycle, and
the head has its full priority when room comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import CycleResult, Placement
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.limits import backoff_ms_max, backoff_ms_min
from domain.model.pods import PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES
from tests.conformance.tables import structure_cases as cases
from tests.values import node, pod, template

DECAYED = {"queue-score.02", "queue-score.09", "queue-score.14", "queue-score.17"}
LARGE = 8_000


def asking(cpu: int, priority: int) -> PodTemplate:
    return template(cpu, priority=priority)


def placed(result: CycleResult) -> list[str]:
    return [each.pod.name for each in result.verdicts if isinstance(each, Placement)]


def failing(backoff_ms: tuple[int, int], priority: int = 0) -> tuple[Scheduler, Callable[[int], CycleResult]]:
    """Return a scheduler with a pod that found no node, and how to have it tried once more, at a time."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1, backoff_ms=backoff_ms)
    scheduler.fold(NodeUpserted(node("n", cpu=1_000)))
    scheduler.fold(PodUpserted(pod("head", asking(LARGE, priority))))

    def again(now_ms: int) -> CycleResult:
        for group in scheduler.queue.groups.values():
            scheduler.queue.wake_group(group)
        return scheduler.cycle(now_ms)

    return scheduler, again


def waited_ms(attempts: int, backoff_ms: tuple[int, int]) -> int:
    """Return how long a group backs off after so many attempts in a row."""
    scheduler, again = failing(backoff_ms)
    now_ms = 0
    for _ in range(attempts):
        assert len(again(now_ms).attempts) == 1
        (group,) = scheduler.queue.groups.values()
        due_ms, tried_ms = group.due_ms, now_ms
        assert not again(due_ms - 1).attempts
        now_ms = due_ms
    return now_ms - tried_ms


@pytest.mark.parametrize("case", cases("backoff"))
def test_the_wait_before_a_group_is_tried_again(case: dict[str, Any]) -> None:
    backoff_ms = (case["first_s"] * 1000, case["max_s"] * 1000)
    assert waited_ms(case["attempt"], backoff_ms) == case["expect"]["wait_s"] * 1000


def test_the_waits_of_kube_scheduler_are_the_default() -> None:
    """podInitialBackoffSeconds is 1, podMaxBackoffSeconds 10."""
    waits = [waited_ms(n, (backoff_ms_min, backoff_ms_max)) for n in range(1, 7)]
    assert waits == [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]


@pytest.mark.parametrize("case", cases("queue-score"))
def test_a_head_that_fails_blocks_nobody_and_keeps_its_priority(case: dict[str, Any]) -> None:
    scheduler, again = failing((0, 0), case["priority"])
    behind = asking(100, case["floor"] - 1)
    for i in range(case["attempts"]):
        scheduler.fold(PodUpserted(pod(f"behind-{i}", behind)))
        assert placed(again(i)) == [f"behind-{i}"]
    (group,) = scheduler.queue.groups.values()
    is_decayed = case["expect"]["score"] != group.template.priority
    assert is_decayed is (case["id"] in DECAYED)
    scheduler.fold(PodUpserted(pod("rival", asking(LARGE, case["floor"] - 1))))
    scheduler.fold(NodeUpserted(node("large", cpu=LARGE)))
    assert placed(again(case["attempts"])) == ["head"]
