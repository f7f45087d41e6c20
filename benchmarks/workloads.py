"""Workloads as a data table: which nodes and pods a measurement uses, and their events."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from benchmarks.shapes import HOST, SHAPES, TEAM, ZONE, Json
from domain.model.errors import BerthError
from domain.model.pods import DEFAULT_PROFILE
from domain.model.profiles import BUILT_IN_PROFILES
from services.codec.encode import encode_event
from services.ports.log import Entry
from services.traces import openb

NAMESPACE = "bench"
_IDS = uuid.UUID("62656e63-6800-5000-8000-000000000000")
_AT = "2024-01-01T00:00:00Z"
_NODE_ROOM = {"cpu": "4", "memory": "32Gi", "pods": "110"}


class WorkloadError(BerthError):
    """A workload cannot be made in the size that was asked for."""

    code = "workload"


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table.

    ``pods_before`` are placed before the clock starts. ``groups`` is the number of different pod specs among
    the measured pods, which take turns. 1 gives equal pods of 100m and 500Mi, 0 leaves it to the trace.
    ``shape`` names what the pods ask of each other, and ``profile`` their scheduling profile.
    """

    name: str
    about: str
    nodes: int
    pods: int
    pods_before: int = 0
    groups: int = 1
    shape: str = "plain"
    profile: str = DEFAULT_PROFILE


class Material(NamedTuple):
    """The records of a workload, in the order in which they are produced."""

    config: list[Entry]
    nodes: list[Entry]
    before: list[Entry]
    pods: list[Entry]


def _shaped(
    name: str, about: str, *, shape: str = "", pods_before: int = 5_000, pods: int = 20_000, groups: int = 1
) -> Workload:
    return Workload(
        name=name,
        about=about,
        nodes=5_000,
        pods_before=pods_before,
        pods=pods,
        groups=groups,
        shape=shape or name,
    )


_TABLE = (
    Workload(
        name="openb",
        about="a GPU cluster's trace: all nodes, then all pods in the order of their creation",
        nodes=1_523,
        pods=8_152,
        groups=0,
    ),
    Workload(name="plain-500", about="equal pods on equal nodes", nodes=500, pods_before=500, pods=1_000),
    Workload(
        name="plain-5000", about="equal pods on equal nodes", nodes=5_000, pods_before=1_000, pods=10_000
    ),
    Workload(
        name="groups-1000",
        about="many pods of many kinds, which come in turns",
        nodes=5_000,
        pods=100_000,
        groups=1_000,
    ),
    Workload(
        name="distinct", about="no two pods ask for the same", nodes=5_000, pods=100_000, groups=100_000
    ),
    _shaped("spread-zone-hard", "one selector, at most 5 pods more in one zone than in another"),
    _shaped("spread-zone-soft", "the same, where possible"),
    _shaped("affinity-zone", "each pod in the zone of the others"),
    _shaped("affinity-host-soft", "each pod on a node of another one where possible", pods=10_000),
    _shaped("anti-host", "no two pods on a node", pods_before=1_000, pods=3_000),
    _shaped("anti-host-soft", "no two pods on a node where possible"),
    _shaped("mixed", "plain pods and four of the above, in turns", pods=10_000, groups=5),
    _shaped("namespaces-anti", "no two pods of 100 namespaces on a node", pods_before=1_000, pods=3_000),
    _shaped("namespaces-affinity", "each pod in the zone of the others, in 100 namespaces"),
    _shaped(
        "deployments-500",
        "500 selectors in turns, each spread over zones, and over nodes where possible",
        shape="deployments",
        pods_before=0,
        pods=50_000,
        groups=500,
    ),
)
WORKLOADS: Mapping[str, Workload] = {row.name: row for row in _TABLE}
"""All workloads by name."""


def resized(
    workload: Workload,
    *,
    nodes: int | None = None,
    pods: int | None = None,
    groups: int | None = None,
    profile: str | None = None,
) -> Workload:
    """Return the workload in another size, or of another built-in profile. What is None stays as it is.

    Raises
    ------
    WorkloadError
        A trace cannot grow, and its groups and its profile cannot be set. There is no such profile.
    """
    if profile is not None and profile not in BUILT_IN_PROFILES:
        raise WorkloadError(f"profile {profile} is not built in; allowed are {', '.join(BUILT_IN_PROFILES)}")
    is_trace = workload.groups == 0
    if is_trace and (
        groups is not None
        or profile is not None
        or (nodes or 0) > workload.nodes
        or (pods or 0) > workload.pods
    ):
        raise WorkloadError(
            f"{workload.name} has {workload.nodes} nodes and {workload.pods} pods of its own kinds; "
            "it can be cut, not made larger or regrouped"
        )
    size = {"nodes": nodes, "pods": pods, "groups": groups, "profile": profile}
    changed: dict[str, Any] = {key: value for key, value in size.items() if value is not None}
    if not is_trace and groups is None and pods is not None:
        all_differ = workload.groups == workload.pods
        changed["groups"] = pods if all_differ else min(workload.groups, pods)
    return msgspec.structs.replace(workload, **changed)


def material(workload: Workload) -> Material:
    """Return the records of a workload, the same ones at each call."""
    if workload.groups == 0:
        nodes, pods = _trace(workload)
        return Material([], nodes, [], pods)
    shape = SHAPES[workload.shape]
    names = [_namespace(i) for i in range(shape.namespaces if shape.namespaces > 1 else 0)]
    return Material(
        config=[entry_of(namespace_manifest(name), i) for i, name in enumerate(names)],
        nodes=[entry_of(node_manifest(i, shape.zones), i) for i in range(workload.nodes)],
        before=[entry_of(pod_of(workload, "before", i), i) for i in range(workload.pods_before)],
        pods=[entry_of(pod_of(workload, "pod", i), i) for i in range(workload.pods)],
    )


def pod_of(workload: Workload, prefix: str, number: int) -> Json:
    """Return a pod of a workload by its number: one that is there ``before``, or a measured ``pod``."""
    shape, group = SHAPES[workload.shape], number % workload.groups
    kinds = shape.before if prefix == "before" and shape.before else shape.kinds
    more = kinds[group % len(kinds)](group)
    asks = asks_of(group, workload.groups)
    manifest = pod_manifest(f"{prefix}-{number:07}", number, *asks)
    shaped(manifest, more)
    if shape.namespaces > 1:
        manifest["metadata"]["namespace"] = _namespace(number % shape.namespaces)
    if workload.profile != DEFAULT_PROFILE:
        manifest["spec"]["schedulerName"] = workload.profile
    return manifest


def shaped(manifest: Json, kind: Json) -> None:
    """Write into a pod what a kind of pod has of its own."""
    in_metadata = ("labels", "ownerReferences")
    manifest["metadata"] |= {key: value for key, value in kind.items() if key in in_metadata}
    manifest["spec"] |= {key: value for key, value in kind.items() if key not in in_metadata}


def _namespace(number: int) -> str:
    return f"{NAMESPACE}-{number:03}"


def _trace(workload: Workload) -> tuple[list[Entry], list[Entry]]:
    nodes: list[Entry] = []
    pods: list[Entry] = []
    for event in openb.events():
        thing = event["object"]
        entry = Entry(_key(thing), encode_event(event["type"], thing, event["at"], event["id"]))
        (nodes if thing["kind"] == "Node" else pods).append(entry)
    return nodes[: workload.nodes], pods[: workload.pods]


def asks_of(group: int, groups: int) -> tuple[str, str]:
    """Return cpu and memory of a group: all different, and small enough for every workload of the table."""
    if groups == 1:
        return "100m", "500Mi"
    return f"{50 + group % 150}m", f"{100 + group // 150}Mi"


def node_manifest(number: int, zones: int = 0) -> Json:
    """Return a node of the table, in one of so many zones."""
    name = f"node-{number:05}"
    labels = {HOST: name} | ({ZONE: f"zone-{number % zones}"} if zones else {})
    metadata = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": str(number + 1),
        "labels": labels,
    }
    status = {"capacity": _NODE_ROOM, "allocatable": _NODE_ROOM}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status}


def namespace_manifest(name: str) -> Json:
    """Return a namespace whose pods count for selectors of ``TEAM``."""
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": TEAM}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def pod_manifest(name: str, number: int, cpu: str, memory: str) -> Json:
    """Return a pod with one container."""
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "resourceVersion": str(number + 1),
        "labels": {"app": "bench"},
    }
    asks = {"requests": {"cpu": cpu, "memory": memory}}
    spec = {"containers": [{"name": "main", "image": "bench/main", "resources": asks}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def entry_of(thing: Json, number: int) -> Entry:
    """Return the record that adds an object."""
    key = _key(thing)
    event_id = str(uuid.uuid5(_IDS, f"{key.decode()}/{number}"))
    return Entry(key, encode_event("ADDED", thing, _AT, event_id))


def _key(thing: Json) -> bytes:
    """Return the key of an object's events: ``name`` or ``namespace/name``, ``kind/name`` of a namespace."""
    metadata = thing["metadata"]
    first = thing["kind"] if thing["kind"] == "Namespace" else metadata.get("namespace")
    return "/".join(filter(None, (first, metadata["name"]))).encode()


def batches(entries: list[Entry], size: int) -> Iterator[tuple[Entry, ...]]:
    """Cut entries into batches."""
    rest = iter(entries)
    while batch := tuple(itertools.islice(rest, size)):
        yield batch
