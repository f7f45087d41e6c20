"""Control groups to test with: in memory, and a scratch group of its own on the real kernel."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from domain.model.colocation import Quality
from services.adapters.cgroups.files import Files, KernelFiles
from services.adapters.cgroups.mounts import open_cgroups
from services.adapters.cgroups.tree import Tree
from services.adapters.cgroups.v2 import CgroupsV2
from services.adapters.memory.cgroups import KernelFolder, memory_cgroups
from services.ports.cgroups import Boxes, Cgroups, Feature

UID = "0f9e6a3c-1c1b-4ad7-9a66-0b8f6d7f2e11"
BOXES = Boxes("kubepods", "kubepods/burstable", "kubepods/besteffort")
PERIOD_US = 100_000
WAIT_SECONDS = 20.0
BURN = "while True: pass"
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""


class Machine(NamedTuple):
    """A tree of groups, and how a test makes groups and processes in it.

    ``folder_of`` gives the folder below which the groups of a controller are. ``spawn`` returns a pid.
    """

    cgroups: Cgroups
    files: Files
    folder_of: Callable[[str], str]
    make: Callable[[str], None]
    remove: Callable[[str], None]
    spawn: Callable[[str, str], int]

    def needs(self, *features: Feature) -> None:
        """Skip a test of what this kernel cannot do."""
        lacking = sorted(set(features) - self.cgroups.features())
        if lacking:
            pytest.skip(f"this kernel offers cgroups v{self.cgroups.version} without {', '.join(lacking)}")


def in_memory(version: int) -> Machine:
    kernel = KernelFolder(version)

    def spawn(group: str, program: str) -> int:
        pid = 1_000 + len(kernel.alive)
        kernel.spawn(group, pid)
        if program == DEAF:
            kernel.deaf.add(pid)
        if program == BURN:
            kernel.use(group, cpu_us=500_000)
        return pid

    def folder_of(controller: str) -> str:
        return "/sys/fs/cgroup" if version == 2 else f"/sys/fs/cgroup/{controller}"

    return Machine(memory_cgroups(kernel), kernel, folder_of, kernel.make, kernel.remove, spawn)


def mounted(version: int) -> list[Path]:
    """Return where groups of a version are mounted; of version 1 those of the controllers that we read."""
    kind_wanted = {1: "cgroup", 2: "cgroup2"}[version]
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        is_read = version == 2 or {"cpu", "cpuacct", "memory", "freezer"} & set(options.split(","))
        if kind == kind_wanted and is_read:
            found.append(Path(folder))
    return found


@contextlib.contextmanager
def on_the_kernel(version: int) -> Iterator[Machine]:
    """Yield a scratch group of its own in each hierarchy of a version; it is removed, and nothing else."""
    root = f"berth-test-{os.getpid()}"
    mounts = mounted(version) + (mounted(2) if version == 1 else [])
    if not mounted(version):
        pytest.skip(f"no hierarchy of version {version} is mounted here")
    children: list[subprocess.Popen[str]] = []

    def make(group: str) -> None:
        for mount in mounts:
            for above in reversed(Path(group).parents):
                (mount / root / above).mkdir(exist_ok=True)
                _give_controllers(mount, mount / root / above)  # one that hands on may hold no processes
            (mount / root / group).mkdir(exist_ok=True)

    def remove(group: str) -> None:
        for mount in mounts:
            for folder in sorted((mount / root / group).rglob("**/"), reverse=True):
                _remove_folder(folder)

    def spawn(group: str, program: str) -> int:
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        children.append(child)
        if program == DEAF:
            assert child.stdout is not None
            assert child.stdout.readline() == "deaf\n"
        for mount in mounts:
            (mount / root / group / "cgroup.procs").write_text(str(child.pid))
        return child.pid

    def folder_of(controller: str) -> str:
        found = [each for each in mounts if controller in each.name.split(",")] or mounts[-1:]
        return str(found[0] / root)

    try:
        for mount in mounts:
            (mount / root).mkdir()
            _give_controllers(mount, mount / root)
    except OSError as error:
        for mount in mounts:
            _remove_folder(mount / root)
        pytest.skip(f"no group of version {version} can be made here: {error}")
    try:
        yield Machine(_opened(version, root, mounts), KernelFiles(), folder_of, make, remove, spawn)
    finally:
        for child in children:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
        remove("")


def _opened(version: int, root: str, mounts: list[Path]) -> Cgroups:
    """Open what a machine of the version would open: a hybrid one is of version 1."""
    if version == 2:
        return CgroupsV2(Tree(KernelFiles(), str(mounts[0]), root))
    found = open_cgroups(root)
    assert found.version == 1
    return found


def _give_controllers(mount: Path, folder: Path) -> None:
    """Let a group of version 2 hand on what it has: cpu and memory, where the hierarchy has them."""
    offered = mount / "cgroup.controllers"
    if offered.exists():
        for name in {"cpu", "memory"} & set(offered.read_text().split()):
            with contextlib.suppress(
                OSError
            ):  # where processes are in the group, as in the root of a container
                (folder / "cgroup.subtree_control").write_text(f"+{name}")


def _remove_folder(folder: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextlib.contextmanager
def in_memory_or_real(where: str, version: int) -> Iterator[Machine]:
    if where == "memory":
        yield in_memory(version)
    else:
        with on_the_kernel(version) as found:
            yield found


def eventually(holds: Callable[[], bool]) -> bool:
    """Wait until something holds; whether it ever did."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def alive(machine: Machine, group: str) -> set[int]:
    """Return the processes in a group, without children that have ended and that nothing waited for yet."""
    found = set(machine.cgroups.processes(group))
    if isinstance(machine.files, KernelFolder):
        return found
    return {pid for pid in found if not _has_ended(pid)}


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith(("Z", "X"))
    except FileNotFoundError:
        return True


def pod(quality: Quality = Quality.LOW, uid: str = UID) -> str:
    box = {Quality.HIGH: BOXES.all, Quality.MID: BOXES.mid, Quality.LOW: BOXES.low}[quality]
    return f"{box}/pod{uid}"
