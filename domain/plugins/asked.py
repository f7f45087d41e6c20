"""What a pod may ask of its profile, and the plugin that looks at it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from domain.model.pods import NodeAffinity, PodTemplate
from domain.model.selectors import PodAffinity

_NO_NODES, _NO_PODS = NodeAffinity(), PodAffinity()


class _Asked(NamedTuple):
    """A code of ``domain.manifests.codes.IGNORED``, what looks at it, and whether a template asks for it."""

    code: str
    plugin: str
    is_asked: Callable[[PodTemplate], object]


_OF_FILTERS = (
    _Asked("node-selector", "NodeAffinity", lambda pod: pod.node_selector),
    _Asked("required-node-affinity", "NodeAffinity", lambda pod: _of_nodes(pod).required is not None),
    _Asked("host-ports", "NodePorts", lambda pod: pod.host_ports),
    _Asked("topology-spread", "PodTopologySpread", lambda pod: any(each.hard for each in pod.spread)),
    _Asked("pod-affinity", "InterPodAffinity", lambda pod: (pod.pod_affinity or _NO_PODS).required),
    _Asked("pod-anti-affinity", "InterPodAffinity", lambda pod: (pod.pod_anti_affinity or _NO_PODS).required),
)
_OF_SCORES = (
    _Asked("preferred-node-affinity", "NodeAffinity", lambda pod: _of_nodes(pod).preferred),
    _Asked(
        "preferred-topology-spread",
        "PodTopologySpread",
        lambda pod: not all(each.hard for each in pod.spread),
    ),
    _Asked(
        "preferred-pod-affinity", "InterPodAffinity", lambda pod: (pod.pod_affinity or _NO_PODS).preferred
    ),
    _Asked(
        "preferred-pod-anti-affinity",
        "InterPodAffinity",
        lambda pod: (pod.pod_anti_affinity or _NO_PODS).preferred,
    ),
)


def _of_nodes(pod: PodTemplate) -> NodeAffinity:
    return pod.node_affinity or _NO_NODES


def ignored_by(filters: Collection[str], scores: Collection[str], template: PodTemplate) -> tuple[str, ...]:
    """Return what a pod asks for and no plugin of a profile with these filters and scores looks at."""
    return tuple(
        asked.code
        for kind, names in ((_OF_FILTERS, filters), (_OF_SCORES, scores))
        for asked in kind
        if asked.plugin not in names and asked.is_asked(template)
    )
