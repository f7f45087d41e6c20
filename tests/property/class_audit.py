"""Recount the classes of pods from the pods alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from domain.model.anchors import EVERY
from domain.model.marks import marks_of, terms_of
from domain.model.selectors import LabelSelector
from domain.state.cluster import ClusterState
from domain.state.pod_classes import PodClass
from domain.state.pods import PodEntry
from domain.state.watching import ANOTHER

_Asked = set[tuple[str, LabelSelector]]


def selectors_of(state: ClusterState) -> set[tuple[str, LabelSelector]]:
    """Return every selector that a pod or an object has, with the namespaces that it looks at."""
    found: set[tuple[str, LabelSelector | None]] = set()
    for pod in state.pods.values():
        template, namespace = pod.spec.template, pod.spec.namespace
        found |= {(namespace, each.selector) for each in template.spread}
        for mark in terms_of(template):
            term = mark.term
            everywhere = term.namespace_selector is not None
            found |= {(where, term.selector) for where in ((EVERY,) if everywhere else term.namespaces)}
    for (_, namespace), of_kind in state.config.selectors._selectors.items():
        found |= {(namespace, selector) for selector in of_kind.values()}
    budgets = state.config.selectors.budgets
    found |= {(namespace, budget.selector) for (namespace, _), budget in budgets.items()}
    return {(where, selector) for where, selector in found if selector is not None}


def _audit_labels(state: ClusterState, members: Mapping[PodClass, list[PodEntry]], asked: _Asked) -> None:
    """Say of each class what selectors see of it: all that its pods show, and no value that none mentions."""
    for each, pods in members.items():
        looking = [selector for where, selector in asked if where in (EVERY, each.namespace)]
        mentioned = {
            (r.key, value) for selector in looking for r in selector.requirements for value in r.values
        }
        assert {item for item in each.labels.items() if item[1] != ANOTHER} <= mentioned
        for pod in pods:
            shown = dict.fromkeys(each.labels, ANOTHER) | dict(pod.spec.labels.items() & mentioned)
            assert {key: value for key, value in shown.items() if key in each.labels} == each.labels
            for selector in looking:
                assert selector.matches(each.labels) == selector.matches(pod.spec.labels)


def audit_classes(state: ClusterState, also: Iterable[tuple[str, LabelSelector]] = ()) -> None:
    """Say of each class who is in it and where: found from the pods alone; ``also`` are other selectors."""
    members: dict[PodClass, list[PodEntry]] = {}
    for pod in state.pods.values():
        if pod.pod_class is not None:
            members.setdefault(pod.pod_class, []).append(pod)
    assert set(members) == set(state.index)
    for each, pods in members.items():
        assert each.pods_count == len(pods)
        assert each.by_node == Counter(pod.node for pod in pods if pod.node)
        assert each.placed_count == sum(each.by_node.values())
        for pod in pods:
            assert each.namespace == pod.spec.namespace
            assert (each.marks, each.terminating) == (marks_of(pod.spec.template), pod.spec.terminating)
    _audit_labels(state, members, {*selectors_of(state), *also})
    marked = {mark for each in members for mark in each.marks}
    for mark in marked:
        carriers = [pod for pod in state.pods.values() if mark in marks_of(pod.spec.template)]
        assert state.index.pods_with(mark) == len(carriers)
        on_nodes = Counter[str]()
        for pod in carriers:
            on_nodes[pod.node] += marks_of(pod.spec.template)[mark]
        del on_nodes[""]
        assert state.index.nodes_with(mark) == on_nodes
