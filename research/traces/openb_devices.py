"""The openb trace by devices: nodes and pods as shapes, in the order of their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from domain.search.mix import ANY_MODEL, Shape
from research.devices.placing import DeviceNode
from services.traces.openb import NODE_FILE, TraceError, bundled, rows_of

GPU_NODE_FILE = "openb_node_list_gpu_node.csv"
"""The 1,213 nodes that have a GPU, renumbered: a name is not that of the same node in ``NODE_FILE``."""


class DeviceCluster(NamedTuple):
    """Nodes and pods; cpu in thousandths, memory in MiB."""

    nodes: list[DeviceNode]
    pods: list[Shape]


def device_cluster(
    pods: str = "default", *, gpu_nodes_only: bool = False, directory: Path | None = None
) -> DeviceCluster:
    """Return the nodes and the pods of a pod list, as ``openb.events`` reads them.

    Raises
    ------
    TraceError
        A file is missing or a row does not read.
    """
    folder = bundled() if directory is None else directory
    bits: dict[str, int] = {}
    file = GPU_NODE_FILE if gpu_nodes_only else NODE_FILE
    try:
        nodes = [
            DeviceNode(
                int(row["cpu_milli"]),
                int(row["memory_mib"]),
                int(row["gpu"]),
                bits.setdefault(row["model"], len(bits)),
            )
            for row in rows_of(folder, file)
        ]
        shapes = [
            _shape(row, bits)
            for row in rows_of(folder, f"openb_pod_list_{pods}.csv.gz", f"openb_pod_list_{pods}.csv")
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"a row of {file} or of the pod list {pods} does not read: {error!r}") from None
    return DeviceCluster(nodes, shapes)


def _shape(row: dict[str, str], bits: dict[str, int]) -> Shape:
    count = int(row["num_gpu"])
    models = ANY_MODEL
    if count and row.get("gpu_spec"):
        models = sum(1 << bits.setdefault(name, len(bits)) for name in set(row["gpu_spec"].split("|")))
    milli = int(row["gpu_milli"]) if count else 0
    return Shape(int(row["cpu_milli"]), int(row["memory_mib"]), count, milli, models)


def arrivals(cluster: DeviceCluster, seed: int, ratio: float) -> tuple[list[int], list[int]]:
    """Return an order of the nodes, and pods that ask for ``ratio`` of all devices, by their numbers.

    All pods come once; pods drawn uniformly are added as long as the next one is within the ratio; then all
    are shuffled. Source: the workloads of Weng et al., USENIX ATC 2023.
    """
    random = np.random.default_rng(seed)
    target = ratio * 1000 * sum(each.devices for each in cluster.nodes)
    pods = list(range(len(cluster.pods)))
    asked = sum(_milli(cluster.pods))
    while True:
        drawn = int(random.integers(len(cluster.pods)))
        asked += cluster.pods[drawn].number * cluster.pods[drawn].milli
        if asked > target:
            break
        pods.append(drawn)
    nodes = random.permutation(len(cluster.nodes)).tolist()
    return nodes, random.permutation(pods).tolist()


def _milli(pods: Sequence[Shape]) -> list[int]:
    return [each.number * each.milli for each in pods]
