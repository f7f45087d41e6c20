"""Recount the classes of pods from the pods alone."""

from __future__ import annotations

from collections import Counter

from domain.model.marks import marks_of
from domain.state.cluster import ClusterState
from domain.state.pod_classes import PodClass
from domain.state.pods import PodEntry


def audit_classes(state: ClusterState) -> None:
    """Say of each class who is in it and where: found from the pods alone."""
    members: dict[PodClass, list[PodEntry]] = {}
    for pod in state.pods.values():
        if pod.pod_class is not None:
            members.setdefault(pod.pod_class, []).append(pod)
    assert set(members) == set(state.index)
    for each, pods in members.items():
        assert each.pods_count == len(pods)
        assert each.by_node == Counter(pod.node for pod in pods if pod.node)
        for pod in pods:
            assert each.namespace == pod.spec.namespace
            assert each.labels.items() <= pod.spec.labels.items()
            assert (each.marks, each.terminating) == (marks_of(pod.spec.template), pod.spec.terminating)
    marked = {mark for each in members for mark in each.marks}
    for mark in marked:
        carriers = [pod for pod in state.pods.values() if mark in marks_of(pod.spec.template)]
        assert state.index.pods_with(mark) == len(carriers)
        on_nodes = Counter[str]()
        for pod in carriers:
            on_nodes[pod.node] += marks_of(pod.spec.template)[mark]
        del on_nodes[""]
        assert state.index.nodes_with(mark) == on_nodes
