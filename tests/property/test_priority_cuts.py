"""Do pods have the same priorities wherever the log is cut, and wherever a worker starts anew?"""

from __future__ import annotations

import dataclasses
from collections import Counter
from random import Random

import orjson
import pytest

from services.codec.partition import partition_for
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, Record, TopicPartition
from tests.builders import Json, event, node_manifest, pod_manifest, priority_class_manifest
from tests.depth import some
from tests.property.profile_log import written
from tests.property.site import SHARDS, Site, audit, batches, kept

SEEDS = some(range(25))
CLASSES = ("low", "high", "later")


@dataclasses.dataclass
class Producer:
    """Writes nodes, then pods and priority classes in turns."""

    random: Random
    at_ms: int = 1_700_000_000_000
    ends: Counter[TopicPartition] = dataclasses.field(default_factory=Counter)

    def records(self) -> list[Record]:
        nodes = [self._append(NODES_TOPIC, f"n{i}", event("ADDED", node_manifest(f"n{i}"))) for i in range(3)]
        return nodes + [self._class() if self.random.random() < 0.3 else self._pod(i) for i in range(60)]

    def _append(self, topic: str, key: str, value: Json | None) -> Record:
        self.at_ms += 1 + self.random.randrange(2)
        raw = key.encode()
        at = TopicPartition(topic, 0 if topic == CONFIG_TOPIC else partition_for(raw, None, SHARDS))
        self.ends[at] += 1
        return Record(*at, self.ends[at] - 1, raw, None if value is None else orjson.dumps(value), self.at_ms)

    def _pod(self, number: int) -> Record:
        random = self.random
        number = random.choice((number, number, random.randrange(number + 1)))
        named = (None, "system-node-critical", *CLASSES)[number % 5]  # a pod's class never changes
        pod = pod_manifest(
            f"p{number}",
            cpu=random.choice(("100m", "1", "3")),
            priority=(None, None, 0, 7)[number % 4],
            resource_version=random.choice((None, random.randrange(1, 9))),
            spec=None if named is None else {"priorityClassName": named},
        )
        kind = random.choice(("ADDED", "MODIFIED", "DELETED" if random.random() < 0.3 else "ADDED"))
        return self._append(PODS_TOPIC, f"default/p{number}", event(kind, pod))

    def _class(self) -> Record:
        name, random = self.random.choice(CLASSES), self.random
        version = random.choice((None, random.randrange(20)))
        manifest = priority_class_manifest(
            name,
            random.choice((1, 1000)),
            globalDefault=random.random() < 0.2,
            resource_version=version,
        )
        kind = random.choice(("ADDED", "MODIFIED", "DELETED", ""))
        return self._append(CONFIG_TOPIC, f"PriorityClass/{name}", event(kind, manifest) if kind else None)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_cuttings_of_one_log_keep_the_same_pods_with_the_same_priorities(seed: int) -> None:
    records = Producer(Random(seed)).records()
    whole, cut, shaken = Site(), Site(), Site()
    whole.take(records)
    audit(whole)
    random = Random(seed)
    for batch in batches(records, random):
        cut.take(batch)
        shaken.take(batch)
        audit(shaken)
        again = shaken.restarted()
        assert kept(again) == kept(shaken.planner)
        if random.random() < 0.4:
            shaken.planner = again
    assert cut.accepted() == whole.accepted()
    assert written(shaken) == written(cut)
    assert shaken.database.config_objects == whole.database.config_objects
