"""Are PodGroups of Kubernetes read as those of scheduler-plugins are, and is it said which field is not?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from domain.model.config import PodGroup
from domain.model.errors import FieldError
from domain.model.events import ConfigUpserted
from services.cli.main import app
from services.codec.decode import Decoder
from services.codec.gateway import Gateway
from services.plan.notices import Notices
from services.plan.objects import Given
from services.plan.plan import Plan
from services.ports.log import CONFIG_TOPIC
from services.worker.forwarding import gang_home, is_member
from tests.builders import Json, event, node_manifest, pod_group_manifest, pod_manifest, record
from tests.property.site import Site

ZONE = "topology.kubernetes.io/zone"
LABEL = "scheduling.x-k8s.io/pod-group"


def group(name: str = "team", namespace: str = "default", least: int = 2, **spec: Any) -> Json:
    """Return a PodGroup as Kubernetes 1.36 has it."""
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulingPolicy": {"gang": {"minCount": least}}} | spec,
    }


def member(name: str, gang: str = "team", namespace: str = "default", cpu: int = 2, **more: Any) -> Json:
    spec = {"schedulingGroup": {"podGroupName": gang}}
    return pod_manifest(name, namespace, cpu=cpu, spec=spec, **more)


def read(thing: Json) -> PodGroup:
    """Return what a worker makes of what the gateway keeps of a PodGroup."""
    sent = Gateway().prepare(event("ADDED", thing))
    decoded = Decoder().decode(record(CONFIG_TOPIC, sent.entry.value, sent.entry.key)).event
    assert isinstance(decoded, ConfigUpserted)
    assert isinstance(decoded.content, PodGroup)
    assert msgspec.convert(msgspec.to_builtins(decoded.content), PodGroup) == decoded.content
    return decoded.content


def test_what_both_have_is_read_alike() -> None:
    assert read(group(least=3)) == read(pod_group_manifest("team", 3)) == PodGroup(min_member=3)
    assert read(group(schedulingPolicy={"basic": {}})) == PodGroup(min_member=1)
    constraints = {"topology": [{"key": ZONE}]}
    annotated = pod_group_manifest("team", 2, annotations={"berth.dev/topology-key": ZONE})
    assert read(group(schedulingConstraints=constraints)) == read(annotated)


def test_a_wish_for_one_zone_may_be_put_as_an_annotation_there_too() -> None:
    asked = group(schedulingConstraints={"topology": [{"key": ZONE}]})
    asked["metadata"]["annotations"] = {
        "berth.dev/topology-key": "rack",
        "berth.dev/topology-mode": "preferred",
    }
    assert read(asked) == PodGroup(min_member=2, topology_key=ZONE, is_preferred=True)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"schedulingPolicy": {}}, "schedulingPolicy"),
        ({"schedulingPolicy": {"gang": {"minCount": 2}, "basic": {}}}, "schedulingPolicy"),
        ({"schedulingPolicy": {"gang": {}}}, "schedulingPolicy.gang.minCount"),
        (
            {"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
            "schedulingConstraints.topology",
        ),
        ({"schedulingConstraints": {"topology": [{}]}}, "schedulingConstraints.topology[0].key"),
    ],
)
def test_what_makes_no_sense_names_the_field(spec: Json, path: str) -> None:
    with pytest.raises(FieldError) as error:
        Gateway().prepare(event("ADDED", group(**spec)))
    assert error.value.path == f"object.spec.{path}"


def test_other_versions_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(FieldError, match="v1alpha1 or scheduling"):
        Gateway().prepare(event("ADDED", group() | {"apiVersion": "scheduling.k8s.io/v9"}))


def test_fields_that_are_not_honoured_are_named_and_others_are_not() -> None:
    notices = Notices()
    for thing in (
        group(disruptionMode="PodGroup", priorityClassName="high", priority=7),
        group("other", disruptionMode="Pod"),
        group("third", resourceClaims=[{"name": "gpu"}], disruptionMode="PodGroup"),
    ):
        notices.note_event(Gateway().prepare(event("ADDED", thing)).event)
    assert notices.lines() == [
        "2 PodGroups, such as default/team: not looked at: spec.disruptionMode",
        "PodGroup default/team: not looked at: spec.priority",
        "PodGroup default/team: not looked at: spec.priorityClassName",
        "PodGroup default/third: not looked at: spec.resourceClaims",
    ]


def test_plan_says_so_too(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    file.write_text(json.dumps([node_manifest("n", cpu=4), group(priority=7), member("a"), member("b")]))
    done = CliRunner().invoke(app, ["plan", "-f", str(file)])
    assert done.exit_code == 0
    assert "PodGroup default/team: not looked at: spec.priority" in done.stderr
    assert "default/a: to n" in done.stdout


def test_nothing_else_of_annotations_is_kept() -> None:
    for thing in (group(), pod_group_manifest("team", 2)):
        thing["metadata"]["annotations"] = {"secret": "hush", "berth.dev/topology-key": ZONE}
        thing["metadata"]["labels"] = {"also": "hush"}
        kept = Gateway().prepare(event("ADDED", thing)).entry.value or b""
        assert b"hush" not in kept
        assert ZONE.encode() in kept


@pytest.mark.parametrize("makes", [group, lambda name, namespace: pod_group_manifest(name, 2, namespace)])
def test_pods_that_name_a_group_in_their_spec_are_placed_together(makes: Any) -> None:
    site = Site()
    site.tell("ADDED", node_manifest("n1", cpu=4), makes("team", "default"), makes("team", "shop"))
    site.tell("ADDED", member("a"), member("a", namespace="shop"))
    assert [each["outcome"] for each in site.decided()] == ["gang-waiting"] * 2, "one of each namespace"
    site.tell("ADDED", member("b"))
    assert {row.opened.name for row in site.database.open_placements.values()} == {"a", "b"}
    assert {row.opened.namespace for row in site.database.open_placements.values()} == {"default"}
    assert {row.opened.gang for row in site.database.open_placements.values()} == {"team"}


def test_the_spec_comes_before_the_label() -> None:
    pods = [
        member("a"),
        pod_manifest("b", cpu=2, labels={LABEL: "team"}),
        member("c", labels={LABEL: "none"}),
    ]
    plan = Plan()
    for thing in (node_manifest("n", cpu=9), group(least=3), *pods):
        plan.add(Given("ADDED", thing))
    assert {each.node for each in plan.place()} == {"n"}


def test_the_home_of_a_pod_is_that_of_its_group_however_it_names_it() -> None:
    gateway = Gateway()
    homes = []
    for pod in (member("a"), pod_manifest("b", labels={LABEL: "team"}), pod_manifest("c")):
        found: Any = gateway.prepare(event("ADDED", pod)).event
        homes.append(gang_home(found.pod, 7) if is_member(found) else None)
    assert homes[0] == homes[1] is not None
    assert homes[2] is None
