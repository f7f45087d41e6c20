"""Do gangs obey their time-out and least resources, say who does not count, and lose with whom they must?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import CycleResult, Placement
from domain.manifests.objects import node_from_manifest, pod_from_manifest
from domain.model.config import POD_GROUP, PodGroup
from domain.model.decisions import GangSeen
from domain.model.events import ConfigUpserted, NodeUpserted, PodDeleted, PodUpserted
from domain.model.profiles import BUILT_IN_PROFILES
from domain.state.steps import Owned
from services.codec.settling import lost_together
from services.phrases import gang_in_words
from services.ports.ledger import GangPlaced
from tests.batches import batch_of
from tests.builders import node_manifest, pod_manifest
from tests.contract.batches import load_node

LABEL = "scheduling.x-k8s.io/pod-group"


def scheduler_with(nodes: int, members: int, *, cpu: int = 2, **spec: Any) -> Scheduler:
    """Return a scheduler with nodes of 4 cpu and a gang."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1, backoff_ms=(1_000, 10_000))
    for i in range(nodes):
        scheduler.fold(NodeUpserted(node_from_manifest(node_manifest(f"n{i}", cpu=4))))
    scheduler.fold(ConfigUpserted(POD_GROUP, "default", "team", PodGroup(**spec)))
    for i in range(members):
        come(scheduler, f"m{i}", cpu, labels={LABEL: "team"})
    return scheduler


def come(scheduler: Scheduler, name: str, cpu: int, **more: Any) -> None:
    scheduler.fold(PodUpserted(pod_from_manifest(pod_manifest(name, cpu=cpu, **more))))


def seen(result: CycleResult) -> GangSeen | None:
    return next((attempt.gang for attempt in result.attempts if attempt.gang), None)


def tries(scheduler: Scheduler, until_s: int) -> list[int]:
    """Let a pod come and go twice a second, so that room is made; return when the gang was tried, in s/2."""
    tried = []
    for half in range(1, 2 * until_s):
        come(scheduler, "brief", 1, node_name="n0")
        scheduler.fold(PodDeleted("default", "brief"))
        while scheduler.has_work:
            before = scheduler.queue.gangs.known["default/team"].failures
            scheduler.cycle(half * 500)
            if scheduler.queue.gangs.known["default/team"].failures != before:
                tried.append(half)
            scheduler.state.improved_rows.clear()
    return tried


def test_a_gang_backs_off_from_one_second_to_ten() -> None:
    scheduler = scheduler_with(1, 3, min_member=3)
    scheduler.cycle(0)
    assert tries(scheduler, 30) == [2, 6, 14, 30, 50]


def test_after_its_time_out_it_is_tried_every_ten_seconds_only_and_says_so() -> None:
    scheduler = scheduler_with(1, 3, min_member=3, schedule_timeout_seconds=1)
    first = seen(scheduler.cycle(0))
    assert first
    assert first.late_seconds == 0
    assert tries(scheduler, 30) == [2, 22, 42]
    come(scheduler, "m3", 4, labels={LABEL: "team"})
    late = seen(scheduler.cycle(40_000))
    assert late
    assert late.late_seconds == 40
    assert gang_in_words(late, "").endswith("; it fails for 40 s")


def test_a_gang_that_was_placed_meanwhile_begins_anew() -> None:
    scheduler = scheduler_with(1, 3, min_member=3, schedule_timeout_seconds=1)
    scheduler.cycle(0)
    scheduler.fold(NodeUpserted(node_from_manifest(node_manifest("more", cpu=4))))
    assert sum(each.bound_count for each in scheduler.cycle(20_000).attempts) == 3
    come(scheduler, "m3", 9, labels={LABEL: "team"})
    assert seen(scheduler.cycle(30_000)) is None, "three of three run: the fourth waits for itself"


def test_least_resources_are_what_is_free_beside_its_own_pods() -> None:
    scheduler = scheduler_with(2, 2, min_member=2, min_resources={"cpu": 8_000})
    assert sum(each.bound_count for each in scheduler.cycle().attempts) == 2
    come(scheduler, "m2", 2, labels={LABEL: "team"})
    assert sum(each.bound_count for each in scheduler.cycle().attempts) == 1, "its own pods hold the rest"
    scheduler = scheduler_with(2, 0, min_member=2, min_resources={"cpu": 8_000})
    come(scheduler, "other", 1)
    scheduler.cycle()
    for i in range(2):
        come(scheduler, f"m{i}", 2, labels={LABEL: "team"})
    (attempt,) = scheduler.cycle().attempts
    assert attempt.reasons_at_failure == {"gang-resources:cpu": 2}
    scheduler.fold(PodDeleted("default", "other"))
    assert sum(each.bound_count for each in scheduler.cycle(2_000).attempts) == 2


def test_pods_of_other_workers_do_not_count_and_the_reason_names_them() -> None:
    scheduler = scheduler_with(3, 0, min_member=3)
    scheduler.fold(Owned(frozenset([0]), 2))
    there = pod_manifest("there", cpu=1, labels={LABEL: "team"}, node_name="n0")
    scheduler.fold(PodUpserted(pod_from_manifest(there)), 1)
    for i in range(2):
        come(scheduler, f"m{i}", 1, labels={LABEL: "team"})
    (attempt,) = scheduler.cycle().attempts
    assert attempt.gang
    assert (
        gang_in_words(attempt.gang, "")
        == "gang default/team: 2 of at least 3 pods exist beside 1 of other shards"
    )


def test_what_shares_a_node_with_a_gang_that_lost_loses_and_so_on() -> None:
    claims = [msgspec.structs.replace(load_node(i, 1, cpu=1), resource_only=True) for i in range(1, 7)]
    gangs = [GangPlaced("ns/a", 2, (1, 2)), GangPlaced("ns/b", 2, (2, 3, 3)), GangPlaced("ns/c", 1, (3, 4))]
    batch = batch_of(advances=[], claims=claims, gangs=gangs)
    assert lost_together(batch, {1}) == {1, 2}, "b keeps two of three pods, on node 3"
    assert lost_together(batch, {3}) == {1, 2, 3}, "b has one left, a loses node 2; c has one"
    assert lost_together(batch, {3, 4}) == {1, 2, 3, 4}
    assert lost_together(batch, {5}) == {5}


@pytest.mark.parametrize("is_asked", [False, True], ids=["unasked", "asked"])
def test_to_ask_whether_there_is_work_lets_no_gang_go_on(is_asked: bool) -> None:
    """A worker asks between two batches, and a replay of these does not."""
    scheduler = scheduler_with(1, 1, cpu=6, min_member=1)
    assert not bound(scheduler.cycle(0))
    scheduler.fold(NodeUpserted(node_from_manifest(node_manifest("large", cpu=8))))
    for number in (2, 1):
        scheduler.fold(ConfigUpserted(POD_GROUP, "default", "team", PodGroup(min_member=number)))
        if is_asked:
            assert scheduler.has_work
    assert not bound(scheduler.cycle(500))
    assert bound(scheduler.cycle(1_500)) == ["m0"]


def bound(result: CycleResult) -> list[str]:
    return [each.pod.name for each in result.verdicts if isinstance(each, Placement)]
