"""Hostile bursts: what one producer can send to keep the scheduler busy, and how long another's pod waits.

Run it with ``python -m benchmarks.hostile [name ...]``: decode, fold and plan in this process, without any
server, for as many batches as it takes until the ordinary pod behind the burst is decided.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from benchmarks.shapes import Json
from benchmarks.workloads import node_manifest, pod_manifest
from domain.model.limits import batch_bytes_max, batch_records_max
from domain.model.profiles import BUILT_IN_PROFILES
from services.ports.journal import BATCHES
from services.ports.ledger import CommitBatch, Lease, LedgerState
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, Record
from services.worker.planner import Planner

ORDINARY = "ordinary/pod"
_HOSTILE = "hostile"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Burst(NamedTuple):
    """An attack: what it adds to the i-th node and to the i-th pod of the producer."""

    about: str
    node: Callable[[int, Json], None]
    pod: Callable[[int, Json], None]


def _nothing(number: int, thing: Json) -> None:
    pass


def _unique_taints(number: int, node: Json) -> None:
    node["spec"]["taints"] = [
        {"key": f"k{number}-{i}", "value": f"v{i}", "effect": "NoSchedule"} for i in range(45)
    ]


def _shared_taints(number: int, node: Json) -> None:
    """Few keys, each value once: a toleration of a key covers a taint of every node."""
    node["spec"]["taints"] = [
        {"key": f"k{i}", "value": f"v{number}", "effect": "NoSchedule"} for i in range(45)
    ]


def _unique_tolerations(number: int, pod: Json) -> None:
    pod["spec"]["tolerations"] = [
        {"key": f"k{number}-{i}", "operator": "Equal", "value": f"w{i}"} for i in range(30)
    ]


def _key_tolerations(number: int, pod: Json) -> None:
    pod["spec"]["tolerations"] = [
        *({"key": f"k{i}", "operator": "Exists"} for i in range(44)),
        {"key": f"x{number}", "operator": "Exists"},
    ]


def _compared_tolerations(number: int, pod: Json) -> None:
    pod["spec"]["tolerations"] = [{"key": f"k{i}", "operator": "Gt", "value": str(number)} for i in range(30)]


def _labels(number: int, node: Json) -> None:
    labels = node["metadata"]["labels"]
    labels.update({f"l{i}": str(number) for i in range(30)})
    labels.update({f"u{number}-{i}": "x" for i in range(30)})


def _terms(number: int, operators: Sequence[str], terms: int, values: int) -> list[Json]:
    made = []
    for term in range(terms):
        expressions: list[Json] = []
        for e, operator in enumerate(operators):
            expression: Json = {"key": f"l{(term + e) % 30}", "operator": operator}
            if operator in ("In", "NotIn"):
                expression["values"] = [str(number * 7 + term + value) for value in range(values)]
            elif operator in ("Gt", "Lt"):
                expression["values"] = [str(number + term)]
            expressions.append(expression)
        made.append({"matchExpressions": expressions})
    return made


def _affinity(operators: Sequence[str], *, terms: int = 30, values: int = 1) -> Callable[[int, Json], None]:
    def add(number: int, pod: Json) -> None:
        selector = {"nodeSelectorTerms": _terms(number, operators, terms, values)}
        pod["spec"]["affinity"] = {"nodeAffinity": {_REQUIRED: selector}}

    return add


def _node_selector(number: int, pod: Json) -> None:
    pod["spec"]["nodeSelector"] = {f"u{number}-{i}": "x" for i in range(100)}


def _images(number: int, node: Json) -> None:
    node["status"]["images"] = [{"names": [f"i{number}-{i}:1"], "sizeBytes": 1 << 30} for i in range(60)]


def _host_ports(number: int, pod: Json) -> None:
    ports = [{"containerPort": 1 + i, "hostPort": 1 + (number + i) % 60_000} for i in range(60)]
    pod["spec"]["containers"][0]["ports"] = ports


def _many_resources(number: int, pod: Json) -> None:
    asks = pod["spec"]["containers"][0]["resources"]["requests"]
    asks.update({f"a.io/r{(number + i) % 60}": "1" for i in range(8)})


BURSTS: Mapping[str, Burst] = {
    "none": Burst("nodes and pods as they are, all different", _nothing, _nothing),
    "taints": Burst("45 taints a node, 30 tolerations a pod", _unique_taints, _unique_tolerations),
    "taint-keys": Burst("taints of 45 keys, tolerations of 45 keys", _shared_taints, _key_tolerations),
    "taint-numbers": Burst("tolerations that compare numbers", _shared_taints, _compared_tolerations),
    "in": Burst("30 terms of 6 In with 3 values", _labels, _affinity(["In"] * 6, values=3)),
    "in-many": Burst("30 terms with 60 values twice", _labels, _affinity(["NotIn", "In"], values=60)),
    "compare": Burst("30 terms of Gt, Lt and Exists", _labels, _affinity(["Gt", "Lt", "Exists", "Gt"])),
    "selector": Burst("100 labels in the node selector", _labels, _node_selector),
    "images": Burst("60 images a node", _images, _nothing),
    "ports": Burst("60 host ports a pod", _nothing, _host_ports),
    "resources": Burst("10 resources a pod", _nothing, _many_resources),
}


def records(burst: Burst, nodes: int, pods: int) -> Iterator[Record]:
    """Yield the burst: nodes, then pods that are all different, then the ordinary pod."""
    for number in range(nodes):
        node = node_manifest(number)
        burst.node(number, node)
        yield _record(NODES_TOPIC, number, node)
    for number in range(pods):
        pod = pod_manifest(f"p{number}", number, f"{100 + number % 50}m", f"{100 + number // 50}Mi")
        pod["metadata"]["namespace"] = _HOSTILE
        burst.pod(number, pod)
        yield _record(PODS_TOPIC, number, pod)
    yield _record(PODS_TOPIC, pods, ordinary_pod())


def ordinary_pod() -> Json:
    """Return a pod that tolerates everything, so that it finds a node."""
    namespace, name = ORDINARY.split("/")
    pod = pod_manifest(name, 0, "100m", "100Mi")
    pod["metadata"]["namespace"] = namespace
    pod["spec"]["tolerations"] = [{"operator": "Exists"}]
    return pod


def _record(topic: str, offset: int, thing: Json) -> Record:
    metadata = thing["metadata"]
    key = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    return Record(topic, 0, offset, key.encode(), orjson.dumps({"type": "ADDED", "object": thing}), 1_000)


def new_planner() -> Planner:
    """Return a planner of one shard on an empty ledger."""
    topics = (CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, BATCHES)
    ledger = LedgerState(
        offsets={(0, topic, 0): 0 for topic in topics},
        nodes=(),
        templates={},
        placements=[],
        pending=(),
        tombstones=[],
        profiles=(),
        config=(),
        usage=(),
        seq_next={0: 1},
        dead_seq_next={0: 1},
        log_time_ms=0,
        seal_secret=b"",
    )
    planner = Planner(ledger, BUILT_IN_PROFILES, seed=0)
    planner.take([Lease(0, 1)], ledger.part)
    return planner


def cut(waiting: Sequence[Record]) -> Iterator[list[Record]]:
    """Cut records into batches as the worker's intake does."""
    batch: list[Record] = []
    room = batch_bytes_max
    for record in waiting:
        if len(batch) == batch_records_max or room <= 0:
            yield batch
            batch, room = [], batch_bytes_max
        batch.append(record)
        room -= len(record.value or b"")
    yield batch


def main() -> None:
    """Print one line per burst."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(BURSTS), metavar="name", help=", ".join(BURSTS))
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=5_000)
    given = parser.parse_args()
    for name in given.names:
        print(orjson.dumps(measure(BURSTS[name], given.nodes, given.pods, name)).decode())


def measure(burst: Burst, nodes: int, pods: int, name: str) -> dict[str, Any]:
    """Plan a burst, and say how long each kind of batch took and when the ordinary pod was decided."""
    planner = new_planner()
    planner.plan_batch([])
    waiting = list(records(burst, nodes, pods))
    spans: dict[str, list[float]] = {"nodes": [], "pods": [], "rest": []}
    began, ordinary = time.perf_counter(), 0.0
    rest = [
        batch
        for topic in (NODES_TOPIC, PODS_TOPIC)
        for batch in cut([r for r in waiting if r.topic == topic])
    ]
    while rest or planner.has_work:
        batch = rest.pop(0) if rest else []
        kind = "rest" if not batch else "nodes" if batch[0].topic == NODES_TOPIC else "pods"
        since = time.perf_counter()
        planned = planner.plan_batch(batch)
        spans[kind].append(time.perf_counter() - since)
        if _decides(planned, ORDINARY):
            ordinary = ordinary or time.perf_counter() - began
        if time.perf_counter() - began > 300:
            break
    size = sum(len(record.value or b"") for record in waiting)
    return {
        "burst": name,
        "megabytes": round(size / 1e6, 1),
        "ordinary_pod_seconds": round(ordinary, 2),
        **{f"{kind}_seconds": round(sum(found), 2) for kind, found in spans.items()},
        "longest_batch_ms": round(1e3 * max(max(found, default=0.0) for found in spans.values())),
    }


def _decides(batch: CommitBatch, key: str) -> bool:
    return any(f"{decision.namespace}/{decision.name}" == key for decision, _ in batch.decisions)


if __name__ == "__main__":
    main()
