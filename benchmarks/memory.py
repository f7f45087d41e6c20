"""`berth bench memory`: the memory of a worker per placed pod, measured in two ways.

Way ``folded``: a worker's planner reads the events of nodes and pods and places the pods, batch after batch.
Way ``restored``: a planner starts from what the ledger holds of the same cluster.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import machine
from benchmarks.shapes import SHAPES
from benchmarks.stage import BenchError
from benchmarks.workloads import entry_of, node_manifest, pod_manifest, shaped
from domain.kernels.catalogue import prepare_all
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.limits import batch_records_max
from domain.model.profiles import BUILT_IN_PROFILES
from ops.child import environment, python_module, python_path
from services.codec.decode import Decoder
from services.ports.journal import BATCHES
from services.ports.ledger import Lease, LedgerState, NodeRow, PlacementOpened
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Entry, Record
from services.worker.collector import collect_rarely
from services.worker.planner import Planner

WAYS = ("folded", "restored")
PLAIN, DEPLOYMENTS = "plain", "deployments"
NODES = 20_000
PODS = 1_000_000
GROUPS = 1_000
TARGET_BYTES = 1_024
_LEASE = Lease(0, 1)
_AT_MS = 1_704_067_200_000


class MemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one way, as ``-o json`` shows it. benchmarks/README.md explains the keys."""

    way: str
    shape: str
    nodes: int
    pods: int
    groups: int
    bytes_per_pod: float
    bytes_per_pod_target: int
    bytes_per_pod_over_baseline: float
    resident_bytes: int
    peak_bytes: int
    baseline_bytes: int
    seconds: float
    first_batch_seconds: float


class MemoryRun(msgspec.Struct, frozen=True, kw_only=True):
    """Both ways, and where they ran."""

    ways: list[MemoryReport]
    machine: dict[str, Any]
    versions: dict[str, str]


def measure(nodes: int = NODES, pods: int = PODS, shape: str = PLAIN) -> MemoryRun:
    """Measure both ways, with pods that ask for nothing of each other or are of ``DEPLOYMENTS``.

    Raises
    ------
    BenchError
        A process did not end well.
    """
    described = machine.describe()
    reports = [in_own_process(way, nodes, pods, shape) for way in WAYS]
    return MemoryRun(ways=reports, machine=described, versions=machine.versions())


def in_own_process(way: str, nodes: int, pods: int, shape: str = PLAIN) -> MemoryReport:
    """Measure one way in a process that did nothing else."""
    command = python_module("benchmarks.memory", way, nodes, pods, shape)
    path = environment(PYTHONPATH=python_path())
    done = subprocess.run(command, cwd="/", env=path, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{way}: {done.stderr.strip().rpartition(chr(10))[2]}")
    return msgspec.json.decode(done.stdout, type=MemoryReport)


# ------------------------------------------------------------------------------ in a process of its own


def measure_here(way: str, nodes: int, pods: int, shape: str) -> MemoryReport:
    """Measure one way in this process, which must be fresh."""
    prepare_all()
    collect_rarely()
    groups = min(GROUPS, pods)
    baseline, _ = _resident()
    if way == "folded":
        began = time.perf_counter()
        planner = _folded(nodes, pods, groups, shape)
    else:
        ledger = ledger_of(nodes, pods, groups, shape)
        began = time.perf_counter()
        planner = _planner_at(ledger)
        del ledger
    seconds = time.perf_counter() - began
    _check_placed(planner, pods)
    gc.collect()
    resident, peak = _resident()
    began = time.perf_counter()
    planner.plan(_records(PODS_TOPIC, [pod_of(pods, groups, shape)], pods))
    return MemoryReport(
        way=way,
        shape=shape,
        nodes=nodes,
        pods=pods,
        groups=groups,
        bytes_per_pod=round(resident / pods, 1),
        bytes_per_pod_target=TARGET_BYTES,
        bytes_per_pod_over_baseline=round((resident - baseline) / pods, 1),
        resident_bytes=resident,
        peak_bytes=peak,
        baseline_bytes=baseline,
        seconds=round(seconds, 2),
        first_batch_seconds=round(time.perf_counter() - began, 3),
    )


def _planner_at(ledger: LedgerState) -> Planner:
    planner = Planner(ledger, BUILT_IN_PROFILES, seed=0)
    planner.take_shards([_LEASE], ledger.part)
    return planner


def _folded(nodes: int, pods: int, groups: int, shape: str) -> Planner:
    """Place the pods group by group, like a worker whose batches are thrown away."""
    planner = _planner_at(ledger_of(0, 0, 1, shape))
    for numbers in _batches(nodes):
        planner.plan(_records(NODES_TOPIC, [_node(i, shape) for i in numbers], numbers.start))
    for numbers in _batches(pods):
        entries = [pod_of(i, i * groups // pods, shape) for i in numbers]
        planner.plan(_records(PODS_TOPIC, entries, numbers.start))
        while planner.has_work:
            planner.plan([])
    return planner


def ledger_of(nodes: int, pods: int, groups: int, shape: str) -> LedgerState:
    """Return the ledger's state of the cluster. Repeated texts are shared, as the loader shares them."""
    decoder = Decoder()
    rows, kinds = [], []
    for i in range(nodes):
        event = decoder.decode(_record(NODES_TOPIC, _node(i, shape), i)).event
        assert isinstance(event, NodeUpserted)
        rows.append(NodeRow(id=i + 1, name=event.node.name, version=1, spec=event.node, requested={}))
    for group in range(groups):
        event = decoder.decode(_record(PODS_TOPIC, pod_of(group, group, shape), group)).event
        assert isinstance(event, PodUpserted)
        kinds.append(event.pod)
    names = [row.name for row in rows]
    placements = []
    for i in range(pods):
        kind = kinds[i * groups // pods]
        placements.append(
            PlacementOpened(
                pod_uid=_uid(i),
                namespace=kind.namespace,
                name=_name(i, i * groups // pods),
                resource_version=i + 1,
                signature=kind.signature,
                labels=kind.labels,
                life=kind.life,
                node=names[i % nodes],
                adopted=False,
                shard=0,
                seq=i + 1,
                at_ms=_AT_MS + i,
            )
        )
    return LedgerState(
        offsets={(0, NODES_TOPIC, 0): 0, (0, PODS_TOPIC, 0): 0, (0, BATCHES, 0): 0},
        nodes=rows,
        templates={kind.signature: kind.template for kind in kinds},
        placements=placements,
        pending=[],
        tombstones=[],
        profiles=[],
        config=[],
        usage=[],
        seq_next={0: pods + 1},
        dead_seq_next={0: 1},
        log_time_ms=_AT_MS,
        seal_secret=b"",
    )


def _batches(count: int) -> Iterator[range]:
    for first in range(0, count, batch_records_max):
        yield range(first, min(count, first + batch_records_max))


def _node(number: int, shape: str) -> Entry:
    return entry_of(node_manifest(number, SHAPES[shape].zones), number)


def pod_of(number: int, group: int, shape: str) -> Entry:
    """Return a pod named as controllers name them: a name of 25 characters and a uid of 36."""
    asks = (f"{50 + group % 25}m", f"{100 + group // 25}Mi")  # fifty of them fit a node
    manifest = pod_manifest(_name(number, group), number, *asks)
    manifest["metadata"] |= {"uid": _uid(number), "labels": {"app": f"web-{group:04}"}}
    if shape != PLAIN:
        (kind,) = SHAPES[shape].kinds
        shaped(manifest, kind(group))
    return entry_of(manifest, number)


def _name(number: int, group: int) -> str:
    return f"web-{group:04}-7d4b9c6f-{number:07}"


def _uid(number: int) -> str:
    return f"5c1f4f0e-93b7-4000-8000-{number:012}"


def _records(topic: str, entries: list[Entry], first: int) -> list[Record]:
    return [_record(topic, entry, first + i) for i, entry in enumerate(entries)]


def _record(topic: str, entry: Entry, offset: int) -> Record:
    return Record(topic, 0, offset, entry.key, entry.value, _AT_MS)


def _check_placed(planner: Planner, pods: int) -> None:
    placed = sum(bool(pod.node) for pod in planner.scheduler.state.pods.values())
    if placed != pods:
        raise BenchError(f"{placed} of {pods} pods have a node; ask for more nodes")


def _resident() -> tuple[int, int]:
    """Return the resident bytes of this process: now, and the maximum so far."""
    sizes = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("VmRSS", "VmHWM"):
            sizes[name] = int(rest.split()[0]) << 10
    return sizes["VmRSS"], sizes["VmHWM"]


if __name__ == "__main__":
    sys.stdout.buffer.write(
        msgspec.json.encode(measure_here(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
    )
