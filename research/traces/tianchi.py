"""Tianchi's contest of 2018: 6,000 machines and 68,224 instances of a production cell of Alibaba.

Each application has a curve of CPU and one of memory, of 98 points over a day, and rules that limit what may
be beside it. ``read`` gives all as arrays, ``events`` as watch events. The data does not come with berth.
"""

from __future__ import annotations

import gzip
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from domain.model.limits import pods_per_node_max
from services.traces.openb import TraceError

POINTS = 98
"""Points of a curve, 15 minutes apart."""

STARTED = "2018-01-01T00:00:00Z"
"""The data has no dates; this is where we put its start."""

NAMESPACE = "tianchi"
APP = "app"
HOST = "kubernetes.io/hostname"
COUNTED = ("contest.tianchi/p", "contest.tianchi/m", "contest.tianchi/pm")
"""What a machine offers of the three sorts of important instances, as resources."""

_IDS = uuid.UUID("7469616e-6368-5000-8000-000000000000")
_MICRO = 1_000_000
Event = dict[str, Any]


class Rule(NamedTuple):
    """A machine that holds some of app ``app`` holds at most ``most`` of app ``other`` in all."""

    app: int
    other: int
    most: int


class Tianchi(NamedTuple):
    """The data: N machines, A applications, P instances, in the order of the files.

    Attributes
    ----------
    machines, apps, instances : list of str
        Their names.
    machine_cpu, machine_memory : int64[N]
        Millionths of a core, millionths of a GB.
    machine_counts : int64[N, 4]
        Disk in GB, and how many of the three sorts of important instances a machine takes (P, M, PM).
    app_cpu, app_memory : int64[A, 98]
        What an instance uses, in the same units.
    app_counts : int64[A, 4]
        Disk and what an instance counts of each sort.
    app : int32[P]
        The application of each instance.
    machine : int32[P]
        Where it already is; N where it is pending.
    rules : list of Rule
        Rules of an app about itself allow one more than the file says: k *beside the first*.
    """

    machines: list[str]
    apps: list[str]
    instances: list[str]
    machine_cpu: np.ndarray
    machine_memory: np.ndarray
    machine_counts: np.ndarray
    app_cpu: np.ndarray
    app_memory: np.ndarray
    app_counts: np.ndarray
    app: np.ndarray
    machine: np.ndarray
    rules: list[Rule]


def read(directory: Path) -> Tianchi:
    """Read the data from the four files of the contest, packed or not.

    Raises
    ------
    TraceError
        A file is missing, or a row does not read.
    """
    machine_rows = _rows(directory, "machine_resources", 7)
    app_rows = _rows(directory, "app_resources", 7)
    instance_rows = _rows(directory, "instance_deploy", 3)
    rule_rows = _rows(directory, "app_interference", 3)
    try:
        machines = {row[0]: number for number, row in enumerate(machine_rows)}
        apps = {row[0]: number for number, row in enumerate(app_rows)}
        offers = np.array([row[1:] for row in machine_rows], np.float64).reshape(-1, 6)
        return Tianchi(
            list(machines),
            list(apps),
            [row[0] for row in instance_rows],
            _micro(offers[:, 0]),
            _micro(offers[:, 1]),
            offers[:, 2:].astype(np.int64),
            _curves(app_rows, 1),
            _curves(app_rows, 2),
            np.array([row[3:] for row in app_rows], np.float64).astype(np.int64).reshape(-1, 4),
            np.array([apps[row[1]] for row in instance_rows], np.int32),
            np.array([machines[row[2]] if row[2] else len(machines) for row in instance_rows], np.int32),
            [Rule(apps[a], apps[b], int(most) + (a == b)) for a, b, most in rule_rows],
        )
    except (KeyError, ValueError) as error:
        raise TraceError(f"{directory}: a row does not read: {error!r}") from None


def _rows(directory: Path, name: str, columns_count: int) -> list[list[str]]:
    found = sorted(directory.glob(f"*{name}*.csv*"))
    if len(found) != 1:
        raise TraceError(f"{directory} has {len(found)} files *{name}*.csv or .csv.gz; it must have one")
    try:
        raw = found[0].read_bytes()
        text = (gzip.decompress(raw) if found[0].suffix == ".gz" else raw).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TraceError(f"{found[0]} does not read: {error}") from None
    rows = [line.split(",") for line in text.splitlines() if line]
    for number, row in enumerate(rows, start=1):
        if len(row) != columns_count:
            raise TraceError(f"{found[0].name}, row {number} has {len(row)} fields, not {columns_count}")
    return rows


def _curves(rows: list[list[str]], column: int) -> np.ndarray:
    return _micro(np.array([row[column].split("|") for row in rows], np.float64).reshape(len(rows), POINTS))


def _micro(amounts: np.ndarray) -> np.ndarray:
    micro: np.ndarray = np.rint(amounts * _MICRO).astype(np.int64)
    return micro


def events(trace: Tianchi, *, keep_placed: bool = True) -> Iterator[Event]:
    """Yield all machines as nodes and then all instances as pods, in the order of the files.

    A pod asks for the highest point of each of its curves. Rules that allow nothing of the other app are
    required anti-affinity by the host; no Kubernetes object can say "at most two of these beside me", so the
    rules that allow some are left out.

    Parameters
    ----------
    keep_placed : bool
        Instances that already have a machine are bound to it; else all of them wait.
    """
    for number, name in enumerate(trace.machines):
        yield _event(_node(trace, number, name), number + 1)
    shunned: dict[int, list[str]] = {}
    for rule in trace.rules:
        if rule.most <= int(rule.app == rule.other):
            shunned.setdefault(rule.app, []).append(trace.apps[rule.other])
    peaks = trace.app_cpu.max(axis=1), trace.app_memory.max(axis=1)
    first = len(trace.machines) + 1
    for number, name in enumerate(trace.instances):
        app, machine = int(trace.app[number]), int(trace.machine[number])
        spec: dict[str, Any] = {
            "containers": [
                {"name": APP, "image": APP, "resources": {"requests": _requests(trace, app, *peaks)}}
            ]
        }
        if app in shunned:
            who = {"matchExpressions": [{"key": APP, "operator": "In", "values": shunned[app]}]}
            terms = [{"labelSelector": who, "topologyKey": HOST}]
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        if keep_placed and machine < len(trace.machines):
            spec["nodeName"] = _name(trace.machines[machine])
        metadata = {"namespace": NAMESPACE, "name": _name(name), "labels": {APP: trace.apps[app]}}
        yield _event(_object("Pod", metadata, spec, first + number), first + number)


def _node(trace: Tianchi, number: int, name: str) -> dict[str, Any]:
    offers = {
        "cpu": f"{trace.machine_cpu[number]}u",
        "memory": _memory(trace.machine_memory[number]),
        "ephemeral-storage": f"{trace.machine_counts[number, 0]}G",
        "pods": str(min(len(trace.instances), pods_per_node_max)),
        **{name: str(most) for name, most in zip(COUNTED, trace.machine_counts[number, 1:], strict=True)},
    }
    metadata = {"name": _name(name), "labels": {HOST: _name(name)}}
    return _object("Node", metadata, {}, number + 1) | {"status": {"allocatable": offers, "capacity": offers}}


def _requests(trace: Tianchi, app: int, cpu: np.ndarray, memory: np.ndarray) -> dict[str, str]:
    counts = {name: int(n) for name, n in zip(COUNTED, trace.app_counts[app, 1:], strict=True)}
    return {
        "cpu": f"{cpu[app]}u",
        "memory": _memory(memory[app]),
        "ephemeral-storage": f"{trace.app_counts[app, 0]}G",
        **{name: str(count) for name, count in counts.items() if count},
    }


def _memory(micro: int) -> str:
    return f"{micro}k"  # a millionth of a GB is a thousand bytes


def _name(name: str) -> str:
    return name.replace("_", "-")


def _object(kind: str, metadata: dict[str, Any], spec: dict[str, Any], version: int) -> dict[str, Any]:
    uid = f"{kind.lower()}-{metadata['name']}"
    identity = {"uid": uid, "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata | identity, "spec": spec}


def _event(thing: dict[str, Any], number: int) -> Event:
    return {"type": "ADDED", "object": thing, "at": STARTED, "id": str(uuid.uuid5(_IDS, str(number)))}
