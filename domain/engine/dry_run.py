"""What preemption could do for one pod that finds no node; nothing is evicted."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from domain.engine.budgets import Budgets
from domain.engine.evaluate import BudgetGroups, Eviction, Verdict, compiled_alone
from domain.engine.preemption import BEST, Decided, Planned, Preemptor, may_preempt
from domain.model.pods import PodSpec
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.state.cluster import ClusterState


def with_preemption(
    verdict: Verdict, state: ClusterState, plan: ProfilePlan | None, pod: PodSpec, view: NodeView
) -> Verdict:
    """Add to the verdict of a waiting pod what preemption could do, on the cluster that gave the verdict.

    Cost: O(nodes) where a node is feasible or no pod may be evicted, else O(pods) per filter.
    """
    eligible = may_preempt(pod, state.nodes, verdict.unresolvable)
    if verdict.feasible or verdict.held_by or plan is None:
        return msgspec.structs.replace(verdict, eligible_to_preempt=eligible)
    hopeless = set(verdict.unresolvable)
    helped = [name for name in verdict.infeasible if name not in hopeless]
    verdict = msgspec.structs.replace(verdict, eligible_to_preempt=eligible, preemption_might_help=helped)
    if not eligible:
        return verdict
    with compiled_alone(state, plan, pod, view) as alone:
        preemptor = Preemptor(state, alone.snapshot, alone.slots)
        found, (violating, others) = preemptor.candidates(alone.program, Decided(Budgets(state)))
    return msgspec.structs.replace(
        verdict,
        node=found[0].node if found else None,
        victims={each.node: list(each.victims) for each in found},
        pdb_violations={each.node: each.weight.violations for each in found},
        pdb_groups=BudgetGroups(violating=sorted(violating), non_violating=sorted(others)),
        evictions=[_eviction(each) for each in found[:BEST]],
    )


def with_gang_preemption(verdict: Verdict, plans: Mapping[str, Planned]) -> Verdict:
    """Add to the verdict of a pod whose gang waits where it would be nominated, by the key of each pod."""
    plan = plans.get(verdict.pod)
    if plan is None:
        return msgspec.structs.replace(verdict, eligible_to_preempt=bool(plans))
    return msgspec.structs.replace(
        verdict,
        eligible_to_preempt=True,
        victims={plan.node: list(plan.victims)},
        pdb_violations={plan.node: plan.weight.violations},
        evictions=[_eviction(plan)],
    )


def _eviction(planned: Planned) -> Eviction:
    weight = planned.weight
    return Eviction(
        node=planned.node,
        victims=list(planned.victims),
        violations=weight.violations,
        highest_priority=weight.highest_priority,
        priorities_sum=weight.priorities_sum,
        earliest_start_ms=weight.earliest_start_ms,
    )
