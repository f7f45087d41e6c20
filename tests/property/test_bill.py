"""Is use billed exactly once, whatever is lost, late, twice or cut off, and whichever worker takes over?"""

from __future__ import annotations

import contextlib
import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any
from unittest import mock

import orjson
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from domain.model.colocation import PodCounters
from domain.model.events import NodeUsed
from domain.model.usage import QualityRecord, UsageRecord
from domain.state.changes import Change
from domain.state.pod_counters import with_counters
from domain.state.usage import UsageWindows
from services.adapters.memory.database import MemoryDatabase
from services.codec.feed import FeedEvent
from services.ports.ledger import BatchCluster, CommitBatch, Committed, NotCommitted
from services.ports.log import USAGE_TOPIC, Record, TopicPartition
from services.worker.follow.events import as_folded
from tests.builders import Json, event, node_manifest, pod_manifest, usage_manifest
from tests.depth import some
from tests.property.replays import keep, replay
from tests.property.team import AT_MS, Team, audit

SEEDS = some(range(24))
NODES = ("n0", "n1", "n2")
PODS_COUNT = 9
ROUNDS_COUNT = 60
SPECS: tuple[Json, ...] = (
    {},
    {"cpu": "1", "limits": {"cpu": "2"}},
    {"cpu": "1", "memory": "1Gi", "limits": {"cpu": "1", "memory": "1Gi"}},
)


class Reporter:
    """Nodes and pods that really use something: each pod is alone in its namespace, so that a bill is its.

    What a node says is lost, late or comes twice at times.
    """

    def __init__(self, random: Random, team: Team) -> None:
        self.random, self.team = random, team
        self.now_ms = AT_MS
        self.pods: dict[str, str] = {}  # uid -> node
        self.used = Counter[str]()  # in thousandths of a core times seconds, since the beginning
        self.said = Counter[str]()  # the most that any record says of it
        self._late: list[Json] = []

    def place(self, uid: str) -> None:
        """Let a pod come to a node, which has been measured already."""
        self.pods[uid] = self.random.choice(NODES)
        spec = dict(self.random.choice(SPECS))
        limits = spec.pop("limits", None)
        manifest = pod_manifest("p", f"of-{uid}", uid=uid, node_name=self.pods[uid], **spec)
        if limits:
            manifest["spec"]["containers"][0]["resources"]["limits"] = limits
        self.team.record("ADDED", manifest, self.now_ms)

    def reports(self) -> None:
        """Let time pass, and each node report: now, later, twice or never."""
        self.now_ms += self.random.choice((10_000, 60_000, 60_000, 1_500_000))
        for uid in self.pods:
            self.used[uid] += self.random.randrange(100_000)
        told = [self.report(node, has_pods=self.random.random() < 0.8) for node in NODES]
        self._late += [each for each in told if self.random.random() < 0.3]
        told = [each for each in told if self.random.random() < 0.7]
        told += self.random.choices(self._late, k=2) if self._late else []
        for each in told:
            self.record(each)

    def report(self, node: str, *, has_pods: bool = True) -> Json:
        """Return what a node says now."""
        on = {uid: {"cpuSeconds": self.used[uid] / 1_000} for uid, at in self.pods.items() if at == node}
        quality = {"high": {"cpu": "1"}}
        pods = {"pods": on} if has_pods else {}
        return event("MODIFIED", usage_manifest(node, quality=quality, **pods), at=stamp(self.now_ms))

    def record(self, told: Json) -> None:
        """Append a report to the log."""
        for uid, counters in told["object"].get("pods", {}).items():
            self.said[uid] = max(self.said[uid], round(counters["cpuSeconds"] * 1_000))
        offset = self.team.ends.get((USAGE_TOPIC, 0), 0)
        self.team.ends[USAGE_TOPIC, 0] = offset + 1
        key = told["object"]["metadata"]["name"].encode()
        record = Record(USAGE_TOPIC, 0, offset, key, orjson.dumps(told), self.now_ms, None)
        self.team.records.append(record)


def stamp(at_ms: int) -> str:
    return datetime.datetime.fromtimestamp(at_ms / 1_000, datetime.UTC).isoformat()


def started(random: Random, database: type[MemoryDatabase] = MemoryDatabase) -> tuple[Team, Reporter]:
    """Return two workers and nodes of which all are measured."""
    team = Team([0], [1], database=database)
    keep(team)
    reporter = Reporter(random, team)
    team.tell("ADDED", *(node_manifest(name, cpu=40, memory="99Gi") for name in NODES), at_ms=AT_MS)
    for node in NODES:
        reporter.record(reporter.report(node))
    give(team, random)
    reporter.now_ms += 1_000
    return team, reporter


def give(team: Team, random: Random) -> None:
    """Let the workers fold what is new in batches, of which some come to nothing or are sent twice."""
    for number in random.sample(range(2), 2):
        while records := unread(team, number):
            some_of_them = records[: random.randrange(1, len(records) + 1)]
            if random.random() < 0.15:
                assert team.planners[number].plan(some_of_them) is not None
                team.die(number)  # before it is committed
                continue
            send(team, number, some_of_them, follows=random.random() < 0.6, twice=random.random() < 0.3)
            if random.random() < 0.1:
                team.die(number)


def unread(team: Team, number: int) -> list[Record]:
    """Return what a worker has to read yet of the log."""
    planner = team.planners[number]
    positions, held = planner.positions(), {(*record[:3],) for record in planner.held}
    return [
        record
        for record in team.records
        if record.offset >= positions.get(TopicPartition(record.topic, record.partition), 1 << 60)
        and record[:3] not in held
    ]


def send(team: Team, number: int, records: list[Record], *, follows: bool, twice: bool) -> None:
    """Commit a batch; the answer of one that is sent ``twice`` was lost."""
    with mock.patch.object(team.database, "apply", wraps=team.database.apply) as applied:
        team.step(number, records, follows=follows)
    for call in applied.call_args_list if twice else ():
        assert team.database.apply(*call.args) is NotCommitted.FENCED


def hand_over(team: Team, random: Random) -> None:
    """Let the shard of usage go from its owner to the other worker."""
    team.rest()
    number = next(number for number, planner in enumerate(team.planners) if 0 in planner.owned)
    team.give(number, [0])
    if random.random() < 0.5:
        team.rest()
    team.step(1 - number)
    team.take(team.planners[1 - number], [0])
    team.rest()


def billed(team: Team) -> dict[str, int]:
    """Return what is billed, by pod."""
    found = Counter[str]()
    for line in team.database.measured.bill.values():
        assert min(line.amount, line.price_micro, line.saved_micro) >= 0
        found[line.namespace.removeprefix("of-")] += line.amount
    return dict(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_that_was_reported_of_a_pod_is_billed_once(seed: int) -> None:
    live(seed)


@pytest.mark.parametrize("seed", some(range(4)))
def test_a_replay_bills_the_same(seed: int) -> None:
    team = live(seed)
    assert any("bill" in row.effects for row in team.database.journal.values())
    assert replay(team).difference is None
    with mock.patch("domain.state.billing.price_micro", return_value=1):
        difference = replay(team).difference
    assert difference is not None
    assert difference.what == "the rows of bill"


def live(seed: int, database: type[MemoryDatabase] = MemoryDatabase) -> Team:
    """Live through a day, and look at its bill."""
    random = Random(seed)
    team, reporter = started(random, database)
    for number in range(ROUNDS_COUNT):
        reporter.reports()
        if number < PODS_COUNT:
            reporter.place(f"u{number}")
        give(team, random)
        if random.random() < 0.15:
            hand_over(team, random)
        if random.random() < 0.3:
            team.rest()
            audit(team)
    give(team, random)
    team.rest()
    for node in NODES:
        reporter.record(reporter.report(node))
    give(team, random)
    team.rest()
    audit(team)
    wanted = {uid: said for uid, said in reporter.said.items() if said}
    assert len(wanted) == PODS_COUNT
    assert billed(team) == wanted
    known = [dict(planner.scheduler.state.usage.qualities) for planner in team.planners]
    for number in range(2):
        team.die(number)
    assert [planner.scheduler.state.usage.qualities for planner in team.planners] == known
    return team


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_billed_twice_where_nodes_and_pods_come_and_go(seed: int) -> None:
    """Of such nodes and pods some use is not billed, and none that there was not."""
    random = Random(seed)
    team, reporter = started(random)
    for number in range(ROUNDS_COUNT):
        reporter.reports()
        if number < PODS_COUNT:
            reporter.place(f"u{number}")
        if random.random() < 0.2:
            node = node_manifest(random.choice(NODES), cpu=40, memory="99Gi")
            team.record(random.choice(("DELETED", "ADDED")), node, reporter.now_ms)
        if random.random() < 0.05 and reporter.pods:
            uid = random.choice(sorted(reporter.pods))
            gone = pod_manifest("p", f"of-{uid}", uid=uid)
            team.record("DELETED", gone, reporter.now_ms)
        if random.random() < 0.05 and reporter.pods:  # the pod is known elsewhere from now on
            reporter.pods[random.choice(sorted(reporter.pods))] = random.choice(NODES)
        give(team, random)
        if random.random() < 0.1:
            hand_over(team, random)
    team.rest()
    found = billed(team)
    assert found
    for uid, amount in found.items():
        assert amount <= reporter.said[uid], uid


# ------------------------------------------------------------------------------- builds that are broken


class AddsOutside(MemoryDatabase):
    """Adds to the bill whether or not the batch is written."""

    def apply(self, batch: CommitBatch, holder: object = None) -> Committed | NotCommitted:
        outcome = super().apply(batch, holder)
        if isinstance(outcome, NotCommitted):
            self._write_cluster(BatchCluster(bill=batch.cluster.bill), 0)
        return outcome


def _without_counters(usage: UsageWindows, record: UsageRecord, *, known: bool) -> None:
    """Restore what was measured, but for how far pods are counted."""
    if record.quality is not None:
        record = replace(record, quality=replace(record.quality, counted={}))
    _RESTORE(usage, record, known=known)


def _without_pods(event: FeedEvent, changes: Sequence[Change]) -> FeedEvent:
    """Tell others what was measured, but for the counters of pods."""
    told = _AS_FOLDED(event, changes)
    return NodeUsed(replace(told.usage, pods=UNSET)) if isinstance(told, NodeUsed) else told


def _always(record: QualityRecord, at_ms: int, pods: Mapping[str, PodCounters]) -> QualityRecord:
    """Count pods as of a report that comes late as well."""
    return _COUNT(
        replace(record, counted={uid: each for uid, each in record.counted.items() if uid not in pods}),
        at_ms,
        pods,
    )


_RESTORE, _AS_FOLDED, _COUNT = UsageWindows.restore, as_folded, with_counters
BROKEN: dict[str, tuple[Any, type[MemoryDatabase]]] = {
    "added outside the transaction": (contextlib.nullcontext(), AddsOutside),
    "counters lost by a restart": (
        mock.patch.object(UsageWindows, "restore", _without_counters),
        MemoryDatabase,
    ),
    "counters not followed": (mock.patch("services.worker.planner.as_folded", _without_pods), MemoryDatabase),
    "late reports counted": (mock.patch("domain.state.usage.with_counters", _always), MemoryDatabase),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_build_that_bills_twice_is_named(name: str) -> None:
    broken, database = BROKEN[name]
    with broken, pytest.raises(AssertionError):
        list(map(partial(live, database=database), range(12)))
