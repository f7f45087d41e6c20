"""The codes of what a pod may ask for and berth does not honour, each with a phrase."""

from __future__ import annotations

from collections.abc import Mapping

from domain.model.limits import anti_affinity_keys_per_pod_max

TOO_MANY_ANTI_AFFINITY_KEYS = "anti-affinity-keys"

UNSUPPORTED: Mapping[str, str] = {
    "volume-claims": "volumes by claim",
    "resource-claims": "devices by claim",
    TOO_MANY_ANTI_AFFINITY_KEYS: (
        f"more than {anti_affinity_keys_per_pod_max} topology keys in the required terms of "
        "spec.affinity.podAntiAffinity"
    ),
}
"""What a pod may demand and berth does not honour. The pod waits, with the reason ``unsupported:<code>``."""


def _unread(what: str, plugin: str) -> str:
    return f"{what}, for which the profile has no {plugin}"


IGNORED: Mapping[str, str] = {
    "disks": "the limits of nodes for attached disks",
    "comparing-tolerations": "tolerations that compare numbers (Lt, Gt)",
    "runtime-class": "what its RuntimeClass adds (overhead, node selector, tolerations)",
    "node-selector": _unread("its node selector", "filter NodeAffinity"),
    "required-node-affinity": _unread("required node affinity", "filter NodeAffinity"),
    "preferred-node-affinity": _unread("preferred node affinity", "score NodeAffinity"),
    "host-ports": _unread("its host ports", "filter NodePorts"),
    "topology-spread": _unread("required topology spread", "filter PodTopologySpread"),
    "preferred-topology-spread": _unread("preferred topology spread", "score PodTopologySpread"),
    "pod-affinity": _unread("required pod affinity", "filter InterPodAffinity"),
    "pod-anti-affinity": _unread("required pod anti-affinity", "filter InterPodAffinity"),
    "preferred-pod-affinity": _unread("preferred pod affinity", "score InterPodAffinity"),
    "preferred-pod-anti-affinity": _unread("preferred pod anti-affinity", "score InterPodAffinity"),
}
"""What a pod may ask for without effect. The decision has the warning ``ignored:<code>``."""


def ignored_in_words(warning: str) -> str:
    """Return the phrase of a warning: ``preferred pod affinity``."""
    code = warning.removeprefix("ignored:")
    return IGNORED.get(code, code)
