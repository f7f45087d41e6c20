"""What refuses a pod on each node: the plain reading of a profile's filters.

Two things are told apart. The filter that refuses a node first decides the node's reason. Whether any filter
refuses it for good decides whether evicting pods could help there: that does not change with the pods on the
node, so a verdict that is repeated later, or after a restart, stays true.
"""

from __future__ import annotations

import numpy as np

from domain.model.pods import PodTemplate
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


class Refusals:
    """The first reason per row, and whether any is for good.

    ``codes`` int64[N] is 0 where no filter refused yet, else a reason's number. ``hopeless`` bool[N] is true
    where some filter refuses whatever pods leave.
    """

    def __init__(self, count: int) -> None:
        self.codes = np.zeros(count, dtype=np.int64)
        self.hopeless = np.zeros(count, dtype=np.bool_)
        self.reasons: list[Reason] = []

    @property
    def hopeless_count(self) -> int:
        """On how many nodes evicting pods could not help."""
        return int(self.hopeless.sum())

    def add(self, rows: np.ndarray, reason: Reason) -> None:
        """Refuse rows for a reason; rows that were refused before keep their first reason."""
        self.reasons.append(reason)
        if reason.unresolvable:
            self.hopeless[rows] = True
        first = rows[self.codes[rows] == 0]
        self.codes[first] = len(self.reasons)


def refusals_of(
    plan: ProfilePlan | None, template: PodTemplate, held_by: tuple[str, ...], view: NodeView
) -> Refusals:
    """Ask every filter about every node.

    Cost: O(N) per filter, in columns.
    """
    rows = view.all_rows()
    refusals = Refusals(len(rows))
    for code in held_by:
        refusals.add(rows, Reason(code, unresolvable=True))
    for plugin in () if plan is None else plan.filters:
        _ask(plugin, template, view, refusals)
    return refusals


def _ask(plugin: Plugin, template: PodTemplate, view: NodeView, refusals: Refusals) -> None:
    if isinstance(plugin, StaticFilter):
        refused = plugin.refuse(template, view, view.all_rows())
        for i, reason in enumerate(plugin.reasons if refused is not None else (), start=1):
            refusals.add(np.flatnonzero(refused == i), reason)
    if isinstance(plugin, OccupancyFilter) and plugin.concerns(template):
        rows, counts = plugin.counts(template, view)
        refusals.add(rows[counts >= plugin.allowed(template, view)], plugin.reason)
    if isinstance(plugin, LimitFilter):
        for limit in plugin.limits(template, view.resources):
            _ask_limit(limit, view, refusals)
    if isinstance(plugin, ResourceFilter):
        _ask_for_room(plugin, template, view, refusals)


def _ask_limit(limit: Limit, view: NodeView, refusals: Refusals) -> None:
    every = view.all_rows()
    bound = limit.percent * view.column(view.table.allocatable, limit.capacity, every)
    used = np.full(len(every), limit.value)
    for column in limit.columns:
        used += view.column(view.table.requested, column, every)
    passed, hopeless = used * 100.0 > bound, limit.value * 100.0 > bound
    refusals.add(np.flatnonzero(passed & ~hopeless), Reason(limit.reason, unresolvable=False))
    refusals.add(np.flatnonzero(passed & hopeless), Reason(limit.reason, unresolvable=True))


def _ask_for_room(plugin: ResourceFilter, template: PodTemplate, view: NodeView, refusals: Refusals) -> None:
    table, demands = view.table, plugin.demands(template, view.resources)
    columns = np.array([demand.column for demand in demands], dtype=np.int64)
    values = np.array([demand.value for demand in demands], dtype=np.int64)[:, None]
    offered = table.allocatable[columns, : table.count]
    short = values > offered - table.requested[columns, : table.count]
    hopeless = (short & (values > offered))[1:].any(axis=0)  # the first demand is the pod itself
    # One reason per combination of what is short; nodes fall into few of them.
    seen = np.vstack([short, hopeless])
    for pattern in np.unique(seen[:, short.any(axis=0)], axis=1).T:
        names = [demand.name for demand, is_short in zip(demands, pattern, strict=False) if is_short]
        same = np.flatnonzero((seen == pattern[:, None]).all(axis=0))
        refusals.add(same, plugin.reason(names, unresolvable=bool(pattern[-1])))
