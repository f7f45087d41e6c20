"""Priority classes: names for priorities, which pods may give instead of a number."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

SYSTEM_PREFIX = "system-"
PRIORITY_MAX = 2**31 - 1
USER_PRIORITY_MAX = 1_000_000_000
"""The highest priority of a class that is not the system's."""

PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
NEVER = "Never"


class PriorityClass(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduling.k8s.io/v1 PriorityClass; ``global_default``: for pods that say nothing of priority."""

    name: str
    value: int
    global_default: bool = False
    preemption_policy: str = PREEMPTION_POLICIES[0]


SYSTEM_CLASSES: Mapping[str, PriorityClass] = {
    "system-cluster-critical": PriorityClass(name="system-cluster-critical", value=2 * USER_PRIORITY_MAX),
    "system-node-critical": PriorityClass(name="system-node-critical", value=2 * USER_PRIORITY_MAX + 1_000),
}
"""The classes that exist without any object."""
