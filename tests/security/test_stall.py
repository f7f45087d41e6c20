"""Can one producer keep the scheduler busy? Work is counted in calls, never in time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from benchmarks.hostile import BURSTS, new_planner, records
from services.ports.log import NODES_TOPIC


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions were called, those of libraries among them."""
    count = 0

    def called(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def calls_per_pod(name: str, nodes: int, pods: int = 12) -> float:
    """Return the calls for each pod of a burst, its nodes being there."""
    planner = new_planner()
    sent = list(records(BURSTS[name], nodes, pods))
    planner.plan([record for record in sent if record.topic == NODES_TOPIC])
    rest = [record for record in sent if record.topic != NODES_TOPIC]
    return calls_of(lambda: planner.plan(rest)) / pods


@pytest.mark.parametrize("name", sorted(BURSTS))
def test_work_for_a_pod_does_not_grow_with_the_nodes(name: str) -> None:
    """What is computed for all nodes is computed in columns, whatever nodes and pods say."""
    few, many = calls_per_pod(name, 100), calls_per_pod(name, 400)
    assert many < 1.2 * few + 20, f"{few:.0f} calls a pod on 100 nodes, {many:.0f} on 400"


@pytest.mark.parametrize("name", sorted(BURSTS))
def test_work_for_a_pod_does_not_grow_with_the_pods_beside_it(name: str) -> None:
    few, many = calls_per_pod(name, 20, 10), calls_per_pod(name, 20, 80)
    assert many < 1.2 * few + 20, f"{few:.0f} calls for each of 10 pods, {many:.0f} for each of 80"
