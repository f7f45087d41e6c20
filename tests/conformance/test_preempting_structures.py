"""Do sums by priority, pruning, importance, victims and the order of candidates agree with published systems?

The thin drivers here put each case through the real classes. Where a case has what berth does not keep, its
driver says what stands for it.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from domain.engine.evaluate import compiled_alone
from domain.engine.preemption import Decided, Planned, Preemptor
from domain.engine.victims import NoBudgets, Victims, by_importance
from domain.manifests.profile import profile_from_manifest
from domain.model.events import NodeUpserted, PodDeleted, PodUpserted
from domain.model.pods import PodSpec, PodTemplate
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.state.cluster import ClusterState
from domain.state.pods import PodEntry
from domain.state.resources import CPU, MEMORY, PODS
from tests.conformance.tables import FIT_ONLY
from tests.conformance.tables import structure_cases as cases
from tests.values import node, pod

FIT = ProfilePlan(profile_from_manifest(FIT_ONLY))


def placed(name: str, priority: int, cpu: int, memory: int = 0, on: str = "n", version: int = 1) -> PodSpec:
    template = PodTemplate(requests={"cpu": cpu, "memory": memory}, priority=priority)
    return msgspec.structs.replace(pod(name, template), node_name=on, resource_version=version)


def cluster(pods: Sequence[PodSpec], cpu: int = 1_000_000, memory: int = 1_000_000) -> ClusterState:
    state = ClusterState(seed=1)
    state.apply(NodeUpserted(msgspec.structs.replace(node("n"), allocatable=offered(cpu, memory))))
    for each in pods:
        state.apply(PodUpserted(each))
    return state


def offered(cpu: int, memory: int = 1_000_000) -> dict[str, int]:
    return {"cpu": cpu, "memory": memory, "pods": 1_000}


def freed(victims: Victims, priority: int) -> dict[str, int]:
    sums = victims.band(priority).sums[:, 0]
    return {"cpu_m": int(sums[CPU]), "memory": int(sums[MEMORY]), "pods": int(sums[PODS])}


def preempt(state: ClusterState, waiting: PodSpec, claimed: frozenset[str] = frozenset()) -> list[Planned]:
    """Return the candidates for a pod, the best first."""
    state.apply(PodUpserted(waiting))
    with compiled_alone(state, FIT, waiting, NodeView(state)) as alone:
        preemptor = Preemptor(state, alone.snapshot, alone.slots)
        return preemptor.candidates(alone.program, Decided(claimed=claimed))[0]


def names(planned: Planned) -> list[str]:
    return [key.rpartition("/")[2] for key in planned.victims]


@pytest.mark.parametrize("case", cases("prefix-sum"))
def test_what_could_be_freed_below_a_priority(case: dict[str, Any]) -> None:
    state = cluster([placed(p["pod"], p["priority"], p["cpu_m"], p["memory"]) for p in case["pods"]])
    victims = Victims(state)
    victims.sync(frozenset(), NoBudgets())
    assert freed(victims, case["below_priority"]) == case["expect"]


@pytest.mark.parametrize("case", cases("prefix-sum-sequence"))
def test_the_same_sums_under_change(case: dict[str, Any]) -> None:
    state, known, answers = cluster([]), dict[str, list[int]](), []
    victims = Victims(state)
    for version, (op, *args) in enumerate(case["ops"], start=1):
        match op:
            case "ask":
                victims.sync(frozenset(), NoBudgets())
                answers.append(freed(victims, args[0]))
            case "remove":
                state.apply(PodDeleted("default", args[0]))
            case _:
                name, *numbers = args
                priority, cpu, memory = known[name] = [*numbers, *known.get(name, [])[len(numbers) :]]
                state.apply(PodUpserted(placed(name, priority, cpu, memory, version=version)))
    assert answers == case["expect"]["answers_in_order"]


@pytest.mark.parametrize("case", cases("prune"))
def test_a_node_is_skipped_where_nothing_helps(case: dict[str, Any]) -> None:
    """Gödel may count pods of equal priority; here that is a preemptor whose priority is one higher."""
    asked, room = case["preemptor"], case["node"]
    priority = asked["priority"] + case["count_equal_priority"]
    pods = [placed(p["pod"], p["priority"], p["cpu_m"], p["memory"]) for p in case["placed"]]
    state = cluster(pods, room["allocatable_cpu_m"], room["allocatable_memory"])
    victims = Victims(state)
    victims.sync(frozenset(), NoBudgets())
    sums, expect = freed(victims, priority), case["expect"]
    free = state.table.allocatable[:, 0] - state.table.requested[:, 0]
    assert free[CPU] + sums["cpu_m"] == expect["occupiable_cpu_m"]
    assert free[MEMORY] + sums["memory"] == expect["occupiable_memory"]
    waiting = placed("p", priority, asked["cpu_m"], asked["memory"], on="")
    state.apply(PodUpserted(waiting))
    with compiled_alone(state, FIT, waiting, NodeView(state)) as alone:
        plans = Preemptor(state, alone.snapshot, alone.slots).plan(alone.program)
    assert plans.ruled_out_count == expect["skip_node"]


@pytest.mark.parametrize("case", cases("eligible-priorities"))
def test_the_priorities_of_pods_that_could_be_evicted(case: dict[str, Any]) -> None:
    """Pods of the other class are left out; pods that are only assumed are pods that wait."""
    state, answers = cluster([]), []
    victims = Victims(state)
    for op, *args in case["ops"]:
        if op == "ask":
            victims.sync(frozenset(), NoBudgets())
            on_node = {each.spec.template.priority for each in victims.pods_on(0)}
            answers.append(sorted(on_node))
        elif op == "remove":
            state.apply(PodDeleted("default", args[0]))
        elif args[1]["class"] == case["class"]:
            on = "n" if args[1]["bound"] else ""
            state.apply(PodUpserted(placed(args[0], args[1]["priority"], 1, on=on)))
    assert answers == case["expect"]["answers_in_order"]


@pytest.mark.parametrize("case", cases("importance-order"))
def test_the_most_important_first(case: dict[str, Any]) -> None:
    entries = []
    for each in case["pods"]:
        spec = msgspec.structs.replace(placed(each["uid"], each["priority"], 1), uid=each["uid"])
        if each["started"] is not None:
            moment = datetime.datetime.fromtimestamp(each["started"], datetime.UTC)
            spec = msgspec.structs.replace(spec, start_time=moment.isoformat())
        entries.append(PodEntry(spec))
    assert [each.spec.uid for each in reversed(by_importance(entries))] == case["expect"][
        "least_important_first"
    ]


def spared(case: Mapping[str, Any]) -> set[str]:
    """Return whom Gödel spares: pods not evictable, and guarded ones once the budget is gone.

    The least important take from it first. For kube-scheduler, and here, a budget makes such pods the last
    to go (``pdb_violation_grouping``).
    """
    left, found = case["disruption_budget"], set()
    for each in sorted(case["placed"], key=lambda each: each["priority"]):
        if each["priority"] >= case["preemptor"]["priority"]:
            continue
        if not each.get("evictable", True) or (each.get("guarded") and not left):
            found.add(each["pod"])
        elif each.get("guarded"):
            left -= 1
    return found


@pytest.mark.parametrize("case", cases("victims"))
def test_victims_on_one_node(case: dict[str, Any]) -> None:
    """Whom Gödel spares has the preemptor's priority here: nobody of that goes."""
    asked, stays = case["preemptor"], spared(case)
    pods = [
        placed(p["pod"], asked["priority"] if p["pod"] in stays else p["priority"], p["cpu"])
        for p in case["placed"]
    ]
    found = preempt(cluster(pods, case["node_cpu"]), placed("p", asked["priority"], asked["cpu"], on=""))
    expect = case["expect"]
    assert (not found) is expect.get("impossible", False)
    for planned in found:
        victims = names(planned)
        assert victims == expect["victims_most_important_first"]
        guarded = {p["pod"] for p in case["placed"] if p.get("guarded")}
        assert len(guarded & set(victims)) == expect["budget_really_spent"]


@pytest.mark.parametrize("case", cases("claimed-victims"))
def test_a_claimed_victim_is_not_offered_again(case: dict[str, Any]) -> None:
    """The claims are those of the case. Who is claimed is gone for the next preemptor, whoever claimed it."""
    claims: dict[str, list[str]] = {}
    for op, name, *args in case["ops"]:
        if op == "assume":
            claims[name] = args[0]["victims"]
        else:
            claims.pop(name, None)
    by_victim = {victim: [name] for name, victims in claims.items() for victim in victims}
    assert ({"n": by_victim} if by_victim else {}) == case["expect"]["claims"]
    state = cluster([placed(name, 1, 4) for name in ("p", "p1", "p2", "p3")], cpu=16)
    claimed = frozenset(f"default/{victim}" for victim in by_victim)
    (found,) = preempt(state, placed("new", 5, 12, on=""), claimed)
    assert not claimed & set(found.victims)
    assert len(found.victims) == 3 - len(claimed)


@pytest.mark.parametrize("case", cases("candidate-order"))
def test_the_order_of_candidates(case: dict[str, Any]) -> None:
    """The pods on a node are such that all of them must go. Of equals the seed prefers one."""
    state = ClusterState(seed=1)
    for each in case["candidates"]:
        count = len(each["victim_priorities"])
        spec = msgspec.structs.replace(node(each["node"]), allocatable=offered(12))
        state.apply(NodeUpserted(spec))
        for i, priority in enumerate(each["victim_priorities"]):
            state.apply(PodUpserted(placed(f"{each['node']}-{i}", priority, 12 // count, on=each["node"])))
    found = preempt(state, placed("new", 100, 12, on=""))
    priorities = [each["victim_priorities"] for each in case["candidates"]]
    if priorities[0] == priorities[1]:
        assert found[0].weight == found[1].weight
    else:
        assert [each.node for each in found] == case["expect"]["order"]
