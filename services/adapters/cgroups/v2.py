"""Control groups of version 2: one hierarchy, in which all controllers are."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable

from services.adapters.cgroups.tree import (
    Tree,
    find_boxes,
    find_pods,
    kill_all,
    milli_of_shares,
    node_use,
    processes_of,
    read_pressure,
    signal_all,
    value_of,
)
from services.ports.cgroups import Boxes, Feature, GroupUse, NodeUse, PodGroup, Pressure, Quota

_FILE_OF = {
    Feature.QUOTA: "cpu.max",
    Feature.IDLE: "cpu.idle",
    Feature.WEIGHT: "cpu.weight",
    Feature.MEMORY: "memory.current",
    Feature.MEMORY_HIGH: "memory.high",
    Feature.RECLAIM: "memory.reclaim",
    Feature.PRESSURE: "cpu.pressure",
    Feature.FREEZE: "cgroup.freeze",
    Feature.KILL: "cgroup.kill",
}


class CgroupsV2:
    """The port ``Cgroups`` on the one hierarchy of version 2. A box may be smaller than what is in it."""

    version = 2

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def features(self) -> frozenset[Feature]:
        """Return what this kernel can do: the root of a hierarchy lacks most files, a box has all."""
        boxes = self.boxes()
        if boxes is None:
            return frozenset()
        return frozenset(each for each, file in _FILE_OF.items() if self._tree.has(boxes.all, file))

    def node(self) -> NodeUse:
        """Return what the whole node has used."""
        return node_use(self._tree.files)

    def boxes(self) -> Boxes | None:
        """Return the boxes."""
        return find_boxes(self._tree)

    def pods(self) -> list[PodGroup]:
        """Return the pods that have a group."""
        boxes = self.boxes()
        return [] if boxes is None else find_pods(self._tree, boxes)

    def use(self, group: str) -> GroupUse | None:
        """Return what a group has used."""
        cpu = self._tree.read(group, "cpu.stat")
        if cpu is None:
            return None
        held, memory = self._tree.read(group, "memory.current"), None
        if held is not None:
            stat = self._tree.read(group, "memory.stat") or ""
            memory = max(0, int(held) - value_of(stat, "inactive_file"))
        return GroupUse(value_of(cpu, "usage_usec"), memory)

    def pressure(self, group: str) -> Pressure | None:
        """Return the pressure in a group."""
        return read_pressure(
            self._tree.read(group, "cpu.pressure"), self._tree.read(group, "memory.pressure")
        )

    def quota(self, group: str) -> Quota | None:
        """Return the quota of a group."""
        text = self._tree.read(group, "cpu.max")
        if text is None:
            return None
        quota, period = text.split()
        return Quota(None if quota == "max" else int(quota), int(period))

    def set_quota(self, group: str, quota: Quota) -> None:
        """Set the quota of a group."""
        amount = "max" if quota.quota_us is None else str(quota.quota_us)
        self._tree.write(group, "cpu.max", f"{amount} {quota.period_us}")

    def requested_milli(self, group: str) -> int:
        """Return the cpu that a pod requests, by its weight.

        Container runtimes make a weight of shares in two ways, of which the later one (runc 1.3.2) gives a
        weight of 100 for 1,024 shares, the earlier one 39. The larger request is returned.
        """
        weight = int(self._tree.read(group, "cpu.weight") or 0)
        if weight <= 1:
            return 0
        earlier = 2 + weight * 262_142 / 9_999
        later = 2 ** ((-125 + math.sqrt(125**2 + 4 * 612 * (math.log10(weight) + 7 / 34))) / 2)
        return milli_of_shares(math.ceil(max(earlier, later)))

    def is_idle(self, group: str) -> bool:
        """Return whether a group runs only where nothing else would."""
        idle = self._tree.read(group, "cpu.idle")
        return idle == "1\n" if idle is not None else self._tree.read(group, "cpu.weight") == "1\n"

    def set_idle(self, group: str, idle: bool) -> None:
        """Let a group run only where nothing else would. The weight of an idle one cannot be set."""
        if self._tree.has(group, "cpu.idle"):
            self._tree.write(group, "cpu.idle", "1" if idle else "0")
        if not idle or not self._tree.has(group, "cpu.idle"):
            self._tree.write(group, "cpu.weight", "1")

    def set_memory_high(self, group: str, memory_bytes: int | None) -> bool:
        """Let the kernel slow a group down beyond an amount of memory."""
        return self._tree.write(group, "memory.high", "max" if memory_bytes is None else str(memory_bytes))

    def reclaim(self, group: str, memory_bytes: int) -> bool:
        """Take unused pages from a group: EAGAIN says that there were fewer, which is no refusal."""
        return self._tree.write(group, "memory.reclaim", str(memory_bytes), may_fall_short=True)

    def noted(self, group: str) -> str:
        """Return what was noted with a group."""
        return self._tree.noted(group)

    def note(self, group: str, text: str) -> None:
        """Note a text with a group."""
        self._tree.note(group, text)

    def processes(self, group: str) -> list[int]:
        """Return the processes in a group and below it."""
        return processes_of(self._tree, group)

    def terminate(self, group: str) -> None:
        """Ask the processes of a group to end."""
        signal_all(self._tree, group, signal.SIGTERM)

    def kill(self, group: str) -> None:
        """End the processes of a group: at once where the kernel can (5.14), else one by one."""
        if not self._tree.write(group, "cgroup.kill", "1"):
            kill_all(self._tree, group, self._freeze(group))

    def _freeze(self, group: str) -> Callable[[bool], object]:
        return lambda frozen: self._tree.write(group, "cgroup.freeze", "1" if frozen else "0")
