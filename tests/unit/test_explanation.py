"""Does the record of an attempt say what it was made of, and when?"""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest

from domain.cycle.schedule import Scheduler
from domain.model.decisions import Attempt, Outcome
from domain.model.events import NodeUpserted, NodeUsed, PodUpserted
from domain.model.limits import reasons_per_cycle_max
from domain.model.profiles import BUILT_IN_PROFILES, PluginUse, Profile
from domain.model.usage import NodeUsage
from services.api.answers_decisions import Decision, Explanation, PodRef
from services.api.explanation import explained_attempt, summary
from services.cli import explain
from services.cli.explain import print_explanation
from services.phrases import parts_in_words
from tests.builders import Json, node_manifest, pod_manifest
from tests.property.site import Site
from tests.values import GIB, node, pod, template

MEASURED = Profile(
    name="default-scheduler",
    filters=(PluginUse(name="NodeResourcesFit"),),
    scores=(PluginUse(name="TargetLoadPacking"),),
)


def test_sums_are_those_before_the_first_pod_of_the_group() -> None:
    """Another group's pod of the same cycle came before it, and counts."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    scheduler.fold(NodeUpserted(node("n", cpu=4_000, memory=8 * GIB)))
    scheduler.fold(PodUpserted(pod("first", template(1_000, GIB))))
    scheduler.fold(PodUpserted(pod("second", template(500, GIB))))
    scheduler.fold(PodUpserted(pod("third", template(500, GIB))))
    bases = [attempt.basis for attempt in scheduler.cycle().attempts]
    assert [basis.requested for basis in bases if basis] == [[0] * 5, [1_000, GIB, 1, 1_000, GIB]]
    for basis in bases:
        assert basis is not None
        assert basis.resources == ("cpu", "memory", "pods", "~cpu", "~memory")
        assert basis.allocatable == [4_000, 8 * GIB, 110, 4_000, 8 * GIB]


def test_without_measured_usage_the_two_best_are_kept() -> None:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    for i in range(4):
        scheduler.fold(NodeUpserted(node(f"n{i}", cpu=4_000 + i)))
    scheduler.fold(PodUpserted(pod("p", template(1_000))))
    (attempt,) = scheduler.cycle().attempts
    assert attempt.basis is not None
    assert len(attempt.candidates) == 4
    assert attempt.basis.resources == ("cpu", "memory", "pods", "~cpu", "~memory")
    assert len(attempt.basis.allocatable) == 2 * len(attempt.basis.resources)
    chosen = [int(each.node.removeprefix("n")) for each in attempt.candidates[:2]]
    assert attempt.basis.allocatable[::5] == [4_000 + i for i in chosen]
    assert not attempt.basis.usage


def test_with_measured_usage_all_are_kept_with_figures_and_versions() -> None:
    scheduler = Scheduler({MEASURED.name: MEASURED}, seed=1)
    for i in range(3):
        scheduler.fold(NodeUpserted(node(f"n{i}", version=10 + i)))
    for at_ms, percent in ((1_000, 10.0), (200_000, 30.0)):
        scheduler.fold(NodeUsed(NodeUsage(node="n1", at_ms=at_ms, percent={"memory": 5.0, "cpu": percent})))
    scheduler.fold(PodUpserted(pod("a", template(100))))
    scheduler.fold(PodUpserted(pod("b", template(200))))
    first, second = scheduler.cycle().attempts
    assert first.basis is not None
    assert second.basis is not None
    assert first.candidates[0].node == "n1"
    assert first.basis.usage_at_ms == [200_000, 0, 0]
    assert list(first.basis.usage[0]) == ["cpu", "memory"]
    assert (first.basis.usage[0]["cpu"].avg, first.basis.usage[0]["cpu"].latest) == (20.0, 30.0)
    assert first.basis.usage[1:] == [{}, {}]
    assert first.basis.node_versions == [1, 1, 1]
    assert second.basis.node_versions == [2, 1, 1]  # with the pod of the first group on it
    assert sorted(version or 0 for version in first.basis.resource_versions) == [10, 11, 12]


def _attempts_of_large_pods(*between: Json) -> list[Attempt]:
    """Return the attempts of two equal pods that are too large, with events between them."""
    site = Site()
    first, second = (pod_manifest(name, cpu="3") for name in ("p0", "p1"))
    for second_of_day, manifest in enumerate((node_manifest("n0", cpu=1), first, *between, second)):
        site.tell("ADDED", manifest, at_ms=1_704_067_200_000 + second_of_day * 1_000)
    attempts = sorted(site.database.attempts.values(), key=lambda attempt: attempt.looked_at_ms)
    return [attempt for attempt in attempts if not attempt.bound_count]


def test_a_repeated_verdict_says_when_the_nodes_were_looked_at() -> None:
    """A pod that was placed since only took room, so the parked group is told what was found before it."""
    first, second = _attempts_of_large_pods(pod_manifest("small", cpu="1"))
    assert (first.reasons, second.reasons) == ({"insufficient:cpu": 1}, {"insufficient:cpu": 1})
    assert {first.repeated_at == 0, second.repeated_at == 0} == {True, False}
    assert (second.generation, second.looked_at_ms) == (first.generation, first.looked_at_ms)
    assert max(first.repeated_at, second.repeated_at) > second.generation
    assert first.looked_at_ms == 1_704_067_201_000


def test_a_verdict_is_not_repeated_once_nodes_have_changed() -> None:
    """A small node gives no room either, but what would cure the pods may be another thing now."""
    first, second = _attempts_of_large_pods(node_manifest("n1", cpu=2))
    assert (first.reasons, second.reasons) == ({"insufficient:cpu": 1}, {"insufficient:cpu": 2})
    assert (first.repeated_at, second.repeated_at) == (0, 0)


CANDIDATE: Json = {"node": "n", "score": 1.0, "parts": {"A": 0.5}}


def test_the_story_shows_what_the_candidates_were_scored_from(capsys: pytest.CaptureFixture[str]) -> None:
    doc = {
        "candidates": [CANDIDATE] * 3,
        "looked_at_ms": 1_704_067_201_000,
        "generation": 4,
        "repeated_at": 9,
        "basis": {
            "resources": ["cpu", "~cpu"],
            "allocatable": [4_000, 4_000, 2_000, 2_000],
            "requested": [1_050, 1_150, 0, 0],
            "node_versions": [7, 8],
            "resource_versions": [3, None],
            "usage": [{"cpu": {"avg": 20.5, "std": 0.0, "latest": None, "peak": 90.0}}, {}],
            "usage_at_ms": [1_704_067_200_000, 0],
        },
    }
    cycle = explained_attempt(msgspec.convert({**cycle_doc(), **doc}, Attempt), {"A": 2})
    assert [each.inputs is None for each in cycle.candidates] == [False, False, True]
    explanation = Explanation(
        decision=DECISION, requests={}, template={}, reasons={}, cycle=cycle, profile=None, summary=""
    )
    explanation.summary = summary(explanation)
    assert "parked at generation 4 (log time 2024-01-01T00:00:01.000Z)" in explanation.summary
    assert "until generation 9" in explanation.summary
    print_explanation(msgspec.to_builtins(explanation))
    printed = capsys.readouterr().out
    assert "generation 4 looked at 2024-01-01T00:00:01.000Z, repeated at 9" in printed
    measured = "cpu avg=20.5 std=0 peak_yesterday=90 at 2024-01-01T00:00:00.000Z"
    assert f"n\t7\tcpu=1050m/4\t{measured}" in printed
    assert "n\t8\tcpu=0/2\t-" in printed
    assert "\t2*A=0.5" in printed


def test_the_story_says_that_home_nodes_alone_were_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    doc = {"nodes_count": 2_000, "nodes_home": 500, "feasible_count": 400, "reasons": {"node-affinity": 100}}
    cycle = explained_attempt(msgspec.convert({**cycle_doc(), **doc}, Attempt), {})
    decision = msgspec.structs.replace(DECISION, outcome=Outcome.BOUND, node="n")
    explanation = Explanation(
        decision=decision, requests={}, template={}, reasons={}, cycle=cycle, profile=None, summary=""
    )
    explanation.summary = summary(explanation)
    assert "400 of 500 home nodes could take a pod of its group." in explanation.summary
    assert "so the 1,500 other nodes were not looked at" in explanation.summary
    print_explanation(msgspec.to_builtins(explanation))
    assert "500 home nodes of 2,000" in capsys.readouterr().out


def test_an_explained_decision_says_the_quality_once(capsys: pytest.CaptureFixture[str]) -> None:
    explanation = Explanation(
        decision=DECISION,
        requests={},
        template={"qos_class": "Burstable"},
        quality="mid",
        reasons={},
        cycle=None,
        profile=None,
        summary="",
    )
    explain._print_decision(msgspec.to_builtins(explanation))
    assert capsys.readouterr().out.count("quality\tmid: Burstable\n") == 1
    explain._print_decision(msgspec.to_builtins(msgspec.structs.replace(explanation, quality=None)))
    assert "quality" not in capsys.readouterr().out


def test_a_cycle_of_before_has_no_inputs() -> None:
    """Rows that an earlier berth wrote stay readable."""
    found = explained_attempt(msgspec.convert({**cycle_doc(), "candidates": [CANDIDATE]}, Attempt), {})
    assert [msgspec.to_builtins(each) for each in found.candidates] == [{**CANDIDATE, "inputs": None}]
    assert (found.looked_at, found.repeated_at_generation, found.extremes) == (None, None, {})


DECISION = Decision(
    id="0-1",
    shard=0,
    seq=1,
    epoch=1,
    pod=PodRef(namespace="default", name="p", uid="p", resource_version=1),
    outcome=Outcome.UNSCHEDULABLE,
    node=None,
    decided_at="",
    profile="default-scheduler",
    profile_revision=1,
    reason="",
    score=None,
)


def cycle_doc() -> Json:
    """Return a cycle's document as berth wrote it before the inputs were kept."""
    counts = ("seed", "generation", "nodes_count", "feasible_count", "unresolvable_count")
    doc: Json = dict.fromkeys((*counts, "pods_count", "bound_count", "shard", "seq"), 0)
    more = {"profile": "default-scheduler", "profile_revision": 1, "reasons": {}, "candidates": []}
    return doc | {"signature": ""} | more


def test_what_is_short_in_more_ways_than_are_named_is_counted_as_others() -> None:
    """Each node lacks other resources, up to three of ten, every second one even when it is empty."""
    names = [f"x/{letter}" for letter in "abcdefghij"]
    choices = [choice for count in range(4) for choice in combinations(names, count)]
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    for i in range(2 * len(choices)):
        lacks, hopeless = divmod(i, 2)
        short = set(choices[lacks])
        offered = {name: 5 if hopeless and name in short else 10 for name in names}
        scheduler.fold(NodeUpserted(node(f"n{i}", extended=offered)))
        if not hopeless:
            taken = template(requests=dict.fromkeys(sorted(short), 5))
            scheduler.fold(PodUpserted(pod(f"on-n{i}", taken, on=f"n{i}")))
    scheduler.fold(PodUpserted(pod("p", template(requests=dict.fromkeys(names, 10)))))
    (attempt,) = scheduler.cycle().attempts
    assert (attempt.feasible_count, attempt.unresolvable_count) == (2, len(choices) - 1)
    # All lines but two are taken by what evicting could help.
    named = {code: count for code, count in attempt.reasons.items() if code != "others"}
    assert set(named.values()) == {1}
    assert len(named) == reasons_per_cycle_max - 2
    assert attempt.reasons["others"] == 2 * (len(choices) - 1) - len(named)


def test_a_weight_of_1_goes_without_saying() -> None:
    parts = {"NodeAffinity": 50.0, "NodeResourcesFit": 75.0, "Unknown": 1.0}
    told = parts_in_words(parts, {"NodeAffinity": 2.0, "NodeResourcesFit": 1.0})
    assert told == ["2*NodeAffinity=50", "NodeResourcesFit=75", "Unknown=1"]
