"""Where kubelet keeps the groups of pods, by both of its ways to name them, and what both kernels share."""

from __future__ import annotations

import contextlib
import errno
import signal
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from domain.model.colocation import Amounts, Quality
from services.adapters.cgroups.files import Files
from services.ports.cgroups import Boxes, NodeUse, PodGroup, Pressure, Refused

T = TypeVar("T")
_GONE = (errno.ENOENT, errno.ENODEV)
_TOP, _SLICE, _POD = "kubepods", ".slice", "pod"
_MID, _LOW = "burstable", "besteffort"
_KILLS_MAX = 10
_NOTE, QUOTA_NOTE = "trusted.berth.note", "trusted.berth.quota"
_TICK_US = 10_000
"""Linux shows times in /proc/stat in hundredths of a second (USER_HZ) on all architectures of today."""


class Tree(NamedTuple):
    """The groups of one hierarchy: a mounted folder, and the group below which kubelet's are."""

    files: Files
    mount: str
    root: str = ""

    def path(self, group: str, file: str = "") -> str:
        """Return the path of a group, or of a file in it."""
        return "/".join(each for each in (self.mount, self.root, group, file) if each)

    def folders(self, group: str) -> list[str]:
        """Return the names of the groups in a group, none where it is gone."""
        return or_gone(lambda: self.files.folders(self.path(group))) or []

    def has(self, group: str, file: str) -> bool:
        """Return whether a group has a file."""
        return self.files.exists(self.path(group, file))

    def read(self, group: str, file: str) -> str | None:
        """Return the text of a file of a group; None where there is none."""
        return or_gone(lambda: self.files.read(self.path(group, file)))

    def write(self, group: str, file: str, text: str, *, may_fall_short: bool = False) -> bool:
        """Write a file of a group; False where there is none.

        With ``may_fall_short``, the kernel may do less than what was asked of it.

        Raises
        ------
        Refused
            The kernel refuses the text.
        """
        path = self.path(group, file)
        try:
            self.files.write(path, text)
        except OSError as error:
            if error.errno in _GONE:
                return False
            if not (may_fall_short and error.errno == errno.EAGAIN):
                raise Refused(f"{path} takes no {text!r}: {error.strerror}") from None
        return True

    def noted(self, group: str, name: str = _NOTE) -> str:
        """Return what was noted with a group, "" where nothing was."""
        return or_gone(lambda: self.files.attribute(self.path(group), name)) or ""

    def note(self, group: str, text: str | None, name: str = _NOTE) -> None:
        """Note a text with a group; None: no longer.

        Raises
        ------
        Refused
            The kernel takes no extended attribute ``trusted.*``, or not from this process.
        """
        path = self.path(group)
        try:
            or_gone(lambda: self.files.set_attribute(path, name, text))
        except OSError as error:
            raise Refused(f"{path} takes no extended attribute {name}: {error.strerror}") from None


def or_gone(call: Callable[[], T]) -> T | None:
    """Return what a call returns, None where what it asks for is gone."""
    try:
        return call()
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise


def find_boxes(tree: Tree) -> Boxes | None:
    """Return the boxes of kubelet, named by cgroupfs or by systemd; None where there are none.

    systemd puts the names of all groups above into the name of a group: ``kubepods.slice`` or
    ``kubelet-kubepods.slice`` hold ``kubepods-burstable.slice`` or ``kubelet-kubepods-burstable.slice``.
    """
    for name in tree.folders(""):
        if name == _TOP:
            return Boxes(name, f"{name}/{_MID}", f"{name}/{_LOW}")
        stem = name.removesuffix(_SLICE)
        if stem != name and (stem == _TOP or stem.endswith(f"-{_TOP}")):
            return Boxes(name, f"{name}/{stem}-{_MID}{_SLICE}", f"{name}/{stem}-{_LOW}{_SLICE}")
    return None


def find_pods(tree: Tree, boxes: Boxes) -> list[PodGroup]:
    """Return the groups of pods, by uid."""
    qualities = zip(boxes, (Quality.HIGH, Quality.MID, Quality.LOW), strict=True)
    found = [
        PodGroup(uid, quality, f"{box}/{name}")
        for box, quality in qualities
        for name in tree.folders(box)
        if (uid := _uid(box, name)) is not None
    ]
    return sorted(found)


def _uid(box: str, name: str) -> str | None:
    """Return the uid of a pod's group in a box, None of another group: systemd knows no '-' in a name."""
    stem = box.rpartition("/")[2].removesuffix(_SLICE)
    if name.endswith(_SLICE):
        head = f"{stem}-{_POD}"
        return name[len(head) : -len(_SLICE)].replace("_", "-") if name.startswith(head) else None
    return name[len(_POD) :] if name.startswith(_POD) else None


def below(tree: Tree, group: str) -> Iterator[str]:
    """Yield the groups below a group, those above first."""
    for name in tree.folders(group):
        yield (child := f"{group}/{name}")
        yield from below(tree, child)


def processes_of(tree: Tree, group: str) -> list[int]:
    """Return the processes in a group and below it."""
    groups = (group, *below(tree, group))
    return [int(pid) for each in groups for pid in (tree.read(each, "cgroup.procs") or "").split()]


def signal_all(tree: Tree, group: str, number: signal.Signals) -> int:
    """Send a signal to the processes of a group; return to how many."""
    pids = [pid for pid in processes_of(tree, group) if pid > 0]  # 0: of a container that holds this one
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            tree.files.signal(pid, number)
    return len(pids)


def kill_all(tree: Tree, group: str, freeze: Callable[[bool], object]) -> None:
    """End the processes of a group one by one. It is frozen meanwhile, so that it begins no new ones."""
    freeze(True)
    try:
        for _ in range(_KILLS_MAX):
            if not signal_all(tree, group, signal.SIGKILL):
                return
    finally:
        freeze(False)


def value_of(text: str, name: str) -> int:
    """Return a value of a file that has lines of a name and a number, 0 where it has no such line."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def milli_of_shares(shares: int) -> int:
    """Return the cpu of which kubelet makes so many shares, 1,024 of a core; 2, the least, are of nothing."""
    return 0 if shares <= 2 else shares * 1000 // 1024


def read_pressure(cpu: str | None, memory: str | None) -> Pressure | None:
    """Return the pressure by the files of cpu and memory, None where there is neither."""
    if cpu is None and memory is None:
        return None
    return Pressure(*_averages(cpu or ""), *_averages(memory or ""))


def _averages(text: str) -> tuple[float, float]:
    """Return avg10 and avg60 of ``some avg10=0.00 avg60=0.00 avg300=0.00 total=0``, 0 where they are not."""
    for line in text.splitlines():
        if line.startswith("some "):
            found = dict(each.split("=", 1) for each in line.split()[1:])
            return float(found["avg10"]), float(found["avg60"])
    return 0.0, 0.0


def node_use(files: Files) -> NodeUse:
    """Return what the whole node has used.

    cpu is all time but idle, waiting for a disk and stolen by other guests; memory is what a new process
    could not get (MemTotal − MemAvailable). Source: proc(5).
    """
    stat, memory = files.read("/proc/stat"), _memory(files.read("/proc/meminfo"))
    lines = stat.splitlines()
    ticks = [int(each) for each in lines[0].split()[1:]]
    user, nice, system, irq, softirq = *ticks[:3], *ticks[5:7]
    cores = sum(line.startswith("cpu") for line in lines[1:])
    cpu, stalled = (Tree(files, "/proc/pressure").read("", name) for name in ("cpu", "memory"))
    return NodeUse(
        cpu_us=(user + nice + system + irq + softirq) * _TICK_US,
        memory_bytes=memory["MemTotal"] - memory["MemAvailable"],
        capacity=Amounts(cores * 1_000, memory["MemTotal"]),
        pressure=read_pressure(cpu, stalled),
    )


def _memory(text: str) -> dict[str, int]:
    """Return the lines of /proc/meminfo in bytes."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if rest:
            found[name] = int(rest.split()[0]) * 1024
    return found
