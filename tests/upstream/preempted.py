"""Compares what berth's planner of preemption finds with kube-scheduler's own DefaultPreemption."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from domain.engine.budgets import Budgets
from domain.engine.evaluate import Verdict, compiled_alone, evaluate
from domain.engine.preemption import Decided, Nominated, Planned, Preemptor, may_preempt
from domain.model.pods import DEFAULT_PROFILE
from domain.model.profiles import BUILT_IN_PROFILES
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.state.cluster import ClusterState
from services.plan.objects import Given, event_of
from tests.upstream.draw import Json
from tests.upstream.program import Preempting
from tests.upstream.scenarios import name_of


class Found(NamedTuple):
    """What berth finds for a pod that no node takes.

    ``candidates`` are node -> victims, most important first, and how many violate a budget. ``chosen`` is
    the node, None without candidates.
    """

    is_eligible: bool
    might_help: list[str] | None
    candidates: dict[str, tuple[list[str], int]]
    chosen: str | None


def planned(scenario: Json, *, by_node: bool = False) -> Found | None:
    """Let the planner make room for the one pod of a scenario; None where a node takes it as it is.

    With ``by_node`` the rules over other pods look at the pods that were promised the very node only, as
    kube-scheduler's do, and at none that were promised another one.
    """
    state, (name,) = ClusterState(seed=0), scenario["schedule"]
    for i, manifest in enumerate(scenario["objects"]):
        event = event_of(Given("ADDED", manifest, f"objects[{i}]"), lenient=True)
        assert event is not None
        state.apply(event)  # type: ignore[arg-type]
    pod, profile = state.pods[name].spec, ProfilePlan(BUILT_IN_PROFILES[DEFAULT_PROFILE])
    verdict = evaluate(state, profile, pod)
    nominated = promised(scenario, pod.template.priority)
    if verdict.feasible and not nominated:
        return None
    might_help = None if nominated else sorted(verdict.infeasible.keys() - set(verdict.unresolvable))
    with compiled_alone(state, profile, pod, NodeView(state)) as alone:
        beside = [Nominated(state.pods[key].pod_class, node) for key, node in nominated]
        for key, node in nominated:
            vector = state.sums.vector(state.pods[key].spec)
            alone.snapshot.columns.requested[vector.columns, state.table.rows[node]] += vector.values
        preemptor = Preemptor(state, alone.snapshot, alone.slots)
        ask = partial(preemptor.candidates, alone.program)
        found, _ = ask(Decided(Budgets(state), nominated=beside))
        if by_node:
            of = {node: [each for each in beside if each.node == node] for node in state.table.names}
            plans = {node: ask(Decided(Budgets(state), nominated=some))[0] for node, some in of.items()}
            found = sorted((e for node, some in plans.items() for e in some if e.node == node), key=_rank)
    if found and not found[0].victims:
        return None
    if not may_preempt(pod, state.nodes, verdict.unresolvable):
        return Found(False, might_help, {}, None)
    candidates = {each.node: (list(each.victims), each.weight.violations) for each in found}
    return Found(True, might_help, candidates, found[0].node if found else None)


def _rank(plan: Planned) -> tuple[float, ...]:
    """Return what orders nodes, but for the seed."""
    violations, highest, priorities, victims, start_ms = plan.weight
    later = math.inf if start_ms is None else start_ms
    return violations, -math.inf if highest is None else highest, priorities, victims, -later


def told(verdict: Verdict) -> Found | None:
    """Return what `berth plan` tells of it; None where a node takes the pod as it is."""
    if verdict.feasible:
        return None
    candidates = {node: (found, verdict.pdb_violations[node]) for node, found in verdict.victims.items()}
    return Found(verdict.eligible_to_preempt, sorted(verdict.preemption_might_help), candidates, verdict.node)


def promised(scenario: Json, priority: int) -> list[tuple[str, str]]:
    """Return the pods to which a pod of a priority leaves the room that they were promised, with the node."""
    return [
        (name_of(each), each["status"]["nominatedNodeName"])
        for each in scenario["objects"]
        if each.get("status", {}).get("nominatedNodeName")
        if name_of(each) not in scenario["schedule"] and each["spec"].get("priority", 0) >= priority
    ]


def unlike(mine: Found | None, theirs: Preempting | None) -> Iterator[tuple[str, str]]:
    """Yield what differs: its kind, and both answers."""
    if mine is None or theirs is None:
        if mine is not None or theirs is not None:
            yield "fits", f"berth {mine}, upstream {theirs}"
        return
    if mine.is_eligible is not theirs.eligible:
        yield "eligible", f"berth {mine.is_eligible}, upstream {theirs.why or 'eligible'}"
        return
    if mine.might_help not in (None, theirs.might_help):
        yield "might-help", f"berth {mine.might_help}, upstream {theirs.might_help}"
    right = {node: (each.victims, each.violations) for node, each in theirs.candidates.items()}
    for node in sorted({*mine.candidates, *right}):
        if mine.candidates.get(node) != right.get(node):
            yield "victims", f"{node}: berth {mine.candidates.get(node)}, upstream {right.get(node)}"
            return
    if mine.chosen not in theirs.best and (mine.chosen is not None or theirs.best):
        yield "node", f"berth {mine.chosen}, upstream {theirs.best}"
