"""Are the groups of a Workload of Kubernetes 1.35 gangs, each replica by itself, and what is refused?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from domain.model.config import PodGroup, Workload, gang_object, gang_spec
from domain.model.errors import FieldError
from domain.model.events import ConfigUpserted
from services.cli.main import app
from services.codec.decode import Decoder
from services.codec.gateway import Gateway
from services.plan.objects import Given
from services.plan.plan import Plan
from services.ports.log import CONFIG_TOPIC
from services.worker.forwarding import gang_home, is_member
from tests.builders import Json, event, node_manifest, pod_group_manifest, pod_manifest, record
from tests.property.site import Site


def gang(name: str = "workers", least: int = 2) -> Json:
    return {"name": name, "policy": {"gang": {"minCount": least}}}


def workload(*groups: Json, name: str = "training", namespace: str = "default") -> Json:
    """Return a Workload as Kubernetes 1.35 has it."""
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"controllerRef": {"kind": "Job", "name": "j"}, "podGroups": list(groups or (gang(),))},
    }


def member(name: str, replica: str | None = None, group: str = "workers", cpu: int = 2, **more: Any) -> Json:
    of = {"name": "training", "podGroup": group} | ({"podGroupReplicaKey": replica} if replica else {})
    return pod_manifest(name, cpu=cpu, spec={"workloadRef": of}, **more)


def read(thing: Json) -> Workload:
    """Return what a worker makes of what the gateway keeps of a Workload."""
    sent = Gateway().prepare(event("ADDED", thing))
    decoded = Decoder().decode(record(CONFIG_TOPIC, sent.entry.value, sent.entry.key)).event
    assert isinstance(decoded, ConfigUpserted)
    assert isinstance(decoded.content, Workload)
    assert msgspec.convert(msgspec.to_builtins(decoded.content), Workload) == decoded.content
    return decoded.content


def placed(site: Site) -> dict[str, str | None]:
    """Return the pods that have a node, with their gangs."""
    return {row.opened.name: row.opened.gang for row in site.database.open_placements.values()}


def test_a_group_says_how_many_pods_must_have_a_node() -> None:
    found = read(workload(gang(least=3), {"name": "driver", "policy": {"basic": {}}}))
    assert found == Workload(pod_groups={"workers": 3, "driver": 1})
    assert gang_object("training:workers") == gang_object("training:workers:r1") == ("Workload", "training")
    assert gang_object("training") == ("PodGroup", "training")
    assert gang_spec(found, "training:workers:r1") == PodGroup(min_member=3)
    assert gang_spec(found, "training:others") is None


@pytest.mark.parametrize(
    ("groups", "path"),
    [
        ([], "podGroups"),
        ([gang(f"g{i}") for i in range(9)], "podGroups"),
        ([gang(), gang()], "podGroups[1].name"),
        ([gang("a.b")], "podGroups[0].name"),
        ([{"policy": {"basic": {}}}], "podGroups[0].name"),
        ([gang(least=0)], "podGroups[0].policy.gang.minCount"),
        ([{"name": "g"}], "podGroups[0].policy"),
        ([gang() | {"policy": {"basic": {}, "gang": {"minCount": 1}}}], "podGroups[0].policy"),
    ],
)
def test_what_makes_no_sense_names_the_field(groups: list[Json], path: str) -> None:
    thing = workload()
    thing["spec"]["podGroups"] = groups
    with pytest.raises(FieldError) as error:
        Gateway().prepare(event("ADDED", thing))
    assert error.value.path == f"object.spec.{path}"


@pytest.mark.parametrize(
    ("reference", "field"),
    [
        ({}, "name"),
        ({"name": "A"}, "name"),
        ({"name": "a"}, "podGroup"),
        ({"name": "a", "podGroup": "b.c"}, "podGroup"),
        ({"name": "a", "podGroup": "b", "podGroupReplicaKey": "c:d"}, "podGroupReplicaKey"),
    ],
)
def test_so_does_a_reference_that_makes_none(reference: Json, field: str) -> None:
    with pytest.raises(FieldError) as error:
        Gateway().prepare(event("ADDED", pod_manifest("p", spec={"workloadRef": reference})))
    assert error.value.path == f"object.spec.workloadRef.{field}"


def test_each_replica_of_a_group_is_placed_together_or_not_at_all() -> None:
    site = Site()
    site.tell("ADDED", node_manifest("n1", cpu=6), workload())
    site.tell("ADDED", member("a-0", "a"), member("b-0", "b"), member("alone"))
    assert {each["outcome"] for each in site.decided()} == {"gang-waiting"}
    site.tell("ADDED", member("b-1", "b"))
    assert placed(site) == {"b-0": "training:workers:b", "b-1": "training:workers:b"}
    site.tell("ADDED", member("alone-too"))
    assert placed(site).keys() == {"b-0", "b-1"}, "there is room for one of two"
    site.tell("ADDED", node_manifest("n2", cpu=2))
    assert placed(site).keys() == {"b-0", "b-1", "alone", "alone-too"}


def test_pods_wait_for_their_workload_and_for_its_group() -> None:
    site = Site()
    site.tell("ADDED", node_manifest("n1", cpu=8), member("a"), member("b"))
    assert {reason for each in site.decided() for reason in each["reasons"]} == {"gang-unknown"}
    site.tell("ADDED", pod_group_manifest("training", 1), workload(gang("others", 1)))
    assert not placed(site), "a PodGroup of the name of the Workload is another thing"
    site.tell("DELETED", workload(gang("others", 1)))
    site.tell("ADDED", workload())
    assert placed(site) == dict.fromkeys(("a", "b"), "training:workers")


def test_a_pod_names_its_gang_by_its_spec_before_a_label() -> None:
    plan = Plan()
    labelled = member("b", labels={"scheduling.x-k8s.io/pod-group": "none"})
    for thing in (member("a"), labelled, workload(), node_manifest("n", cpu=4)):
        plan.add(Given("ADDED", thing))
    assert {each.node for each in plan.place()} == {"n"}


def test_the_pods_of_one_replica_have_one_home() -> None:
    homes = []
    for pod in (member("a", "r"), member("b", "r"), member("c")):
        found: Any = Gateway().prepare(event("ADDED", pod)).event
        assert is_member(found)
        homes.append(gang_home(found.pod, 64))
    assert homes[0] == homes[1] != homes[2]


def test_a_workload_of_1_36_is_passed_over_aloud_and_refused_in_the_log(tmp_path: Path) -> None:
    newer = workload() | {"apiVersion": "scheduling.k8s.io/v1alpha2", "spec": {"podGroupTemplates": [{}]}}
    file = tmp_path / "all.json"
    file.write_text(json.dumps([node_manifest("n", cpu=4), newer, pod_manifest("p")]))
    done = CliRunner().invoke(app, ["plan", "-f", str(file)])
    assert done.exit_code == 0
    assert "skipped 1 Workload: a controller makes PodGroups of such an object" in done.stderr
    with pytest.raises(FieldError, match="allowed for a Workload is scheduling"):
        Gateway().prepare(event("ADDED", newer))
