"""A producer that changes profiles between pods, and what the ledger kept of both."""

from __future__ import annotations

import dataclasses
from collections import Counter
from random import Random
from typing import Any

import orjson

from services.codec.partition import partition_for
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, Record, TopicPartition
from tests.builders import Json, event, node_manifest, pod_manifest, profile_manifest
from tests.property.site import SHARDS, Site

NODES_COUNT, RECORDS_COUNT = 5, 80
PROFILES = ("default-scheduler", "first-fit", "mine", "yours")
STRATEGIES = ("LeastAllocated", "MostAllocated", "Most")


@dataclasses.dataclass
class Producer:
    """Writes nodes, then pods and profiles in turns, good and bad ones."""

    random: Random
    at_ms: int = 1_700_000_000_000
    ends: Counter[TopicPartition] = dataclasses.field(default_factory=Counter)

    def records(self) -> list[Record]:
        nodes = [node_manifest(f"n{i}", cpu=self.random.choice((2, 4))) for i in range(NODES_COUNT)]
        return [self._append(NODES_TOPIC, f"n{i}", event("ADDED", n)) for i, n in enumerate(nodes)] + [
            self._profile() if self.random.random() < 0.25 else self._pod(i) for i in range(RECORDS_COUNT)
        ]

    def _append(self, topic: str, key: str, value: Json | None) -> Record:
        self.at_ms += self.random.randrange(2)
        raw = key.encode()
        at = TopicPartition(topic, 0 if topic == CONFIG_TOPIC else partition_for(raw, None, SHARDS))
        self.ends[at] += 1
        return Record(*at, self.ends[at] - 1, raw, None if value is None else orjson.dumps(value), self.at_ms)

    def _pod(self, number: int) -> Record:
        cpu, profile = self.random.choice(("100m", "500m", "3")), self.random.choice(PROFILES)
        pod = pod_manifest(f"p{number}", cpu=cpu, scheduler_name=profile, resource_version=1)
        return self._append(PODS_TOPIC, f"default/p{number}", event("ADDED", pod))

    def _profile(self) -> Record:
        name, random = self.random.choice(PROFILES), self.random
        version = random.choice((None, random.randrange(20)))
        spec: Json = {"filters": ["NodeName", "NodeResourcesFit"]} if random.random() < 0.5 else {}
        manifest = profile_manifest(name, random.choice(STRATEGIES), resource_version=version, **spec)
        kind = random.choice(("ADDED", "MODIFIED", "DELETED", ""))
        value = event(kind, manifest) if kind else None
        return self._append(CONFIG_TOPIC, f"SchedulingProfile/{name}", value)


def decisions(site: Site) -> list[list[Json]]:
    return [[orjson.loads(raw) for _, raw in rows] for rows in site.database.decisions.values()]


def written(site: Site) -> dict[str, Any]:
    """Return all that must not depend on how the log was cut: decisions byte for byte, and the tables."""
    database = site.database
    return {
        "decisions": decisions(site),
        "profiles": database.profiles,
        "queue": [p.pod_uid for p in sorted(database.pending.values(), key=lambda p: p.arrival)],
        "why": {key: group.reasons for key, group in database.pending_groups.items()},
        "dead": [(x.offset, x.path, x.message) for rows in database.dead_letters.values() for x in rows],
    }
