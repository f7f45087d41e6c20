"""`berth plan` as a person uses it: what it reads, what it shows, how it says no."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from domain.manifests.profile import profile_from_manifest
from domain.model.errors import FieldError
from domain.model.profiles import PluginUse, Profile
from services.cli.main import app
from services.plan import scenario as scenario_module
from services.plan.scenario import plan_scenario
from tests.builders import profile_manifest, usage_manifest

EXAMPLES = Path(__file__).parent.parent.parent / "docs" / "examples"
FIT: dict[str, Any] = {"filters": ["NodeResourcesFit"], "scores": ["NodeResourcesFit"]}


def node(name: str, cpu: str = "4", **spec: Any) -> dict[str, Any]:
    offered = {"cpu": cpu, "memory": "8Gi"}
    return {"kind": "Node", "metadata": {"name": name}, "spec": spec, "status": {"allocatable": offered}}


def pod(name: str, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def write(folder: Path, name: str, *documents: Any) -> str:
    file = folder / name
    text = json.dumps(documents[0]) if file.suffix == ".json" else yaml.safe_dump_all(documents)
    file.write_text(text)
    return str(file)


def berth_plan(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["plan", *arguments])


def answer(*arguments: str) -> Any:
    done = berth_plan(*arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_measured_usage_may_be_among_the_manifests(tmp_path: Path) -> None:
    packing = profile_manifest("packing", scores=["TargetLoadPacking"])
    usage = [usage_manifest("a", percent={"cpu": 90}), usage_manifest("b", used={"cpu": "200m"})]
    asked = pod("asked", "100m", schedulerName="packing")
    (verdict,) = answer("-f", write(tmp_path, "all.yaml", packing, node("a"), node("b"), *usage, asked))
    assert verdict["scores"] == {"a": pytest.approx(40 * 6.25 / 60), "b": pytest.approx(60 * 8.75 / 40 + 40)}
    done = berth_plan("-f", write(tmp_path, "bad.yaml", node("a"), usage_manifest("a", percent={"cpu": -1})))
    assert done.exit_code != 0
    assert "percent.cpu" in done.output


def test_manifests_of_all_files_are_one_cluster_and_pods_are_placed_in_their_order(tmp_path: Path) -> None:
    nodes = write(tmp_path, "nodes.yaml", node("a"), node("b", "2"), node("full", nodeName="x"))
    pods = write(tmp_path, "pods.yaml", pod("on-full", "4", nodeName="full"), pod("p", "3"), pod("q", "2"))
    found = answer("-f", nodes, "-f", pods)
    assert [(each["pod"], each["outcome"], each["node"]) for each in found] == [
        ("default/p", "bound", "a"),
        ("default/q", "bound", "b"),
    ]
    assert found[1]["infeasible"] == {"a": "insufficient:cpu", "full": "insufficient:cpu"}
    assert found[1]["unresolvable"] == []


def test_the_examples_of_the_documentation_are_placed_as_they_say() -> None:
    profile = (EXAMPLES / "batch.yaml").read_text()
    assert f"```yaml\n{profile}```" in (EXAMPLES.parent / "profiles.md").read_text()
    files = [str(EXAMPLES / name) for name in ("cluster.yaml", "batch.yaml", "report.yaml")]
    assert berth_plan("-f", files[0]).exit_code == 0, "the first example stands by itself"
    done = berth_plan(*(argument for file in files for argument in ("-f", file)))
    assert (done.exit_code, done.stderr) == (0, "")
    heads = [line for line in done.stdout.splitlines() if line.startswith("default/")]
    assert [line.partition(" (")[0] for line in heads] == [
        "default/web-0: to node-b, score 468",
        "default/database: to node-a, score 425",
        "default/training: to device 0 of node-gpu, score 450",
        "default/large: unschedulable",
        "default/spread: to node-a, score 413",
        "default/report: to node-a, score 256.25",
    ]
    assert "2\tinsufficient:cpu\ton 1" in done.stdout.splitlines()  # the other is too small when empty


def test_what_no_node_can_hold_is_unresolvable(tmp_path: Path) -> None:
    (found,) = answer("-f", write(tmp_path, "all.yaml", node("a"), pod("p", "5")))
    assert (found["outcome"], found["node"], found["unresolvable"]) == ("unresolvable", None, ["a"])


def test_a_pod_with_a_demand_that_is_not_honoured_yet_goes_nowhere(tmp_path: Path) -> None:
    claims = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    (found,) = answer("-f", write(tmp_path, "all.yaml", node("a"), pod("p", volumes=claims)))
    assert found["infeasible"] == {"a": "unsupported:volume-claims"}


def test_a_pod_of_an_unknown_profile_waits_and_the_others_are_planned(tmp_path: Path) -> None:
    pods = [pod("p", "3", schedulerName="mine"), pod("q", "3"), pod("r", schedulerName="theirs")]
    file = write(tmp_path, "all.yaml", node("a"), node("b"), *pods)
    done = berth_plan("-f", file, "-o", "json")
    assert done.exit_code == 3
    p, q, r = json.loads(done.stdout)
    assert (p["outcome"], p["held_by"]) == ("unresolvable", ["unknown-profile:mine"])
    assert p["infeasible"] == {"a": "unknown-profile:mine", "b": "unknown-profile:mine"}
    assert (q["outcome"], q["held_by"]) == ("bound", [])
    assert r["held_by"] == ["unknown-profile:theirs"]
    table = berth_plan("-f", file)
    assert table.exit_code == 3
    assert "default/p: unresolvable, held by unknown-profile:mine (0 of 2 nodes feasible)" in table.stdout
    assert "default/q: to " in table.stdout
    assert "error: no such profile: mine (1 pod), theirs (1 pod); built in are default-" in table.stderr
    assert berth_plan("-f", file, "--profile", "first-fit").exit_code == 0


def test_an_unknown_profile_is_told_even_where_there_is_no_node(tmp_path: Path) -> None:
    done = berth_plan("-f", write(tmp_path, "all.yaml", pod("p", schedulerName="mine")))
    assert (done.exit_code, "held by unknown-profile:mine" in done.stdout) == (3, True)


def test_the_profile_of_a_file_or_a_built_in_one_is_taken_for_all_pods(tmp_path: Path) -> None:
    file = write(tmp_path, "all.yaml", node("small", "2"), node("large", "8"), pod("p", schedulerName="mine"))
    most = {"name": "NodeResourcesFit", "weight": 2, "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    profile = write(tmp_path, "profile.yaml", {"scores": [most, "FirstFit", "FirstFit"]})
    (found,) = answer("-f", file, "--profile", profile)
    assert found["node"] == "small"
    parts = found["score_parts"]["large"]
    assert parts["FirstFit"] == parts["FirstFit#2"] == 50
    assert found["scores"]["large"] == 2 * parts["NodeResourcesFit"] + 100
    assert found["weights"] == {"NodeResourcesFit": 2, "FirstFit": 1, "FirstFit#2": 1}
    heads = "NODE\tSCORE\t2*NodeResourcesFit\tFirstFit\tFirstFit#2"
    assert heads in berth_plan("-f", file, "--profile", profile).stdout.splitlines()
    (found,) = answer("-f", file, "--profile", "default-scheduler")
    assert found["node"] == "large"


def test_several_scenarios_give_a_list_of_answers_with_the_files_names(tmp_path: Path) -> None:
    names = []
    for name in ("a", "b"):
        scenario: dict[str, Any] = {
            "objects": [node(name), pod("p")],
            "schedule": ["default/p"],
            "profile": FIT,
        }
        scenario["objects"][0]["status"]["allocatable"]["pods"] = "1"
        names.append(write(tmp_path, f"{name}.json", scenario))
    found = answer("-f", names[0], "-f", names[1])
    assert [(each["file"], each["pods"][0]["node"]) for each in found] == [(names[0], "a"), (names[1], "b")]


@pytest.mark.parametrize("form", ["table", "json"])
def test_one_scenario_is_held_at_a_time(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a cluster of its own, so a hundred of them would take more memory than there is."""
    made: list[weakref.ref[Any]] = []
    place = scenario_module.placed_scenario

    def alone(*args: Any, **kwargs: Any) -> Any:
        gc.collect()
        assert [each for each in made if each() is not None] == []
        plan, planned = place(*args, **kwargs)
        made.append(weakref.ref(plan.state))
        return plan, planned

    monkeypatch.setattr(scenario_module, "placed_scenario", alone)
    scenario = {"objects": [node("a"), pod("p")], "schedule": ["default/p"], "profile": FIT}
    files = [write(tmp_path, f"{number}.json", scenario) for number in range(4)]
    done = berth_plan(*(each for file in files for each in ("-f", file)), "-o", form)
    assert done.exit_code == 0, done.output
    assert len(made) == 4


def test_without_a_filter_every_node_passes() -> None:
    scenario = {"objects": [node("a", "0"), pod("p")], "schedule": ["p"], "profile": {}}
    (found,) = plan_scenario(scenario)
    assert (found.feasible, found.node, found.scores) == (["a"], "a", {"a": 0.0})


def test_the_table_says_the_verdict_first_then_the_best_nodes_then_what_was_refused(tmp_path: Path) -> None:
    nodes = [node(f"n{i}", str(8 + i)) for i in range(7)] + [node("tiny", "500m")]
    least = ("--profile", "least-allocated")
    done = berth_plan("-f", write(tmp_path, "all.yaml", *nodes, pod("p")), *least)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("default/p: to n6, score ")
    assert lines[0].endswith("(7 of 8 nodes feasible)")
    assert lines[1].split("\t") == ["NODE", "SCORE", "NodeResourcesFit"]
    assert [line.split("\t")[0] for line in lines[2:7]] == ["n6", "n5", "n4", "n3", "n2"]
    assert lines[8].split("\t") == ["1", "insufficient:cpu", "no"]


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"objects": 1}, "objects"),
        ({"objects": [{"kind": "Widget"}], "schedule": []}, "objects[0].kind"),
        ({"objects": [node("a", "-1")], "schedule": []}, "objects[0].status.allocatable.cpu"),
        ({"objects": [], "schedule": ["default/p"]}, "schedule[0]"),
        ({"objects": [], "schedule": [1]}, "schedule[0]"),
        ({"objects": [], "schedule": [], "profile": {"filter": []}}, "profile.filter"),
        ({"objects": [], "schedule": [], "profile": {"filters": [1]}}, "profile.filters[0]"),
        ({"objects": [], "schedule": [], "profile": {"filters": ["No"]}}, "profile.filters[0].name"),
        (
            {"objects": [], "schedule": [], "profile": {"scores": [{"name": "FirstFit", "weight": 0}]}},
            "profile.scores[0].weight",
        ),
        ({"objects": [], "schedule": [], "usage": {"a": {"cpu": {"avg": "x"}}}}, "usage.a.cpu.avg"),
        ({"objects": [], "schedule": [], "usage": {"a": {"cpu": {"mean": 1}}}}, "usage.a.cpu.mean"),
        ({"schedule": []}, "objects"),
        ({"object": [], "schedule": []}, "object"),
        ({"Objects": []}, "Objects"),
        ({"objects": [], "shedule": []}, "shedule"),
        ({"objects": [], "usages": {}}, "usages"),
        ({"objects": [], "profile ": {}}, "[profile ]"),
        ({"objects": [node("a"), pod("a"), node("a")]}, "objects[2].metadata.name"),
        (
            {"objects": [pod("a"), {"kind": "Pod", "metadata": {"name": "a", "namespace": "default"}}]},
            "objects[1].metadata.name",
        ),
    ],
)
def test_a_scenario_that_makes_no_sense_names_the_field(
    document: dict[str, Any], path: str, tmp_path: Path
) -> None:
    with pytest.raises(FieldError) as error:
        plan_scenario(document)
    assert error.value.path == path
    file = write(tmp_path, "scenario.json", document)
    done = berth_plan("-f", file)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: {file}: {path}: ")


def test_a_misspelt_key_of_a_scenario_is_told_with_what_was_meant(tmp_path: Path) -> None:
    done = berth_plan("-f", write(tmp_path, "s.json", {"objects": [], "profil": {}}))
    assert "profil: is no key of a scenario; did you mean profile?" in done.stderr


def test_what_a_scenario_says_in_vain_is_told_and_its_notes_are_not(tmp_path: Path) -> None:
    other = pod("a") | {"metadata": {"name": "a", "namespace": "other"}}
    notes = {
        "name": "case",
        "source": "x",
        "expect": {},
        "given": {},
        "derived": True,
        "stage": 1,
        "notes": "",
    }
    usage = {"a": {"cpu": {"avg": 1}}, "gone": {"cpu": {"avg": 1}}}
    scenario = {"objects": [node("a"), pod("a"), other], "usage": usage, "pods": [], **notes}
    done = berth_plan("-f", write(tmp_path, "s.json", scenario))
    assert done.exit_code == 0
    told = [line.partition("s.json: ")[2] for line in done.stderr.splitlines()]
    assert [line.partition(":")[0] for line in told] == ["pods", "usage.gone"]


def test_what_was_probably_meant_otherwise_is_told_and_planned_as_it_is_written(tmp_path: Path) -> None:
    misspelt, lost = pod("p", schedulername="first-fit"), pod("q", nodeName="nowhere")
    other = {"metadata": {"creationTimestamp": None, "name": "r", "label": {}}, "kind": "Pod"}
    done = berth_plan("-f", write(tmp_path, "all.yaml", node("a"), node("a"), misspelt, lost, other))
    assert done.exit_code == 0
    assert [line.partition("all.yaml, document ")[2] for line in done.stderr.splitlines()[:3]] == [
        "2 (Node a): comes again; it replaces the one before",
        "3 (Pod p): spec.schedulername: is not known, so it is ignored; did you mean schedulerName?",
        "5 (Pod r): metadata.label: is not known, so it is ignored; did you mean labels?",
    ]
    assert done.stderr.splitlines()[3:] == [
        "warning: pod default/q is on node nowhere, which is not among the nodes"
    ]
    scenario = write(tmp_path, "s.json", {"objects": [node("a"), misspelt]})
    assert "s.json: objects[1].spec.schedulername: is not known" in berth_plan("-f", scenario).stderr


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        (
            (node("a"), pod("p", "x")),
            "document 2 (Pod p): spec.containers[0].resources.requests.cpu",
        ),
        ((node("a"),), "there is no pod to place"),
        (({"apiVersion": "v1"},), "all.yaml: neither a manifest"),
    ],
)
def test_manifests_that_make_no_sense_name_file_document_and_field(
    documents: tuple[Any, ...], said: str, tmp_path: Path
) -> None:
    done = berth_plan("-f", write(tmp_path, "all.yaml", *documents))
    assert done.exit_code == 1
    assert said in done.stderr


def test_a_profile_may_be_a_manifest_and_stand_among_the_objects(tmp_path: Path) -> None:
    nodes, first = [node("a"), node("b"), pod("on", "1", nodeName="b")], profile_manifest("mine")
    mine = write(tmp_path, "mine.yaml", first)
    others = write(tmp_path, "cluster.json", [*nodes, pod("p", "1")])
    (found,) = answer("-f", others, "--profile", mine)
    assert found["node"] == "b"
    waiting = write(tmp_path, "pods.json", [*nodes, pod("p", "1", schedulerName="mine")])
    (found,) = answer("-f", mine, "-f", waiting)
    assert found["node"] == "b"
    events = [{"type": "ADDED", "object": first}, {"type": "DELETED", "object": first}]
    gone = berth_plan("-f", write(tmp_path, "events.json", events), "-f", waiting)
    assert "no such profile: mine (1 pod)" in gone.stderr
    bad = write(tmp_path, "bad.yaml", profile_manifest("mine", "Most"))
    assert (
        f"{bad}: spec.scores[0].args.scoringStrategy.type"
        in berth_plan("-f", others, "--profile", bad).stderr
    )
    assert (
        "(SchedulingProfile mine): spec.scores[0].args.scoringStrategy.type"
        in berth_plan("-f", bad, "-f", waiting).stderr
    )


def test_a_profile_that_makes_no_sense_names_its_file_and_the_field(tmp_path: Path) -> None:
    file = write(tmp_path, "all.yaml", node("a"), pod("p"))
    profile = write(tmp_path, "profile.yaml", {"scores": [{"name": "FirstFit", "args": {"x": 1}}]})
    done = berth_plan("-f", file, "--profile", profile)
    assert done.exit_code == 1
    assert f"{profile}: scores[0].args.x: unknown argument" in done.stderr
    assert "allowed are a file, or default-scheduler" in berth_plan("-f", file, "--profile", "nope").stderr


def test_a_profile_as_written_is_a_profile_as_kept() -> None:

    written = {
        "name": "n",
        "revision": 3,
        "filters": ["A"],
        "scores": [{"name": "B", "weight": 2, "args": {"x": 1}}],
    }
    kept = Profile(
        name="n",
        revision=3,
        filters=(PluginUse(name="A"),),
        scores=(PluginUse(name="B", weight=2.0, args={"x": 1}),),
    )
    assert profile_from_manifest(written) == kept


def test_a_rule_over_other_pods_says_what_it_counted(tmp_path: Path) -> None:
    nodes = [node(name) for name in ("a", "b")]
    for each in nodes:
        each["metadata"]["labels"] = {"zone": each["metadata"]["name"]}
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    there, waits = pod("there", nodeName="a"), pod("waits", topologySpreadConstraints=[spread])
    for each in (there, waits):
        each["metadata"]["labels"] = {"app": "web"}
    file = write(tmp_path, "all.yaml", *nodes, there, waits)
    (found,) = answer("-f", file)
    assert found["infeasible"] == {"a": "topology-spread"}
    seen = {"reason": "topology-spread", "text": "zone maxSkew 1 app=web", "count_max": 0, "count_min": 0}
    assert found["rules"] == [seen | {"domains": {"a": 1}}]
    sentence = "None may be there before it, as the lowest count is 0: zone maxSkew 1 app=web; a has 1."
    assert sentence in berth_plan("-f", file).stdout.splitlines()
