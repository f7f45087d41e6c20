"""Several planners on one database in memory, each with shards of its own, that follow each other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson
import pytest

from domain.model.devices import amounts
from domain.model.profiles import BUILT_IN_PROFILES
from services.adapters.memory.database import MemoryDatabase, OffsetRow
from services.adapters.memory.ledger import MemoryLedger, base_of, part_of
from services.codec.encode import event_topic_and_key
from services.codec.partition import partition_for
from services.ports.journal import BATCHES, Followed
from services.ports.ledger import Committed, Lease
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, Record
from services.worker.planner import Planner
from tests.builders import Json, event

AT_MS = 1_700_000_000_000
ROUNDS_MAX = 60


class _Clock:
    def now_ms(self) -> int:
        return AT_MS


class Team:
    """Workers that hold these shards, one set each; ``tell`` gives each record to whoever reads it."""

    def __init__(
        self,
        *shards: Sequence[int],
        preempts: bool = False,
        database: type[MemoryDatabase] = MemoryDatabase,
    ) -> None:
        self.preempts = preempts
        self.shards_count = sum(map(len, shards))
        self.database = database(self.shards_count)
        self.records: list[Record] = []
        self.ends: dict[tuple[str, int], int] = {}
        for topic in (CONFIG_TOPIC, USAGE_TOPIC):
            self.database.offsets[0, topic, 0] = OffsetRow(0, 0)
        for shard in range(self.shards_count):
            for topic, partition in ((NODES_TOPIC, shard), (PODS_TOPIC, shard), (BATCHES, 0)):
                self.database.offsets[shard, topic, partition] = OffsetRow(0, 0)
        self._ledger = MemoryLedger(self.database, _Clock())
        self.planners: list[Planner] = []
        self.lost: list[list[str]] = []
        self.batches_count = self._begun_count = 0
        for own in shards:
            self.join(own)

    def join(self, shards: Sequence[int]) -> None:
        """Let one more worker begin, with these shards."""
        self.planners.append(self._begun())
        self.lost.append([])
        self.take(self.planners[-1], shards)

    def _begun(self) -> Planner:
        self._begun_count += 1
        name = f"w{self._begun_count}"
        told: dict[str, Any] = {"incarnation": name, "preempts": self.preempts}
        return Planner(base_of(self.database), BUILT_IN_PROFILES, seed=3, **told)

    def take(self, planner: Planner, shards: Sequence[int]) -> None:
        """Let a worker take shards."""
        leases = [Lease(shard, self.database.shards[shard].epoch) for shard in shards]
        planner.take_shards(leases, part_of(self.database, leases, gone=planner.lacks_gone))

    def give(self, number: int, shards: Sequence[int]) -> None:
        """Let a worker give shards up, when nothing is to be taken back."""
        while self.lost[number]:
            self.step(number)
        self.planners[number].give_shards(shards)
        self._raise_epochs(shards)

    def _raise_epochs(self, shards: Sequence[int]) -> None:
        for shard in shards:
            self.database.shards[shard].epoch += 1
            for at, row in self.database.offsets.items():
                if at[0] == shard:
                    row.epoch += 1

    def die(self, number: int) -> None:
        """Let a worker forget all, and another one begin with its shards."""
        shards = sorted(self.planners[number].owned)
        self._raise_epochs(shards)
        self.planners[number], self.lost[number] = self._begun(), []
        self.take(self.planners[number], shards)

    def gather(self, number: int) -> None:
        """Give all shards to one worker."""
        self.rest()
        for other, planner in enumerate(self.planners):
            if other != number and (shards := sorted(planner.owned)):
                self.give(other, shards)
                self.rest()
                self.take(self.planners[number], shards)
        self.rest()

    # -------------------------------------------------------------------------------------------- records

    def accept(self, record: Record) -> Record:
        """Append a record of a producer, whose partitions may be fewer."""
        self.records.append(record)
        return record

    def record(self, kind: str, manifest: Json, at_ms: int = AT_MS) -> Record:
        """Append an event to the log."""
        topic, key = event_topic_and_key(manifest)
        is_sharded = topic in (NODES_TOPIC, PODS_TOPIC)
        partition = partition_for(key, None, self.shards_count) if is_sharded else 0
        offset = self.ends.get((topic, partition), 0)
        self.ends[topic, partition] = offset + 1
        record = Record(topic, partition, offset, key, orjson.dumps(event(kind, manifest)), at_ms, None)
        self.records.append(record)
        return record

    def tell(self, kind: str, *manifests: Json, at_ms: int = AT_MS) -> None:
        """Take events, and come to rest."""
        records = [self.record(kind, manifest, at_ms) for manifest in manifests]
        for number, planner in enumerate(self.planners):
            if own := [record for record in records if record.partition in planner.owned]:
                self.step(number, own)
        self.rest()

    # -------------------------------------------------------------------------------------------- batches

    def unread(self, number: int) -> Sequence[Followed]:
        """Return what others did that a worker does not know yet."""
        return asyncio.run(self._ledger.follow(self.planners[number].followed))

    def step(
        self, number: int, records: Sequence[Record] = (), *, follows: bool = True, call: int | None = None
    ) -> bool:
        """Plan and commit once; say whether anything came of it. Who rests by a ``call`` always says so."""
        planner = self.planners[number]
        rows = self.unread(number) if follows else ()
        lost, self.lost[number] = self.lost[number], []
        plan = planner.plan if call is None else partial(planner.plan_batch, call=call)
        batch = plan([*self.handed(planner), *records], lost, rows)
        if batch is None:
            return False
        outcome = self.database.apply(batch)
        assert isinstance(outcome, Committed)
        self.lost[number] = list(outcome.lost_pods)
        planner.guards.confirm_raised([outcome.raised])
        self.batches_count += 1
        return True

    def handed(self, planner: Planner, rows_max: int = 100) -> list[Record]:
        """Return what other shards handed over to those of a worker, as its loop reads it."""
        waiting = planner.forwarding.waiting()
        rows = asyncio.run(self._ledger.read_inbox(waiting, rows_max)) if waiting else ()
        planner.forwarding.got(rows)
        return [row.record() for row in rows]

    def rest(self) -> None:
        """Let all follow and plan until nobody has anything to say any more."""
        for _ in range(ROUNDS_MAX):
            busy = [number for number in range(len(self.planners)) if self.is_busy(number)]
            if not sum(self.step(number) for number in busy):
                return
        pytest.fail("the workers answer each other for ever")

    def is_busy(self, number: int) -> bool:
        """Say whether a worker would plan without records."""
        planner = self.planners[number]
        return bool(
            planner.has_work
            or self.lost[number]
            or planner.forwarding.waiting()
            or asyncio.run(self._ledger.follow(planner.followed))
        )

    def decided(self) -> list[Json]:
        """Return the decision records of all shards, those of a shard in their order."""
        return [orjson.loads(payload) for rows in self.database.decisions.values() for _, payload in rows]


def keys_of(team: Team, shard: int, count: int, prefix: str = "p") -> list[str]:
    """Return names of pods whose records come to a shard."""
    names = (f"{prefix}{number}" for number in range(1_000))
    found = (n for n in names if partition_for(f"default/{n}".encode(), None, team.shards_count) == shard)
    return [next(found) for _ in range(count)]


def node_of(team: Team, shard: int, prefix: str = "n") -> str:
    """Return the name of a node whose records come to a shard."""
    names = (f"{prefix}{number}" for number in range(1_000))
    return next(n for n in names if partition_for(n.encode(), None, team.shards_count) == shard)


def budget_manifest(allowed: int, app: str = "web", namespace: str = "default") -> Json:
    """Return a budget of the pods of an app that lets so many go."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": namespace, "resourceVersion": "1"},
        "spec": {"selector": {"matchLabels": {"app": app}}, "minAvailable": 1},
        "status": {"disruptionsAllowed": allowed},
    }


def running(team: Team) -> Counter[str]:
    """Return how many members of each gang have a node, as the ledger says."""
    gangs = (
        team.database.templates[row.opened.signature].gang for row in team.database.open_placements.values()
    )
    return Counter(gang.removeprefix("default/") for gang in gangs if gang)


def columns(planner: Planner) -> dict[str, Any]:
    """Return what a worker knows of nodes and of what counts on them, by name."""
    state = planner.scheduler.state
    known = {name: entry for name, entry in state.nodes.items() if entry.spec is not None}
    return {
        "nodes": {
            name: (entry.spec, entry.deleted, state.requested_of(name), sorted(entry.pods))
            for name, entry in known.items()
        },
        "placed": {
            key: (*entry.known(), entry.shard, entry.spec.life)
            for key, entry in state.pods.items()
            if entry.node
        },
        "recent": {name: sorted(entry.recent or ()) for name, entry in known.items()},
        "usage": state.usage.known(),
        "config": sorted(state.config.known),
        "profiles": sorted(planner.scheduler.profiles.plans),
    }


def versions(planner: Planner) -> dict[str, tuple[int, int, int]]:
    """Return the id, the version and the count of specs of each node."""
    nodes = planner.scheduler.state.nodes
    return {n: (e.ordinal, e.version, e.spec_count) for n, e in nodes.items() if e.spec is not None}


def audit(team: Team) -> None:
    """Compare the workers with each other and with the ledger."""
    first = team.planners[0]
    rows = team.database.nodes.values()
    ledger = {row.name: (row.id, row.version, row.spec_count) for row in rows}
    for planner in team.planners:
        assert columns(planner) == columns(first)
        assert versions(planner) == ledger
    sums: dict[str, dict[str, int]] = {row.name: {} for row in rows}
    for each in team.database.open_placements.values():
        if each.opened.counted:
            total = sums[each.opened.node]
            requests = team.database.templates[each.opened.signature].requests
            taken = amounts(requests, () if each.opened.life is None else each.opened.life.devices)
            for name, value in {**requests, **taken, "pods": 1}.items():
                total[name] = total.get(name, 0) + value
    assert {row.name: row.requested for row in rows} == sums
