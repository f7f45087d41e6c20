"""The control groups of a node's pods, and what the kernel says of the node as a whole.

kubelet nests them: the box of all pods holds the pods of quality high, the box of mid (burstable) and the box
of low (besteffort); each box holds a group per pod, and this one a group per container. A group is named by
its path below the root, as ``kubepods/burstable/pod<uid>``.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Protocol

from domain.model.colocation import Amounts, Quality
from domain.model.errors import BerthError


class Feature(enum.StrEnum):
    """What a kernel may be able to do with groups; without one, what needs it is left out."""

    QUOTA = "quota"
    IDLE = "idle"
    WEIGHT = "weight"
    MEMORY = "memory"
    MEMORY_HIGH = "memory-high"
    RECLAIM = "reclaim"
    PRESSURE = "pressure"
    FREEZE = "freeze"
    KILL = "kill"


class Refused(BerthError):
    """The kernel refuses what was written to a group: the message names the file and its reason."""

    code = "cgroup-refused"


class Boxes(NamedTuple):
    """The groups that hold the pods: all of them, those of mid, those of low."""

    all: str
    mid: str
    low: str


class PodGroup(NamedTuple):
    """The group of a pod."""

    uid: str
    quality: Quality
    group: str


class GroupUse(NamedTuple):
    """What a group has used since it was made, in µs of cpu, and how much memory it holds now.

    Memory is the working set, as kubelet has it: without file pages that were not used lately. It is None
    where the kernel does not count it.
    """

    cpu_us: int
    memory_bytes: int | None


class Quota(NamedTuple):
    """How much cpu a group may use in a period; None: as much as there is."""

    quota_us: int | None
    period_us: int


class Pressure(NamedTuple):
    """For how many percent of the time some tasks waited for cpu, and for memory, in the last 10 and 60 s.

    Source: ``some`` of the kernel's pressure stall information.
    """

    cpu_avg10: float = 0.0
    cpu_avg60: float = 0.0
    memory_avg10: float = 0.0
    memory_avg60: float = 0.0


class NodeUse(NamedTuple):
    """What the whole node has used since it was started, in µs of cpu; its memory now, and what it has."""

    cpu_us: int
    memory_bytes: int
    capacity: Amounts
    pressure: Pressure | None


class Cgroups(Protocol):
    """A tree of control groups. It blocks for some microseconds a call.

    A group may be gone at any moment. What reads it returns None or nothing then; what changes it does
    nothing.
    """

    version: int

    def features(self) -> frozenset[Feature]:
        """Return what this kernel can do with the groups of pods; nothing while there are none."""

    def node(self) -> NodeUse:
        """Return what the whole node has used."""

    def boxes(self) -> Boxes | None:
        """Return the boxes; None: kubelet has made none yet."""

    def pods(self) -> list[PodGroup]:
        """Return the pods that have a group, by uid."""

    def use(self, group: str) -> GroupUse | None:
        """Return what a group has used."""

    def pressure(self, group: str) -> Pressure | None:
        """Return the pressure in a group; None: the kernel does not say."""

    def quota(self, group: str) -> Quota | None:
        """Return the quota of a group; None: the kernel has none."""

    def set_quota(self, group: str, quota: Quota) -> None:
        """Set the quota of a group. Groups below it have their own, as far as this one leaves room.

        Raises
        ------
        Refused
            The kernel takes no such quota, as one of less than 1,000 µs.
        """

    def requested_milli(self, group: str) -> int:
        """Return the thousandths of a core that a pod requests, by the weight that kubelet gave its group.

        It is for pods that nothing else names, and errs towards more. 0: the group is gone, or has no weight.
        """

    def is_idle(self, group: str) -> bool:
        """Return whether a group runs only where nothing else would, or has the smallest weight instead."""

    def set_idle(self, group: str, idle: bool) -> None:
        """Let a group run only where nothing else would.

        Without ``Feature.IDLE`` it gets the smallest weight instead. Not idle, it has the smallest weight,
        too: kubelet gives the box of low no other.
        """

    def set_memory_high(self, group: str, memory_bytes: int | None) -> bool:
        """Let the kernel slow a group down and take its memory beyond an amount; False: it cannot."""

    def reclaim(self, group: str, memory_bytes: int) -> bool:
        """Take unused pages from a group, as many as there are of an amount; False: the kernel cannot."""

    def noted(self, group: str) -> str:
        """Return what was noted with a group, "" where nothing was."""

    def note(self, group: str, text: str) -> None:
        """Note a text with a group, for the agent that comes after this one; it goes with the group.

        Raises
        ------
        Refused
            The kernel takes no extended attributes, or not from this process.
        """

    def processes(self, group: str) -> list[int]:
        """Return the processes in a group and below it."""

    def terminate(self, group: str) -> None:
        """Ask the processes of a group to end."""

    def kill(self, group: str) -> None:
        """End the processes of a group, those that it begins meanwhile, too."""
