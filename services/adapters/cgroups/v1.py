"""Control groups of version 1: a hierarchy per controller; on hybrid systems version 2 beside them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import NamedTuple

from services.adapters.cgroups.tree import (
    QUOTA_NOTE,
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
from services.ports.cgroups import Boxes, Feature, GroupUse, NodeUse, PodGroup, Pressure, Quota, Refused

_QUOTA, _PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"
_QUOTA_US_MIN = 1_000
_SHARES_MIN = "2"


class Hierarchies(NamedTuple):
    """Where the controllers are; ``unified`` is the hierarchy of version 2, without them."""

    cpu: Tree
    cpuacct: Tree
    memory: Tree
    freezer: Tree | None = None
    unified: Tree | None = None


class _Below(NamedTuple):
    """The quota of a group below a box: what it is, what its owner set, and what it may be."""

    group: str
    now_us: int
    own_us: int
    fits_us: int


class CgroupsV1:
    """The port ``Cgroups`` on the hierarchies of version 1.

    The kernel refuses a box below the quota of a group in it. So these are lowered first, and get back what
    they had when there is room again; what they had is remembered with the group, so that another agent
    knows it, too. A quota that its owner changes meanwhile is the one that it gets back.
    """

    version = 1

    def __init__(self, hierarchies: Hierarchies) -> None:
        self._at = hierarchies

    def features(self) -> frozenset[Feature]:
        """Return what this kernel can do: version 1 has neither memory.high nor memory.reclaim."""
        boxes, at = self.boxes(), self._at
        if boxes is None:
            return frozenset()
        files = (
            (Feature.QUOTA, at.cpu, _QUOTA),
            (Feature.IDLE, at.cpu, "cpu.idle"),
            (Feature.WEIGHT, at.cpu, "cpu.shares"),
            (Feature.MEMORY, at.memory, "memory.usage_in_bytes"),
            (Feature.FREEZE, at.freezer, "freezer.state"),
            (Feature.FREEZE, at.unified, "cgroup.freeze"),
            (Feature.KILL, at.unified, "cgroup.kill"),
            (Feature.PRESSURE, at.unified, "cpu.pressure"),
        )
        return frozenset(each for each, tree, file in files if tree and tree.has(boxes.all, file))

    def node(self) -> NodeUse:
        """Return what the whole node has used."""
        return node_use(self._at.cpu.files)

    def boxes(self) -> Boxes | None:
        """Return the boxes."""
        return find_boxes(self._at.cpu)

    def pods(self) -> list[PodGroup]:
        """Return the pods that have a group."""
        boxes = self.boxes()
        return [] if boxes is None else find_pods(self._at.cpu, boxes)

    def use(self, group: str) -> GroupUse | None:
        """Return what a group has used; ``cpuacct.usage`` is in nanoseconds."""
        cpu = self._at.cpuacct.read(group, "cpuacct.usage")
        if cpu is None:
            return None
        held, memory = self._at.memory.read(group, "memory.usage_in_bytes"), None
        if held is not None:
            stat = self._at.memory.read(group, "memory.stat") or ""
            memory = max(0, int(held) - value_of(stat, "total_inactive_file"))
        return GroupUse(int(cpu) // 1_000, memory)

    def pressure(self, group: str) -> Pressure | None:
        """Return the pressure in a group, which the hierarchy of version 2 has alone."""
        tree = self._at.unified
        if tree is None:
            return None
        return read_pressure(tree.read(group, "cpu.pressure"), tree.read(group, "memory.pressure"))

    def quota(self, group: str) -> Quota | None:
        """Return the quota of a group."""
        quota, period = self._at.cpu.read(group, _QUOTA), self._at.cpu.read(group, _PERIOD)
        if quota is None or period is None:
            return None
        return Quota(None if int(quota) < 0 else int(quota), int(period))

    def set_quota(self, group: str, quota: Quota) -> None:
        """Set the quota of a group, in the period that it has; see the class for what is below it."""
        now = self.quota(group)
        if now is None:
            return
        wanted = _within(quota, now.period_us)
        found = list(self._below(group, quota))
        lowered = [each for each in found if each.fits_us < each.now_us]
        for each in reversed(lowered):
            self._fit(each)
        try:
            self._at.cpu.write(group, _QUOTA, str(-1 if wanted is None else wanted))
        except Refused:
            for each in lowered:
                self._at.cpu.write(each.group, _QUOTA, str(each.now_us))
            raise
        for each in found:
            if each.fits_us > each.now_us:
                self._fit(each)

    def _fit(self, each: _Below) -> None:
        """Give a group what fits, and remember its own. Whatever of both is done last, the own is known."""
        self._at.cpu.note(each.group, f"{each.own_us} {each.now_us} {each.fits_us}", QUOTA_NOTE)
        self._at.cpu.write(each.group, _QUOTA, str(each.fits_us))
        if each.fits_us == each.own_us:
            self._at.cpu.note(each.group, None, QUOTA_NOTE)

    def _below(self, group: str, bound: Quota) -> Iterator[_Below]:
        """Yield the groups below a group that have a quota, those above first, and what fits a bound."""
        for name in self._at.cpu.folders(group):
            child = f"{group}/{name}"
            now = self.quota(child)
            if now is None:
                continue
            fits = bound
            if now.quota_us is not None:
                own, room = self._own(child, now.quota_us), _within(bound, now.period_us)
                fits = Quota(own if room is None else max(_QUOTA_US_MIN, min(own, room)), now.period_us)
                assert fits.quota_us is not None
                yield _Below(child, now.quota_us, own, fits.quota_us)
            yield from self._below(child, fits)

    def _own(self, group: str, now_us: int) -> int:
        """Return the quota that the owner of a group set: the present one, if it is not one of ours."""
        own, *ours = self._at.cpu.noted(group, QUOTA_NOTE).split() or ("",)
        return int(own) if str(now_us) in ours else now_us

    def requested_milli(self, group: str) -> int:
        """Return the cpu that a pod requests, by its shares; 2 shares stand for nothing."""
        return milli_of_shares(int(self._at.cpu.read(group, "cpu.shares") or 0))

    def is_idle(self, group: str) -> bool:
        """Return whether a group runs only where nothing else would."""
        idle = self._at.cpu.read(group, "cpu.idle")
        return idle == "1\n" if idle is not None else self._at.cpu.read(group, "cpu.shares") == "2\n"

    def set_idle(self, group: str, idle: bool) -> None:
        """Let a group run only where nothing else would. The shares of an idle one cannot be set."""
        if self._at.cpu.has(group, "cpu.idle"):
            self._at.cpu.write(group, "cpu.idle", "1" if idle else "0")
        if not idle or not self._at.cpu.has(group, "cpu.idle"):
            self._at.cpu.write(group, "cpu.shares", _SHARES_MIN)

    def set_memory_high(self, group: str, memory_bytes: int | None) -> bool:
        """Return False: version 1 has no such bound."""
        return False

    def reclaim(self, group: str, memory_bytes: int) -> bool:
        """Return False: version 1 takes no pages on demand."""
        return False

    def noted(self, group: str) -> str:
        """Return what was noted with a group."""
        return self._at.cpu.noted(group)

    def note(self, group: str, text: str) -> None:
        """Note a text with a group."""
        self._at.cpu.note(group, text)

    def processes(self, group: str) -> list[int]:
        """Return the processes in a group and below it."""
        return processes_of(self._at.cpu, group)

    def terminate(self, group: str) -> None:
        """Ask the processes of a group to end."""
        signal_all(self._at.cpu, group, signal.SIGTERM)

    def kill(self, group: str) -> None:
        """End the processes of a group: at once where the hierarchy of version 2 has it, else one by one.

        Processes may be in the group of one hierarchy alone, so those that are left are ended in any case.
        """
        if self._at.unified is not None:
            self._at.unified.write(group, "cgroup.kill", "1")
        kill_all(self._at.cpu, group, lambda frozen: self._freeze(group, frozen))

    def _freeze(self, group: str, frozen: bool) -> None:
        if self._at.unified is not None:
            self._at.unified.write(group, "cgroup.freeze", "1" if frozen else "0")
        if self._at.freezer is not None:
            self._at.freezer.write(group, "freezer.state", "FROZEN" if frozen else "THAWED")


def _within(quota: Quota, period_us: int) -> int | None:
    """Return the share of a quota in another period, rounded down; None: there is no bound."""
    return None if quota.quota_us is None else quota.quota_us * period_us // quota.period_us
