"""Which control groups this machine has, and where they are mounted."""

from __future__ import annotations

from domain.model.errors import BerthError
from services.adapters.cgroups.files import Files, KernelFiles
from services.adapters.cgroups.tree import Tree
from services.adapters.cgroups.v1 import CgroupsV1, Hierarchies
from services.adapters.cgroups.v2 import CgroupsV2
from services.ports.cgroups import Cgroups

_MOUNTS = "/proc/self/mounts"
_CONTROLLERS = ("cpu", "cpuacct", "memory", "freezer")


class NoCgroups(BerthError):
    """This machine has no control groups by which pods could be measured."""

    code = "no-cgroups"


def open_cgroups(root: str = "", files: Files | None = None) -> Cgroups:
    """Return the control groups below ``root`` in each hierarchy.

    Where a hierarchy of version 1 has the controller cpu, all is of version 1, with that of version 2 beside
    it (a hybrid system).

    Raises
    ------
    NoCgroups
        No hierarchy counts cpu.
    """
    files, root = files or KernelFiles(), root.strip("/")
    found: dict[str, Tree] = {}
    for line in files.read(_MOUNTS).splitlines():
        _, folder, kind, options, *_ = line.split()
        tree = Tree(files, folder, root)
        if kind == "cgroup2":
            found.setdefault("unified", tree)
        elif kind == "cgroup":
            for name in set(_CONTROLLERS) & set(options.split(",")):
                found.setdefault(name, tree)
    if {"cpu", "cpuacct", "memory"} <= found.keys():
        return CgroupsV1(Hierarchies(**found))
    if "unified" in found:
        return CgroupsV2(found["unified"])
    raise NoCgroups(
        f"{_MOUNTS} names no cgroup2, nor cgroup with cpu, cpuacct and memory: nothing to measure"
    )
