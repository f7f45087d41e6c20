"""Do `berth plan` and `berth apply` take manifests as people have them?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from domain.model.errors import FieldError
from services.cli import apply, documents
from services.cli.main import app
from services.cli.options import CommandError
from services.plan.kinds import Skipped
from services.plan.kube_scheduler import profiles_of
from services.plan.objects import Given
from services.plan.workloads import expand

MANIFESTS = Path(__file__).parent.parent / "manifests"
NODES = str(MANIFESTS / "kubectl-nodes.json")
Json = dict[str, Any]


def berth_plan(*names: str) -> Any:
    files = [argument for name in names for argument in ("-f", str(MANIFESTS / name))]
    return CliRunner().invoke(app, ["plan", "-f", NODES, *files, "-o", "json"])


def workload(kind: str, name: str = "w", **spec: Any) -> Json:
    group = "batch/v1" if kind in ("Job", "CronJob") else "apps/v1"
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c"}]}}
    return {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template} | spec,
    }


def made(*manifests: Json, replicas: int | None = None) -> list[Json]:
    expanded = expand([Given("ADDED", manifest) for manifest in manifests], replicas)
    pods = [each.manifest for each in expanded if each.manifest["kind"] == "Pod"]
    return [pod for pod in pods if pod not in manifests]


def names(*manifests: Json, replicas: int | None = None) -> list[str]:
    return [pod["metadata"]["name"] for pod in made(*manifests, replicas=replicas)]


@pytest.mark.parametrize(
    ("file", "pods", "said"),
    [
        (
            "helm-web.yaml",
            {f"default/release-shop-{i}": "bound" for i in range(3)},
            "skipped 1 ConfigMap, 1 HorizontalPodAutoscaler, 1 Ingress, 1 ServiceAccount",
        ),
        (
            "statefulset.yaml",
            {f"data/db-{i}": "unresolvable" for i in (1, 2, 3)},
            "",
        ),
        (
            "cronjob.yaml",
            {
                "reports/nightly-report-0": "bound",
                "reports/nightly-report-1": "bound",
                "reports/migrate-0": "bound",
            },
            "",
        ),
        (
            "daemonset.yaml",
            {f"monitoring/node-exporter-worker-{i}": "bound" for i in (1, 2, 3, 5)},
            "skipped 1 ClusterRole: nothing to place",
        ),
        ("kubectl-pods.yaml", {"default/waiting-1": "bound", "default/waiting-2": "unresolvable"}, ""),
        ("kubectl-all.json", {"default/front-0": "bound"}, ""),
        ("watch-events.json", {"default/new": "bound"}, ""),
        (
            "kustomize.yaml",
            {"queue/mail-0": "bound", "queue/mail-1": "bound", "queue/old-0": "bound"},
            "skipped 1 CustomResourceDefinition, 1 Node.longhorn.io, 1 Queue: nothing to place",
        ),
    ],
)
def test_a_plan_shows_where_the_pods_of_real_manifests_go(file: str, pods: dict[str, str], said: str) -> None:
    done = berth_plan(file)
    assert done.exit_code == 0, done.output
    assert {each["pod"]: each["outcome"] for each in json.loads(done.stdout)} == pods
    assert done.stderr.partition("\n")[0].startswith(said)
    assert bool(done.stderr) == bool(said)


def test_all_of_them_together_are_one_cluster() -> None:
    files = sorted(path.name for path in MANIFESTS.iterdir() if path.name != "kubectl-nodes.json")
    done = berth_plan(*files)
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)) == 20
    assert "1 ClusterRole, 1 ConfigMap" in done.stderr


def test_a_daemons_pod_goes_to_its_node_only() -> None:
    (node,) = [each["node"] for each in json.loads(berth_plan("daemonset.yaml").stdout)][-1:]
    assert node == "worker-5", "it tolerates that the node is cordoned"


@pytest.mark.parametrize(
    ("file", "sent", "said"),
    [
        ("kubectl-nodes.json", ["Node"] * 5, ""),
        ("kubectl-pods.yaml", ["Pod"] * 4, ""),
        ("kube-scheduler.yaml", ["SchedulingProfile"] * 3, "warning: "),
        (
            "statefulset.yaml",
            ["Service", "PodDisruptionBudget", "StatefulSet"],
            "1 StatefulSet: only the selector is sent; a controller",
        ),
        ("watch-events.json", ["Pod"] * 5, ""),
        (
            "kustomize.yaml",
            ["Namespace", "PriorityClass", "Deployment", "ReplicationController"],
            "1 Deployment, 1 ReplicationController: only the selector is sent",
        ),
    ],
)
def test_apply_takes_what_is_of_use_and_names_the_rest(
    file: str, sent: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chunks = apply._chunks([str(MANIFESTS / file)], "ADDED")
    assert [event["object"]["kind"] for chunk in chunks for event in chunk] == sent
    assert said in capsys.readouterr().err


def test_apply_fails_where_nothing_is_of_use() -> None:
    said = "skipped 1 DaemonSet: a controller turns such an object into pods(.|\n)*nothing was sent"
    with pytest.raises(CommandError, match=said):
        list(apply._chunks([str(MANIFESTS / "daemonset.yaml")], "ADDED"))


def test_the_profiles_of_kube_scheduler_become_profiles() -> None:
    (configuration,) = documents.read_values(str(MANIFESTS / "kube-scheduler.yaml"))
    found = profiles_of(configuration)
    default, packing, bare = (manifest for _, manifest in found.profiles)
    assert [manifest["metadata"]["name"] for manifest in (default, packing, bare)] == [
        "default-scheduler",
        "packing",
        "bare",
    ]
    assert weights(default) == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }
    assert weights(packing) == {
        "NodeResourcesFit": 5,
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "InterPodAffinity": 2,
    }
    of_fit = packing["spec"]["scores"][0]["args"]
    assert of_fit["arithmetic"] == "integer", "kube-scheduler counts in whole numbers"
    assert packing["spec"]["scores"][0]["args"]["scoringStrategy"]["type"] == "MostAllocated"
    assert weights(bare) == {"NodeResourcesFit": 1}
    assert [each["name"] for each in bare["spec"]["filters"]] == ["NodeResourcesFit", "TaintToleration"]
    (warning,) = found.warnings
    assert warning.startswith("profiles[1].plugins.multiPoint.enabled[0]: berth has no plugin Coscheduling")


def weights(profile: Json) -> Json:
    return {each["name"]: each["weight"] for each in profile["spec"]["scores"]}


def test_a_profile_of_kube_scheduler_places_pods(tmp_path: Path) -> None:
    pods = tmp_path / "pods.json"
    deployment = workload("Deployment", replicas=2)
    deployment["spec"]["template"]["spec"]["schedulerName"] = "bare"
    pods.write_text(json.dumps(deployment))
    done = berth_plan("kube-scheduler.yaml", str(pods))
    assert done.exit_code == 0, done.output
    assert [each["weights"] for each in json.loads(done.stdout)] == [{"NodeResourcesFit": 1}] * 2


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"profiles": 1}, "profiles"),
        ({"profiles": [{"plugin": {}}]}, "profiles[0].plugin"),
        ({"profiles": [{"plugins": {"scores": {}}}]}, "profiles[0].plugins.scores"),
        (
            {"profiles": [{"plugins": {"score": {"enabled": [{"weight": 1}]}}}]},
            "profiles[0].plugins.score.enabled[0].name",
        ),
        ({"profiles": [{}, {}]}, "profiles[1].schedulerName"),
    ],
)
def test_a_configuration_that_makes_no_sense_names_the_field(document: Json, path: str) -> None:
    with pytest.raises(FieldError) as error:
        profiles_of(document)
    assert error.value.path == path


def test_pods_that_are_there_already_are_not_made_again() -> None:
    there = {"kind": "Pod", "metadata": {"name": "w-0", "labels": {"app": "w"}}, "spec": {"nodeName": "n"}}
    done = {**there, "metadata": {"name": "w-1", "labels": {"app": "w"}}, "status": {"phase": "Failed"}}
    other = {"kind": "Pod", "metadata": {"name": "w-2"}, "spec": {}}
    assert names(workload("Deployment", replicas=3), there, done, other) == ["w-1", "w-3"]
    assert names(workload("StatefulSet", replicas=2), there) == ["w-1"]
    assert names(workload("Deployment", replicas=0)) == []
    assert names(workload("Deployment"), replicas=2) == ["w-0", "w-1"]


def test_a_workload_that_another_one_made_makes_no_pods_itself() -> None:
    owned = workload("ReplicaSet", "w-1", replicas=3)
    owned["metadata"]["ownerReferences"] = [{"controller": True, "kind": "Deployment", "name": "w"}]
    assert names(owned, workload("Deployment", replicas=2)) == ["w-0", "w-1"]
    assert names(owned) == ["w-1-0", "w-1-1", "w-1-2"], "its Deployment is not here"


def test_jobs_make_as_many_pods_as_may_run_at_the_same_time() -> None:
    assert names(workload("Job")) == ["w-0"]
    assert names(workload("Job", parallelism=3)) == ["w-0", "w-1", "w-2"]
    assert names(workload("Job", parallelism=3, completions=2)) == ["w-0", "w-1"]
    assert names(workload("Job", suspend=True)) == []
    almost = workload("Job", parallelism=3, completions=4) | {"status": {"succeeded": 3}}
    assert names(almost) == ["w-0"]


def test_a_stateful_sets_pod_has_its_number_and_its_claims() -> None:
    claims = [{"metadata": {"name": "data"}}]
    (pod,) = made(workload("StatefulSet", ordinals={"start": 4}, volumeClaimTemplates=claims))
    assert pod["metadata"]["name"] == "w-4"
    assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "4"
    assert pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-w-4"}}]
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet"


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"replicas": -1}, "spec.replicas"),
        ({"replicas": "two"}, "spec.replicas"),
        ({"template": None}, "spec.template"),
    ],
)
def test_a_workload_that_makes_no_sense_names_file_and_field(spec: Json, path: str, tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    file.write_text(json.dumps(workload("Deployment", **spec)))
    done = berth_plan(str(file))
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: {file} (Deployment w): {path}: ")


def test_a_mistake_in_a_template_is_told_at_its_path(tmp_path: Path) -> None:
    deployment = workload("Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "x"}}
    file = tmp_path / "w.json"
    file.write_text(json.dumps(deployment))
    where = f"error: {file} (Deployment w): spec.template.spec.containers[0].resources.requests.cpu: "
    assert berth_plan(str(file)).stderr.startswith(where)


def test_what_is_skipped_is_counted_in_words() -> None:
    skipped = Skipped()
    assert not skipped
    for kind in ("Ingress", "Ingress", "NetworkPolicy", "NetworkPolicy", "Gateway", "Gateway", "Podd"):
        skipped.add({"kind": kind})
    assert skipped.lines() == [
        "skipped 2 Gateways, 2 Ingresses, 2 NetworkPolicies, 1 Podd: nothing to place",
        "Podd: did you mean Pod?",
    ]


def test_a_configuration_of_one_profile_may_be_the_profile_of_all_pods(tmp_path: Path) -> None:
    (configuration,) = documents.read_values(str(MANIFESTS / "kube-scheduler.yaml"))
    one = tmp_path / "one.json"
    one.write_text(json.dumps({**configuration, "profiles": configuration["profiles"][2:]}))
    command = ["plan", "-f", NODES, "-f", str(MANIFESTS / "kubectl-pods.yaml"), "-o", "json", "--profile"]
    done = CliRunner().invoke(app, [*command, str(one)])
    assert [each["weights"] for each in json.loads(done.stdout)] == [{"NodeResourcesFit": 1}] * 2
    three = CliRunner().invoke(app, [*command, str(MANIFESTS / "kube-scheduler.yaml")])
    assert (three.exit_code, "profiles: are 3" in three.stderr) == (1, True)
