"""One pod against every node: each node's first failing filter, each feasible node's score with its parts.

This is the plain reading of a profile. The placing kernel is many times faster and must choose the same node
(``tests/oracle/test_evaluate.py``).
"""

from __future__ import annotations

import msgspec
import numpy as np

from domain.cycle.explanation import warnings_of
from domain.cycle.queue import WaitingGroup
from domain.kernels.ties import salted
from domain.model.decisions import Outcome, is_unresolvable
from domain.model.pods import PodSpec, PodTemplate
from domain.model.signature import tie_salt
from domain.plugins.base import (
    Limit,
    LimitFilter,
    OccupancyFilter,
    Plugin,
    Reason,
    ResourceFilter,
    StaticFilter,
)
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
        Infeasible nodes that evicting pods could not make feasible.
    held_by : list of str
        Reason codes for which no node may take the pod, whatever it offers: an unknown profile, scheduling
        gates, constraints that are not honoured yet.
    warnings : list of str
        Codes of what the pod asks for and nobody looks at.
    scores : dict
        Feasible node -> sum of normalised score times weight.
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


class _Refusals:
    """The first reason per row.

    ``codes`` int64[N] is 0 where no filter refused yet, else a reason's number.
    """

    def __init__(self, count: int) -> None:
        self.codes = np.zeros(count, dtype=np.int64)
        self.reasons: list[Reason] = []

    def add(self, rows: np.ndarray, reason: Reason) -> None:
        """Refuse rows for a reason; rows that were refused before keep their first reason."""
        self.reasons.append(reason)
        first = rows[self.codes[rows] == 0]
        self.codes[first] = len(self.reasons)


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
    refusals = _filter(state, plan, pod, held_by, view)
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
    outcome = Outcome.UNSCHEDULABLE if node is None else Outcome.BOUND
    if is_unresolvable(held=bool(held_by), nodes_count=table.count, unresolvable_count=len(unresolvable)):
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
        scores=dict(zip(names, totals.tolist(), strict=True)),
        score_parts={
            name: {label: float(part[i]) for label, part in parts.items()} for i, name in enumerate(names)
        },
        weights={} if plan is None else {use.label: use.weight for use in plan.scores},
    )


# ---------------------------------------------------------------------------------------------- filters


def _filter(
    state: ClusterState,
    plan: ProfilePlan | None,
    pod: PodSpec,
    held_by: tuple[str, ...],
    view: NodeView,
) -> _Refusals:
    state.table.ensure_columns()
    rows = np.arange(state.table.count)
    refusals = _Refusals(len(rows))
    for code in held_by:
        refusals.add(rows, Reason(code, unresolvable=True))
    for plugin in () if plan is None else plan.filters:
        _ask(plugin, state, pod.template, view, refusals)
    return refusals


def _ask(
    plugin: Plugin, state: ClusterState, template: PodTemplate, view: NodeView, refusals: _Refusals
) -> None:
    if isinstance(plugin, StaticFilter):
        refused = plugin.refuse(template, view, view.all_rows())
        for i, reason in enumerate(plugin.reasons if refused is not None else (), start=1):
            refusals.add(np.flatnonzero(refused == i), reason)
    if isinstance(plugin, OccupancyFilter) and plugin.concerns(template):
        rows, counts = plugin.counts(template, view)
        refusals.add(rows[counts >= plugin.allowed(template, view)], plugin.reason)
    if isinstance(plugin, LimitFilter):
        for limit in plugin.limits(template, state.resources):
            _ask_limit(limit, view, refusals)
    if isinstance(plugin, ResourceFilter):
        _ask_for_room(plugin, state, template, refusals)


def _ask_limit(limit: Limit, view: NodeView, refusals: _Refusals) -> None:
    every = view.all_rows()
    bound = limit.percent * view.column(view.table.allocatable, limit.capacity, every)
    used = np.full(len(every), limit.value)
    for column in limit.columns:
        used += view.column(view.table.requested, column, every)
    passed, hopeless = used * 100.0 > bound, limit.value * 100.0 > bound
    refusals.add(np.flatnonzero(passed & ~hopeless), Reason(limit.reason, unresolvable=False))
    refusals.add(np.flatnonzero(passed & hopeless), Reason(limit.reason, unresolvable=True))


def _ask_for_room(
    plugin: ResourceFilter, state: ClusterState, template: PodTemplate, refusals: _Refusals
) -> None:
    demands = plugin.demands(template, state.resources)
    state.table.ensure_columns()  # a demand may name a resource that was never seen
    columns = np.array([demand.column for demand in demands], dtype=np.int64)
    values = np.array([demand.value for demand in demands], dtype=np.int64)[:, None]
    offered = state.table.allocatable[columns, : state.table.count]
    short = values > offered - state.table.requested[columns, : state.table.count]
    hopeless = (short & (values > offered)).any(axis=0)
    # One reason per combination of what is short; nodes fall into few of them.
    seen = np.vstack([short, hopeless])
    for pattern in np.unique(seen[:, short.any(axis=0)], axis=1).T:
        names = [state.resources.name(column) for column in columns[pattern[:-1]].tolist()]
        same = np.flatnonzero((seen == pattern[:, None]).all(axis=0))
        refusals.add(same, plugin.reason(names, unresolvable=bool(pattern[-1])))


# ----------------------------------------------------------------------------------------------- scores


def _score(
    plan: ProfilePlan | None, template: PodTemplate, view: NodeView, rows: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the normalised scores per plugin and their weighted sum, float64[len(rows)] each."""
    parts: dict[str, np.ndarray] = {}
    totals = np.zeros(len(rows))
    if plan is None:
        return parts, totals
    for use in plan.scores:
        parts[use.label] = use.plugin.normalise(use.plugin.raw(template, view, rows))
    # Summed in the kernel's order: the last bit of a sum can decide between two nodes.
    in_order = (
        *plan.static_scores, *plan.normalised_scores, *plan.resource_scores, *plan.variance_scores
    )  # fmt: skip
    for use in in_order:
        totals = totals + use.weight * parts[use.label]
    return parts, totals


def _winner(totals: np.ndarray, ties: np.ndarray, signature: bytes) -> int:
    """Return the position of the highest score; of equals the smallest tie value, salted by the group."""
    best = np.flatnonzero(totals == totals.max())
    return int(best[np.argmin(salted(ties[best], tie_salt(signature)))])
