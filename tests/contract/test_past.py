"""Does every store say of each moment of the past what it said then?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import msgspec
import pytest

from domain.model.decisions import Outcome
from domain.model.pods import PodTemplate
from services.adapters.postgres import past
from services.ports.field import FieldFilter
from services.ports.journal import BATCHES, JournalRow, pack_order
from services.ports.ledger import (
    CommitBatch,
    Committed,
    Lease,
    Ledger,
    OffsetAdvance,
    PendingGroup,
    PlacementClosed,
    PlacementRefreshed,
)
from services.ports.log import TopicPartition
from services.ports.past import BatchId, Moment, OutOfReach, PodChange
from services.ports.store import ConfigFilter, PodFilter, Store
from tests.batches import batch_of
from tests.contract.batches import (
    AT_MS,
    advance,
    change_node,
    config,
    decision,
    new_node,
    node_spec,
    opened,
    profile,
    record,
    waiting,
)
from tests.contract.ledgers import Backend, start_two

SIGNATURES = [bytes([number]) * 16 for number in range(3)]
TEMPLATES = {
    SIGNATURES[0]: PodTemplate(requests={"cpu": 100}),
    SIGNATURES[1]: PodTemplate(requests={"cpu": 200, "memory": 1 << 20}),
    SIGNATURES[2]: PodTemplate(requests={"x.io/odd": 3}, gang="ns/g"),
}
NODES_COUNT = 4

Count = Callable[[int, bytes, int], None]
"""Counts a pod of a signature on a node, or no longer."""


class History:
    """A random history of two writers. Each batch does a few things to nodes, pods and configuration."""

    def __init__(self, seed: int, writers: tuple[tuple[Ledger, Lease], tuple[Ledger, Lease]]) -> None:
        self.random, self.writers = Random(seed), writers
        self.time_ms = AT_MS
        self.batches, self.seqs, self.offsets = [0, 0], [1, 1], [0, 0]
        self.versions: dict[int, int] = {}
        self.deleted: set[int] = set()
        self.bound: list[dict[str, tuple[int, bytes]]] = [{}, {}]  # of each shard: uid -> node and signature
        self.waits: list[dict[str, bytes]] = [{}, {}]
        self.objects: set[str] = set()
        self.revision = self.arrivals = 0

    @classmethod
    async def begin(cls, seed: int, backend: Backend) -> History:
        """Return a history that has no batch yet."""
        writers = await start_two(backend)
        for ledger, lease in writers:
            await ledger.ensure_offsets(lease, {TopicPartition(BATCHES, 0): 0})
        return cls(seed, writers)

    async def step(self) -> BatchId:
        """Commit a batch of one of the writers."""
        at = self.random.randrange(2)
        ledger, lease = self.writers[at]
        self.time_ms += self.random.choice([0, 0, 5])
        self.batches[at] += 1
        batch = self._batch(at, lease)
        assert await ledger.commit(batch) == Committed()
        return BatchId(lease.shard, self.batches[at])

    def _batch(self, at: int, lease: Lease) -> CommitBatch:
        parts: dict[str, Any] = {"templates": TEMPLATES, "made": [], "opened": [], "closed": [], "facts": []}
        first = self.seqs[at]
        touched: dict[int, dict[str, int]] = {}
        changes: dict[int, int] = {}

        def count(number: int, signature: bytes, sign: int) -> None:
            held, asked = touched.setdefault(number, {}), {**TEMPLATES[signature].requests, "pods": 1}
            for name, amount in asked.items():
                held[name] = held.get(name, 0) + sign * amount
            changes[number] = changes.get(number, 0) + 1

        self._change_pods(at, lease, parts, count)
        self._change_nodes(parts, touched, changes)
        self._change_objects(parts)
        count_events = self.random.randrange(1, 3)
        advances = [
            advance(lease, self.offsets[at], self.offsets[at] + count_events),
            OffsetAdvance(lease.shard, BATCHES, 0, lease.epoch, self.batches[at] - 1, self.batches[at]),
        ]
        self.offsets[at] += count_events
        return batch_of(
            **parts,
            advances=advances,
            seq_next={lease.shard: self.seqs[at]} if self.seqs[at] > first else {},
            log_time_ms=self.time_ms,
            row=JournalRow(
                shard=lease.shard,
                batch=self.batches[at],
                order=pack_order([]),
                seqs={lease.shard: (first, self.seqs[at])},
                log_time_ms=self.time_ms,
                decisions_hash=b"",
                effects={},
                worker=f"w{at}",
            ),
        )

    def _decide(self, at: int, lease: Lease, parts: dict[str, Any], pod: str, **more: Any) -> Any:
        made = decision(lease, self.seqs[at], pod, decided_at_ms=self.time_ms, **more)
        self.seqs[at] += 1
        parts["made"].append(record(made))
        return made

    def _change_pods(self, at: int, lease: Lease, parts: dict[str, Any], count: Count) -> None:
        random, bound, waits = self.random, self.bound[at], self.waits[at]
        parts |= {"pending_removed": [], "pending_added": [], "refreshed": [], "pending_groups": []}
        live = [number for number in self.versions if number not in self.deleted]
        for uid in [uid for uid in bound if random.random() < 0.2]:
            number, signature = bound.pop(uid)
            parts["closed"].append(PlacementClosed(uid, self.time_ms))
            if number in self.versions:
                count(number, signature, -1)
            outcome = random.choice([Outcome.RELEASED, Outcome.EVICTED])
            self._decide(at, lease, parts, uid[4:], outcome=outcome, node=f"n{number}")
        for uid in [uid for uid in bound if random.random() < 0.1]:
            parts["refreshed"].append(PlacementRefreshed(uid, 2, {"v": str(random.randrange(5))}))
        for uid in [uid for uid in waits if random.random() < 0.3]:
            signature = waits.pop(uid)
            parts["pending_removed"].append(uid)
            if random.random() < 0.5 and live:
                self._bind(at, lease, parts, uid[4:], signature, random.choice(live), count)
            elif random.random() < 0.5:  # it goes on waiting in another row
                self._wait(lease, parts, uid[4:], random.choice(SIGNATURES))
        for _ in range(random.randrange(5)):
            pod, signature = f"p{at}-{self.seqs[at]}-{random.randrange(10**9)}", random.choice(SIGNATURES)
            if random.random() < 0.6 and live:
                self._bind(at, lease, parts, pod, signature, random.choice(live), count)
            else:
                self._wait(lease, parts, pod, signature)
        for signature in sorted({*waits.values()}):
            if random.random() < 0.5:
                parts["pending_groups"].append(
                    PendingGroup(
                        shard=lease.shard,
                        signature=signature,
                        reasons={"cpu": random.randrange(1, 4)},
                        unresolvable=False,
                        cycle_seq=self.seqs[at],
                        at_ms=self.time_ms,
                    )
                )

    def _bind(
        self,
        at: int,
        lease: Lease,
        parts: dict[str, Any],
        pod: str,
        signature: bytes,
        number: int,
        count: Any,
    ) -> None:
        made = self._decide(at, lease, parts, pod, node=f"n{number}", signature=signature)
        gang = "g" if TEMPLATES[signature].gang else None
        parts["opened"].append(opened(made, labels={"v": "0"}, gang=gang))
        count(number, signature, 1)
        self.bound[at][made.pod_uid] = number, signature

    def _wait(self, lease: Lease, parts: dict[str, Any], pod: str, signature: bytes) -> None:
        gang = "g" if TEMPLATES[signature].gang else None
        self.arrivals += 1
        row = waiting(lease, pod, self.arrivals, signature=signature, since_ms=self.time_ms, gang=gang)
        parts["pending_added"].append(row)
        self.waits[self.writers[0][1].shard != lease.shard][row.pod_uid] = signature

    def _change_nodes(
        self, parts: dict[str, Any], touched: Mapping[int, dict[str, int]], changes: dict[int, int]
    ) -> None:
        told: dict[int, dict[str, Any]] = {number: {"delta": delta} for number, delta in touched.items()}
        if self.random.random() < 0.3:
            number = self.random.randrange(NODES_COUNT)
            spec = node_spec(f"n{number}", labels={"v": str(self.random.randrange(10**6))})
            gone = self.random.random() < 0.3
            changes[number] = changes.get(number, 0) + 1
            told.setdefault(number, {}).update(spec=spec, deleted=gone, spec_count=changes[number])
            (self.deleted.add if gone else self.deleted.discard)(number)
        for number, more in sorted(told.items()):
            version, given = self.versions.get(number, 0), {"changes": changes[number], **more}
            fact = new_node(number, **given) if not version else change_node(number, version, **given)
            parts["facts"].append(fact)
            self.versions[number] = version + changes[number]

    def _change_objects(self, parts: dict[str, Any]) -> None:
        if self.random.random() < 0.3:
            name = self.random.choice("abc")
            thing = {"value": self.random.randrange(10**6)} if self.random.random() < 0.7 else None
            parts["config"] = [config(name, object=thing, at_ms=self.time_ms)]
        if self.random.random() < 0.2:
            self.revision += 1
            parts["profiles"] = [profile("batch", self.revision, at_ms=self.time_ms)]


async def answers(store: Store) -> dict[str, Any]:
    """Return what the store says of the cluster, but for what is not kept of the past."""
    nodes = [
        each._replace(node=msgspec.structs.replace(each.node, version=0, spec_count=0))
        for each in await store.nodes(1_000, None, None)
    ]
    pods = [each._replace(resource_version=None) for each in await store.pods(PodFilter(), 1_000, None)]
    pending = [each._replace(at_ms=None, cycle_seq=None) for each in await store.pending(None)]
    # Of a gang's groups the one is told of that was tried last, and when that was is not kept.
    gangs = [
        each._replace(at_ms=None, cycle_seq=None, reasons=None, shard=None)
        for each in await store.gangs(None, None, 1_000, None)
    ]
    # What pods were told last is not kept of the past: then those count whose node was deleted.
    totals = (await store.past.totals(store.moment, None))._replace(orphaned_count=0)
    return {
        "nodes": nodes,
        "pods": pods,
        "pending": pending,
        "gangs": gangs,
        "config": list(await store.config(ConfigFilter(), 1_000, None)),
        "profiles": list(await store.profiles(1_000, None)),
        "totals": totals,
        "field": await store.fields.field(FieldFilter("v", ("cpu", "pods", "x.io/odd")), store.moment),
        "history": {
            (pod.namespace, pod.name): await store.pod_placements(pod.namespace, pod.name, 10)
            for pod in pods[:3]
        },
        "node": await store.node("n1") and nodes[:1],
    }


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[PodChange]:
    """Return what differs between two answers, of pods, but for whether they were evicted."""
    one, two = ({pod.pod_uid: pod for pod in each["pods"]} for each in (before, after))
    found = []
    for uid in sorted(one.keys() | two.keys()):
        pod = one.get(uid) or two[uid]
        node, node_after = (each[uid].node if uid in each else None for each in (one, two))
        waits, waits_after = (uid in each and each[uid].node is None for each in (one, two))
        if node != node_after or waits != waits_after:
            found.append(
                PodChange(uid, pod.namespace, pod.name, node, node_after, waits, waits_after, evicted=False)
            )
    return found


@pytest.mark.parametrize("seed", range(5))
async def test_the_past_is_as_it_was(backend: Backend, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "_MANY", 2 * (seed % 3))  # of two moments few or many decisions lie between
    history, store = await History.begin(seed, backend), backend.store()
    told = [(await history.step(), await answers(store)) for _ in range(40)]
    moments: list[Moment] = []
    for batch, then in told:
        moments.append(moment := await store.past.moment(batch))
        assert await answers(store.as_of(moment)) == then, batch
    for first, second in [sorted(history.random.sample(range(40), 2)) for _ in range(10)]:
        changes = await store.past.changes(moments[first], moments[second], None)
        found = [each._replace(evicted=False) for each in changes.pods]
        assert found == difference(told[first][1], told[second][1])
        specs = [{n.node.name: n.node.spec for n in told[at][1]["nodes"]} for at in (first, second)]
        assert [(each.name, each.before, each.after) for each in changes.nodes] == [
            (name, specs[0].get(name), specs[1].get(name))
            for name in sorted(specs[0].keys() | specs[1].keys())
            if specs[0].get(name) != specs[1].get(name)
        ]


async def test_a_time_is_the_longest_prefix_without_a_later_row(backend: Backend) -> None:
    history, store = await History.begin(7, backend), backend.store()
    told = [(await history.step(), history.time_ms) for _ in range(30)]
    assert (await store.past.moment(AT_MS - 1)).position == 0
    for at_ms in range(AT_MS, history.time_ms + 2):
        last = max((n for n, (_, time_ms) in enumerate(told) if time_ms <= at_ms), default=None)
        moment = await store.past.moment(at_ms)
        expected = 0 if last is None else (await store.past.moment(told[last][0])).position
        assert moment.position == expected
        assert moment.log_time_ms <= at_ms


async def test_the_past_before_the_first_batch_is_empty(backend: Backend) -> None:
    history, store = await History.begin(2, backend), backend.store()
    empty = await answers(store)
    for _ in range(10):
        await history.step()
    moment = await store.past.moment(AT_MS - 1)
    assert await answers(store.as_of(moment)) == empty


async def test_beyond_its_reach_the_past_is_refused(backend: Backend) -> None:
    history, store = await History.begin(3, backend), backend.store()
    for _ in range(10):
        last = await history.step()
    with pytest.raises(OutOfReach, match="shard 1 has no batch 99"):
        await store.past.moment(BatchId(1, 99))
    lead = max((0, 1), key=lambda shard: history.batches[shard])
    await backend.lose_batch(lead, 1)  # as where it was pruned
    with pytest.raises(OutOfReach):
        await store.past.moment(AT_MS - 1)
    with pytest.raises(OutOfReach):
        await store.past.moment(BatchId(lead, 1))
    assert (await store.past.moment(last)).position == 10
    assert (await store.past.moment(AT_MS + 10**6)).position == 10


async def test_pods_that_lost_their_node_are_counted_of_the_past(backend: Backend) -> None:
    history, store = await History.begin(5, backend), backend.store()
    counts = []
    for _ in range(40):
        moment = await store.past.moment(await history.step())
        then = store.as_of(moment)
        lost = [pod for pod in await then.pods(PodFilter(), 1_000, None) if pod.orphaned]
        assert list(await then.pods(PodFilter(phase="orphaned"), 1_000, None)) == lost
        assert (await store.past.totals(moment, None)).orphaned_count == len(lost)
        counts.append(len(lost))
    assert max(counts) > 0


async def test_a_key_sees_the_past_of_its_namespaces_alone(backend: Backend) -> None:
    history, store = await History.begin(4, backend), backend.store()
    for _ in range(20):
        last = await history.step()
    moment = await store.past.moment(last)
    other = store.seen_by(["another"]).as_of(moment)
    assert list(await other.pods(PodFilter(), 100, None)) == []
    assert list(await other.pending(None)) == []
    assert (await store.past.totals(moment, ["another"])).bound_count == 0
    begin = await store.past.moment(AT_MS - 1)
    assert (await store.past.changes(begin, moment, ["another"])).pods == []
    assert (await store.past.changes(begin, moment, None)).pods != []
