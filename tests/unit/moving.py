"""Plans whose pods are moved one after another, and what each filter says of that."""

from __future__ import annotations

import msgspec

from domain.engine.evaluate import evaluate
from domain.model.events import PodDeleted, PodUpserted
from domain.model.pods import PodSpec
from domain.state.cluster import ClusterState
from services.plan.objects import Given
from services.plan.optimising import Move
from services.plan.plan import Plan
from tests.builders import Json


def put(state: ClusterState, spec: PodSpec, node: str) -> None:
    """Delete a pod, and let it come again, on a node or waiting, with no devices of its choice."""
    state.apply(PodDeleted(spec.namespace, spec.name))
    state.apply(PodUpserted(msgspec.structs.replace(spec, node_name=node, devices=())))


def planned(manifests: list[Json]) -> tuple[Plan, frozenset[str]]:
    plan = Plan()
    for each in manifests:
        plan.add(Given("ADDED", each))
    decided = {each.pod.key for each in plan.place()}
    return plan, frozenset(key for key, each in plan.state.pods.items() if each.node and key not in decided)


def make(plan: Plan, running: frozenset[str], moves: list[Move]) -> None:
    """Make the moves of a plan, from what ran before, and ask every filter about each of them."""
    state = plan.state
    for key, each in list(state.pods.items()):
        if each.node and key not in running:
            put(state, each.spec, "")
    for move in moves:
        spec = state.pods[move.pod].spec
        assert (state.pods[move.pod].node or None) == move.source
        put(state, spec, "")
        if move.target is not None:
            verdict = evaluate(state, plan.profile_of(spec), state.pods[move.pod].spec)
            assert move.target in verdict.feasible, (move, verdict.infeasible.get(move.target))
            put(state, spec, move.target)
