"""Are the pods of a gang placed in one domain where its PodGroup says so, and is it said why none will do?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement
from domain.manifests.objects import node_from_manifest, pod_from_manifest
from domain.model.config import POD_GROUP, PodGroup
from domain.model.errors import FieldError
from domain.model.events import ConfigUpserted, NodeUpserted, PodDeleted, PodUpserted
from domain.model.limits import gang_domains_per_cycle_max
from domain.model.profiles import BUILT_IN_PROFILES
from services.codec.gateway import Gateway
from services.plan.objects import Given
from services.plan.plan import Plan, Planned
from tests.builders import Json, event, node_manifest, pod_group_manifest, pod_manifest

LABEL = "scheduling.x-k8s.io/pod-group"
KEY, MODE = "berth.dev/topology-key", "berth.dev/topology-mode"
RACK = "rack"


def racks(*sizes: int, cpu: int = 2) -> list[Json]:
    """Return racks of so many nodes each."""
    return [
        node_manifest(f"r{rack:02}-{i}", cpu=cpu, labels={RACK: f"r{rack:02}"})
        for rack, size in enumerate(sizes)
        for i in range(size)
    ]


def group(least: int, mode: str | None = None, **annotations: str) -> Json:
    asked = {KEY: RACK} | ({} if mode is None else {MODE: mode}) | annotations
    return pod_group_manifest("team", least, annotations=asked)


def members(count: int, first: int = 0, cpu: int = 2, **more: Any) -> list[Json]:
    numbers = range(first, first + count)
    return [pod_manifest(f"team-{i:02}", cpu=cpu, labels={LABEL: "team"}, **more) for i in numbers]


def planned(*things: Json) -> dict[str, Planned]:
    plan = Plan()
    for thing in things:
        plan.add(Given("ADDED", thing))
    return {each.pod.name: each for each in plan.place()}


def found(answers: dict[str, Planned]) -> Counter[str]:
    return Counter("" if each.node is None else each.node[:3] for each in answers.values())


def test_all_pods_go_to_the_rack_with_most_room() -> None:
    assert found(planned(*racks(3, 5, 4), group(3), *members(3))) == {"r01": 3}


@pytest.mark.parametrize("mode", [None, "required"])
def test_a_gang_that_no_rack_holds_waits_though_all_together_would(mode: str | None) -> None:
    answers = planned(*racks(2, 2), group(3, mode), *members(3), pod_manifest("small", cpu=2))
    assert answers.pop("small").node is not None
    assert found(answers) == {"": 3}
    attempt = answers["team-00"].attempt
    assert attempt.reasons_at_failure == {"gang-topology:rack": 4}


def test_a_gang_that_would_rather_be_in_one_goes_anywhere() -> None:
    assert sum(found(planned(*racks(2, 2), group(3, "preferred"), *members(3))).values()) == 3
    assert found(planned(*racks(2, 3), group(3, "preferred"), *members(3))) == {"r01": 3}


def test_whoever_finds_none_in_the_rack_goes_elsewhere_only_where_it_may() -> None:
    assert found(planned(*racks(2, 3), group(3, "preferred"), *members(4))) == {"r01": 3, "r00": 1}
    answers = planned(*racks(2, 3), group(3), *members(4))
    assert found(answers) == {"r01": 3, "": 1}
    (late,) = [each for each in answers.values() if each.node is None]
    assert late.attempt.reasons_at_failure == {"gang-domain": 2, "insufficient:cpu": 3}


def test_pods_that_come_later_go_where_the_others_are() -> None:
    there = members(2)
    for i, pod in enumerate(there):
        pod["spec"]["nodeName"] = f"r00-{i}"
    assert found(planned(*racks(4, 9), group(4), *there, *members(2, 2))) == {"r00": 2}
    assert found(planned(*racks(3, 9), group(4), *there, *members(2, 2))) == {"": 2}


def test_a_rack_with_room_in_all_may_not_do_and_the_next_one_is_tried() -> None:
    wide = [node_manifest(f"r00-{i}", cpu=1, labels={RACK: "r00"}) for i in range(9)]
    nodes = [*wide, *[node_manifest(f"r01-{i}", cpu=2, labels={RACK: "r01"}) for i in range(3)]]
    assert found(planned(*nodes, group(3), *members(3))) == {"r01": 3}
    answers = planned(*nodes, group(4), *members(4))
    assert found(answers) == {"": 4}
    gang = answers["team-00"].attempt.gang
    assert gang
    assert (gang.domain, gang.found_count, gang.missing) == ("rack=r00", 0, "default/team-00")
    assert answers["team-00"].attempt.reasons_at_failure == {"insufficient:cpu": 9, "gang-domain": 3}


def test_nodes_without_the_label_are_in_no_rack() -> None:
    nodes = [node_manifest(f"n{i}", cpu=2) for i in range(9)]
    assert found(planned(*nodes, group(2), *members(2))) == {"": 2}
    assert "" not in found(planned(*nodes, group(2, "preferred"), *members(2)))


def scheduler_with(*things: Json) -> Scheduler:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    for thing in things:
        if thing["kind"] == "Node":
            scheduler.fold(NodeUpserted(node_from_manifest(thing)))
        else:
            scheduler.fold(PodUpserted(pod_from_manifest(thing)))
    return scheduler


def test_more_racks_than_one_cycle_tries_have_their_turn_in_the_next_one() -> None:
    count = 2 * gang_domains_per_cycle_max + 1
    full = [
        node_manifest(f"r{i:02}-{j}", cpu=1, labels={RACK: f"r{i:02}"})
        for i in range(count)
        for j in range(9)
    ]
    last = [node_manifest(f"z-{j}", cpu=2, labels={RACK: "z"}) for j in range(3)]
    scheduler = scheduler_with(*full, *last, *members(3))
    scheduler.fold(ConfigUpserted(POD_GROUP, "default", "team", PodGroup(min_member=3, topology_key=RACK)))
    placed = []
    for _ in range(3):
        assert scheduler.has_work
        placed.append(sum(attempt.bound_count for attempt in scheduler.cycle().attempts))
    assert placed == [0, 0, 3]
    assert not scheduler.has_work


def test_a_gang_in_racks_sleeps_until_there_is_room_in_any() -> None:
    scheduler = scheduler_with(*racks(2, 2), *members(3), pod_manifest("other", cpu=2, node_name="r00-0"))
    scheduler.fold(ConfigUpserted(POD_GROUP, "default", "team", PodGroup(min_member=2, topology_key=RACK)))
    scheduler.fold(PodUpserted(pod_from_manifest(pod_manifest("another", cpu=2, node_name="r01-0"))))
    scheduler.cycle()
    assert not scheduler.has_work
    scheduler.fold(PodDeleted("default", "another"))
    assert scheduler.has_work
    assert sum(attempt.bound_count for attempt in scheduler.cycle().attempts) == 2


@pytest.mark.parametrize(
    ("annotations", "path"),
    [
        ({MODE: "required"}, MODE),
        ({KEY: RACK, MODE: "maybe"}, MODE),
        ({KEY: "not a key"}, KEY),
        ({KEY: 7}, "annotations"),
    ],
)
def test_annotations_that_make_no_sense_name_the_field(annotations: dict[str, Any], path: str) -> None:
    manifest = pod_group_manifest("team", 2)
    manifest["metadata"]["annotations"] = annotations
    with pytest.raises(FieldError) as error:
        Gateway().prepare(event("ADDED", manifest))
    assert path in error.value.path


def test_what_is_nominated_counts_as_before_once_a_gang_went_to_two_racks() -> None:
    """Its pods outbid the nomination, which counts for none of them, and is to count for all others again."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1, preempts=True)
    nodes = [*racks(3, 2), node_manifest("full", cpu=2)]
    for thing in nodes:
        scheduler.fold(NodeUpserted(node_from_manifest(thing)))
    tiny = [pod_manifest(f"tiny-{i}", cpu=1, priority=3) for i in range(5)]
    for i, thing in enumerate(tiny):
        thing["spec"]["nodeName"] = f"r0{i // 3}-{i % 3}"
    low, mid = pod_manifest("low", cpu=2, priority=-1), pod_manifest("mid", cpu=2, priority=5)
    low["spec"]["nodeName"] = "full"
    for thing in (*tiny, low, mid):
        scheduler.fold(PodUpserted(pod_from_manifest(thing)))
    scheduler.cycle()
    assert [each.node for each in scheduler.state.nominations.entries.values()] == ["full"]
    table = scheduler.state.table
    scheduler.sync()
    requested = scheduler._snapshot.columns.requested[0]
    before = requested[table.rows["full"]]
    spec = PodGroup(min_member=3, topology_key=RACK, is_preferred=True)
    scheduler.fold(ConfigUpserted(POD_GROUP, "default", "team", spec))
    for thing in members(5, cpu=1, priority=9):
        scheduler.fold(PodUpserted(pod_from_manifest(thing)))
    placed = [each.node for each in scheduler.cycle().tried if isinstance(each, Placement)]
    assert Counter(node[:3] for node in placed) == {"r00": 3, "r01": 2}
    assert requested[table.rows["full"]] == before
