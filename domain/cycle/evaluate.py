"""One pod against every node: each node's first failing filter, each feasible node's score with its parts.

This is the plain reading of a profile. The placing kernel is many times faster and must choose the same node
(``tests/oracle/test_evaluate.py``).
"""

from __future__ import annotations

import msgspec
import numpy as np

from domain.cycle.explanation import warnings_of
from domain.cycle.queue import WaitingGroup
from domain.cycle.refusals import refusals_of
from domain.kernels.ties import salted
from domain.kernels.totals import whole_column
from domain.model.decisions import Outcome, is_unresolvable
from domain.model.pods import PodSpec, PodTemplate
from domain.model.signature import tie_salt
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.state.cluster import ClusterState


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod would get.

    Attributes
    ----------
    pod : str
        ``namespace/name``.
    outcome : Outcome
        ``bound``, ``unschedulable`` (no node now) or ``unresolvable`` (not even with all other pods gone).
    node : str or None
        The best node; of equals the one that the seed prefers.
    feasible : list of str
        Nodes that pass every filter, in their order of arrival.
    infeasible : dict
        Every other node, with the reason code of its first failing filter in the profile's order.
    unresolvable : list of str
        Infeasible nodes whose first failing filter could not be cured by evicting pods.
    held_by : list of str
        Reason codes for which no node may take the pod, whatever it offers: an unknown profile, scheduling
        gates, constraints that are not honoured yet.
    warnings : list of str
        Codes of what the pod asks for and nobody looks at.
    scores : dict
        Feasible node -> sum of normalised score times weight. The best node has the highest total, which is
        the same sum in whole numbers of 2^-20.
    score_parts : dict
        Feasible node -> plugin -> normalised score, before its weight.
    weights : dict
        Plugin -> weight.
    """

    pod: str
    outcome: Outcome
    node: str | None
    feasible: list[str]
    infeasible: dict[str, str]
    unresolvable: list[str]
    held_by: list[str]
    warnings: list[str] = []
    scores: dict[str, float]
    score_parts: dict[str, dict[str, float]]
    weights: dict[str, float]


def evaluate(
    state: ClusterState, plan: ProfilePlan | None, pod: PodSpec, view: NodeView | None = None
) -> Verdict:
    """Evaluate a waiting pod over all nodes, and change nothing.

    Parameters
    ----------
    state : ClusterState
        The nodes, and the pods that count on them.
    plan : ProfilePlan or None
        Filters in order, scores with weights. None where the pod names a profile that does not exist: then
        every node refuses it.
    pod : PodSpec
        The pod, whose node name is empty.
    view : NodeView, optional
        What scores read of the nodes. It is needed where measured usage matters.

    Cost: O(N) per plugin, in columns where the plugin's data is columns.
    """
    table = state.table
    view = view or NodeView(state)
    held_by = WaitingGroup(pod.signature, pod.template, plan).held_by
    refusals = refusals_of(plan, pod.template, held_by, view)
    order = np.argsort(table.ordinal[: table.count], kind="stable")
    feasible = order[refusals.codes[order] == 0]
    parts, totals = _score(plan, pod.template, view, feasible)
    names = [table.names[row] for row in feasible.tolist()]
    refused = [(table.names[row], refusals.codes[row]) for row in order.tolist() if refusals.codes[row]]
    infeasible = {name: refusals.reasons[code - 1].code for name, code in refused}
    unresolvable = [name for name, code in refused if refusals.reasons[code - 1].unresolvable]
    node = None
    if names:
        node = names[_winner(totals, table.tie[feasible], pod.signature)]
    of = {name: {label: float(part[i]) for label, part in parts.items()} for i, name in enumerate(names)}
    weights = {} if plan is None else {use.label: use.weight for use in plan.scores}
    outcome = Outcome.UNSCHEDULABLE if node is None else Outcome.BOUND
    if is_unresolvable(held=bool(held_by), nodes_count=table.count, hopeless_count=refusals.hopeless_count):
        outcome = Outcome.UNRESOLVABLE
    return Verdict(
        pod=pod.key,
        outcome=outcome,
        node=node,
        feasible=names,
        infeasible=infeasible,
        unresolvable=unresolvable,
        held_by=list(held_by),
        warnings=list(warnings_of(plan, pod.template) or ()),
        scores={name: sum(weights[label] * part for label, part in of[name].items()) for name in names},
        score_parts=of,
        weights=weights,
    )


# ----------------------------------------------------------------------------------------------- scores


def _score(
    plan: ProfilePlan | None, template: PodTemplate, view: NodeView, rows: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the normalised scores per plugin, float64[len(rows)] each, and the totals, int64[len(rows)]."""
    parts: dict[str, np.ndarray] = {}
    totals = np.zeros(len(rows), dtype=np.int64)
    if plan is None:
        return parts, totals
    for use in plan.scores:
        parts[use.label] = use.plugin.normalise(use.plugin.raw(template, view, rows))
        totals += whole_column(parts[use.label], use.weight)
    return parts, totals


def _winner(totals: np.ndarray, ties: np.ndarray, signature: bytes) -> int:
    """Return the position of the highest score; of equals the smallest tie value, salted by the group."""
    best = np.flatnonzero(totals == totals.max())
    return int(best[np.argmin(salted(ties[best], tie_salt(signature)))])
