"""The codes of what a pod may ask for and berth does not honour, each with a phrase."""

from __future__ import annotations

from collections.abc import Mapping

UNSUPPORTED: Mapping[str, str] = {
    "pod-affinity": "required pod affinity",
    "pod-anti-affinity": "required pod anti-affinity",
    "topology-spread": "topology spread with DoNotSchedule",
    "volume-claims": "volumes by claim",
    "resource-claims": "devices by claim",
    "scheduling-group": "a scheduling group",
}
"""What a pod may demand and berth does not honour. The pod waits, with the reason ``unsupported:<code>``."""

IGNORED: Mapping[str, str] = {
    "preferred-pod-affinity": "preferred pod affinity",
    "preferred-pod-anti-affinity": "preferred pod anti-affinity",
    "preferred-topology-spread": "topology spread with ScheduleAnyway",
    "disks": "the limits of nodes for attached disks",
    "comparing-tolerations": "tolerations that compare numbers (Lt, Gt)",
    "runtime-class": "what its RuntimeClass adds (overhead, node selector, tolerations)",
    "pod-group": "the pod group that its label names",
    "node-selector": "its node selector, for which the profile has no filter NodeAffinity",
    "required-node-affinity": "required node affinity, for which the profile has no filter NodeAffinity",
    "preferred-node-affinity": "preferred node affinity, for which the profile has no score NodeAffinity",
    "host-ports": "its host ports, for which the profile has no filter NodePorts",
}
"""What a pod may ask for without effect. The decision has the warning ``ignored:<code>``."""


def ignored_in_words(warning: str) -> str:
    """Return the phrase of a warning: ``preferred pod affinity``."""
    code = warning.removeprefix("ignored:")
    return IGNORED.get(code, code)
