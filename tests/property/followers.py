"""Workers that each own some shards of one log and follow each other, and a plain ledger that judges them."""

from __future__ import annotations

import dataclasses
import zlib
from collections import Counter
from collections.abc import Mapping
from random import Random

import numpy as np

from domain.model.events import Event, NodeDeleted, NodeUpserted, PodDeleted, PodUpserted
from domain.state.changes import (
    Change,
    FollowRefused,
    PodAdopted,
    PodOrphaned,
    PodRefreshed,
    PodReleased,
    PodResized,
    PodReturned,
)
from domain.state.cluster import ClusterState
from domain.state.steps import (
    Assumed,
    FollowedStep,
    Forgotten,
    Given,
    NodeFollowed,
    Owned,
    PodFollowedRefreshed,
    PodsFollowed,
    PodsFollowedCounted,
    PodsLeft,
    VersionsFollowed,
    Written,
)

SHARDS = 3


def shard_of(event: Event) -> int:
    """Return the shard of an event's key."""
    match event:
        case NodeUpserted():
            key = event.node.name
        case NodeDeleted():
            key = event.name
        case PodUpserted():
            key = event.pod.key
        case PodDeleted():
            key = f"{event.namespace}/{event.name}"
        case _:
            key = ""
    return zlib.crc32(key.encode()) % SHARDS


@dataclasses.dataclass
class Row:
    """A node in the ledger."""

    ordinal: int
    version: int = 0
    spec_count: int = 0
    deleted: bool = False
    requested: Counter[str] = dataclasses.field(default_factory=Counter)


class Ledger:
    """Adds what batches say to the rows of nodes; the journal has one list of events per batch.

    ``one`` is a state that owns all shards and folds each batch when it is written.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Row] = {}
        self.counted: dict[str, bool] = {}  # uid of each open placement
        self.journal: list[tuple[Worker, list[FollowedStep]]] = []
        self.one = ClusterState(seed=1)
        self.one.apply(Owned(frozenset(range(SHARDS)), SHARDS))
        self.orphaned: set[str] = set()  # keys of pods that were told that their node is gone
        self.odd_nodes: set[str] = set()  # counted pods that came before the node: more changes in ``one``


class Worker:
    """Folds the log of its own shards, and commits what came of it."""

    def __init__(self, ledger: Ledger, own: frozenset[int]) -> None:
        self.ledger = ledger
        self.state = ClusterState(seed=1)
        self.state.apply(Owned(own, SHARDS))
        self.followed = 0
        self._begin()

    @property
    def has_news(self) -> bool:
        """Whether there is something to commit."""
        return bool(self.events or self._told) or any(self.state.own_changes.facts())

    def _begin(self) -> None:
        self.events: list[tuple[Event, int]] = []
        self.assumed: dict[str, str] = {}
        self._opened: dict[str, str] = {}  # uid -> key
        self._closed: list[str] = []
        self._refreshed: dict[str, str] = {}
        self._told: dict[str, bool] = {}

    def fold(self, event: Event, shard: int) -> None:
        """Fold a record of an own shard."""
        self.events.append((event, shard))
        for change in self.state.apply(event, shard):
            self.take(change)

    def take(self, change: Change) -> None:
        """Take note of what the batch must say."""
        match change:
            case PodAdopted() | PodResized():
                if isinstance(change, PodResized) or change.previous_node:
                    self._close(change.pod.uid)
                self._opened[change.pod.uid] = change.pod.key
                self._told[change.pod.key] = "node-deleted" in change.reasons
                if change.node_version is None:
                    self.ledger.odd_nodes.add(change.node)
            case PodOrphaned() | PodReturned():
                before = self._told.get(change.pod.key, change.pod.key in self.ledger.orphaned)
                self._told[change.pod.key] = isinstance(change, PodOrphaned)
                assert before is not self._told[change.pod.key]
            case PodReleased(node=str(node)) if node:
                self._told[change.pod.key] = False
                self._close(change.pod.uid)
                if change.node_version is None:
                    self.ledger.odd_nodes.add(node)
            case PodRefreshed(placed=True):
                if change.pod.uid not in self._opened:
                    self._refreshed[change.pod.uid] = change.pod.key
            case FollowRefused():
                raise AssertionError(change)
            case _:
                pass

    def _close(self, uid: str) -> None:
        if self._opened.pop(uid, None) is None:
            self._closed.append(uid)
        self._refreshed.pop(uid, None)

    def assume(self, random: Random) -> None:
        """Place some waiting pods anywhere."""
        waiting = sorted(key for key, pod in self.state.pods.items() if not pod.node)
        names = sorted(self.state.table.rows)
        if not waiting or not names:
            return
        for key in random.sample(waiting, min(len(waiting), random.randrange(1, 4))):
            self.assumed[key] = random.choice(names)
        rows = [self.state.table.rows[node] for node in self.assumed.values()]
        self._arrivals = {key: self.state.pods[key].arrival for key in self.assumed}
        self.state.apply(Assumed(list(self.assumed), np.array(rows)))
        self._opened.update({self.state.pods[key].spec.uid: key for key in self.assumed})

    def commit(self, random: Random) -> None:
        """Write the batch; forget what did not win, for as many reasons as chance has."""
        state, rows = self.state, self.ledger.nodes
        changes: dict[str, tuple[int, bool]] = {}
        for fact in state.own_changes.facts():
            row = rows.setdefault(fact.name, Row(fact.entry.ordinal))
            assert row.ordinal == fact.entry.ordinal
            row.version += fact.changes
            row.requested.update(fact.delta)
            changes[fact.name] = fact.changes, fact.is_spec
            if fact.is_spec:
                row.spec_count, row.deleted = fact.entry.spec_count, fact.entry.deleted
        lost = set()
        for claim in state.own_changes.claims():
            row = rows[claim.name]
            if row.spec_count != claim.entry.spec_count or random.random() < 0.2:
                lost.add(claim.name)
                continue
            row.version += claim.changes
            row.requested.update(claim.delta)
            before, is_spec = changes.get(claim.name, (0, False))
            changes[claim.name] = before + claim.changes, is_spec
        self._counted = [uid for uid in state.own_changes.counted if uid not in self._opened]
        state.apply(Written())
        losers = {key: self._arrivals[key] for key, node in self.assumed.items() if node in lost}
        for key in losers:
            del self._opened[state.pods[key].spec.uid]
        self.ledger.orphaned |= {key for key, is_orphaned in self._told.items() if is_orphaned}
        self.ledger.orphaned -= {key for key, is_orphaned in self._told.items() if not is_orphaned}
        self.ledger.journal.append((self, self._feed(changes)))
        state.apply(Forgotten(losers))
        self._tell_one({key: node for key, node in self.assumed.items() if node not in lost})
        self._begin()

    def _feed(self, changes: Mapping[str, tuple[int, bool]]) -> list[FollowedStep]:
        state, counted = self.state, self.ledger.counted
        feed: list[FollowedStep] = []
        for name, (count, is_spec) in sorted(changes.items()):
            entry = state.nodes[name]
            if not is_spec:
                feed.append(VersionsFollowed([name], [count]))
                continue
            feed.append(
                NodeFollowed(
                    name=name,
                    ordinal=entry.ordinal,
                    changes=count,
                    spec=entry.spec,
                    deleted=entry.deleted,
                    spec_count=entry.spec_count,
                )
            )
        feed.append(PodsLeft(self._closed))
        opened = [state.pods[key] for key in self._opened.values()]
        uncounted = frozenset(e.spec.uid for e in opened if state.nodes[e.node].spec is None)
        feed.append(
            PodsFollowed(
                pods=[each.spec for each in opened],
                nodes=[each.node for each in opened],
                adopted=[each.adopted for each in opened],
                shards=[each.shard for each in opened],
                uncounted=uncounted,
            )
        )
        for uid, key in self._refreshed.items():
            pod = state.pods[key].spec
            feed.append(PodFollowedRefreshed(uid, pod.resource_version, pod.labels, pod.life))
        feed.append(PodsFollowedCounted(self._counted))
        for uid in self._closed:
            del counted[uid]
        for uid in self._opened:
            assert uid not in counted
            counted[uid] = uid not in uncounted
        for uid in self._counted:
            if uid in counted:  # else it went in the same batch
                assert not counted[uid]
                counted[uid] = True
        return feed

    def _tell_one(self, placed: Mapping[str, str]) -> None:
        one = self.ledger.one
        for event, shard in self.events:
            one.apply(event, shard)
        rows = [one.table.rows[node] for node in placed.values()]
        one.apply(Assumed(list(placed), np.array(rows, dtype=int)))

    def follow(self, rows_max: int) -> None:
        """Follow the journal for so many rows."""
        for worker, feed in self.ledger.journal[self.followed : self.followed + rows_max]:
            self.followed += 1
            for event in feed if worker is not self else ():
                for change in self.state.apply(event):
                    self.take(change)

    def give(self, shard: int, other: Worker, random: Random) -> None:
        """Leave a shard to another worker, which follows to the end first."""
        self.commit(random)
        other.follow(len(self.ledger.journal))
        waiting = [pod for pod in self.state.pods.values() if not pod.node and pod.shard == shard]
        self.state.apply(Given(frozenset((shard,))))
        self.state.apply(Owned(self.state.own - {shard}, SHARDS))
        for (key_uid), (at_ms, version) in self.state.tombstones.known():
            key, _, uid = key_uid.partition(" ")
            other.state.tombstones.add(key, uid, None if version < 0 else version, at_ms)
        orphaned = [key for key in self.ledger.orphaned if zlib.crc32(key.encode()) % SHARDS == shard]
        for change in other.state.apply(Owned(other.state.own | {shard}, SHARDS, orphaned)):
            other.take(change)
        for pod in sorted(waiting, key=lambda each: each.arrival):
            other.state.restore_pod(pod.spec, node="", adopted=False, arrival=pod.arrival, shard=shard)
