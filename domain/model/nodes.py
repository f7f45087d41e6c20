"""Nodes as the scheduler sees them: what a node offers, and which pods it repels."""

from __future__ import annotations

import msgspec

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""How a taint repels: the first and the last keep a pod off, the second only if there is another node."""


class Taint(msgspec.Struct, frozen=True, gc=False):
    """A mark by which a node repels pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class NodeImage(msgspec.Struct, frozen=True):
    """A container image present on a node, under all of its names."""

    names: tuple[str, ...]
    size_bytes: int = 0


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that scheduling reads of a v1 Node.

    ``allocatable`` and ``capacity`` map a resource name to an int64 in its canonical unit: ``cpu`` in
    thousandths of a core, everything else in its own unit (bytes, pods, devices). ``usage_window_seconds`` is
    over how long its measured usage is looked at, 0: as configured for all nodes. ``ready`` is what its Ready
    condition says, None where it says nothing; taints decide about placing, not the condition.
    ``declared_features`` names what the node says that it can do, sorted.
    """

    name: str
    uid: str
    resource_version: int | None
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: dict[str, int] = {}
    capacity: dict[str, int] = {}
    images: tuple[NodeImage, ...] = ()
    usage_window_seconds: int = 0
    ready: bool | None = None
    declared_features: tuple[str, ...] = ()
