"""Does preemption find the victims that kube-scheduler found, and would a difference be noticed?"""

from __future__ import annotations

from collections import Counter

import pytest

from domain.model.config import DisruptionBudget
from domain.model.events import ConfigUpserted
from domain.model.profiles import BUILT_IN_PROFILES
from services.plan.objects import Given, event_of
from tests.oracle.placing import Oracle
from tests.oracle.preempting import Budget, Preemption
from tests.upstream.draw import Json
from tests.upstream.preempted import Found, planned, promised, unlike
from tests.upstream.program import Candidate, Preempting
from tests.upstream.recording import Recorded, read

RECORDED = read()
THEIRS = Preempting(
    eligible=True,
    why="",
    might_help=["a", "b"],
    candidates={"a": Candidate(["default/x", "default/y"], 1), "b": Candidate(["default/z"], 1)},
    best=["b"],
)
MINE = Found(True, ["a", "b"], {"a": (["default/x", "default/y"], 1), "b": (["default/z"], 1)}, "b")


def by_definition(scenario: Json) -> Found | None:
    """Let the plain oracle make room for the one pod of a scenario."""
    oracle, budgets, (name,) = Oracle(BUILT_IN_PROFILES, seed=0), list[Budget](), scenario["schedule"]
    for manifest in scenario["objects"]:
        event = event_of(Given("ADDED", manifest, ""), lenient=True)
        assert event is not None
        oracle.take(event)  # type: ignore[arg-type]
        if isinstance(event, ConfigUpserted) and isinstance(event.content, DisruptionBudget):
            said = event.content
            allowed = said.disruptions_allowed or 0
            budgets.append(Budget(event.namespace, said.selector, allowed, said.disrupted))
    pod = oracle.pods[name]
    nominated = promised(scenario, pod.spec.template.priority)
    if not nominated and any(oracle.passes(pod, node) for node in oracle.nodes):
        return None
    preemption = Preemption(oracle, budgets, nominated=nominated)
    found, chosen = preemption.candidates(pod), preemption.choose(pod)
    if chosen is not None and not chosen.victims:
        return None
    if pod.spec.template.preemption_policy == "Never":
        return Found(False, None, {}, None)
    candidates = {node: (each.victims, each.violations) for node, each in found.items()}
    return Found(True, None, candidates, None if chosen is None else chosen.node)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda each: each.scenario["name"])
def test_the_planner_finds_what_kube_scheduler_found(recorded: Recorded) -> None:
    assert list(unlike(planned(recorded.scenario), recorded.preemption)) == []


@pytest.mark.parametrize("recorded", RECORDED[::3], ids=lambda each: each.scenario["name"])
def test_so_does_the_plain_definition(recorded: Recorded) -> None:
    found = by_definition(recorded.scenario)
    if found is not None and recorded.preemption is not None and found.candidates:
        # It looks at every node: at those, too, of which a filter says that preemption cannot help.
        curable = set(recorded.preemption.might_help)
        kept = {node: each for node, each in found.candidates.items() if node in curable}
        found = found._replace(candidates=kept)
    assert list(unlike(found, recorded.preemption)) == []


def test_what_is_recorded_is_of_every_kind() -> None:
    found = [each.preemption for each in RECORDED if each.preemption is not None]
    kinds = Counter(each.scenario["name"].split()[0] for each in RECORDED)
    assert len(kinds) == 7
    assert min(kinds.values()) >= 30
    assert any(each.why.startswith("not eligible due to preemptionPolicy") for each in found)
    assert sum(len(each.candidates) > 1 for each in found) >= 100
    assert sum(any(one.violations for one in each.candidates.values()) for each in found) >= 20
    assert sum(len(each.best) > 1 for each in found) >= 2
    assert sum(any(len(one.victims) > 2 for one in each.candidates.values()) for each in found) >= 50


def kinds(mine: Found | None, theirs: Preempting | None = THEIRS) -> list[str]:
    return [kind for kind, _ in unlike(mine, theirs)]


def test_each_kind_of_difference_is_noticed() -> None:
    assert kinds(MINE) == kinds(None, None) == []
    assert kinds(None) == kinds(MINE, None) == ["fits"]
    assert kinds(MINE._replace(is_eligible=False)) == ["eligible"]
    assert kinds(MINE._replace(might_help=["a"])) == ["might-help"]
    assert kinds(MINE._replace(chosen="a")) == ["node"]
    for wrong in ((["default/y", "default/x"], 1), (["default/x", "default/y"], 0), (["default/x"], 1)):
        assert kinds(MINE._replace(candidates={**MINE.candidates, "a": wrong})) == ["victims"]
    assert kinds(MINE._replace(candidates={"b": MINE.candidates["b"]})) == ["victims"]
