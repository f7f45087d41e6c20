"""Hostile bursts: what one producer can send to keep the scheduler busy, and how long another's pod waits.

Run it with ``python -m benchmarks.hostile [name ...]``: decode, fold and plan in this process, without any
server, what a team sends within the rates of its key, and pods of another team. With ``--work`` it compares
instead what a cycle is estimated to take with what it takes: the coefficients of
``domain/queue/turns.py`` come from that.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from random import Random
from typing import Any, NamedTuple

import orjson

from benchmarks.shapes import HOST, ZONE, Json
from benchmarks.workloads import node_manifest, pod_manifest
from domain.model.limits import batch_bytes_max, batch_records_max
from domain.model.profiles import BUILT_IN_PROFILES
from services.ports.journal import BATCHES
from services.ports.ledger import CommitBatch, Lease, LedgerState
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, Record
from services.worker.planner import Planner

ORDINARY = "ordinary/pod"
EVENTS_PER_SECOND, BYTES_PER_SECOND = 500, 5_000_000
"""The rates of a key, as ``docs/security.md`` makes one."""
ORDINARY_PER_SECOND = 20
_HOSTILE = "hostile"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Burst(NamedTuple):
    """An attack: what it adds to the i-th node and to the i-th pod of the producer.

    ``config`` returns an object that is sent before the i-th pod. With ``is_full`` each node holds four pods
    of low priority, and pods may preempt.
    """

    about: str
    node: Callable[[int, Json], None]
    pod: Callable[[int, Json], None]
    config: Callable[[int], Json] | None = None
    is_full: bool = False


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


def _zone(number: int, node: Json) -> None:
    node["metadata"]["labels"] |= {ZONE: f"zone-{number % 10}", HOST: node["metadata"]["name"]}


def _preferred_nodes(number: int, pod: Json) -> None:
    preferred = [
        {"weight": 1 + i, "preference": term} for i, term in enumerate(_terms(number, ["In"] * 6, 30, 3))
    ]
    pod["spec"]["affinity"] = {"nodeAffinity": {_PREFERRED: preferred}}


def _own_selector(number: int, pod: Json) -> None:
    pod["spec"]["nodeSelector"] = {f"own{number}": "x"}


def _pod_terms(number: int, count: int) -> list[Json]:
    """Return terms over other pods that no other pod has, by node and by zone."""
    return [
        {
            "topologyKey": (HOST, ZONE)[i % 2],
            "labelSelector": {"matchLabels": {"app": f"a{number}", f"t{i}": "x"}},
        }
        for i in range(count)
    ]


def _preferred_pods(number: int, pod: Json) -> None:
    terms = [{"weight": 1 + i, "podAffinityTerm": term} for i, term in enumerate(_pod_terms(number, 16))]
    pod["metadata"]["labels"] = {"app": f"a{number}"}
    pod["spec"]["affinity"] = {"podAntiAffinity": {_PREFERRED: terms}}


def _required_away(number: int, pod: Json) -> None:
    pod["metadata"]["labels"] = {"app": f"a{number}"}
    pod["spec"]["affinity"] = {"podAntiAffinity": {_REQUIRED: _pod_terms(number, 8)}}


def _away_from_all(number: int, pod: Json) -> None:
    """Four terms that no other pod has, each of which means every pod."""
    terms = _pod_terms(number, 4)
    for i, term in enumerate(terms):
        expression = {"key": "app", "operator": "NotIn", "values": [f"b{number}-{i}"]}
        term["labelSelector"] = {"matchExpressions": [expression]}
    pod["spec"]["affinity"] = {"podAntiAffinity": {_REQUIRED: terms}}


def _spread(number: int, pod: Json) -> None:
    """Four constraints, each with a selector of its own."""
    pod["metadata"]["labels"] = {"app": f"a{number}"}
    pod["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1 + i,
            "topologyKey": (HOST, ZONE)[i % 2],
            "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway")[i // 2],
            "labelSelector": {"matchLabels": {"app": f"a{number}"}},
        }
        for i in range(4)
    ]


def _spread_over_all(number: int, pod: Json) -> None:
    """Four constraints, each with a selector of its own that every pod matches."""
    _spread(number, pod)
    for i, each in enumerate(pod["spec"]["topologySpreadConstraints"]):
        expression = {"key": "app", "operator": "NotIn", "values": [f"b{number}-{i}"]}
        each["labelSelector"] = {"matchExpressions": [expression]}


def _asks(cpu_milli: int, priority: int = 0) -> Callable[[int, Json], None]:
    def add(number: int, pod: Json) -> None:
        pod["spec"]["priority"] = priority
        asks = {"cpu": f"{cpu_milli + number % 100}m", "memory": f"{100 + number // 100}Mi"}
        pod["spec"]["containers"][0]["resources"]["requests"] = asks

    return add


def _storm(number: int, pod: Json) -> None:
    _asks(3_000, 1_000)(number, pod)


def _storm_of_terms(number: int, pod: Json) -> None:
    _storm(number, pod)
    _preferred_pods(number, pod)
    pod["spec"]["affinity"]["podAntiAffinity"][_REQUIRED] = _pod_terms(number, 8)


GANG_PODS = 10


def _gang_pod(number: int, pod: Json) -> None:
    """Ten pods a gang, all different, of which none fits any node."""
    _asks(30_000)(number, pod)
    pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": f"gang{number // GANG_PODS}"}


def _gang(number: int) -> Json:
    return _object(
        "PodGroup", "scheduling.x-k8s.io/v1alpha1", f"gang{number // GANG_PODS}", {"minMember": GANG_PODS}
    )


def _zoned_gang(number: int) -> Json:
    gang = _gang(number)
    gang["metadata"]["annotations"] = {"berth.dev/topology-key": ZONE}
    return gang


def _wide_gang_pod(number: int, pod: Json) -> None:
    """A pod that fits a node, of a gang that fits no zone: all of its domains are tried."""
    _gang_pod(number, pod)
    asks = {"cpu": f"{10 + number % 100}m", "memory": f"{100 + number // 100}Mi"}
    pod["spec"]["containers"][0]["resources"]["requests"] = asks
    if number % GANG_PODS == 0:
        _asks(30_000)(number, pod)


def _budget(number: int) -> Json:
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": f"a{number}"}}}
    return _object("PodDisruptionBudget", "policy/v1", f"budget{number}", spec)


def _object(kind: str, version: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "namespace": _HOSTILE, "uid": f"uid-{kind}-{name}", "resourceVersion": "1"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


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
    "selector-own": Burst("a label in the node selector that no node has", _nothing, _own_selector),
    "preferred": Burst("30 preferred terms of 6 In with 3 values", _labels, _preferred_nodes),
    "prefers-pods": Burst("16 preferred terms over other pods", _zone, _preferred_pods),
    "away": Burst("8 required terms over other pods", _zone, _required_away),
    "away-all": Burst("4 required terms, each of which means every pod", _zone, _away_from_all),
    "spread": Burst("4 spread constraints", _zone, _spread),
    "spread-all": Burst("4 spread constraints, each of which counts every pod", _zone, _spread_over_all),
    "never": Burst("pods that fit no node", _nothing, _asks(30_000)),
    "storm": Burst("pods that preempt", _nothing, _storm, is_full=True),
    "storm-terms": Burst("pods that preempt, with 24 terms over pods", _zone, _storm_of_terms, is_full=True),
    "storm-never": Burst("pods that no eviction helps", _nothing, _asks(30_000, 1_000), is_full=True),
    "gangs": Burst("gangs of ten pods that fit no node", _nothing, _gang_pod, _gang),
    "gangs-zones": Burst("gangs that fit no zone", _zone, _wide_gang_pod, _zoned_gang),
    "config": Burst("a disruption budget before each pod", _nothing, _nothing, _budget),
}


def records(burst: Burst, nodes: int, pods: int) -> Iterator[Record]:
    """Yield the burst: nodes, then pods that are all different, then the ordinary pod."""
    for number in range(nodes):
        node = node_manifest(number)
        burst.node(number, node)
        yield _record(NODES_TOPIC, number, node)
    offset = sent = 0
    for number in range(4 * nodes if burst.is_full else 0):
        low = pod_manifest(f"low{number}", number, "900m", "500Mi")
        low["metadata"]["namespace"] = _HOSTILE
        low["spec"] |= {"priority": 0, "nodeName": node_manifest(number % nodes)["metadata"]["name"]}
        yield _record(PODS_TOPIC, offset, low)
        offset += 1
    names = set[str]()
    for number in range(pods):
        thing = None if burst.config is None else burst.config(number)
        if thing is not None and thing["metadata"]["name"] not in names:
            names.add(thing["metadata"]["name"])
            yield _record(CONFIG_TOPIC, sent, thing)
            sent += 1
        pod = pod_manifest(f"p{number}", number, f"{100 + number % 50}m", f"{100 + number // 50}Mi")
        pod["metadata"]["namespace"] = _HOSTILE
        burst.pod(number, pod)
        yield _record(PODS_TOPIC, offset, pod)
        offset += 1
    yield _record(PODS_TOPIC, offset, ordinary_pod())


def ordinary_pod() -> Json:
    """Return a pod that tolerates everything, so that it finds a node."""
    namespace, name = ORDINARY.split("/")
    pod = pod_manifest(name, 0, "100m", "100Mi")
    pod["metadata"]["namespace"] = namespace
    pod["spec"]["tolerations"] = [{"operator": "Exists"}]
    return pod


def _record(topic: str, offset: int, thing: Json) -> Record:
    metadata = thing["metadata"]
    kind = thing["kind"] if topic == CONFIG_TOPIC else ""
    key = "/".join(filter(None, (kind, metadata.get("namespace"), metadata["name"])))
    return Record(topic, 0, offset, key.encode(), orjson.dumps({"type": "ADDED", "object": thing}), 1_000)


def new_planner(*, preempts: bool = False, stopwatch: Callable[[], int] = lambda: 0) -> Planner:
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
    planner = Planner(ledger, BUILT_IN_PROFILES, seed=0, preempts=preempts, stopwatch=stopwatch)
    planner.take_shards([Lease(0, 1)], ledger.part)
    return planner


def cut(waiting: Iterable[Record]) -> Iterator[list[Record]]:
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
    parser.add_argument("--seconds", type=int, default=20, help="for so long the team sends")
    parser.add_argument("--work", action="store_true", help="compare the work estimated with that measured")
    given = parser.parse_args()
    if given.work:
        for line in compare_work(given.names, given.nodes):
            print(orjson.dumps(line).decode(), flush=True)
        return
    for name in given.names:
        print(orjson.dumps(measure(BURSTS[name], given.nodes, given.seconds, name)).decode(), flush=True)


class Waits(NamedTuple):
    """How long each ordinary pod waited, in seconds of processor time, and how long each batch took."""

    seconds: list[float]
    batches: list[float]


def waits_of(burst: Burst, nodes: int, seconds: int, seed: int = 0) -> Waits:
    """Let a team send all that its key may, for so long, and another team a pod every 50 ms.

    Each second of the hostile team comes at once; ordinary pods come at times drawn with the seed. The clock
    is what the processor does in this process, with a leap wherever nothing is left to do: what else runs on
    the machine costs nothing.
    """
    planner = new_planner(preempts=burst.is_full)
    sent = list(records(burst, nodes, seconds * EVENTS_PER_SECOND))[:-1]
    hostile = [each for each in sent if _is_hostile(each)]
    for batch in cut([each for each in sent if not _is_hostile(each)]):
        planner.plan_batch(batch)
        while planner.has_work:
            planner.plan_batch([])
    coming = _arrivals(hostile, seconds, Random(seed))
    due, decided_at = dict[str, float](), dict[str, float]()
    found = Waits([], [])
    gc.collect()
    gc.disable()  # as the worker has it, nearly
    now, waiting = 0.0, deque[Record]()
    while coming or waiting or due.keys() - decided_at.keys():
        if not waiting and not planner.has_work:
            now = max(now, coming[0][0])
        while coming and coming[0][0] <= now:
            at, record = coming.popleft()
            waiting.append(record)
            if not _is_hostile(record):
                due[(record.key or b"").decode()] = at
        batch = next(cut(waiting))
        for _ in batch:
            waiting.popleft()
        since = time.thread_time()
        planned = planner.plan_batch(batch)
        spent = time.thread_time() - since
        now += spent
        found.batches.append(spent)
        names = (f"{decision.namespace}/{decision.name}" for decision, _ in planned.decisions.made)
        decided_at |= {name: now for name in names if name in due and name not in decided_at}
    gc.enable()
    found.seconds.extend(decided_at[name] - at for name, at in due.items())
    return found


def _is_hostile(record: Record) -> bool:
    name = (record.key or b"").decode().split("/")
    return _HOSTILE in name and not name[-1].startswith("low")


def _arrivals(hostile: Sequence[Record], seconds: int, draws: Random) -> deque[tuple[float, Record]]:
    """Return when each record comes: of the hostile ones as many a second as a key may send."""
    coming, second, events, size = list[tuple[float, Record]](), 0, 0, 0
    for record in hostile:
        events, size = events + 1, size + len(record.value or b"")
        if events > EVENTS_PER_SECOND or size > BYTES_PER_SECOND:
            second, events, size = second + 1, 1, len(record.value or b"")
        if second == seconds:
            break
        coming.append((float(second), record))
    offset = 10_000_000
    for number in range(seconds * ORDINARY_PER_SECOND):
        thing = ordinary_pod()
        thing["metadata"] |= {"name": f"pod-{number}", "uid": f"uid-of-ordinary-{number}"}
        at = (number + draws.random()) / ORDINARY_PER_SECOND
        coming.append((at, _record(PODS_TOPIC, offset + number, thing)))
    return deque(sorted(coming, key=itemgetter(0)))


def measure(burst: Burst, nodes: int, seconds: int, name: str) -> dict[str, Any]:
    """Return how long another team's pods waited beside a burst, in milliseconds of processor time."""
    found = waits_of(burst, nodes, seconds)
    waits = sorted(found.seconds)
    return {
        "burst": name,
        "about": burst.about,
        "ordinary_pods": len(waits),
        "p50_ms": round(1e3 * waits[len(waits) // 2]),
        "p99_ms": round(1e3 * waits[len(waits) * 99 // 100]),
        "max_ms": round(1e3 * waits[-1]),
        "longest_batch_ms": round(1e3 * max(found.batches)),
    }


class Work(NamedTuple):
    """What a cycle was estimated to take, in units, and how long it took the processor."""

    estimated: int
    seconds: float

    @property
    def unit_us(self) -> float:
        """How long a unit took, in microseconds."""
        return 1e6 * self.seconds / self.estimated


def works_of(burst: Burst, nodes: int, pods: int, cycles: int) -> list[Work]:
    """Return what cycles of a burst took, each of so many fresh pods, on nodes that are there."""
    readings: list[int] = []

    def stopwatch() -> int:
        readings.append(time.thread_time_ns() // 1_000)
        return readings[-1]

    planner = new_planner(preempts=burst.is_full, stopwatch=stopwatch)
    sent = list(records(burst, nodes, cycles * pods))[:-1]
    fresh, before = list[Record](), list[Record]()
    for record in sent:
        is_fresh = (record.key or b"").startswith(f"{_HOSTILE}/p".encode())
        (fresh if is_fresh else before).append(record)
    for batch in cut(before):
        planner.plan_batch(batch)
        while planner.has_work:
            planner.plan_batch([])
    found = []
    gc.collect()
    gc.disable()  # as the worker has it: a collection is not a cycle's work
    for first in range(0, len(fresh), pods):
        planner.plan_batch(fresh[first : first + pods])
        found.append(Work(planner.scheduler.work, (readings[-1] - readings[-2]) / 1e6))
    gc.enable()
    return found


def compare_work(
    names: Sequence[str], nodes: int, pods: int = 100, cycles: int = 8
) -> Iterator[dict[str, Any]]:
    """Yield for each burst what a pod was estimated at and took, and that beside pods as they are.

    Of each burst the quickest cycle counts, as what else the machine does can only slow one down; pods as
    they are take turns with it, so that both see the same machine.
    """
    for name in names:
        plain, burst = (works_of(BURSTS[each], nodes, pods, cycles)[1:] for each in ("none", name))
        best = min(burst, key=attrgetter("unit_us"))
        yield {
            "burst": name,
            "nodes": nodes,
            "units_per_pod": round(best.estimated / pods),
            "us_per_pod": round(1e6 * best.seconds / pods),
            "unit_us": round(best.unit_us, 2),
            "of_plain": round(best.unit_us / min(work.unit_us for work in plain), 2),
        }


def decides(batch: CommitBatch, key: str) -> bool:
    return any(f"{decision.namespace}/{decision.name}" == key for decision, _ in batch.decisions.made)


if __name__ == "__main__":
    main()
