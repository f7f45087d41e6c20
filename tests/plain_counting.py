"""The plain reading of rules and values: every counter is counted anew, and nothing is compiled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from domain.kernels import arrays as kernel
from domain.model.events import NodeUpserted
from domain.model.marks import Mark, TermMark, marks_of, terms_of
from domain.model.nodes import NodeSpec
from domain.model.pods import Controller, PodSpec
from domain.model.selectors import LabelSelector
from domain.plugins.base import Reason
from domain.plugins.counting import CounterSpec, Incoming, Rule, Value
from domain.state.cluster import ClusterState


@dataclass(frozen=True)
class Counted:
    """A placed pod, alone in its class."""

    namespace: str
    labels: Mapping[str, str]
    terminating: bool
    controller: Controller | None
    marks: Mapping[Mark, int]


def counted(pod: PodSpec) -> Counted:
    """Return a pod as weighers see it."""
    return Counted(pod.namespace, pod.labels, pod.terminating, pod.controller, marks_of(pod.template))


@dataclass
class World:
    """Nodes, placed pods (by node), and the objects that select pods: what plugins may ask about."""

    nodes: Sequence[NodeSpec]
    placed: list[tuple[PodSpec, str]] = field(default_factory=list)
    waiting: list[PodSpec] = field(default_factory=list)
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)
    selected: dict[str, list[LabelSelector]] = field(default_factory=dict)  # by Services, per namespace
    owners: dict[tuple[str, str, str], LabelSelector] = field(default_factory=dict)
    version: int = 0

    def terms_near(self, namespace: str, labels: Mapping[str, str]) -> list[TermMark]:
        every = [*(pod for pod, _ in self.placed), *self.waiting]
        return list(dict.fromkeys(term for pod in every for term in terms_of(pod.template)))

    def pods_with(self, mark: Mark) -> int:
        every = [*(pod for pod, _ in self.placed), *self.waiting]
        return sum(mark in marks_of(pod.template) for pod in every)

    def admits(self, namespace: str, mark: TermMark) -> bool:
        return True

    def services(self, namespace: str) -> list[LabelSelector]:
        return self.selected.get(namespace, [])

    def owner(self, namespace: str, controller: Controller) -> LabelSelector | None:
        return self.owners.get((controller.kind, namespace, controller.name))

    def incoming(self, pod: PodSpec) -> Incoming:
        """Return a pod as plugins see it."""
        return Incoming(pod.template, pod.namespace, pod.labels, pod.controller, self)

    # ----------------------------------------------------------------------------------- counters

    def counts(self, spec: CounterSpec) -> dict[str, int]:
        """Return the count of each domain that has an eligible node."""
        eligible = self._eligible(spec)
        found = {
            d: 0 for each in self.nodes if each.name in eligible and (d := counting(spec, each)) is not None
        }
        by_name = {each.name: each for each in self.nodes}
        for pod, name in self.placed:
            where = counting(spec, by_name[name])
            if name in eligible and where is not None:
                found[where] += spec.weigher.weigh(counted(pod), self.namespaces)
        return found

    def _eligible(self, spec: CounterSpec) -> set[str]:
        if spec.eligible is None:
            return {each.name for each in self.nodes}
        state = ClusterState(seed=1)
        for each in self.nodes:
            state.apply(NodeUpserted(each))
        among = spec.eligible.among(state.table, np.arange(state.table.count))
        return {name for name, is_in in zip(state.table.names, among.tolist(), strict=False) if is_in}

    def refusals(self, rules: Sequence[Rule]) -> dict[str, Reason]:
        """Return the reason of each node that a rule refuses: of the first one."""
        tables = [self.counts(rule.counter) for rule in rules]
        needed = [t for t, rule in zip(tables, rules, strict=True) if rule.kind == kernel.NEEDED]
        is_first = not any(any(table.values()) for table in needed)
        found: dict[str, Reason] = {}
        for node in self.nodes:
            for rule, table in zip(rules, tables, strict=True):
                where = domain(rule.counter, node)
                reason = rule.missing if where is None else None
                if where is not None and not _passes(rule, table, table.get(where, 0), is_first):
                    reason = rule.reason
                if reason is not None:
                    found.setdefault(node.name, reason)
        return found

    # ------------------------------------------------------------------------------------- scores

    def spread_scores(self, values: Sequence[Value], feasible: Sequence[str]) -> dict[str, int]:
        """Return the score of each feasible node by values of kind ``SPREAD_SCORE``."""
        nodes = [each for each in self.nodes if each.name in feasible]
        rated = [
            each
            for each in nodes
            if not any(value.is_required and domain(value.counter, each) is None for value in values)
        ]
        raw = {each.name: 0.0 for each in rated}
        for value in values:
            size = len(rated) if value.counter.by_row else len({counting(value.counter, n) for n in rated})
            table = self.counts(value.counter)
            for each in rated:
                where = domain(value.counter, each)
                if where is not None:
                    raw[each.name] += table.get(where, 0) * math.log(size + 2) + value.max_skew - 1
        whole = {name: math.floor(number + 0.5) for name, number in raw.items()}
        high, low = max(whole.values(), default=0), min(whole.values(), default=0)
        normal = {name: 100 * (high + low - n) // high if high else 100 for name, n in whole.items()}
        return dict.fromkeys(feasible, 0) | normal

    def affinity_scores(self, values: Sequence[Value], feasible: Sequence[str]) -> dict[str, int]:
        """Return the score of each feasible node by values of kind ``AFFINITY_SCORE``."""
        raw = dict.fromkeys(feasible, 0)
        for value in values:
            table = self.counts(value.counter)
            for each in self.nodes:
                where = domain(value.counter, each)
                if each.name in raw and where is not None:
                    raw[each.name] += table.get(where, 0)
        high, low = max(raw.values()), min(raw.values())
        return {name: int(100.0 * ((n - low) / (high - low))) if high > low else 0 for name, n in raw.items()}


def domain(spec: CounterSpec, node: NodeSpec) -> str | None:
    """Return the domain of a node, None where it has none."""
    if not spec.by_row:
        return node.labels.get(spec.topology_key)
    return node.name if not spec.topology_key or spec.topology_key in node.labels else None


def counting(spec: CounterSpec, node: NodeSpec) -> str | None:
    """Return the domain in which pods on a node count: without the key it may be that of the empty value."""
    found = domain(spec, node)
    return "" if found is None and spec.missing_is_empty else found


def _passes(rule: Rule, table: Mapping[str, int], count: int, is_first: bool) -> bool:
    if rule.kind == kernel.NEEDED:
        return count >= 1 or (rule.bootstraps and is_first)
    if rule.kind == kernel.SPREAD:
        enough = table and len(table) >= rule.min_domains
        return count - (min(table.values()) if enough else 0) <= rule.bound
    return count <= rule.bound
