"""Draws of what several kinds of objects are made of: quantities, labels, selectors."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

Json = dict[str, Any]
T = TypeVar("T")

LABELS = {
    "app": ("web", "db", "cache"),
    "tier": ("front", "back", ""),
    "track": ("stable", "canary"),
    "version": ("v1", "v2", "v3"),
}
"""Labels of pods, few enough that selectors match some and leave some out."""

NAMESPACES = ("default", "team-a", "team-b", "ghost")
"""There is no Namespace object for the last one."""

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
TOPOLOGY_KEYS = (ZONE, ZONE, HOSTNAME, HOSTNAME, "rack", "disk", "nowhere")


class Draw(Random):
    """A seeded source of choices."""

    def chance(self, of: float) -> bool:
        """Return True in a share of the draws."""
        return self.random() < of

    def some(self, items: Sequence[T], low: int, high: int) -> list[T]:
        """Return between ``low`` and ``high`` of the items, none twice."""
        return self.sample(list(items), min(len(items), self.randint(low, high)))

    def cpu(self, low: int, high: int) -> str:
        """Return an amount of cpu between two numbers of milli, written in one of the ways users write it."""
        milli = self.randint(low, high)
        if self.chance(0.3):
            milli = max(100, milli // 100 * 100)
        if self.chance(0.02):
            return f"{milli * 1000 + self.randint(1, 999)}u"
        return f"{milli / 1000:g}" if self.chance(0.2) else f"{milli}m"

    def memory(self, low: int, high: int) -> str:
        """Return an amount of memory between two numbers of MiB."""
        mib = self.randint(low, high)
        written = (
            f"{mib}Mi", f"{mib}Mi", f"{mib}M", f"{mib / 1000:g}G",
            f"{mib * 1024 + self.randint(0, 1023)}Ki", f"{mib * 1_048_583}",
        )  # fmt: skip
        return self.choice(written)

    def labels(self, of: float = 0.7) -> dict[str, str]:
        """Return labels of a pod."""
        return {key: self.choice(values) for key, values in LABELS.items() if self.chance(of)}

    def selector(self, nil: float = 0.06, empty: float = 0.06) -> Json | None:
        """Return a label selector over the labels of pods, sometimes None or one without a requirement."""
        if self.chance(nil):
            return None
        if self.chance(empty):
            return {}
        selector: Json = {}
        keys = self.some(list(LABELS), 1, 2)
        if self.chance(0.7):
            selector["matchLabels"] = {keys[0]: self.choice(LABELS[keys[0]])}
            keys = keys[1:]
        if keys:
            selector["matchExpressions"] = [self.requirement(key, LABELS[key]) for key in keys]
        return selector

    def requirement(self, key: str, values: Sequence[str]) -> Json:
        """Return one requirement of a label selector."""
        operator = self.choice(("In", "In", "NotIn", "Exists", "DoesNotExist"))
        requirement: Json = {"key": key, "operator": operator}
        if operator in ("In", "NotIn"):
            requirement["values"] = self.some(values, 1, 2)
        return requirement


def keys_of(selector: Json) -> set[str]:
    """Return the label keys that a selector looks at."""
    return {*selector.get("matchLabels", {}), *(each["key"] for each in selector.get("matchExpressions", []))}
