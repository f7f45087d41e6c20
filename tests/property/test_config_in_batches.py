"""Is configuration folded among all else, and is a batch of both planned again with the same bytes?"""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from domain.model.limits import batch_records_max
from services.ports.ledger import Committed
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, Record
from services.worker import planner as planner_module
from tests.builders import (
    Json,
    event,
    node_manifest,
    pod_group_manifest,
    pod_manifest,
    priority_class_manifest,
    profile_manifest,
)
from tests.depth import some
from tests.property.replays import live, replay
from tests.property.site import Producer, Site
from tests.property.team import AT_MS, budget_manifest

GANG = "scheduling.x-k8s.io/pod-group"


def selecting_manifest(kind: str, name: str, app: str, namespace: str = "default") -> Json:
    """Return a Service or a ReplicaSet that selects the pods of an app."""
    labels = {"app": app}
    return {
        "apiVersion": "v1" if kind == "Service" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": labels if kind == "Service" else {"matchLabels": labels}},
    }


def batches_of(site: Site, records: list[Record]) -> list[int]:
    """Plan all records and commit; return how many each batch took."""
    sizes = []
    while records or site.planner.held or site.planner.has_work:
        held_count = len(site.planner.held)
        more, records = records[: batch_records_max - held_count], records[batch_records_max - held_count :]
        assert site.database.apply(site.planner.plan_batch(more)) == Committed()
        sizes.append(held_count + len(more) - len(site.planner.held))
    return sizes


@pytest.mark.parametrize("kind", ["PodGroup", "ReplicaSet"])
def test_a_flood_of_objects_takes_as_many_batches_as_one_of_pods(kind: str) -> None:
    site = Site()
    site.tell("ADDED", node_manifest("n", cpu=4))
    things = [
        pod_group_manifest(f"g{i}", 2) if kind == "PodGroup" else selecting_manifest(kind, f"r{i}", f"a{i}")
        for i in range(batch_records_max)
    ]
    flood = [("ADDED", thing, AT_MS) for thing in things]
    records = site.records([*flood, ("ADDED", pod_manifest("other", "desk", cpu=1), AT_MS)])
    assert len(batches_of(site, records)) == 2
    assert [each["outcome"] for each in site.decided()] == ["bound"]
    assert len(site.database.config_objects) == batch_records_max


def test_what_a_batch_says_of_an_object_last_holds() -> None:
    site = Site()
    site.tell("ADDED", node_manifest("n", cpu=4))
    members = [pod_manifest(f"p{i}", cpu=1, labels={GANG: "g"}) for i in range(2)]
    groups = [pod_group_manifest("g", count) for count in (5, 4, 2)]
    site.tell("ADDED", members[0], groups[0], groups[1], members[1], groups[2])
    assert [each["outcome"] for each in site.decided()] == ["bound", "bound"]
    (row,) = site.database.config_objects.values()
    assert row.object is not None
    assert row.object["min_member"] == 2


@pytest.mark.parametrize("of", [profile_manifest("mine"), priority_class_manifest("high")])
def test_what_changes_how_pods_are_planned_is_a_batch_of_its_own(of: Json) -> None:
    site = Site()
    manifests = [pod_group_manifest("g", 2), node_manifest("n"), of, pod_group_manifest("h", 2)]
    records = site.records([("ADDED", each, AT_MS) for each in manifests])
    assert batches_of(site, records) == [2, 1, 1]


@dataclasses.dataclass
class Configuring(Producer):
    """Writes configuration, too, and pods that it concerns."""

    shared_uids: bool = False

    def _record(self) -> Record:
        random = self.random
        if random.random() < 0.6:
            return super()._record()
        self.at_ms += random.randrange(3)
        app, namespace = random.choice("xyz"), random.choice("ab")
        kind = random.choice(("ADDED", "MODIFIED", "MODIFIED", "DELETED", ""))
        thing = random.choice((self._selecting, self._budget, self._group, self._namespace))(app, namespace)
        metadata = thing["metadata"]
        version = self._next_version()
        metadata.pop("resourceVersion", None)
        if version is not None:
            metadata["resourceVersion"] = str(version)
        of = f"{metadata['namespace']}/" if "namespace" in metadata else ""
        key = f"{thing['kind']}/{of}{metadata['name']}".encode()
        return self._append(CONFIG_TOPIC, key, event(kind, thing) if kind else None)

    def _selecting(self, app: str, namespace: str) -> Json:
        return selecting_manifest(self.random.choice(("Service", "ReplicaSet")), app, app, namespace)

    def _budget(self, app: str, namespace: str) -> Json:
        return budget_manifest(self.random.randrange(2), app, namespace)

    def _group(self, app: str, namespace: str) -> Json:
        return pod_group_manifest(app, self.random.randrange(1, 4), namespace)

    def _namespace(self, app: str, namespace: str) -> Json:
        labels = {"team": app}
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}

    def _pod_event(self, namespace: str, name: str) -> Json | None:
        found = super()._pod_event(namespace, name)
        if found is not None and name < "p4":  # one that changes its gang changes its shard, too
            labels = found["object"]["metadata"].setdefault("labels", {})
            labels[GANG] = "x" if name < "p2" else "y"
        return found


@pytest.fixture(autouse=True)
def _many_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "DIGEST_EVERY", 3)


@pytest.mark.parametrize("seed", some(range(12)))
def test_a_day_with_configuration_is_planned_again_with_the_same_bytes(seed: int) -> None:
    team = live(seed, producing=Configuring)
    assert replay(team).difference is None
    for later, _ in team.database.checkpoints[1:]:
        assert replay(team, first=later.batch + 1).difference is None
    among = Counter(record.topic for record in team.records)
    assert among[CONFIG_TOPIC] > 30
    assert among[NODES_TOPIC] > 10
