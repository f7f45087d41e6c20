"""Is a pod placed by the revision that was in force at its place in the log, wherever the log is cut?"""

from __future__ import annotations

import dataclasses
from collections import Counter
from random import Random
from typing import Any

import orjson
import pytest

from services.codec.partition import partition_for
from services.ports.ledger import CommitOutcome
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, Record, TopicPartition
from tests.builders import Json, event, node_manifest, pod_manifest, profile_manifest
from tests.property.test_planner import SHARDS, Site, audit, batches, kept

SEEDS = range(30)
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


@pytest.mark.parametrize("seed", SEEDS)
def test_two_cuttings_of_one_log_give_the_same_decisions(seed: int) -> None:
    records = Producer(Random(seed)).records()
    whole, cut = Site(), Site()
    whole.take(records)
    audit(whole)
    random = Random(seed)
    for batch in batches(records, random):
        cut.take(batch)
        audit(cut)
        if random.random() < 0.3:
            again = cut.restarted()
            assert kept(again) == kept(cut.planner)
            cut.planner = again
    assert written(cut) == written(whole)


def revisions_of_pods(records: list[Record]) -> dict[str, int | None]:
    """Read the log as the page about profiles has it: which revision is in force where a pod comes."""
    built_in: dict[str, Any] = {"default-scheduler": "built in", "first-fit": "built in"}
    content, number = dict(built_in), dict.fromkeys(built_in, 1)
    versions: dict[str, int] = {}
    found: dict[str, int | None] = {}
    for each in records:
        said: Json = orjson.loads(each.value) if each.value else {"type": "DELETED", "object": {}}
        name = (each.key or b"").decode().partition("/")[2]
        if each.topic == PODS_TOPIC:
            profile = said["object"]["spec"]["schedulerName"]
            found[name] = number[profile] if content.get(profile) else None
        if each.topic != CONFIG_TOPIC:
            continue
        raw = said["object"].get("metadata", {}).get("resourceVersion")
        version, known = (None if raw is None else int(raw)), versions.get(name, -1)
        deleted = said["type"] == "DELETED"
        spec = built_in.get(name) if deleted else said["object"]["spec"]
        if (not deleted and "'Most'" in str(spec)) or (deleted and name not in number):
            continue
        if version is not None and (version < known or (version == known and not deleted)):
            continue
        versions[name] = known if version is None else version
        if name not in number or spec != content.get(name):
            content[name], number[name] = spec, number.get(name, 0) + 1
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_decisions_name_the_revision_that_was_in_force(seed: int) -> None:
    site = Site()
    records = Producer(Random(seed)).records()
    site.take(records)
    first: dict[str, int | None] = {}
    for decision in sorted((d for rows in decisions(site) for d in rows), key=lambda d: d["seq"]):
        first.setdefault(decision["pod"]["name"], decision["profile_revision"])
    assert first == revisions_of_pods(records)
    assert None in first.values() or max(n for n in first.values() if n) > 1


def test_a_batch_ends_before_and_after_a_profile() -> None:
    site, producer = Site(), Producer(Random(0))
    node = producer._append(NODES_TOPIC, "n", event("ADDED", node_manifest("n")))
    profile = producer._append(
        CONFIG_TOPIC, "SchedulingProfile/mine", event("ADDED", profile_manifest("mine"))
    )
    pods = [producer._pod(i) for i in range(2)]
    sizes = []
    records = [node, pods[0], profile, pods[1]]
    while records or site.planner.has_work:
        batch = site.planner.plan(records)
        assert site.database.apply(batch) is CommitOutcome.COMMITTED
        sizes.append((len(batch.profiles), sum(a.hi - a.lo for a in batch.offsets if a.topic[0] != "~")))
        records = []
    assert sizes == [(0, 2), (1, 1), (0, 1)]


def test_a_profile_of_the_ledger_that_is_no_longer_accepted_holds_its_pods(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site, producer = Site(), Producer(Random(0))
    manifest = profile_manifest("mine")
    site.take([producer._append(CONFIG_TOPIC, "SchedulingProfile/mine", event("ADDED", manifest))])
    spec = site.database.profiles["mine", 1].spec
    assert spec is not None
    spec["scores"] = [{"name": "Vanished"}]
    site.planner = site.restarted()
    assert "profile mine, revision 1: scores[0].name: 'Vanished' is unknown" in caplog.text
    site.take(
        [
            producer._append(NODES_TOPIC, "n", event("ADDED", node_manifest("n"))),
            producer._append(
                PODS_TOPIC, "default/p", event("ADDED", pod_manifest("p", scheduler_name="mine"))
            ),
        ]
    )
    (waiting,) = (d for rows in decisions(site) for d in rows)
    assert waiting["reasons"] == {"unknown-profile:mine": 1}
    site.take([producer._append(CONFIG_TOPIC, "SchedulingProfile/mine", event("MODIFIED", manifest))])
    (bound,) = (d for rows in decisions(site) for d in rows if d["outcome"] == "bound")
    assert bound["profile_revision"] == 2
