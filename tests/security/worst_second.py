"""Searches for the second of one team's requests that keeps another team's pod waiting longest.

``python -m tests.security.worst_second --minutes 60 --seed 0`` draws seconds from a grammar: pods, gangs,
configuration objects, updates and deletions of random shapes and numbers, within the rates of a key. It
feeds each to a planner in this process, with an ordinary pod of another team behind it, and measures what the
processor does until that one is decided. It climbs: most seconds are the worst ones found so far, changed a
little. The worst ten are printed, each with the seeds that make it again (``--again SEEDS``).

With ``--tries`` it climbs by how many functions are called, and so finds the same at each run.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from types import FrameType
from typing import Any

import msgspec
import orjson

from benchmarks.hostile import (
    BYTES_PER_SECOND,
    EVENTS_PER_SECOND,
    ORDINARY,
    cut,
    decides,
    new_planner,
    ordinary_pod,
)
from benchmarks.shapes import HOST, ZONE, Json
from benchmarks.workloads import node_manifest, pod_manifest
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, Record
from services.worker.planner import Planner

TEAM = "hostile"
EVENTS_MAX, BYTES_MAX = EVENTS_PER_SECOND, BYTES_PER_SECOND
NODES, LOW_PER_NODE = 1_000, 4
PARTS_MAX = 4
KEPT = 10
_TOPOLOGY = (HOST, ZONE, "rack")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_SELECTORS: tuple[Callable[[int, int], Json], ...] = (
    lambda number, i: {"matchLabels": {"app": f"a{number}", f"t{i}": "x"}},
    lambda number, i: {"matchLabels": {"app": "same"}},
    lambda number, i: {"matchExpressions": [{"key": f"t{i}", "operator": "DoesNotExist"}]},
    lambda number, i: {
        "matchExpressions": [
            {"key": "app", "operator": "NotIn", "values": [f"b{number}-{i}-{v}" for v in range(9)]}
        ]
    },
)


class Part(msgspec.Struct, frozen=True):
    """Some events of one kind: pods ``as`` they come, in gangs, replaced, deleted; or configuration.

    Numbers of what each pod asks for; ``cpu_milli`` with ``unlike`` is another one for each. ``selector`` is
    the number of a row of ``_SELECTORS``.
    """

    kind: str = "pods"
    count: int = 100
    unlike: bool = True
    cpu_milli: int = 100
    priority: int = 0
    gang_pods: int = 0
    gang_zone: bool = False
    spread: int = 0
    away: int = 0
    near: int = 0
    prefers: int = 0
    selector: int = 0
    node_terms: int = 0
    node_preferred: int = 0
    node_values: int = 1
    node_labels: int = 0
    tolerations: int = 0
    ports: int = 0
    labels: int = 1
    object: str = "PodDisruptionBudget"


class Second(msgspec.Struct, frozen=True):
    """What a team sends in a second, and how its parts are mixed."""

    parts: tuple[Part, ...]
    in_turns: bool = False


CHOICES: dict[str, tuple[Any, ...]] = {
    "kind": ("pods", "pods", "pods", "config", "update", "delete"),
    "count": (1, 10, 50, 100, 200, 400, 500),
    "unlike": (True, True, False),
    "cpu_milli": (1, 100, 900, 3_000, 30_000),
    "priority": (-10, 0, 1_000),
    "gang_pods": (0, 0, 0, 2, 10, 100, 400),
    "gang_zone": (False, True),
    "spread": (0, 0, 1, 2, 4),
    "away": (0, 0, 1, 4, 8),
    "near": (0, 0, 1, 4, 8),
    "prefers": (0, 0, 1, 8, 16, 24),
    "selector": (0, 1, 2, 3),
    "node_terms": (0, 0, 1, 10, 30),
    "node_preferred": (0, 0, 1, 10, 30),
    "node_values": (1, 10, 50),
    "node_labels": (0, 0, 1, 10, 50),
    "tolerations": (0, 0, 1, 30, 60),
    "ports": (0, 0, 1, 30, 200),
    "labels": (1, 1, 10, 100),
    "object": ("PodDisruptionBudget", "ReplicaSet", "Service", "PodGroup"),
}
"""The grammar: what each field of a part may be. A part has a few of these drawn."""


def drawn(seeds: Sequence[int]) -> Second:
    """Return the second that the first seed draws and each further one changes."""
    random = Random(seeds[0])
    second = Second(tuple(_part(random) for _ in range(random.randint(1, PARTS_MAX))), random.random() < 0.5)
    for seed in seeds[1:]:
        second = _changed(second, Random(seed))
    return second


def _part(random: Random) -> Part:
    fields = random.sample(sorted(CHOICES), random.randint(2, 8))
    return Part(**{field: random.choice(CHOICES[field]) for field in fields})


def _changed(second: Second, random: Random) -> Second:
    parts = list(second.parts)
    way = random.random()
    at = random.randrange(len(parts))
    if way < 0.15 and len(parts) < PARTS_MAX:
        parts.insert(at, _part(random))
    elif way < 0.25 and len(parts) > 1:
        del parts[at]
    elif way < 0.3:
        return Second(tuple(parts), not second.in_turns)
    else:
        for field in random.sample(sorted(CHOICES), random.randint(1, 3)):
            parts[at] = msgspec.structs.replace(parts[at], **{field: random.choice(CHOICES[field])})
    return Second(tuple(parts), second.in_turns)


# -------------------------------------------------------------------------------------------------- events


def pod_of(part: Part, name: str, number: int) -> Json:
    """Return the pod of a part with a number."""
    n = number if part.unlike else 0
    pod = pod_manifest(name, 1, f"{part.cpu_milli + n % 97}m", f"{100 + n}Mi")
    pod["metadata"]["namespace"] = TEAM
    labels = pod["metadata"]["labels"] = {f"l{i}": f"{n}" for i in range(part.labels)} | {"app": f"a{n}"}
    if part.gang_pods:
        labels["scheduling.x-k8s.io/pod-group"] = f"gang{number // part.gang_pods}"
    spec = pod["spec"]
    spec["priority"] = part.priority
    selector = _SELECTORS[part.selector]
    if part.spread:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1 + i,
                "topologyKey": _TOPOLOGY[i % 2],
                "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway")[i // 2],
                "labelSelector": selector(n, i),
            }
            for i in range(part.spread)
        ]
    spec["affinity"] = {
        "nodeAffinity": _node_affinity(part, n),
        "podAntiAffinity": _pod_affinity(part.away, part.prefers - part.prefers // 2, selector, n),
        "podAffinity": _pod_affinity(part.near, part.prefers // 2, selector, n),
    }
    spec["nodeSelector"] = {f"l{i}": f"{n}" for i in range(part.node_labels)}
    spec["tolerations"] = [{"key": f"k{(n + i) % 80}", "operator": "Exists"} for i in range(part.tolerations)]
    ports = [{"containerPort": 1 + i, "hostPort": 1 + (n * 7 + i) % 60_000} for i in range(part.ports)]
    spec["containers"][0]["ports"] = ports
    return pod


def _node_affinity(part: Part, n: int) -> Json:
    def term(i: int) -> Json:
        operator = _OPERATORS[(n + i) % len(_OPERATORS)]
        expression: Json = {"key": f"n{i % 30}", "operator": operator}
        if operator in ("In", "NotIn"):
            expression["values"] = [f"{n + i + v}" for v in range(part.node_values)]
        elif operator in ("Gt", "Lt"):
            expression["values"] = [f"{n + i}"]
        return {"matchExpressions": [expression]}

    found: Json = {}
    if part.node_terms:
        terms = {"nodeSelectorTerms": [term(i) for i in range(part.node_terms)]}
        found["requiredDuringSchedulingIgnoredDuringExecution"] = terms
    found["preferredDuringSchedulingIgnoredDuringExecution"] = [
        {"weight": 1 + i, "preference": term(i)} for i in range(part.node_preferred)
    ]
    return found


def _pod_affinity(required: int, preferred: int, selector: Callable[[int, int], Json], n: int) -> Json:
    def term(i: int) -> Json:
        return {"topologyKey": _TOPOLOGY[i % 3], "labelSelector": selector(n, i)}

    return {
        "requiredDuringSchedulingIgnoredDuringExecution": [term(i) for i in range(required)],
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1 + i, "podAffinityTerm": term(i)} for i in range(preferred)
        ],
    }


_VERSIONS = {
    "PodDisruptionBudget": "policy/v1",
    "ReplicaSet": "apps/v1",
    "Service": "v1",
    "PodGroup": "scheduling.x-k8s.io/v1alpha1",
}


def object_of(part: Part, kind: str, name: str, number: int) -> Json:
    """Return the configuration object of a part with a number."""
    selector = _SELECTORS[part.selector](number if part.unlike else 0, 0)
    spec: Json = {"selector": selector}
    metadata: Json = {"name": name, "namespace": TEAM, "uid": f"uid-{kind}-{name}", "resourceVersion": "1"}
    if kind == "PodGroup":
        spec = {"minMember": max(part.gang_pods, 1)}
        if part.gang_zone:
            metadata["annotations"] = {"berth.dev/topology-key": ZONE}
    elif kind == "Service":
        spec = {"selector": {"app": f"a{number}"}}
    elif kind == "PodDisruptionBudget":
        spec["maxUnavailable"] = 0
    return {"apiVersion": _VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": spec}


Sent = tuple[str, str, Json]
"""Topic, type of the event, object."""


def events_of_part(part: Part, p: int) -> Iterator[Sent]:
    """Yield the events of the p-th part."""
    for number in range(part.count):
        name = f"p{p}-{number}"
        if part.kind == "config":
            yield CONFIG_TOPIC, "ADDED", object_of(part, part.object, name, number)
            continue
        if part.gang_pods and number % part.gang_pods == 0:
            gang = f"gang{number // part.gang_pods}"
            yield CONFIG_TOPIC, "ADDED", object_of(part, "PodGroup", gang, number)
        pod = pod_of(part, name, number)
        yield PODS_TOPIC, "ADDED", pod
        if part.kind == "update":
            changed = pod_of(part, name, number + part.count)
            changed["metadata"]["resourceVersion"] = "9"
            yield PODS_TOPIC, "MODIFIED", changed
        elif part.kind == "delete":
            yield PODS_TOPIC, "DELETED", pod


def events_of(second: Second) -> Iterator[Sent]:
    """Yield the events of a second, one part after another or in turns."""
    parts = [events_of_part(part, p) for p, part in enumerate(second.parts)]
    while parts:
        for part in list(parts):
            for event in part:
                yield event
                if second.in_turns:
                    break
            else:
                parts.remove(part)


def records_of(second: Second) -> list[Record]:
    """Return the records of a second as far as the rates of a key let them, and the ordinary pod."""
    offsets, room, found = {PODS_TOPIC: LOW_PER_NODE * NODES, CONFIG_TOPIC: 0}, BYTES_MAX, list[Record]()
    for topic, kind, thing in events_of(second):
        record = _record(topic, offsets[topic], thing, kind)
        room -= len(record.value or b"")
        if len(found) == EVENTS_MAX or room < 0:
            break
        offsets[topic] += 1
        found.append(record)
    return [*found, _record(PODS_TOPIC, offsets[PODS_TOPIC], ordinary_pod())]


def _record(topic: str, offset: int, thing: Json, kind: str = "ADDED") -> Record:
    metadata = thing["metadata"]
    first = thing["kind"] if topic == CONFIG_TOPIC else ""
    key = "/".join(filter(None, (first, metadata.get("namespace"), metadata["name"])))
    return Record(topic, 0, offset, key.encode(), orjson.dumps({"type": kind, "object": thing}), 1_000)


# ----------------------------------------------------------------------------------------------- measuring


class Found(msgspec.Struct, frozen=True):
    """What a second did: to the processor until the ordinary pod was decided, and in counts.

    ``work`` is what the cycles until then were estimated at. Without ``decided`` it was not decided within
    ``BATCHES_MAX`` batches.
    """

    seeds: tuple[int, ...]
    cpu_seconds: float
    calls: int
    batches: int
    work: int
    events: int
    decided: bool


BATCHES_MAX = 2_000
SECONDS_MAX = 60.0


def prepared(nodes: int) -> Planner:
    """Return a planner with nodes that pods of low priority of a third team fill, nearly."""
    planner = new_planner(preempts=True)
    made = list[Record]()
    for number in range(nodes):
        node = node_manifest(number)
        labels = node["metadata"]["labels"]
        labels |= {HOST: node["metadata"]["name"], ZONE: f"z{number % 10}", "rack": f"r{number % 100}"}
        labels |= {f"n{i}": f"{number * (i + 1) % 50}" for i in range(30)}
        made.append(_record(NODES_TOPIC, number, node))
    for number in range(LOW_PER_NODE * nodes):
        low = pod_manifest(f"low{number}", number, "900m", "500Mi")
        low["metadata"] |= {"namespace": "third", "labels": {"app": f"low{number % 20}"}}
        low["spec"] |= {"priority": -1, "nodeName": node_manifest(number % nodes)["metadata"]["name"]}
        made.append(_record(PODS_TOPIC, number, low))
    for batch in cut(made):
        planner.plan_batch(batch)
    return planner


def measured(seeds: Sequence[int], planner: Planner, *, counts: bool = False) -> Found:
    """Let a planner plan the second of some seeds; with ``counts``, count function calls, which is slow."""
    records = records_of(drawn(seeds))
    calls = batches = work = 0

    def called(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    waiting, decided = list(cut(records)), False
    gc.collect()
    gc.disable()
    began = time.thread_time()
    sys.setprofile(called if counts else None)
    try:
        while (waiting or planner.has_work) and not decided and batches < BATCHES_MAX:
            batch = planner.plan_batch(waiting.pop(0) if waiting else [])
            batches += 1
            work += planner.scheduler.work
            decided = decides(batch, ORDINARY)
            if time.thread_time() - began > SECONDS_MAX and not counts:
                break
    finally:
        sys.setprofile(None)
        gc.enable()
    seconds = time.thread_time() - began
    return Found(tuple(seeds), seconds, calls, batches, work, len(records) - 1, decided)


def measured_apart(seeds: Sequence[int], planner: Planner, *, counts: bool = False) -> Found:
    """Do so in a child process: the planner stays as it is."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        found = measured(seeds, planner, counts=counts)
        os.write(writing, msgspec.json.encode(found))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        told = answer.read()
    os.waitpid(child, 0)
    return msgspec.json.decode(told, type=Found)


def climb(
    seed: int, goes_on: Callable[[int], bool], measure: Callable[[Sequence[int]], Found], *, counts: bool
) -> Iterator[list[Found]]:
    """Yield the worst seconds found so far, the worst first, after each one that was measured."""
    random, worst, tries = Random(seed), list[Found](), 0
    while goes_on(tries):
        seeds: tuple[int, ...] = (random.randrange(1 << 30),)
        if worst and random.random() < 0.7:
            seeds = (*random.choice(worst).seeds, *seeds)
        worst.append(measure(seeds))
        worst.sort(key=lambda each: -each.calls if counts else -each.cpu_seconds)
        del worst[KEPT:]
        tries += 1
        yield worst


def line(found: Found) -> str:
    """Return a line of JSON."""
    seeds = ".".join(map(str, found.seeds))
    shape = [
        {f: v for f in Part.__struct_fields__ if (v := getattr(part, f)) != getattr(Part(), f)}
        | {"count": part.count}
        for part in drawn(found.seeds).parts
    ]
    told = msgspec.structs.asdict(found) | {"seeds": seeds, "cpu_seconds": round(found.cpu_seconds, 2)}
    return orjson.dumps(told | {"in_turns": drawn(found.seeds).in_turns, "parts": shape}).decode()


def main() -> int:
    """Search; return 1 where the ordinary pod was not decided behind one of the worst."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--tries", type=int, default=0, help="so many, by counts; 0: for as long as it may take"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--again", default="", help="seeds, as they were printed: measure these alone")
    given = parser.parse_args()
    measured((0,), prepared(20))  # what is compiled or read for the first time is not measured
    planner = prepared(given.nodes)
    if given.again:
        print(line(measured([int(each) for each in given.again.split(".")], planner)))
        return 0
    ends = time.monotonic() + 60 * given.minutes
    worst, by_counts = list[Found](), given.tries > 0
    goes_on = (lambda tries: tries < given.tries) if by_counts else (lambda _: time.monotonic() < ends)
    measure = partial(measured_apart, planner=planner, counts=by_counts)
    tries = 0
    for tries, worst in enumerate(climb(given.seed, goes_on, measure, counts=by_counts), 1):  # noqa: B007
        pass
    print(f"{tries} seconds were tried", file=sys.stderr)
    for found in worst:
        print(line(found), flush=True)
    return 0 if all(found.decided for found in worst) else 1


if __name__ == "__main__":
    sys.exit(main())
