"""What a waiting pod could ask for less: gates, selectors, affinity, ports, spread, terms over other pods."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from domain.cures.changes import (
    Change,
    Cure,
    DropPort,
    DropRequirement,
    DropSelector,
    DropTerm,
    LiftGates,
    RelaxSpread,
)
from domain.cures.trials import Trials, template_after
from domain.model.pods import NodeSelectorTerm, PodTemplate, Requirement
from domain.plugins.node_selectors import match_any_term
from domain.state.table import NodeTable

_SKEW_MAX = 1 << 20


def relaxations(trials: Trials, template: PodTemplate) -> Iterator[Change]:
    """Yield each single demand of a template that could go; none of them is checked yet."""
    table = trials.state.table
    if template.gates:
        yield LiftGates(gates=template.gates)
    for key, value in sorted(template.node_selector.items()):
        term = NodeSelectorTerm(match_expressions=(Requirement(key, "In", (value,)),))
        yield DropSelector(key=key, value=value, excluded_count=_excluded(table, term))
    affinity = template.node_affinity
    for at, term in enumerate((affinity.required if affinity else None) or ()):
        for each in term.match_expressions:
            excluded = _excluded(table, NodeSelectorTerm(match_expressions=(each,)))
            yield DropRequirement(term=at, requirement=each, is_field=False, excluded_count=excluded)
        for each in term.match_fields:
            excluded = _excluded(table, NodeSelectorTerm(match_fields=(each,)))
            yield DropRequirement(term=at, requirement=each, is_field=True, excluded_count=excluded)
    for port in template.host_ports:
        yield DropPort(port=port)
    for at, constraint in enumerate(template.spread):
        if constraint.hard:
            yield RelaxSpread(at=at, topology_key=constraint.topology_key, max_skew=None)
    for is_anti, terms in ((True, template.pod_anti_affinity), (False, template.pod_affinity)):
        for at, of_pods in enumerate(terms.required if terms else ()):
            yield DropTerm(is_anti=is_anti, at=at, topology_key=of_pods.topology_key)


def _excluded(table: NodeTable, term: NodeSelectorTerm) -> int:
    matched = match_any_term((term,), table, np.arange(table.count))
    return int(table.count - np.count_nonzero(matched))


def sharpened(trials: Trials, cure: Cure) -> Cure:
    """Return a cure by which a constraint was dropped with the smallest skew that cures as many pods."""
    for place, each in enumerate(cure.changes):
        if not isinstance(each, RelaxSpread) or each.max_skew is not None:
            continue
        before = template_after(trials.pod.template, cure.changes[:place])
        low, high = before.spread[each.at].max_skew, 0
        best: Cure | None = None
        step = 1
        while best is None and low + step <= _SKEW_MAX and step <= 2 * trials.tried_count:
            best = _with_skew(trials, cure, place, high := low + step)
            low, step = (low, step) if best else (high, step * 2)
        while best is not None and high - low > 1:
            middle = (low + high) // 2
            found = _with_skew(trials, cure, place, middle)
            best, low, high = (found, low, middle) if found else (best, middle, high)
        cure = best or cure
    return cure


def _with_skew(trials: Trials, cure: Cure, place: int, max_skew: int) -> Cure | None:
    of = cure.changes[place]
    assert isinstance(of, RelaxSpread)
    change = RelaxSpread(at=of.at, topology_key=of.topology_key, max_skew=max_skew)
    found = trials.cure(*cure.changes[:place], change, *cure.changes[place + 1 :])
    return found if found and found.pods_count >= cure.pods_count else None
