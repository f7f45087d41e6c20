"""Do `berth apply` and `berth plan` say what of the objects is not honoured, a line per thing?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from services.cli.main import app
from services.codec.gateway import Gateway
from services.plan.notices import Notices
from services.plan.objects import Given
from services.plan.plan import Plan
from services.plan.spelling import unknown_fields
from tests.builders import Json, event, node_manifest, pod_group_manifest, pod_manifest, profile_manifest

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
DISK = {"name": "d", "cinder": {"volumeID": "1"}}
WITH_DISK = {"volumes": [DISK]}
HELD_WITH_DISK = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, DISK]}
SOFT = node_manifest("n", taints=[{"key": "old", "effect": "PreferNoSchedule"}])
BUDGET: Json = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
OBJECTS = [
    SOFT,
    pod_manifest("a", spec=WITH_DISK),
    pod_manifest("b", spec=HELD_WITH_DISK),
    pod_manifest("plain"),
]
DISKS = "2 pods, such as default/a: not looked at: the limits of nodes for attached disks (ignored:disks)"
TAINT = "node n: the taint effect PreferNoSchedule only counts in a profile with the score TaintToleration"
HELD = "pod default/b: not honoured: volumes by claim, so it waits (unsupported:volume-claims)"


def applied(*things: Json) -> list[str]:
    gateway, notices = Gateway(), Notices()
    for thing in things:
        notices.note_event(gateway.prepare(event("ADDED", thing)).event)
    lines = notices.lines()
    assert notices.lines() == [], "each is told once"
    return lines


def planned(*things: Json) -> list[str]:
    plan = Plan()
    for thing in things:
        plan.add(Given("ADDED", thing))
    return plan.notices(plan.place())


def test_apply_says_what_is_held_and_ignored() -> None:
    assert sorted(applied(*OBJECTS)) == sorted([DISKS, HELD])


def test_plan_says_the_same_but_for_what_holds_a_pod_which_its_answer_says() -> None:
    assert planned(*OBJECTS) == [DISKS]


def test_a_soft_taint_is_mentioned_where_no_profile_of_a_pod_scores_taints() -> None:
    assert planned(SOFT, pod_manifest("p", scheduler_name="least-allocated")) == [TAINT]


def test_what_is_honoured_is_not_mentioned() -> None:
    fine = (
        node_manifest("n"),
        BUDGET,
        pod_group_manifest("g", 2),
        pod_manifest("p"),
        pod_manifest("bound", spec=WITH_DISK, node_name="n"),
    )
    assert applied(*fine) == []
    assert planned(*fine) == []


def test_a_profile_of_the_same_input_counts() -> None:
    scores = ["TaintToleration", "NodeAffinity"]
    profile = profile_manifest("mine", scores=scores, filters=["NodeResourcesFit", "NodeAffinity"])
    wish = {"preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, "weight": 1}
    pod = pod_manifest("p", scheduler_name="mine", affinity={"nodeAffinity": {PREFERRED: [wish]}})
    assert applied(profile, SOFT, pod) == []
    assert planned(profile, SOFT, pod) == []


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"tolerations": []}, []),
        ({"toleration": []}, [("spec.toleration", "tolerations")]),
        ({"gpuModel": "a100"}, [("spec.gpuModel", "")]),
        ({"dnsPolicy": "Default", "terminationGracePeriodSeconds": 3}, []),
        ({"containers": [{"name": "c", "wishes": 1, "livenessProbe": {"any": "thing"}}]},
         [("spec.containers[0].wishes", "")]),
        ({"volumes": [{"name": "v", "configMap": {"name": "x"}}, {"name": "w", "floppy": {}}]},
         [("spec.volumes[1].floppy", "")]),
    ],
)  # fmt: skip
def test_fields_that_kubernetes_does_not_have_are_told(spec: Any, told: list[tuple[str, str]]) -> None:
    assert list(unknown_fields(pod_manifest("p", spec=spec))) == told


def test_the_command_warns_and_its_json_has_the_codes(tmp_path: Path) -> None:
    path = tmp_path / "objects.json"
    path.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": OBJECTS}))
    answer = CliRunner().invoke(app, ["plan", "-f", str(path), "-o", "json"])
    assert answer.exit_code == 0, answer.output
    assert DISKS in answer.stderr
    pods = {pod["pod"]: pod.get("warnings", []) for pod in orjson.loads(answer.stdout)}
    disks = ["ignored:disks"]
    assert pods == {"default/a": disks, "default/b": disks, "default/plain": []}


def test_misspelt_fields_of_objects_of_berth_are_named() -> None:
    hosted = {"kind": "HostedReplicas", "spec": {"workload": {"kind": "ReplicaSet", "nme": "x"}, "max": 3}}
    assert list(unknown_fields(hosted)) == [("spec.workload.nme", "name")]
    action = {"kind": "NodeAction", "metadata": {"name": "n"}, "action": "quota", "ammount": "1300m"}
    assert list(unknown_fields(action)) == [("ammount", "amount")]
