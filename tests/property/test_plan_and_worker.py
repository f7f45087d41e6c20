"""Does `berth plan` say of every pod what a worker decides that reads the same objects?"""

from __future__ import annotations

import copy
import json
from collections import Counter
from pathlib import Path
from random import Random

import orjson
import pytest
from typer.testing import CliRunner

from services.adapters.memory.database import MemoryDatabase
from services.cli.main import app
from services.codec.encode import event_topic_and_key
from services.codec.partition import partition_for
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Record
from tests.builders import (
    Json,
    event,
    node_manifest,
    pod_manifest,
    priority_class_manifest,
    profile_manifest,
    usage_manifest,
)
from tests.depth import some
from tests.property.site import SHARDS, Site

SEEDS = some(range(100))
SITE_SEED = "3"
TAINT = {"key": "team", "value": "blue", "effect": "NoSchedule"}
TOLERATION = {"key": "team", "operator": "Exists"}
SPREAD = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]


class World:
    """Random objects as a user would write them, all of one seed."""

    def __init__(self, seed: int, *, priorities: bool) -> None:
        self._random = Random(seed)
        self._priorities = priorities

    def objects(self) -> list[Json]:
        random = self._random
        nodes = [self._node(f"n{i}") for i in range(random.randrange(0, 9))]
        found = [*self._profiles(), *nodes]
        if random.random() < 0.3:
            found += [usage_manifest(node["metadata"]["name"], percent={"cpu": 40}) for node in nodes[::2]]
        return found + [self._pod(f"p{i}", len(nodes)) for i in range(random.randrange(1, 40))]

    def _profiles(self) -> list[Json]:
        share = ["NodeResourcesFit", {"name": "MasterShare", "args": {"share": 50}}]
        packing = ["TargetLoadPacking"]
        return [
            profile_manifest("own", self._random.choice(("MostAllocated", "LeastAllocated"))),
            profile_manifest("shares", filters=share),
            profile_manifest("packing", scores=packing),
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "urgent"},
                "value": self._random.choice((-10, 50)),
            },
        ]

    def _node(self, name: str) -> Json:
        random = self._random
        return node_manifest(
            name,
            cpu=random.choice((1, 2, 4)),
            pods=random.choice((2, 5, 110)),
            labels={"zone": random.choice("xy")},
            taints=random.choice(((), (), (), (TAINT,))),
            unschedulable=random.random() < 0.1,
        )

    def _pod(self, name: str, nodes_count: int) -> Json:
        random = self._random
        names = ("own", "shares", "packing", "first-fit", "nobody", None, None, None)
        made = pod_manifest(
            name,
            random.choice(("a", "b")),
            cpu=random.choice(("100m", "500m", "1", "1", "3")),
            memory=random.choice((None, "1Gi", "6Gi")),
            labels=random.choice((None, {"berth.io/cluster": "db", "berth.io/role": "master"})),
            priority=random.choice((None, None, -5, 100)) if self._priorities else None,
            scheduler_name=random.choice(names),
            tolerations=random.choice(((), (TOLERATION,))),
            node_selector=random.choice((None, None, None, {"zone": "x"})),
            host_port=random.choice((None, None, None, 80)),
            phase=random.choice((*[None] * 12, "Succeeded")),
        )
        if random.random() < 0.1:
            made["spec"]["nodeName"] = f"n{random.randrange(nodes_count + 1)}"
        if self._priorities and random.random() < 0.2:
            classes = ("urgent", "urgent", "system-node-critical", "nowhere")
            made["spec"]["priorityClassName"] = random.choice(classes)
        if random.random() < 0.05:
            made["spec"]["schedulingGates"] = [{"name": "wait"}]
        if random.random() < 0.05:
            made["spec"]["topologySpreadConstraints"] = SPREAD
        return made


def untidy(seed: int) -> list[Json]:
    """Return events as a log may have them: pods come twice, changed, and some objects are deleted."""
    random, objects = Random(seed), World(seed, priorities=True).objects()
    objects += [
        priority_class_manifest(name, value, globalDefault=True) for name, value in (("a", 7), ("b", 3))
    ]
    pods = [each for each in objects if each["kind"] == "Pod"]
    for pod in random.sample(pods, min(len(pods), 3)):
        again = copy.deepcopy(pod)
        requests = again["spec"]["containers"][0]["resources"]["requests"]
        requests["cpu"] = random.choice(("2", "100", "250m"))
        objects.append(again)
    gone = random.sample(pods, min(len(pods), 2))
    gone += random.sample([each for each in objects if each["kind"] in ("Node", "PriorityClass")], 1)
    return [event("ADDED", each) for each in objects] + [event("DELETED", each) for each in gone]


def decided(objects: list[Json]) -> dict[str, tuple[str, str | None]]:
    """Return the last decision about each pod of a worker that reads all objects at once.

    Usage is measured with the pods that run, and before those that wait come.
    """
    site, ends, records = Site(), Counter[tuple[str, int]](), []
    for written in sorted(objects, key=stage):
        thing = written.get("object", written)
        topic, key = event_topic_and_key(thing)
        partition = partition_for(key, None, SHARDS) if topic in (NODES_TOPIC, PODS_TOPIC) else 0
        value = orjson.dumps({"type": written.get("type", "ADDED"), "object": thing})
        records.append(Record(topic, partition, ends[topic, partition], key, value, 0))
        ends[topic, partition] += 1
    site.take(records)
    assert not any(site.database.dead_letters.values())
    return outcomes(site.database)


def stage(written: Json) -> int:
    thing = written.get("object", written)
    kinds = ("PriorityClass", "SchedulingProfile", "Node", "Pod", "NodeUsage", "waiting Pod")
    waits = thing["kind"] == "Pod" and "nodeName" not in thing["spec"]
    return kinds.index("waiting Pod" if waits else thing["kind"])


def outcomes(database: MemoryDatabase) -> dict[str, tuple[str, str | None]]:
    """Return what became of each pod that came to be placed, and is not gone."""
    found = {
        f"{decision.namespace}/{decision.name}": (decision.outcome.value, decision.node)
        for rows in database.decisions.values()
        for decision, _ in rows
    }
    for row in database.open_placements.values():
        key = f"{row.opened.namespace}/{row.opened.name}"
        if found[key][0] == "resized":
            found[key] = ("adopted" if row.opened.adopted else "bound", row.opened.node)
    return {key: each for key, each in found.items() if each[0] not in ("adopted", "released")}


def planned(objects: list[Json], folder: Path) -> dict[str, tuple[str, str | None]]:
    file = folder / "all.yaml"
    file.write_text("\n---\n".join(json.dumps(each) for each in sorted(objects, key=stage)))
    done = CliRunner().invoke(app, ["plan", "-f", str(file), "-o", "json", "--seed", SITE_SEED])
    if "there is no pod to place" in done.output:
        return {}
    assert done.exit_code in (0, 3), done.output
    # From which node others would have to go is for the plan alone to say: no worker preempts here.
    answers = json.loads(done.stdout)
    return {pod["pod"]: (pod["outcome"], None if "victims" in pod else pod["node"]) for pod in answers}


@pytest.mark.parametrize("priorities", [False, True], ids=["alike", "priorities"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_plan_is_what_the_worker_decides(seed: int, priorities: bool, tmp_path: Path) -> None:
    objects = World(seed, priorities=priorities).objects()
    assert planned(objects, tmp_path) == decided(objects)


@pytest.mark.parametrize("seed", some(range(40)))
def test_the_plan_is_what_the_worker_decides_of_events_too(seed: int, tmp_path: Path) -> None:
    events = untidy(seed)
    assert planned(events, tmp_path) == decided(events)


def test_the_high_priority_gets_the_room_though_it_came_last(tmp_path: Path) -> None:
    pods = [pod_manifest(name, cpu=1, priority=p) for name, p in (("low-1", 1), ("low-2", 1), ("high", 9))]
    objects = [node_manifest("n", cpu=1), *pods]
    assert planned(objects, tmp_path)["default/high"] == ("bound", "n")
    assert planned(objects, tmp_path) == decided(objects)
