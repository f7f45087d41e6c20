"""Scenarios of past moments: what no manifest says decides in a plan, and what makes no sense is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.manifests.objects import node_from_manifest, pod_from_manifest
from domain.manifests.profile import profile_to_spec
from domain.model.errors import FieldError
from domain.model.nodes import NodeImage, NodeSpec, Taint
from domain.model.pods import PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES
from services.plan.kept import KEPT, kept_event, node_object, pod_object, read_templates, template_value
from services.plan.scenario import placed_scenario, unread
from tests.builders import Json, node_manifest, pod_manifest

TEMPLATE: Json = {
    "requests": {"cpu": 1000},
    "scoring_cpu_milli": 1000,
    "cpu_claim": {"requested_milli": 1000},
}


def kept_pod(name: str, **kept: Any) -> Json:
    return {"kind": "Pod", "metadata": {"name": name}, KEPT: {"template": "t1", **kept}}


def nodes(*names: str, cpu: int = 2) -> list[Json]:
    return [node_manifest(name, cpu=cpu) for name in names]


def scenario(*objects: Json, **more: Any) -> Json:
    return {"objects": list(objects), "templates": {"t1": TEMPLATE}, **more}


def placed(document: Mapping[str, Any], pod: str = "default/p") -> str | None:
    plan, planned = placed_scenario(document)
    (answer,) = [each for each in planned if each.pod.key == pod]
    (verdict,) = [each for each in plan.verdicts() if each.pod == pod]
    assert answer.node is None or verdict.node == answer.node
    return answer.node


def test_a_pod_in_berths_own_form_counts_where_it_is_and_is_placed_by_its_template() -> None:
    there = kept_pod("there", node="a")
    assert placed(scenario(*nodes("a", cpu=1), *nodes("b"), there, kept_pod("p"))) == "b"
    assert placed(scenario(*nodes("a", "b"), kept_pod("p", excluded=["a"]))) == "b"
    (planned,) = placed_scenario(scenario(*nodes("a"), kept_pod("p", excluded=["a"])))[1]
    assert planned.attempt.reasons_at_failure == {"bind-failed": 1}


def test_the_seed_of_a_scenario_decides_between_equal_nodes() -> None:
    of = [*nodes(*"abcdefgh"), kept_pod("p")]
    found = [placed(scenario(*of, seed=seed)) for seed in range(8)]
    assert len(set(found)) > 2
    assert [placed_scenario(scenario(*of), seed=seed)[1][0].node for seed in range(8)] == found


def test_profiles_are_in_force_with_their_revisions_and_a_given_profile_goes_before_them() -> None:
    packed = {"name": "mine", "revision": 7, **profile_to_spec(BUILT_IN_PROFILES["most-allocated"])}
    of = [*nodes("large", cpu=8), *nodes("small")]
    document = scenario(*of, pod_manifest("p", cpu=1, scheduler_name="mine"), profiles=[packed])
    (planned,) = placed_scenario(document)[1]
    assert (planned.node, planned.attempt.profile_revision) == ("small", 7)
    given = placed_scenario(document, profile=BUILT_IN_PROFILES["least-allocated"])[1]
    assert [each.node for each in given] == ["large"]


def test_home_nodes_are_tried_first() -> None:
    of = [*nodes("large", cpu=8), *nodes("small"), kept_pod("p")]
    assert placed(scenario(*of)) == "large"
    assert placed(scenario(*of, home=["small"])) == "small"
    full = kept_pod("there", node="small"), kept_pod("also", node="small")
    assert placed(scenario(*of, *full, home=["small"])) == "large"


def test_a_node_that_is_set_aside_is_left_to_its_pod() -> None:
    of = [*nodes("a", cpu=1), kept_pod("p")]
    assert placed(scenario(*of)) == "a"
    foreign = {"pod": "other/q", "node": "a", "template": "t1"}
    assert placed(scenario(*of, nominations=[foreign])) is None
    full = [*nodes("a", "b"), *(kept_pod(f"on-{n}-{i}", node=n) for n in "ab" for i in range(2))]
    own = {"pod": "default/q", "node": "b", "victims": ["default/on-b-0"]}
    document = scenario(*full, kept_pod("q"), kept_pod("p"), nominations=[own])
    assert placed(document) is None


def test_a_pod_that_no_measurement_covers_counts_beside_what_was_measured() -> None:
    target = {"name": "TargetLoadPacking", "args": {"targetUtilization": 60}}
    profile = {"name": "default-scheduler", "filters": ["NodeResourcesFit"], "scores": [target]}
    usage = {name: {"cpu": {"avg": 10.0, "std": 0.0, "latest": 10.0}} for name in "ab"}
    of = [*nodes("a", "b", cpu=8), kept_pod("there", node="a"), kept_pod("p")]
    document = scenario(*of, usage=usage, profiles=[profile])
    found = [placed_scenario({**document, "recent": recent})[0] for recent in ([], ["default/there"])]
    verdicts = [next(plan.verdicts()) for plan in found]
    assert verdicts[0].scores["a"] == verdicts[0].scores["b"]
    assert verdicts[1].scores["a"] != verdicts[1].scores["b"]


def test_what_was_used_by_quality_is_lent() -> None:
    low = {**TEMPLATE, "profile": "colocation", "qos_class": "BestEffort", "requests": {}}
    used = {"high": [500, 0], "mid": [0, 0], "low": [0, 0], "system": [100, 0]}
    document = scenario(*nodes("a"), kept_pod("p"))
    document["templates"] = {"t1": low}
    plan, planned = placed_scenario({**document, "quality": {"a": used}})
    assert plan.state.usage.qualities["a"].use.high.cpu_milli == 500
    assert planned[0].pod.key == "default/p"


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (scenario(kept_pod("p", template="t9")), r"objects\[0\]\.kept\.template"),
        (scenario({**kept_pod("p"), "spec": {}}), r"objects\[0\]\.spec"),
        (scenario({"kind": "Pod", "metadata": {"name": "p"}, KEPT: {"node": 3}}), r"objects\[0\]\.kept"),
        (scenario({"kind": "NodeUsage", "metadata": {"name": "a"}, KEPT: {}}), r"objects\[0\]\.kept"),
        (scenario(seed="x"), "seed"),
        (scenario(home=3), "home"),
        (scenario(profiles={}), "profiles"),
        (scenario(profiles=[{"filters": ["No"], "scores": []}]), r"profiles\.filters\[0\]"),
        (
            scenario(nominations=[{"pod": "x/p", "node": "a", "template": "t9"}]),
            r"nominations\[0\]\.template",
        ),
        (scenario(nominations=[{"pod": "x/p"}]), "nominations"),
        (scenario(templates={"t1": {"requests": 3}}), "templates"),
        (scenario(quality={"a": {"high": 3}}), "quality"),
    ],
)
def test_what_makes_no_sense_is_named(document: Json, path: str) -> None:
    with pytest.raises(FieldError, match=rf"^{path}"):
        placed_scenario(document)


def test_no_key_of_a_moment_is_unread() -> None:
    document = scenario(*nodes("a"), kept_pod("p"), seed=1, home=["a"], recent=[], expect={"node": "a"})
    assert unread(document) == []
    assert unread({**document, "nominees": []}) != []


NODES = st.builds(
    NodeSpec,
    name=st.just("n"),
    uid=st.sampled_from(("n", "u1")),
    resource_version=st.none() | st.integers(1, 9),
    labels=st.dictionaries(st.sampled_from(("zone", "berth.io/usage-window-seconds")), st.just("300")),
    taints=st.lists(st.builds(Taint, st.just("k"), st.sampled_from(("", "v"))), max_size=2).map(tuple),
    unschedulable=st.booleans(),
    allocatable=st.dictionaries(st.sampled_from(("cpu", "memory", "pods", "x.y/z")), st.integers(1, 10**6)),
    capacity=st.dictionaries(st.sampled_from(("cpu", "memory")), st.integers(1, 10**6)),
    images=st.lists(st.builds(NodeImage, st.just(("i",)), st.integers(0, 9)), max_size=1).map(tuple),
    usage_window_seconds=st.sampled_from((0, 300)),
    ready=st.sampled_from((None, True, False)),
    declared_features=st.sampled_from(((), ("F",))),
)


@given(NODES)
def test_a_node_comes_back_as_it_was_written(spec: NodeSpec) -> None:
    written = msgspec.json.decode(msgspec.json.encode(node_object(spec)))
    if KEPT in written:
        assert kept_event(written, {}, "object").node == spec  # type: ignore[union-attr]
    else:
        assert node_from_manifest(written, strict=False) == spec


def test_a_pod_comes_back_as_it_was_written() -> None:
    manifest = pod_manifest(
        "p", "team", cpu="1500m", labels={"app": "web"}, host_port=80, priority=5, uid="u1",
        tolerations=[{"key": "k", "operator": "Exists"}],
        spec={"containers": [{"resources": {"limits": {"cpu": "2"}}}, {}], "overhead": {"cpu": "10m"}},
    )  # fmt: skip
    pod = pod_from_manifest(manifest)
    values = msgspec.json.decode(msgspec.json.encode({"t": template_value(pod.template)}))
    templates = read_templates(values)
    assert templates == {"t": pod.template}
    written = msgspec.json.decode(msgspec.json.encode(pod_object(pod, "t")))
    assert kept_event(written, templates, "object").pod == pod  # type: ignore[union-attr]
    assert template_value(PodTemplate()) == {}
