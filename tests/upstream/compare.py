"""Compares what berth plans with what kube-scheduler's own plugins say, pod by pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from domain.engine.evaluate import Verdict
from services.plan.scenario import plan_scenario
from tests.upstream.draw import Json
from tests.upstream.preempted import planned, told, unlike
from tests.upstream.program import Answer, Program, Refusal
from tests.upstream.scenarios import name_of

_CODES: dict[str, dict[str, str]] = {
    "NodeUnschedulable": {"node(s) were unschedulable": "node-unschedulable"},
    "NodeName": {"node(s) didn't match the requested node name": "node-name"},
    "TaintToleration": {"node(s) had untolerated taint(s)": "untolerated-taint"},
    "NodeAffinity": {
        "node(s) didn't match Pod's node affinity/selector": "node-affinity",
        "node(s) didn't satisfy plugin(s) [NodeAffinity]": "node-affinity",
        "pod affinity terms conflict": "node-affinity",
    },
    "NodePorts": {"node(s) didn't have free ports for the requested pod ports": "host-port-conflict"},
    "PodTopologySpread": {
        "node(s) didn't match pod topology spread constraints": "topology-spread",
        "node(s) didn't match pod topology spread constraints (missing required label)": (
            "topology-spread-missing-label"
        ),
    },
    "InterPodAffinity": {
        "node(s) didn't match pod affinity rules": "pod-affinity",
        "node(s) didn't match pod anti-affinity rules": "pod-anti-affinity",
        "node(s) didn't satisfy existing pods anti-affinity rules": "existing-pod-anti-affinity",
    },
    "NodeDeclaredFeatures": {"node(s) didn't match Pod's required features": "node-declared-features"},
}
"""Upstream's plugin and reason -> berth's reason code."""

_SHORT = "Insufficient "


BY_INTENT = "by intent"
"""A difference that is gone once berth's rules look at the pods alone that were promised the very node."""


class Difference(NamedTuple):
    """Something that berth says otherwise; ``what`` names the kind, ``detail`` both answers."""

    pod: str
    what: str
    detail: str


def code_of(refusal: Refusal) -> str:
    """Return the reason code that berth should give."""
    if refusal.plugin != "NodeResourcesFit":
        (reason,) = refusal.reasons
        return _CODES[refusal.plugin][reason]
    codes = [
        "too-many-pods" if reason == "Too many pods" else f"insufficient:{reason.removeprefix(_SHORT)}"
        for reason in refusal.reasons
    ]
    return ",".join(sorted(codes))


def compared(program: Program, scenario: Json) -> tuple[int, list[Difference]]:
    """Return the number of pods compared, and what differs.

    Raises
    ------
    ValueError
        The scenario makes no sense to the API server.
    """
    if scenario.get("preempt"):
        (name,) = scenario["schedule"]
        (answer,) = program.ask(scenario, {name: None})
        mine = planned(scenario)
        unequal = [Difference(name, *each) for each in unlike(mine, answer.preemption)]
        if unequal and not list(unlike(planned(scenario, by_node=True), answer.preemption)):
            return 1, [Difference(name, BY_INTENT, unequal[0].detail)]
        if mine is None or mine.might_help is not None:  # a plan knows no node that others were promised
            (verdict,) = plan_scenario({key: scenario[key] for key in ("objects", "schedule")})
            unequal += [
                Difference(name, f"plan {what}", both)
                for what, both in unlike(told(verdict), answer.preemption)
            ]
        return 1, unequal
    verdicts = plan_scenario({key: scenario[key] for key in ("objects", "schedule")})
    # A pod that found a node only once a later one was there is asked about again, when it did.
    decided = {**scenario, "schedule": [verdict.pod for verdict in verdicts]}
    answers = program.ask(decided, {verdict.pod: verdict.node for verdict in verdicts})
    own = {name_of(each): each for each in scenario["objects"] if each["kind"] == "Pod"}
    found: list[Difference] = []
    for verdict, answer in zip(verdicts, answers, strict=True):
        assert verdict.pod == answer.pod
        pod_level = own[verdict.pod]["spec"].get("resources") is not None
        found += differences(verdict, answer, program.greeting.weights, pod_level=pod_level)
    return len(answers), found


def differences(
    verdict: Verdict, answer: Answer, weights: Mapping[str, int], *, pod_level: bool = False
) -> Iterator[Difference]:
    """Yield what differs for one pod.

    A plugin that one side leaves out counts as 0 there. ``pod_level`` says that the pod has resources of its
    own: upstream's NodeResourcesFit score does not look at them, and berth's does, which is documented.
    """
    if sorted(verdict.feasible) != sorted(answer.feasible):
        more = sorted(set(verdict.feasible) - set(answer.feasible))
        less = sorted(set(answer.feasible) - set(verdict.feasible))
        why = {node: answer.infeasible[node].reasons for node in more[:2]}
        why |= {node: [verdict.infeasible.get(node, "unknown to berth")] for node in less[:2]}
        yield Difference(verdict.pod, "feasible", f"only berth {more}, only upstream {less}: {why}")
        return
    expected = {node: code_of(refusal) for node, refusal in answer.infeasible.items()}
    for node, code in expected.items():
        if (given := ",".join(sorted(verdict.infeasible[node].split(",")))) != code:
            yield Difference(verdict.pod, "reason", f"{node}: berth {given}, upstream {code}")
            break
    unresolvable = sorted(node for node, refusal in answer.infeasible.items() if refusal.unresolvable)
    if sorted(verdict.unresolvable) != unresolvable:
        odd = sorted(set(verdict.unresolvable) ^ set(unresolvable))
        detail = f"{odd}: berth {verdict.unresolvable}, {expected[odd[0]]}"
        yield Difference(verdict.pod, "unresolvable", detail)
    deviates = {"NodeResourcesFit"} if pod_level else set()
    yield from _scores(verdict, answer, weights, deviates)


def _scores(
    verdict: Verdict, answer: Answer, weights: Mapping[str, int], deviates: set[str]
) -> Iterator[Difference]:
    unlike = {
        plugin: weight
        for plugin, weight in verdict.weights.items()
        if weight != weights.get(plugin) and any(verdict.score_parts[n].get(plugin) for n in verdict.feasible)
    }
    if unlike:
        yield Difference(verdict.pod, "weights", f"berth {unlike}, upstream {dict(weights)}")
    totals = {}
    wrong: dict[str, str] = {}
    for node in answer.feasible:
        parts, theirs = verdict.score_parts[node], answer.scores[node]
        totals[node] = float(answer.totals[node])
        for plugin in sorted({*parts, *theirs}):
            mine, right = parts.get(plugin, 0.0), theirs.get(plugin, 0)
            if plugin in deviates:
                totals[node] += weights.get(plugin, 0) * (mine - right)
            elif mine != right:
                wrong.setdefault(plugin, f"{node}: berth {mine}, upstream {right}")
    for plugin, detail in wrong.items():
        yield Difference(verdict.pod, f"score {plugin}", detail)
    if verdict.node is None or not totals:
        return
    best = max(totals.values())
    if totals[verdict.node] != best:
        nodes = [node for node, total in totals.items() if total == best]
        detail = f"berth {verdict.node} ({totals[verdict.node]}), upstream {nodes} ({best})"
        yield Difference(verdict.pod, "node", detail)
