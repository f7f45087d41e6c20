"""Can one producer keep the scheduler busy? Work is counted in calls, never in time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from random import Random
from types import FrameType
from typing import Any

import pytest

from benchmarks.hostile import BURSTS, ORDINARY, new_planner, records
from domain.cycle import schedule as schedule_module
from services.ports.ledger import CommitBatch, Committed
from services.ports.log import NODES_TOPIC
from tests.property.site import Producer, Site, audit, payloads
from tests.property.site import batches as batches_of

WORK_MAX = 4_000
BURST_PODS = 200
ALONE = sorted(name for name, burst in BURSTS.items() if burst.config is None and not burst.is_full)
"""Bursts of pods alone, none of which preempts."""


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
    planner.plan_batch([record for record in sent if record.topic == NODES_TOPIC])
    rest = [record for record in sent if record.topic != NODES_TOPIC]
    return calls_of(lambda: planner.plan_batch(rest)) / pods


@pytest.mark.parametrize("name", ALONE)
def test_work_for_a_pod_does_not_grow_with_the_nodes(name: str) -> None:
    """What is computed for all nodes is computed in columns, whatever nodes and pods say."""
    few, many = calls_per_pod(name, 100), calls_per_pod(name, 400)
    assert many < 1.2 * few + 20, f"{few:.0f} calls a pod on 100 nodes, {many:.0f} on 400"


@pytest.mark.parametrize("name", [name for name in ALONE if not name.endswith("-all")])
def test_work_for_a_pod_does_not_grow_with_the_pods_beside_it(name: str) -> None:
    """But for terms that mean every pod: each is compared with each, and their namespace pays for it."""
    few, many = calls_per_pod(name, 20, 10), calls_per_pod(name, 20, 80)
    assert many < 1.2 * few + 20, f"{few:.0f} calls for each of 10 pods, {many:.0f} for each of 80"


@pytest.fixture
def _little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a cycle do so little that bursts of a few pods take many."""
    monkeypatch.setattr(schedule_module, "cycle_work_max", WORK_MAX)


@pytest.mark.usefixtures("_little_work")
@pytest.mark.parametrize("name", ALONE)
def test_an_ordinary_pod_behind_a_burst_is_decided_in_its_own_batch(name: str) -> None:
    planner = new_planner()
    sent = list(records(BURSTS[name], nodes=20, pods=BURST_PODS))
    planner.plan_batch(sent[:20])
    batches = [planner.plan_batch(sent[20:])]
    assert ORDINARY in decided(batches)
    waits = {row.pod_uid for row in batches[0].pods.pending_added if not row.tried}
    while planner.has_work:
        assert len(batches) <= BURST_PODS + 1, "each tries a pod at least"
        batches.append(planner.plan_batch([]))
        attempts = [rows for rows in batches[-1].decisions.attempts if rows.attempt.pods_count]
        assert len(attempts) <= WORK_MAX // 60
    assert len(batches) > 2
    assert len(waits) > BURST_PODS // 2
    assert sorted(decided(batches)) == sorted([ORDINARY, *(f"hostile/p{i}" for i in range(BURST_PODS))])
    assert waits <= {uid for batch in batches[1:] for uid in batch.pods.pending_removed}


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_restart_takes_nobodys_turn(seed: int, is_cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches follow each other although pods wait their turn, and a worker may start anew between them.

    It tries all who wait once more. So where a cycle does not try all, others may come later, but they come.
    """
    if is_cut:
        monkeypatch.setattr(schedule_module, "cycle_work_max", 70)
    random = Random(seed)
    sent = Producer(Random(seed)).records(150)
    steady, shaken, waited = Site(), Site(), 0
    for piece in [*batches_of(sent, random), *([[]] * 30)]:
        for site in (steady, shaken):
            assert site.database.apply(site.planner.plan_batch(piece)) == Committed()
        waited += len(steady.planner.ledger_view.untried)
        if random.random() < 0.5 and not shaken.planner.held:
            shaken.planner = shaken.restarted()
    audit(shaken)
    assert bool(waited) is is_cut
    for site in (steady, shaken):
        site.take([])
    if is_cut:
        assert named(shaken) == named(steady)
    else:
        assert payloads(shaken) == payloads(steady)


def named(site: Site) -> set[str]:
    """Return the pods of which anything was decided."""
    return {record["pod"]["uid"] for record in site.decided()}


def decided(batches: Sequence[CommitBatch]) -> list[str]:
    return [f"{each.namespace}/{each.name}" for batch in batches for each, _ in batch.decisions.made]
