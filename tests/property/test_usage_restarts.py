"""Do measured nodes get the same pods whether or not the worker starts anew in between?"""

from __future__ import annotations

import dataclasses
import datetime
from collections import Counter
from random import Random
from typing import Any

import orjson
import pytest

from domain.model.pods import COLOCATION_PROFILE
from domain.state.resources import RECENT, ROOM
from domain.state.steps import Lent
from services.codec.partition import partition_for
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, Record, TopicPartition
from services.worker.planner import Planner
from tests.builders import Json, event, node_manifest, pod_manifest, profile_manifest, usage_manifest
from tests.depth import some
from tests.property.site import SHARDS, Site, audit, batches, kept, payloads

SEEDS = some(range(30))
RECORDS_COUNT = 120
PROFILE = profile_manifest(
    "measured",
    filters=[
        "NodeResourcesFit",
        {
            "name": "ResourceThreshold",
            "args": {"resources": [{"name": "cpu", "threshold": 70, "of": "measured"}]},
        },
        "PeakUsage",
    ],
    scores=["TargetLoadPacking"],
)
HOUR_MS = 3_600_000


@dataclasses.dataclass
class Producer:
    """Writes pods, nodes and what is measured on them: late, twice, of unknown nodes, and wrong."""

    random: Random
    at_ms: int = 1_700_000_000_000
    version: int = 0
    ends: Counter[TopicPartition] = dataclasses.field(default_factory=Counter)
    sent: list[Json] = dataclasses.field(default_factory=list)

    def records(self) -> list[Record]:
        start = [self._append(CONFIG_TOPIC, "SchedulingProfile/measured", event("ADDED", PROFILE))]
        start += [self._node(f"n{i}", "ADDED") for i in range(3)]
        return start + [self._any() for _ in range(RECORDS_COUNT)]

    def _any(self) -> Record:
        self.at_ms += self.random.choice((0, 1, 20_000, 50_000, HOUR_MS))
        draw = self.random.random()
        if draw < 0.1:
            return self._node(f"n{self.random.randrange(4)}", self.random.choice(("MODIFIED", "DELETED")))
        return self._usage() if draw < 0.5 else self._pod()

    def _append(self, topic: str, key: str, value: Json) -> Record:
        raw = key.encode()
        shards = 1 if topic in (CONFIG_TOPIC, USAGE_TOPIC) else SHARDS
        at = TopicPartition(topic, partition_for(raw, None, shards))
        self.ends[at] += 1
        return Record(*at, self.ends[at] - 1, raw, orjson.dumps(value), self.at_ms)

    def _node(self, name: str, kind: str) -> Record:
        self.version += 1
        manifest = node_manifest(name, cpu=2, memory="8Gi", resource_version=self.version)
        if self.random.random() < 0.3:
            manifest["metadata"]["annotations"] = {"berth.io/usage-window-seconds": "60"}
        return self._append(NODES_TOPIC, name, event(kind, manifest))

    def _usage(self) -> Record:
        random = self.random
        if self.sent and random.random() < 0.2:
            again = random.choice(self.sent)
            return self._append(USAGE_TOPIC, again["object"]["metadata"]["name"], again)
        name = f"n{random.randrange(5)}"
        fields: Json = {"percent": {"cpu": random.choice((5, 20.1, 50, 90)), "memory": 1}}
        if random.random() < 0.2:
            fields = {"used": {"cpu": random.choice(("100m", "1", "300"))}}
        if random.random() < 0.4:
            fields["quality"] = {
                each: {"cpu": f"{random.randrange(900)}m"} for each in ("high", "mid", "low")
            }
            fields["pods"] = {"u": {"cpuSeconds": random.randrange(99)}}
        if random.random() < 0.2:
            fields["window"] = {"cpu": {"avg": random.uniform(0, 100), "std": 2.0}}
        at_s = self.at_ms / 1000 - random.choice((0, 0, 0, 5, 1_000, 90_000))
        sample = event("MODIFIED", usage_manifest(name, **fields), at=stamp(at_s))
        self.sent.append(sample)
        return self._append(USAGE_TOPIC, name, sample)

    def _pod(self) -> Record:
        self.version += 1
        name = f"p{self.random.randrange(30)}"
        bound = self.random.choice((None, None, None, "n1", "n4"))
        cpu = self.random.choice((None, "100m", "300m", "1700m"))
        profile = self.random.choice(("measured", "measured", COLOCATION_PROFILE))
        manifest = pod_manifest(
            name, cpu=cpu, node_name=bound, scheduler_name=profile, resource_version=self.version
        )
        kind = self.random.choice(("ADDED", "ADDED", "ADDED", "DELETED"))
        return self._append(PODS_TOPIC, f"default/{name}", event(kind, manifest))


def stamp(seconds: float) -> str:
    """Return RFC 3339 as a producer would write it."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


def remembered(planner: Planner) -> dict[str, Any]:
    """Return what a worker must know again, measured usage and recent claims included."""
    state = planner.scheduler.state
    state.apply(Lent(planner._now_ms))
    table = state.table
    return kept(planner) | {
        "measured": state.usage.measured,
        "unknown": state.usage.unknown,
        "recent": {name: table.requested[RECENT, row].tolist() for name, row in table.rows.items()},
        "lent": {name: table.allocatable[ROOM, row].tolist() for name, row in table.rows.items()},
        "names": {name: entry.recent for name, entry in state.nodes.items() if entry.spec is not None},
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_a_restart_at_any_point_changes_no_decision(seed: int) -> None:
    records, random = Producer(Random(seed)).records(), Random(seed)
    steady, shaken = Site(), Site()
    for batch in batches(records, random):
        steady.take(batch)
        shaken.take(batch)
        audit(shaken)
        again = shaken.restarted()
        assert remembered(again) == remembered(shaken.planner)
        if random.random() < 0.3:
            shaken.planner = again
    assert payloads(shaken) == payloads(steady)
    assert explained(shaken) == explained(steady)


def explained(site: Site) -> dict[tuple[int, int], list[Any]]:
    """Return what is stored of each cycle but generations and times: a new process looks at nodes anew."""
    fields = ("reasons", "candidates", "basis", "nodes_count", "feasible_count")
    return {key: [getattr(cycle, f) for f in fields] for key, cycle in site.database.attempts.items()}


@pytest.mark.deep
def test_the_producer_of_these_tests_brings_about_what_matters() -> None:
    """Or the test above would show little."""
    reasons: Counter[str] = Counter()
    recent, codes = 0, Counter[str]()
    for seed in SEEDS:
        site = Site()
        for batch in batches(Producer(Random(seed)).records(), Random(seed)):
            site.take(batch)
            state = site.planner.scheduler.state
            recent += int(state.table.requested[RECENT, : state.table.count].any())
        for payload in payloads(site):
            reasons[payload["outcome"]] += 1
        for group in site.database.attempts.values():
            reasons.update(code.partition(":")[0] for code in group.reasons)
        codes.update(x.path for rows in site.database.dead_letters.values() for x in rows)
    wanted = (
        "bound",
        "adopted",
        "unschedulable",
        "over-threshold-measured",
        "peak-usage",
        "insufficient-room",
    )
    for found in wanted:
        assert reasons[found] > len(SEEDS) // 3, found
    assert recent > 3 * len(SEEDS)
    assert codes["object.used.cpu"] > len(SEEDS) // 3
