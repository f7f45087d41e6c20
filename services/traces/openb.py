"""The openb trace as watch events: 1,523 nodes and 8,152 pods of a production GPU cluster, in order."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import uuid
from collections.abc import Callable, Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from domain.model.errors import BerthError

BASE = datetime.datetime(2023, 1, 1, tzinfo=datetime.UTC)
"""The trace counts seconds from its start; this is where we put that start."""

NAMESPACE = "openb"
GPU = "nvidia.com/gpu"
GPU_MILLI = "berth.dev/gpu-milli"
GPU_PRODUCT = "nvidia.com/gpu.product"
NODE_FILE = "openb_node_list_all_node.csv"

# The largest node has 128 cores and the smallest pod asks for one, so a pod count never decides.
PODS_PER_NODE = 128

_IDS = uuid.UUID("6f70656e-6200-5000-8000-000000000000")
Event = dict[str, Any]
_T = TypeVar("_T")


class TraceError(BerthError):
    """A file of the trace is missing or cannot be read."""

    code = "trace"


def bundled() -> Traversable:
    """Return the folder with the data that comes with berth."""
    return resources.files("services.traces.openb_data")


def events(
    directory: Path | None = None, pods: str = "default", *, with_deletions: bool = False
) -> Iterator[Event]:
    """Return the trace as watch events: all nodes, then the pods by time.

    Parameters
    ----------
    directory : Path, optional
        Where the CSV files are; the bundled data without it.
    pods : str
        Which pod list: ``default``, ``gpuspec33``, or another one that lies in ``directory``.
    with_deletions : bool
        Also delete each pod when it ended; without it all pods are alive at the end.

    Raises
    ------
    TraceError
        A file is missing or a row does not read.
    """
    folder: Traversable = bundled() if directory is None else directory
    node_rows = rows_of(folder, NODE_FILE)
    pod_rows = rows_of(folder, f"openb_pod_list_{pods}.csv.gz", f"openb_pod_list_{pods}.csv")
    return _stream(node_rows, pod_rows, pods, with_deletions)


def _stream(
    nodes: list[dict[str, str]], pods: list[dict[str, str]], pod_list: str, with_deletions: bool
) -> Iterator[Event]:
    for number, row in enumerate(nodes, start=1):
        yield _event("ADDED", _read(NODE_FILE, number, node_of, row, number), 0, "nodes")
    # At equal times creations come before deletions; the file's order decides between equals.
    order: list[tuple[int, int, int]] = []
    for number, row in enumerate(pods):
        order += _read(pod_list, number + 1, _times, row, number, with_deletions)
    order.sort()
    for seconds, deletion, number in order:
        version = 1_000_000 + 2 * number + deletion
        pod = _read(pod_list, number + 1, pod_of, pods[number], pod_list, version)
        yield _event("DELETED" if deletion else "ADDED", pod, seconds, pod_list)


def _times(row: dict[str, str], number: int, with_deletions: bool) -> list[tuple[int, int, int]]:
    times = [(int(row.get("creation_time") or number), 0, number)]
    if with_deletions and row.get("deletion_time"):
        times.append((int(row["deletion_time"]), 1, number))
    return times


def _read(source: str, number: int, read: Callable[..., _T], *args: object) -> _T:
    try:
        return read(*args)
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{source}, row {number} does not read: {error!r}") from None


def rows_of(folder: Traversable, *names: str) -> list[dict[str, str]]:
    """Return the rows of the first of some files that is in a folder."""
    for name in names:
        file = folder.joinpath(name)
        if not file.is_file():
            continue
        raw = file.read_bytes()
        try:
            text = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise TraceError(f"{file} does not read: {error}") from None
        return list(csv.DictReader(io.StringIO(text)))
    raise TraceError(f"{names[0]} is not in {folder}; {_available(folder)}")


def _available(folder: Traversable) -> str:
    if not folder.is_dir():
        return "there is no such folder"
    prefix = "openb_pod_list_"
    lists = sorted(
        file.name.removeprefix(prefix).split(".")[0]
        for file in folder.iterdir()
        if file.name.startswith(prefix)
    )
    return f"pod lists there: {', '.join(lists) or 'none'}"


def _event(kind: str, thing: dict[str, Any], seconds: int, source: str) -> Event:
    at = BASE + datetime.timedelta(seconds=seconds)
    name = thing["metadata"]["name"]
    return {
        "type": kind,
        "object": thing,
        "at": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "id": str(uuid.uuid5(_IDS, f"{source}/{kind}/{name}")),
    }


def node_of(row: dict[str, str], number: int) -> dict[str, Any]:
    """Return the manifest of a node; ``number`` is its resource version."""
    gpus = int(row["gpu"])
    labels = {"kubernetes.io/hostname": row["sn"]}
    allocatable = {
        "cpu": f"{int(row['cpu_milli'])}m",
        "memory": f"{int(row['memory_mib'])}Mi",
        "pods": str(PODS_PER_NODE),
    }
    if row["model"]:
        labels[GPU_PRODUCT] = row["model"]
    if gpus:
        allocatable[GPU] = str(gpus)
        allocatable[GPU_MILLI] = str(1000 * gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": row["sn"],
            "uid": f"node-{row['sn']}",
            "resourceVersion": str(number),
            "labels": labels,
        },
        "spec": {},
        "status": {"capacity": allocatable, "allocatable": allocatable},
    }


def pod_of(row: dict[str, str], pod_list: str, version: int) -> dict[str, Any]:
    """Return the manifest of a pod."""
    gpus, milli = int(row["num_gpu"]), int(row["gpu_milli"])
    devices: dict[str, str] = {}
    if gpus and milli >= 1000:
        devices[GPU] = str(gpus)
    if gpus:
        devices[GPU_MILLI] = str(gpus * milli)
    requests = {"cpu": f"{int(row['cpu_milli'])}m", "memory": f"{int(row['memory_mib'])}Mi"} | devices
    container: dict[str, Any] = {"name": "task", "image": "openb/task", "resources": {"requests": requests}}
    if devices:
        container["resources"]["limits"] = devices
    spec: dict[str, Any] = {"containers": [container]}
    if row.get("gpu_spec"):
        models = list(dict.fromkeys(row["gpu_spec"].split("|")))
        wanted = {"key": GPU_PRODUCT, "operator": "In", "values": models}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    metadata: dict[str, Any] = {
        "name": row["name"],
        "namespace": NAMESPACE,
        "uid": f"{pod_list}-{row['name']}",
        "resourceVersion": str(version),
    }
    if row.get("qos"):
        metadata["labels"] = {"qos": row["qos"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
