"""Are replicas of hosted workloads counted as the rule says: by load, by waiting pods, by what else fits?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from domain.model.config import HOSTED_REPLICAS
from domain.model.errors import FieldError
from domain.model.events import (
    ConfigDeleted,
    ConfigUpserted,
    PodDeleted,
)
from domain.model.hosting import HostedReplicas, WaitSaid
from domain.model.limits import hosted_growth_max, hosted_objects_max, hosted_objects_of_namespace_max
from domain.model.timestamps import NEVER_MS
from domain.state.changes import Refused
from domain.state.steps import HostedSaid, Owned
from services.codec.decode import Decoder
from services.codec.gateway import Gateway
from services.ports.log import CONFIG_TOPIC
from tests.builders import Json, event, record
from tests.hosted import STEP_MS, WEB, House, hosted_manifest

# ------------------------------------------------------------------------------------------------- objects


def test_an_object_is_read_from_the_log() -> None:
    sent = Gateway().prepare(event("ADDED", hosted_manifest(min=2, max=5))).entry
    read = Decoder().decode(record(CONFIG_TOPIC, sent.value, sent.key)).event
    content = HostedReplicas(kind="ReplicaSet", workload="web", least=2, most=5)
    assert read == ConfigUpserted(HOSTED_REPLICAS, "default", "web", content, None)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"min": 0}, "object.spec.min"),
        ({"min": None}, "object.spec.min"),
        ({"max": 10_001}, "object.spec.max"),
        ({"max": None}, "object.spec.max"),
        ({"min": 5, "max": 4}, "object.spec.max"),
        ({"workload": None}, "object.spec.workload"),
        ({"workload": {"name": "web"}}, "object.spec.workload.kind"),
        ({"workload": {"kind": "Job", "name": "web"}}, "object.spec.workload.kind"),
        ({"workload": {"kind": "ReplicaSet"}}, "object.spec.workload.name"),
        ({"workload": {"kind": "ReplicaSet", "name": "-"}}, "object.spec.workload.name"),
        ({"min": "two"}, "object.spec.min"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_path(spec: Json, path: str) -> None:
    with pytest.raises(FieldError) as caught:
        Gateway().prepare(event("ADDED", hosted_manifest(**spec)))
    assert caught.value.path == path


def test_there_are_not_too_many() -> None:
    house = House(0)
    for number in range(hosted_objects_max):
        namespace, content = f"n{number}", HostedReplicas(kind="ReplicaSet", workload="w", least=1, most=1)
        house.scheduler.fold(ConfigUpserted(HOSTED_REPLICAS, namespace, "w", content, None))
    (refused,) = house.scheduler.fold(ConfigUpserted(HOSTED_REPLICAS, "more", "w", content, None))
    assert isinstance(refused, Refused)
    assert "hosted_objects_max" in refused.message
    house = House(0)
    for number in range(hosted_objects_of_namespace_max + 1):
        (refused,) = house.scheduler.fold(ConfigUpserted(HOSTED_REPLICAS, "n", f"w{number}", content, None))
    assert isinstance(refused, Refused)
    assert "hosted_objects_of_namespace_max" in refused.message


# ---------------------------------------------------------------------------------------------------- fold


def test_pods_are_known_by_what_controls_them_in_any_order() -> None:
    house = House()
    house.pod("before")
    house.host()
    house.pod("behind")
    house.pod("other", owner="db")
    house.cycle()
    assert [each.spec.name for each in house.state.hosted.pods_of(WEB, house.state.pods)] == [
        "before",
        "behind",
    ]
    house.scheduler.fold(PodDeleted("default", "before", "", None))
    house.pod("behind", terminating=True, resource_version=9)
    assert house.state.hosted.pods_of(WEB, house.state.pods) == []
    house.scheduler.fold(ConfigDeleted(HOSTED_REPLICAS, "default", "web", None))
    assert not house.state.hosted.workloads


def test_what_others_say_is_folded() -> None:
    house = House()
    house.host()
    hosted = house.state.hosted
    (said,) = house.say()
    house.scheduler.fold(
        HostedSaid(msgspec.structs.replace(empty(), waits=[WaitSaid(3, *WEB, 5), WaitSaid(4, *WEB, 7)]))
    )
    assert hosted.waits == {(3, WEB): 5, (4, WEB): 7}
    house.scheduler.fold(HostedSaid(msgspec.structs.replace(empty(), waits=[WaitSaid(3, *WEB, 0)])))
    assert hosted.waits == {(4, WEB): 7}
    assert (hosted.said, hosted.seq_next) == ({("default", "web"): said}, said.seq + 1)


def empty() -> Any:
    return House(0).scheduler.decide_replicas(0, {})


# -------------------------------------------------------------------------------------------- due moments


def test_steps_end_at_multiples_of_their_length() -> None:
    house = House()
    hosting = house.scheduler.hosting
    assert hosting.due_ms(STEP_MS + 1) == NEVER_MS
    assert not hosting.pass_to(2 * STEP_MS)
    house.host()
    assert house.scheduler.due_ms(2 * STEP_MS) == 3 * STEP_MS
    assert house.scheduler.due_ms(3 * STEP_MS - 1) == 3 * STEP_MS
    assert not hosting.pass_to(3 * STEP_MS), "it came in this step"
    assert not hosting.pass_to(4 * STEP_MS - 1)
    assert hosting.pass_to(4 * STEP_MS)
    assert not hosting.pass_to(4 * STEP_MS), "once a step"
    assert hosting.pass_to(9 * STEP_MS + 5), "steps that were left out are not made up for"
    assert not hosting.pass_to(5 * STEP_MS)


def test_a_worker_without_the_shard_of_usage_decides_nothing() -> None:
    house = House()
    house.host()
    house.scheduler.fold(Owned(frozenset((1,)), 2))
    assert house.scheduler.hosting.due_ms(STEP_MS) == NEVER_MS
    assert not house.scheduler.hosting.pass_to(5 * STEP_MS)


# ------------------------------------------------------------------------------------------------ deciding


def test_without_a_pod_there_are_as_few_as_may_be() -> None:
    house = House()
    house.host(least=3)
    said = house.one()
    assert (said.wanted, said.running, said.seq) == (3, 0, 1)
    assert "no pod of it is known" in said.reason
    assert house.say() == [], "nothing is new"


def test_below_the_lower_load_there_are_as_many_as_run_and_fit() -> None:
    house = House()
    house.host()
    house.pod("p0")
    house.cycle()
    house.measure("n0", 3)
    house.measure("n1", 5)
    said = house.one()
    assert (said.running, said.load_percent) == (1, 40.0)
    assert (said.wanted, said.reason) == (20, "the load is 40.0 %: 19 more fit")
    house.measure("n0", 3)
    house.measure("n1", 5)
    house.host(most=7)
    assert house.one().wanted == 7


def test_above_the_higher_load_there_are_fewer() -> None:
    house = House()
    house.host()
    for number in range(20):
        house.pod(f"p{number}")
    house.cycle()
    house.measure("n0", 9)
    house.measure("n1", 8)
    said = house.one()
    assert (said.wanted, said.reason) == (18, "the load is 85.0 %: 10 % fewer than run")


def test_a_pod_that_waits_says_that_there_are_enough() -> None:
    house = House(1)
    house.host()
    for number in range(11):
        house.pod(f"p{number}")
    house.cycle()
    house.measure("n0", 1)
    house.waits[WEB] = house.now_ms - 31_000
    said = house.one()
    assert (said.wanted, said.running) == (10, 10)
    assert said.reason == "a pod has waited for 31 s: as many as run"
    assert said.waiting_since_ms == said.at_ms - 31_000


def test_what_was_measured_too_long_ago_says_nothing() -> None:
    house = House()
    house.host()
    house.pod("p0")
    house.cycle()
    house.measure("n0", 1, house.now_ms - 91_000)
    said = house.one()
    assert (said.load_percent, said.wanted) == (None, 1)
    house.measure("n1", 4)
    assert house.one().load_percent == 40.0, "of the nodes alone that were measured"


def test_the_load_is_that_of_the_nodes_where_its_pods_may_go() -> None:
    house = House(0)
    house.node("web", labels={"zone": "a"})
    house.node("db", labels={"zone": "b"})
    house.node("tainted", labels={"zone": "a"}, taints=[{"key": "k", "effect": "NoSchedule"}])
    house.host()
    house.pod("p0", node_selector={"zone": "a"})
    house.cycle()
    for node, cores in (("web", 2), ("db", 9), ("tainted", 9)):
        house.measure(node, cores)
    assert house.one().load_percent == 20.0


def test_the_newest_pod_says_what_one_asks_for() -> None:
    house = House()
    house.host()
    house.pod("old", cpu=1)
    house.cycle()
    house.now_ms += 1_000
    house.pod("new", cpu=5)
    house.cycle()
    house.measure("n0", 1)
    house.measure("n1", 1)
    assert house.one().wanted == 4, "two run, and two more of five cores fit"


def test_another_reason_is_said_once_a_minute_and_does_not_change_the_number() -> None:
    house = House()
    house.host(most=5)
    for number in range(5):
        house.pod(f"p{number}")
    house.cycle()
    said = []
    for cores in (2.0, 2.2, 2.4, 2.6, 2.8):
        house.measure("n0", cores)
        said.append([(each.wanted, each.seq) for each in house.say()])
    assert said == [[(5, 1)], [], [(5, 1)], [], [(5, 1)]]


def test_what_is_gone_is_said() -> None:
    house = House()
    house.host()
    house.say()
    house.scheduler.fold(ConfigDeleted(HOSTED_REPLICAS, "default", "web", None))
    assert house.scheduler.decide_replicas(house.now_ms, {}).gone == [("default", "web")]
    assert house.scheduler.due_ms(3 * STEP_MS) == 4 * STEP_MS, (
        "nothing else is hosted, and it is yet to be said"
    )
    house.say()
    assert house.scheduler.due_ms(3 * STEP_MS) == NEVER_MS


def test_to_ask_how_many_fit_places_nothing_and_leaves_all_as_it_was() -> None:
    asked, plain = House(), House()
    for house in (asked, plain):
        house.host()
        for number in range(3):
            house.pod(f"p{number}", labels={"app": "web"})
        house.cycle()
        house.measure("n0", 1)
    asked.say()
    for house in (asked, plain):
        for number in range(3, 9):
            house.pod(f"p{number}")
        house.cycle()
    placed = [{key: pod.node for key, pod in house.state.pods.items()} for house in (asked, plain)]
    assert placed[0] == placed[1]


ALONE = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}


@pytest.mark.parametrize(("fields", "wanted"), [({"affinity": ALONE}, 4), ({"spec": SPREAD}, 11)])
def test_pods_that_fit_count_each_other(fields: Json, wanted: int) -> None:
    house = House(0)
    for number in range(4):
        house.node(f"n{number}", labels={"zone": f"z{number // 3}", "kubernetes.io/hostname": f"n{number}"})
        house.measure(f"n{number}", 1)
    house.host()
    for number in range(5):
        house.pod(f"db{number}", owner="db", cpu=1, node_name="n3")
    house.pod("p0", labels={"app": "web"}, **fields)
    house.cycle()
    assert house.one().wanted == wanted


def crowd(*hosted: str) -> House:
    """Return a house with pods of three workloads that see each other, and of these some are hosted."""
    house = House(0)
    for number in range(6):
        house.node(f"n{number}", labels={"zone": f"z{number % 2}", "kubernetes.io/hostname": f"n{number}"})
        house.measure(f"n{number}", 1)
    for name in hosted:
        house.host(name=name, workload=name, most=50)
    house.pod("web-0", owner="web", labels={"app": "web"}, affinity=ALONE)
    house.pod("db-0", owner="db", cpu=2, labels={"app": "web"}, spec=SPREAD)
    house.pod("big-0", owner="big", cpu=3, priority=7)
    house.cycle()
    return house


def test_objects_that_are_decided_together_have_the_answers_that_each_has_alone() -> None:
    names = ("big", "db", "web")
    together = {each.name: each.wanted for each in crowd(*names).say()}
    alone = {name: crowd(name).one().wanted for name in names}
    assert together == alone
    assert len(set(alone.values())) == 3, "they are different"


def test_a_workload_grows_by_so_many_in_a_step() -> None:
    house = House(0)
    for number in range(12):
        house.node(f"n{number}", pods=500)
        house.measure(f"n{number}", 1)
    house.host(most=9_000)
    house.pod("p0", cpu="1m")
    house.cycle()
    assert house.one().wanted == 1 + hosted_growth_max
