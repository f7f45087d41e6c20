"""A planner on a database in memory, a producer that also writes wrong records, and an audit of both."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import orjson
import pytest

from domain.model.profiles import BUILT_IN_PROFILES
from domain.state.digest import digest_of, sums_digest
from services.adapters.memory.database import SEAL_SECRET, MemoryDatabase, OffsetRow
from services.adapters.memory.ledger import state_of
from services.codec.encode import event_topic_and_key
from services.codec.partition import partition_for
from services.codec.seal import seal
from services.ports.journal import BATCHES
from services.ports.ledger import Committed, Lease, LedgerState, PendingPod, PlacementOpened
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, Record, TopicPartition
from services.worker.planner import Planner
from tests.builders import Json, event, node_manifest, pod_manifest

SHARDS = 2


@dataclasses.dataclass
class Producer:
    """Writes what producers write, also the rare and the wrong."""

    random: Random
    version: int = 0
    at_ms: int = 1_700_000_000_000
    shards: int = SHARDS
    bind_failures: bool = False
    shared_uids: bool = True  # two shards may hear of one uid, of which workers may know either pod
    ends: Counter[TopicPartition] = dataclasses.field(default_factory=Counter)

    def records(self, count: int) -> list[Record]:
        return [self._record() for _ in range(count)]

    def _record(self) -> Record:
        self.at_ms += self.random.randrange(3)
        if self.random.random() < 0.2:
            name = f"n{self.random.randrange(4)}"
            return self._append(NODES_TOPIC, name.encode(), self._node_event(name))
        namespace, name = self.random.choice(("a", "b")), f"p{self.random.randrange(6)}"
        return self._append(PODS_TOPIC, f"{namespace}/{name}".encode(), self._pod_event(namespace, name))

    def _append(self, topic: str, key: bytes, value: Json | None) -> Record:
        at = TopicPartition(topic, 0 if topic == CONFIG_TOPIC else partition_for(key, None, self.shards))
        self.ends[at] += 1
        raw = None if value is None else orjson.dumps(value)
        sender = (None, "key:a", "key:b", "key:c")[self.ends[at] % 4]
        sealed = None if sender is None else seal(SEAL_SECRET, topic, key, raw, sender)
        if sender == "key:c":
            sealed = b"forged"
        return Record(*at, self.ends[at] - 1, key, raw, self.at_ms, sealed)

    def _next_version(self) -> int | None:
        draw = self.random.random()
        if draw < 0.1:
            return None
        if draw < 0.2:
            return self.random.randrange(1, self.version + 2)
        self.version += 1
        return self.version

    def _node_event(self, name: str) -> Json | None:
        kind = self.random.choice(("ADDED", "MODIFIED", "MODIFIED", "DELETED", ""))
        if not kind:
            return None
        labels = {"zone": self.random.choice("xy")}
        cpu, version = self.random.choice((1, 2, 4)), self._next_version()
        return event(kind, node_manifest(name, cpu=cpu, pods=8, labels=labels, resource_version=version))

    def _pod_event(self, namespace: str, name: str) -> Json | None:
        random = self.random
        kind = random.choice(("ADDED", "ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED", ""))
        if not kind:
            return None
        if self.bind_failures and random.random() < 0.3:
            at, who = f"n{random.randrange(4)}", f"{name}.{namespace}"
            return event("BIND_FAILED", pod_manifest(name, namespace, cpu="1", node_name=at, uid=who))
        uid = random.choice((f"{name}.{namespace}", f"{name}.{namespace}", f"{name}.{namespace}.2", None))
        if random.random() < 0.05 and self.shared_uids:
            uid = f"p{random.randrange(6)}.a"
        pod = pod_manifest(
            name,
            namespace,
            cpu=random.choice(("500m", "500m", "1", "3", "-1" if random.random() < 0.1 else "1")),
            labels=random.choice((None, {"app": random.choice("xyz")})),
            node_name=random.choice((None, None, None, f"n{random.randrange(5)}")),
            node_selector=random.choice((None, None, {"zone": "x"})),
            priority=random.choice((None, 5)),
            host_port=random.choice((None, None, None, 80)),
            phase=random.choice((None, None, None, "Running", "Succeeded")),
            uid=uid,
            resource_version=self._next_version(),
        )
        return event(kind, pod)


def planner_at(leases: Sequence[Lease], state: LedgerState, **settings: Any) -> Planner:
    """Return a planner that goes on from one moment of the ledger, with the settings of ``Planner``."""
    planner = Planner(state, BUILT_IN_PROFILES, **settings)
    planner.take_shards(leases, state.part)
    return planner


class Site:
    """A planner and the database that it writes."""

    def __init__(self, *, preempts: bool = False) -> None:
        self.preempts = preempts
        self.database = MemoryDatabase(SHARDS, lambda: self.database.batches_count)
        self.leases = [Lease(shard, 0) for shard in range(SHARDS)]
        for topic in (CONFIG_TOPIC, USAGE_TOPIC):
            self.database.offsets[0, topic, 0] = OffsetRow(0, 0)
        for shard in range(SHARDS):
            for topic, partition in ((NODES_TOPIC, shard), (PODS_TOPIC, shard), (BATCHES, 0)):
                self.database.offsets[shard, topic, partition] = OffsetRow(0, 0)
        self.planner = self.restarted()

    def restarted(self) -> Planner:
        """Return a planner that knows only what the database holds."""
        return asyncio.run(self.loaded())

    async def loaded(self) -> Planner:
        """Return the same, where a loop runs."""
        state = state_of(self.database, self.leases)
        return planner_at(self.leases, state, seed=3, preempts=self.preempts)

    def take(self, records: list[Record]) -> None:
        """Plan and commit, and work off what was woken."""
        assert self.database.apply(self.planner.plan_batch(records)) == Committed()
        for _ in range(100):
            if not self.planner.has_work:
                return
            assert self.database.apply(self.planner.plan_batch([])) == Committed()
        pytest.fail("the planner never comes to rest")

    def tell(
        self, kind: str, *manifests: Json, at_ms: int = 1_700_000_000_000, sent_by: str | None = None
    ) -> None:
        """Take events as one batch."""
        self.tell_all([(kind, manifest, at_ms) for manifest in manifests], sent_by)

    def tell_all(self, events: list[tuple[str, Json, int]], sent_by: str | None = None) -> None:
        """Take events as one batch, each with its type and log time; ``sent_by``: through the API."""
        self.take(self.records(events, sent_by))

    def records(self, events: list[tuple[str, Json, int]], sent_by: str | None = None) -> list[Record]:
        """Return the next records of events."""
        positions, records = self.planner.positions(), []
        for kind, manifest, at_ms in events:
            topic, key = event_topic_and_key(manifest)
            is_sharded = topic in (NODES_TOPIC, PODS_TOPIC)
            at = TopicPartition(topic, partition_for(key, None, SHARDS) if is_sharded else 0)
            raw = orjson.dumps(event(kind, manifest))
            sealed = None if sent_by is None else seal(SEAL_SECRET, topic, key, raw, sent_by)
            records.append(Record(*at, positions[at], key, raw, at_ms, sealed))
            positions[at] += 1
        return records

    def decided(self) -> list[Json]:
        """Return the decision records of all shards, those of a shard in their order."""
        return [orjson.loads(payload) for rows in self.database.decisions.values() for _, payload in rows]

    def accepted(self) -> dict[str, Any]:
        """Return what does not depend on where batches end: what was accepted, not where it went."""
        db = self.database
        accepted: list[PlacementOpened | PendingPod] = [row.opened for row in db.open_placements.values()]
        accepted += db.pending.values()
        return {
            "pods": {
                (p.pod_uid, p.namespace, p.name, p.resource_version, p.signature, tuple(p.labels.items()))
                for p in accepted
            },
            "nodes": {
                (row.name, row.id, row.deleted, row.spec and orjson.dumps(row.spec.allocatable))
                for row in db.nodes.values()
            },
            "tombstones": {(*key, stone.resource_version) for key, stone in db.tombstones.items()},
            "dead": {
                (x.topic, x.partition, x.offset): x.code for rows in db.dead_letters.values() for x in rows
            },
        }


def batches(records: list[Record], random: Random) -> list[list[Record]]:
    """Cut records at random."""
    cuts, start = [], 0
    while start < len(records):
        length = random.choice((1, 1, 2, 5, 20))
        cuts.append(records[start : start + length])
        start += length
    return cuts


def audit(site: Site) -> None:
    """Compare the database with the state, and with itself."""
    db, state = site.database, site.planner.scheduler.state
    placed = {row.opened.pod_uid: row.opened.node for row in db.open_placements.values()}
    assert placed == {p.spec.uid: p.node for p in state.pods.values() if p.node}
    assert {uid for uid, _ in db.pending} == {p.spec.uid for p in state.pods.values() if not p.node}
    sums: dict[str, Counter[str]] = {}
    for row in db.open_placements.values():
        total = sums.setdefault(row.opened.node, Counter())
        total.update(db.templates[row.opened.signature].requests)
        total["pods"] += 1
    for node in db.nodes.values():
        assert node.requested == {k: v for k, v in sums.get(node.name, {}).items() if v}
    waiting = {(pod.shard, pod.signature) for pod in db.pending.values()}
    assert waiting == db.pending_groups.keys(), "each waiting pod's group says why"
    for versions in db.node_versions.values():
        assert versions == sorted(set(versions))


def kept(planner: Planner) -> dict[str, Any]:
    """Return what a worker must know again after a restart."""
    state = planner.scheduler.state
    waiting = sorted((p.arrival, key) for key, p in state.pods.items() if not p.node)
    return {
        "digest": digest_of(state),
        "sums": sums_digest(state),
        "versions": {name: node.version for name, node in state.nodes.items() if node.spec is not None},
        "queue": waiting,
        "shards": {key: pod.shard for key, pod in state.pods.items()},
        "book": planner.ledger_view.waits,
        "profiles": {name: plan.profile for name, plan in planner.scheduler.profiles.plans.items()},
    }


def payloads(site: Site) -> list[dict[str, Any]]:
    """Return the decision records, but for the numbers in the reasons: those are of when a group parked."""
    records = [orjson.loads(payload) for rows in site.database.decisions.values() for _, payload in rows]
    return [{**record, "reason": "", "reasons": bool(record.get("reasons"))} for record in records]
