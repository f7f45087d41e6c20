"""Do the moves that `berth optimise` names make it better, and does every filter agree with each of them?"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from domain.search.packing import Score
from services.cli.main import app
from services.plan.optimising import Search
from tests.builders import Json, node_manifest, pod_manifest
from tests.unit.moving import make, planned

SPREAD = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "lonely"}}}
        ]
    }
}


def objects(seed: int) -> list[Json]:
    """Return a cluster with pods that run, pods that wait, and some that look at other pods."""
    random = Random(seed)
    made = [
        node_manifest(
            f"n{i}",
            cpu=random.randint(6, 12),
            pods=random.randint(8, 30),
            labels={"disk": random.choice(("ssd", "hdd")), "kubernetes.io/hostname": f"n{i}"},
            taints=[{"key": "k", "effect": "NoSchedule"}] if i == 0 else (),
        )
        for i in range(8)
    ]
    for i in range(60):
        more: dict[str, Any] = {}
        match random.randrange(8):
            case 0:
                more["node_selector"] = {"disk": "ssd"}
            case 1:
                more |= {"labels": {"app": "lonely"}, "affinity": SPREAD}
            case 2:
                more["host_port"] = 80
            case 3:
                more["priority"] = 10
            case 4:
                soft = {"maxSkew": 1, "topologyKey": "disk", "whenUnsatisfiable": "ScheduleAnyway"}
                more["spec"] = {"topologySpreadConstraints": [soft | {"labelSelector": {}}]}
        runs = random.random() < 0.4
        # Few on each node at first, and small: none of them is more than its node holds.
        on = f"n{i % 7 + 1}" if runs and i < 28 and "node_selector" not in more else None
        made.append(pod_manifest(f"p{i}", cpu=random.choice(("500m", "1", "2", "3")), node_name=on, **more))
    made.append(
        {
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "none-may-go", "namespace": "default"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "kept"}}},
        }
    )
    made.append(pod_manifest("kept", cpu="1", labels={"app": "kept"}, node_name="n1"))
    return made


@pytest.mark.parametrize("objective", ["placed", "balance", "nodes", "z", "variance"])
@pytest.mark.parametrize("seed", range(5))
def test_every_filter_agrees_with_every_move(objective: str, seed: int) -> None:
    plan, running = planned(objects(seed))
    state = plan.state
    search = Search(plan, running, objective=objective, moves_max=None, seed=seed)
    search.improve(4_000)
    search.improve(1_000, homing=True)
    found = search.found()
    assert found.after.waiting_count <= found.before.waiting_count
    assert found.after[:2] < found.before[:2]
    make(plan, running, found.moves)
    assert running <= {key for key, each in state.pods.items() if each.node}, "who runs keeps a node"
    assert not {move.pod for move in found.moves} & {"default/kept"}


def test_the_command_says_who_moves_and_repeats_itself(tmp_path: Path) -> None:
    """A small pod sits on the only node that is large enough for a large one."""
    manifests = [
        node_manifest("small", cpu=2),
        node_manifest("large", cpu=4),
        pod_manifest("web", cpu="1", node_name="large"),
        pod_manifest("job", cpu="4"),
    ]
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    asked = ["optimise", "-f", str(file), "--bare", "--steps", "500", "-o", "json"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["moves"] == [
        {"pod": "default/web", "from": "large", "to": "small", "gain": 0.0},
        {"pod": "default/job", "from": None, "to": "large", "gain": 0.0},
    ]
    assert (answer["before"]["waiting_count"], answer["after"]["waiting_count"]) == (1, 0)
    assert CliRunner().invoke(app, asked).stdout == done.stdout
    kept = CliRunner().invoke(app, [*asked[:-2], "--moves", "0"])
    assert "pods that wait\t1\t1" in kept.stdout


def owned_by(kind: str, manifest: Json, version: str = "v1") -> Json:
    manifest["metadata"]["ownerReferences"] = [
        {"apiVersion": version, "kind": kind, "name": "large", "uid": "u", "controller": True}
    ]
    return manifest


def going(manifest: Json) -> Json:
    manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return manifest


def answer_of(tmp_path: Path, manifests: list[Json], *more: str) -> Json:
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    done = CliRunner().invoke(app, ["optimise", "-f", str(file), "--steps", "500", "-o", "json", *more])
    assert done.exit_code == 0, done.output
    found: Json = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("pinned", ["DaemonSet", "Node", "goes"])
def test_pods_of_a_node_and_pods_that_go_stay(tmp_path: Path, pinned: str) -> None:
    """The small pod could make room for the large one, were it anybody's."""
    web = pod_manifest("web", cpu="1", node_name="large")
    web = going(web) if pinned == "goes" else owned_by(pinned, web)
    manifests = [node_manifest("small", cpu=2), node_manifest("large", cpu=4), web]
    found = answer_of(tmp_path, [*manifests, pod_manifest("job", cpu="4")])
    assert (found["moves"], found["staying"], found["after"]["waiting_count"]) == ([], 1, 1)


def test_pods_of_replica_sets_move_since_scores_alone_spread_them(tmp_path: Path) -> None:
    web = pod_manifest("web", cpu="1", node_name="large", labels={"app": "web"})
    manifests = [node_manifest("small", cpu=2), node_manifest("large", cpu=4), pod_manifest("job", cpu="4")]
    found = answer_of(tmp_path, [*manifests, owned_by("ReplicaSet", web, "apps/v1")])
    assert (len(found["moves"]), found["staying"], found["after"]["waiting_count"]) == (2, 0, 0)


@pytest.mark.parametrize(("more", "moves"), [([], 0), (["--bare"], 2)])
def test_pods_that_nothing_makes_anew_move_where_asked(tmp_path: Path, more: list[str], moves: int) -> None:
    web = pod_manifest("web", cpu="1", node_name="large")
    manifests = [node_manifest("small", cpu=2), node_manifest("large", cpu=4), web]
    found = answer_of(tmp_path, [*manifests, pod_manifest("job", cpu="4")], *more)
    assert len(found["moves"]) == moves


@pytest.mark.parametrize(("said", "moves"), [("false", 0), ("true", 2)])
def test_pods_that_are_not_safe_to_evict_stay(tmp_path: Path, said: str, moves: int) -> None:
    web = owned_by("ReplicaSet", pod_manifest("web", cpu="1", node_name="large"), "apps/v1")
    web["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": said}
    manifests = [node_manifest("small", cpu=2), node_manifest("large", cpu=4), web]
    found = answer_of(tmp_path, [*manifests, pod_manifest("job", cpu="4")])
    assert len(found["moves"]) == moves


def test_who_waits_is_evicted_by_nobody(tmp_path: Path) -> None:
    """Neither an annotation nor a budget concerns a pod that does not run, also where the plan has a node."""
    web = owned_by(
        "ReplicaSet", pod_manifest("web", cpu="1", node_name="large", labels={"app": "x"}), "apps/v1"
    )
    waiting = [pod_manifest(f"w{i}", cpu="2", labels={"app": "x"}) for i in range(3)]
    for each in waiting:
        each["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "none-may-go", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "x"}}},
    }
    manifests = [node_manifest("small", cpu=2), node_manifest("large", cpu=5), web, budget, *waiting]
    found = answer_of(tmp_path, [*manifests, pod_manifest("job", cpu="4")])
    assert (found["staying"], found["left"]) == (1, 0)
    assert found["staying_because"] == {"with a disruption budget that lets no pod go": 1}


def test_why_pods_stay_is_said(tmp_path: Path) -> None:
    pods = [pod_manifest(f"p{i}", cpu="1", node_name="n") for i in range(3)]
    pods[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([node_manifest("n"), *pods]))
    done = CliRunner().invoke(app, ["optimise", "-f", str(file), "--steps", "10"])
    assert done.stdout.splitlines()[1:4] == [
        "3 pods with a node cannot be moved, or must not be:",
        "  2 without a controller, which nothing makes anew (but see --bare)",
        "  1 being deleted",
    ]


def test_wide_is_a_table(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([node_manifest("n"), pod_manifest("p")]))
    done = CliRunner().invoke(app, ["optimise", "-f", str(file), "--steps", "10", "-o", "wide"])
    assert "pods that wait\t0\t0" in done.stdout, done.output


def test_who_waits_and_cannot_be_placed_by_a_search_is_counted_beside(tmp_path: Path) -> None:
    gated = pod_manifest("gated", cpu="1", spec={"schedulingGates": [{"name": "g"}]})
    unknown = pod_manifest("unknown", cpu="1", scheduler_name="nobody")
    lonely = pod_manifest("lonely", cpu="9", labels={"app": "lonely"}, affinity=SPREAD)
    found = answer_of(tmp_path, [node_manifest("n"), gated, unknown, lonely, pod_manifest("job", cpu="5")])
    assert (found["left"], found["after"]["waiting_count"]) == (3, 1)
    done = CliRunner().invoke(app, ["optimise", "-f", str(tmp_path / "all.yaml"), "--steps", "10"])
    assert "Waiting pods that a search cannot place, not counted below: 3.\n" in done.stdout


@pytest.mark.parametrize("objective", ["placed", "balance", "nodes", "z", "variance"])
def test_where_no_pod_can_move_the_answer_says_so(tmp_path: Path, objective: str) -> None:
    lonely = pod_manifest("lonely", labels={"app": "lonely"}, affinity=SPREAD)
    found = answer_of(tmp_path, [node_manifest("n"), lonely], "--objective", objective)
    assert (found["moves"], found["staying"]) == ([], 1)


@pytest.mark.parametrize(("kind", "made"), [("pod", node_manifest("n")), ("node", pod_manifest("p"))])
def test_a_search_needs_nodes_and_pods(tmp_path: Path, kind: str, made: Json) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(yaml.safe_dump(made))
    done = CliRunner().invoke(app, ["optimise", "-f", str(file)])
    assert done.exit_code == 1
    assert f"there is no {kind} among the objects" in done.output


def test_ctrl_c_ends_a_search_by_steps_and_keeps_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def improve(self: Search, steps: int, *, homing: bool = False) -> Score:
        asked.append((steps, homing))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return first(self, steps, homing=homing)

    asked: list[tuple[int, bool]] = []
    first = Search.improve
    monkeypatch.setattr(Search, "improve", improve)
    manifests = [node_manifest("n"), pod_manifest("job", cpu="1")]
    given = ("--steps", str(10**30), "--moves", str(10**30), "--objective", "nodes")
    found = answer_of(tmp_path, manifests, *given)
    assert [homing for _, homing in asked] == [False, False, False, True], "pods come home at the end"
    done = sum(steps for steps, _ in asked) - asked[2][0]
    assert (found["steps"], found["after"]["waiting_count"]) == (done, 0)


def test_where_nobody_waits_pods_only_come_home(tmp_path: Path) -> None:
    """A step that leads out of a dead end is for nothing where all pods have a node: nobody moves."""
    manifests = [node_manifest(f"n{i}", cpu=8) for i in range(4)]
    for i in range(8):
        pod = pod_manifest(f"p{i}", cpu="2", node_name=f"n{i % 4}")
        manifests.append(owned_by("ReplicaSet", pod, "apps/v1"))
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    done = CliRunner().invoke(app, ["optimise", "-f", str(file), "--seconds", "0.1", "-o", "json"])
    found = json.loads(done.stdout)
    assert (found["moves"], found["after"]["waiting_count"]) == ([], 0)


@pytest.mark.parametrize(("safe", "moves"), [("true", 2), ("false", 0)])
def test_a_scenario_is_optimised_with_its_own_profile(tmp_path: Path, safe: str, moves: int) -> None:
    """Its pods come as its schedule says. The last one finds its node only where the first one moves away."""
    web = pod_manifest("web", cpu="1", node_name="large")
    web["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": safe}
    nodes = [node_manifest("small", cpu=2), node_manifest("large", cpu=4)]
    scenario: Json = {
        "objects": [*nodes, web, pod_manifest("job", cpu="4"), pod_manifest("not-scheduled", cpu="1")],
        "schedule": ["job"],
        "profile": {"filters": [{"name": "NodeResourcesFit"}]},
    }
    found = answer_of(tmp_path, [scenario], "--bare")
    assert len(found["moves"]) == moves
    assert {move["pod"] for move in found["moves"]} <= {"default/web", "default/job"}
    done = CliRunner().invoke(app, ["optimise", "-f", str(tmp_path / "all.yaml"), "--steps", "9"])
    assert "2 nodes, 2 pods" in done.stdout


@pytest.mark.parametrize("beside", ["scenario", "manifest"])
def test_a_scenario_is_a_cluster_of_its_own(tmp_path: Path, beside: str) -> None:
    other = {"objects": [node_manifest("m")]} if beside == "scenario" else node_manifest("m")
    file = tmp_path / "two.yaml"
    file.write_text(yaml.safe_dump_all([{"objects": [node_manifest("n"), pod_manifest("p")]}, other]))
    done = CliRunner().invoke(app, ["optimise", "-f", str(file)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "is a scenario, a cluster of its own; give it alone" in " ".join(done.stderr.split())
