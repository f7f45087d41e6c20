"""What a pod may ask of its profile, and the plugin that looks at it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from domain.model.pods import NodeAffinity, PodTemplate
from domain.model.selectors import PodAffinity

_NO_NODES, _NO_PODS = NodeAffinity(), PodAffinity()


class Asked(NamedTuple):
    """A code of ``domain.manifests.codes.IGNORED``, what looks at it, and whether a template asks for it."""

    code: str
    plugin: str
    is_asked: Callable[[PodTemplate], object]


_OF_FILTERS = (
    Asked("node-selector", "NodeAffinity", lambda pod: pod.node_selector),
    Asked("required-node-affinity", "NodeAffinity", lambda pod: _of_nodes(pod).required is not None),
    Asked("host-ports", "NodePorts", lambda pod: pod.host_ports),
    Asked("topology-spread", "PodTopologySpread", lambda pod: any(each.hard for each in pod.spread)),
    Asked("pod-affinity", "InterPodAffinity", lambda pod: (pod.pod_affinity or _NO_PODS).required),
    Asked("pod-anti-affinity", "InterPodAffinity", lambda pod: (pod.pod_anti_affinity or _NO_PODS).required),
)
_OF_SCORES = (
    Asked("preferred-node-affinity", "NodeAffinity", lambda pod: _of_nodes(pod).preferred),
    Asked(
        "preferred-topology-spread",
        "PodTopologySpread",
        lambda pod: not all(each.hard for each in pod.spread),
    ),
    Asked("preferred-pod-affinity", "InterPodAffinity", lambda pod: (pod.pod_affinity or _NO_PODS).preferred),
    Asked(
        "preferred-pod-anti-affinity",
        "InterPodAffinity",
        lambda pod: (pod.pod_anti_affinity or _NO_PODS).preferred,
    ),
)


def _of_nodes(pod: PodTemplate) -> NodeAffinity:
    return pod.node_affinity or _NO_NODES


def unread_by(filters: Collection[str], scores: Collection[str]) -> tuple[Asked, ...]:
    """Return what no plugin of a profile with these filters and scores looks at."""
    of_filters = [asked for asked in _OF_FILTERS if asked.plugin not in filters]
    return (*of_filters, *(asked for asked in _OF_SCORES if asked.plugin not in scores))
