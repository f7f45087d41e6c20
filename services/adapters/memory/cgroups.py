"""The kernel's control groups in memory: a folder of files that refuses what the kernel refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from services.adapters.cgroups.files import Files
from services.adapters.cgroups.mounts import open_cgroups
from services.ports.cgroups import Cgroups

_READ_ONLY = {
    "cpuacct.usage", "memory.usage_in_bytes", "memory.stat", "cpu.stat", "memory.current", "cpu.pressure",
    "memory.pressure", "cgroup.controllers",
}  # fmt: skip
_PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
_BOTH = {"cgroup.procs": ""}
_V1 = {
    "cpu": {
        "cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n", "cpu.shares": "1024\n",
        "cpu.idle": "0\n", "cpu.stat": "nr_periods 0\n",
    },
    "cpuacct": {"cpuacct.usage": "0\n"},
    "memory": {"memory.usage_in_bytes": "0\n", "memory.stat": "total_inactive_file 0\n"},
    "freezer": {"freezer.state": "THAWED\n"},
}  # fmt: skip
_UNIFIED = {
    "cpu.stat": "usage_usec 0\n", "cpu.pressure": _PRESSURE, "memory.pressure": _PRESSURE,
    "cgroup.freeze": "0\n", "cgroup.kill": "",
}  # fmt: skip
_V2 = {
    **_UNIFIED, "cpu.max": "max 100000\n", "cpu.weight": "100\n", "cpu.idle": "0\n", "memory.current": "0\n",
    "memory.stat": "inactive_file 0\n", "memory.high": "max\n", "memory.reclaim": "",
}  # fmt: skip
_MOUNT = "/sys/fs/cgroup"


class KernelFolder(Files):
    """The files of a kernel, of version 1 (hybrid, with that of version 2 beside it) or of version 2.

    ``make`` and ``remove`` do what mkdir and rmdir would do in each hierarchy. ``lacks`` names files that
    an older kernel does not have.
    """

    def __init__(self, version: int, lacks: frozenset[str] = frozenset()) -> None:
        self._version, self._lacks = version, lacks
        self.files: dict[str, str] = {}
        self._groups: set[str] = set()
        self._attributes: dict[tuple[str, str], str] = {}
        self.alive: dict[int, str] = {}
        self.deaf: set[int] = set()
        self.signals: list[tuple[int, int]] = []
        self.written: list[tuple[str, str]] = []
        self.reclaimable_bytes = 0
        files = {_MOUNT: _V2} if version == 2 else {f"{_MOUNT}/{name}": of for name, of in _V1.items()}
        if version == 1:
            files[f"{_MOUNT}/unified"] = _UNIFIED
        self._hierarchies = {mount: {**_BOTH, **of} for mount, of in files.items()}
        kinds = {f"{_MOUNT}/unified": "cgroup2", _MOUNT: "cgroup2"}
        self.files["/proc/self/mounts"] = "".join(
            f"cgroup {mount} {kinds.get(mount, 'cgroup')} rw,relatime,{mount.rpartition('/')[2]} 0 0\n"
            for mount in self._hierarchies
        )
        self.node(cpu_us=0, memory_bytes=0)
        self.press(0.0)

    # ---------------------------------------------------------------------------- what happens on the node

    def node(self, *, cpu_us: int, memory_bytes: int, cores: int = 4, memory_total: int = 8 << 30) -> None:
        """Let the whole node have used so much."""
        ticks = f"{cpu_us // 10_000} 0 0 0 0 0 0 0 0 0"
        lines = [f"cpu  {ticks}", *(f"cpu{core} 0 0 0 0 0 0 0 0 0 0" for core in range(cores)), "ctxt 0"]
        self.files["/proc/stat"] = "\n".join(lines)
        free = (memory_total - memory_bytes) >> 10
        self.files["/proc/meminfo"] = f"MemTotal: {memory_total >> 10} kB\nMemAvailable: {free} kB\n"

    def press(self, percent: float) -> None:
        """Let tasks of the node have waited for cpu so many percent of the time."""
        text = f"some avg10={percent:.2f} avg60={percent:.2f} avg300=0.00 total=0\n"
        self.files["/proc/pressure/cpu"], self.files["/proc/pressure/memory"] = text, _PRESSURE

    def make(self, group: str) -> None:
        """Make a group, and those above it."""
        head, _, _ = group.rpartition("/")
        if head and head not in self._groups:
            self.make(head)
        self._groups.add(group)
        for mount, files in self._hierarchies.items():
            for name, text in files.items():
                if name not in self._lacks:
                    self.files[f"{mount}/{group}/{name}"] = text

    def remove(self, group: str) -> None:
        """Remove a group and those below it."""
        gone = {each for each in self._groups if each == group or each.startswith(f"{group}/")}
        self._groups -= gone
        lost = {f"{mount}/{each}" for mount in self._hierarchies for each in gone}
        self._attributes = {at: text for at, text in self._attributes.items() if at[0] not in lost}
        self.files = {path: text for path, text in self.files.items() if self._group_of(path) not in gone}

    def spawn(self, group: str, pid: int) -> None:
        """Begin a process in a group."""
        self.alive[pid] = group
        self._list_processes()

    def use(self, group: str, *, cpu_us: int = 0, memory_bytes: int | None = None) -> None:
        """Let a group use cpu, which counts for those above it, and hold memory, which does not."""
        while group:
            for mount in self._hierarchies:
                self._add(f"{mount}/{group}/cpuacct.usage", cpu_us * 1_000)
                self._add(f"{mount}/{group}/cpu.stat", cpu_us)
                for name in ("memory.usage_in_bytes", "memory.current"):
                    if memory_bytes is not None and (path := f"{mount}/{group}/{name}") in self.files:
                        self.files[path] = f"{memory_bytes}\n"
            group, memory_bytes = group.rpartition("/")[0], None

    def _add(self, path: str, amount: int) -> None:
        if path in self.files and "nr_periods" not in self.files[path]:
            *name, before = self.files[path].split()
            self.files[path] = " ".join([*name, str(int(before) + amount)]) + "\n"

    def _list_processes(self) -> None:
        for mount in self._hierarchies:
            for group in self._groups:
                pids = sorted(pid for pid, at in self.alive.items() if at == group)
                self.files[f"{mount}/{group}/cgroup.procs"] = "".join(f"{pid}\n" for pid in pids)

    # ----------------------------------------------------------------------------------- what a process sees

    def read(self, path: str) -> str:
        """Return the text of a file."""
        if path not in self.files:
            raise _fault(errno.ENOENT)
        if path.endswith(("cgroup.kill", "memory.reclaim")):
            raise _fault(errno.EINVAL)
        return self.files[path]

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder."""
        return path in self.files or self._group_of(f"{path}/x") in self._groups

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders in a folder."""
        group = self._group_of(f"{path}/x")
        if group is None or (group and group not in self._groups):
            raise _fault(errno.ENOENT)
        return sorted(each.rpartition("/")[2] for each in self._groups if each.rpartition("/")[0] == group)

    def attribute(self, folder: str, name: str) -> str | None:
        """Return an extended attribute of a folder."""
        if not self.exists(folder):
            raise _fault(errno.ENOENT)
        return self._attributes.get((folder, name))

    def set_attribute(self, folder: str, name: str, text: str | None) -> None:
        """Give a folder an extended attribute; None: no longer."""
        if not self.exists(folder):
            raise _fault(errno.ENOENT)
        self._attributes.pop((folder, name), None)
        if text is not None:
            self._attributes[folder, name] = text

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a process; one that is deaf ends by SIGKILL alone."""
        if pid not in self.alive:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        self.signals.append((pid, number))
        if number == 9 or pid not in self.deaf:
            del self.alive[pid]
            self._list_processes()

    def write(self, path: str, text: str) -> None:
        """Write a file, by the rules of the kernel."""
        if path not in self.files:
            raise _fault(errno.ENOENT)
        folder, _, name = path.rpartition("/")
        if name in _READ_ONLY:
            raise _fault(errno.EINVAL)  # root may open it, but it takes nothing
        self._check(folder, name, text)
        self.written.append((path, text))
        match name:
            case "cgroup.kill":
                within = self._group_of(path) or ""
                self.alive = {
                    pid: at
                    for pid, at in self.alive.items()
                    if at != within and not at.startswith(f"{within}/")
                }
                self._list_processes()
            case "memory.reclaim":
                taken = min(int(text), self.reclaimable_bytes)
                self._add(f"{folder}/memory.current", -taken)
                self.reclaimable_bytes -= taken
                if taken < int(text):
                    raise _fault(errno.EAGAIN)
            case _:
                self.files[path] = f"{text}\n"

    def _check(self, folder: str, name: str, text: str) -> None:
        """Refuse what the kernel refuses."""
        match name:
            case "cpu.cfs_quota_us":
                self._check_quota(folder, int(text))
            case "cpu.max":
                amount = text.split()[0]
                if amount != "max" and int(amount) < 1_000:
                    raise _fault(errno.EINVAL)
            case "cpu.shares" | "cpu.weight" if self.files.get(f"{folder}/cpu.idle", "0\n") == "1\n":
                raise _fault(errno.EINVAL)
            case "cpu.weight" if not 1 <= int(text) <= 10_000:
                raise _fault(errno.ERANGE)
            case "cpu.idle" if text not in ("0", "1"):
                raise _fault(errno.EINVAL)
            case "cgroup.kill" if text != "1":
                raise _fault(errno.ERANGE)
            case "cgroup.freeze" if text not in ("0", "1"):
                raise _fault(errno.ERANGE)

    def _check_quota(self, folder: str, quota_us: int) -> None:
        """Refuse what is smaller than 1 ms, larger than what holds it, or smaller than what is in it."""
        if quota_us < 0:
            return
        if quota_us < 1_000:
            raise _fault(errno.EINVAL)
        share = quota_us / int(self.files[f"{folder}/cpu.cfs_period_us"])
        above = folder.rpartition("/")[0]
        while f"{above}/cpu.cfs_quota_us" in self.files:
            bound = self._share(above)
            if bound is not None and share > bound:
                raise _fault(errno.EINVAL)
            above = above.rpartition("/")[0]
        if any(share < (own or 0.0) for own in map(self._share, self._folders_below(folder))):
            raise _fault(errno.EINVAL)

    def _share(self, folder: str) -> float | None:
        quota_us = int(self.files[f"{folder}/cpu.cfs_quota_us"])
        return None if quota_us < 0 else quota_us / int(self.files[f"{folder}/cpu.cfs_period_us"])

    def _folders_below(self, folder: str) -> Iterator[str]:
        for path in self.files:
            if path.startswith(f"{folder}/") and path.endswith("/cpu.cfs_quota_us"):
                below = path.rpartition("/")[0]
                if below != folder:
                    yield below

    def _group_of(self, path: str) -> str | None:
        """Return the group of a file, "" of the root of a hierarchy, None where it is in none."""
        for mount in self._hierarchies:
            if path.startswith(f"{mount}/"):
                return path[len(mount) + 1 :].rpartition("/")[0]
        return None


def _fault(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def memory_cgroups(kernel: KernelFolder, root: str = "") -> Cgroups:
    """Return the control groups of a kernel in memory."""
    return open_cgroups(root, kernel)
