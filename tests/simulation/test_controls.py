"""Does the auditor name what is wrong with deliberately broken builds?"""

from __future__ import annotations

import contextlib
import gc
import logging
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from typing import Any, ClassVar
from unittest import mock

import msgspec
import pytest

from domain.cycle import preempt
from domain.cycle.run import CycleRun, Preempting
from domain.cycle.schedule import Scheduler
from domain.engine.preemption import Planned
from domain.model.colocation import CoLocationPolicy
from domain.model.decisions import Outcome
from domain.model.pods import PodSpec
from domain.model.timestamps import NEVER_MS
from domain.model.usage import NodeUsage, QualityRecord
from domain.state import billing
from domain.state.billing import Billed
from domain.state.lending import Lending
from domain.state.occupancy import Occupancy
from services.adapters.batches import ShardAdvance
from services.adapters.memory.past_tables import PastTables, SpecSet
from services.codec.settling import settle_batch
from services.ports.journal import Feed, Followed
from services.ports.ledger import (
    BatchPods,
    CommitBatch,
    Committed,
    LedgerBase,
    NodeClaim,
    NodeFact,
    NodeRow,
    NotCommitted,
    PendingPod,
)
from services.ports.log import DECISIONS_TOPIC, Entry, Log, Span, TopicPartition
from services.ports.outbox import Outbox
from services.relay.tail import Tail
from services.worker.batch_guards import BatchGuards
from services.worker.due_moments import DueMoments
from services.worker.follow.events import events_of
from services.worker.lease_judge import LeaseJudge
from services.worker.loop import Loop
from tests.batches import changed
from tests.simulation.faults import OF_CALLS, Fault, Faults
from tests.simulation.invariants import Invariant
from tests.simulation.process import UnreliableLedger, UnreliableLog, UnreliableWriter
from tests.simulation.servers import SimulatedDatabase
from tests.simulation.world import Build, World

SEEDS_COUNT = 50
CHANCE = 0.2
replace = msgspec.structs.replace
# A loop that is stopped in the middle of a day leaves tasks behind that cannot be cancelled any more.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    gc.collect()  # what is left of a day is not to be collected in another test
    logging.disable(logging.NOTSET)


def _often(rates: Mapping[Fault, float]) -> Any:
    """Let some faults strike this often on every day, beside what the day draws."""
    drawn = Faults.draw

    def draw(faults: Faults, without: Collection[Fault] = (), lasting: Collection[Fault] = ()) -> None:
        drawn(faults, without, lasting)
        for fault, rate in rates.items():
            (faults.rates if fault in OF_CALLS else faults.per_second)[fault] = rate

    return mock.patch.object(Faults, "draw", draw)


@contextlib.contextmanager
def _all(*patches: Any) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


# ------------------------------------------------------------------------------------------- transactions


class _NoFence(SimulatedDatabase):
    """Lets every epoch and every offset in."""

    def is_fenced(self, batch: CommitBatch, advances: Sequence[ShardAdvance], holder: object) -> bool:
        return False


class _OffsetsApart(UnreliableLedger):
    """Advances the offsets in a transaction of their own, and dies between the two at times."""

    def apply(self, batch: CommitBatch) -> Committed | NotCommitted:
        if self._process.rng.random() < CHANCE and not self.database.is_fenced(batch, [], None):
            for a in batch.offsets.advances:
                self.database.offsets[a[:3]].next_offset = a.hi
            self._process.kill()
            return NotCommitted.FENCED
        return super().apply(batch)


class _BlindToVersions(SimulatedDatabase):
    """Writes a node whatever its version is."""

    def grants(self, claim: NodeClaim, row: NodeRow) -> bool:
        return True


class _RefusesFacts(SimulatedDatabase):
    """Loses what is released when somebody else changed the node meanwhile."""

    def _take_fact(self, fact: NodeFact, at_ms: int) -> None:
        row = self.nodes.get(fact.id)
        if row is not None and row.version != fact.version_seen:
            fact = replace(fact, delta={})
        super()._take_fact(fact, at_ms)


def _settles(change: Callable[[CommitBatch, CommitBatch], CommitBatch]) -> Any:
    """Make something else of a batch of which claims were lost: of what was planned and what was settled."""

    def wrongly(
        batch: CommitBatch, lost: Set[int], moved: Mapping[int, int], raised: Sequence[str]
    ) -> CommitBatch:
        settled = settle_batch(batch, lost, moved, raised)
        return change(batch, settled) if lost else settled

    return mock.patch("services.adapters.memory.database.settle_batch", wrongly)


_KEEPS_LOSERS = _settles(lambda batch, settled: changed(settled, opened=batch.pods.opened))
_LOSES_LOSERS = _settles(lambda batch, settled: changed(settled, pending_added=batch.pods.pending_added))
_OLD_VERSIONS = mock.patch("services.codec.settling.move_version", lambda payload, shift: payload)

# ------------------------------------------------------------------------------------- what a commit keeps


class _Changing(UnreliableLedger):
    """Commits something else than what it was given."""

    def change(self, batch: CommitBatch) -> CommitBatch:
        raise NotImplementedError

    def apply(self, batch: CommitBatch) -> Committed | NotCommitted:
        return super().apply(self.change(batch))

    def some(self) -> bool:
        return self._process.rng.random() < CHANCE


class _PhantomDecision(_Changing):
    """Tells a pod that waits that it is bound."""

    def change(self, batch: CommitBatch) -> CommitBatch:
        decisions = list(batch.decisions.made)
        for at, (decision, payload) in enumerate(decisions):
            if decision.outcome is Outcome.UNSCHEDULABLE and self.some():
                said = payload.replace(b'"unschedulable","node":null', b'"bound","node":"node-0"')
                decisions[at] = replace(decision, outcome=Outcome.BOUND, node="node-0"), said
        return changed(batch, made=decisions)


class _LosesPending(_Changing):
    """Keeps pods that wait in memory alone."""

    def change(self, batch: CommitBatch) -> CommitBatch:
        return changed(batch, pending_added=[])


class _LosesProfiles(_Changing):
    """Keeps profiles in memory alone."""

    def change(self, batch: CommitBatch) -> CommitBatch:
        return changed(batch, profiles=[])


class _LosesUsage(_Changing):
    """Keeps what was measured in memory alone."""

    def change(self, batch: CommitBatch) -> CommitBatch:
        return changed(batch, usage=[])


class _MovesFromElsewhere(_Changing):
    """Says of pods that have to leave hot nodes that they run on others."""

    def change(self, batch: CommitBatch) -> CommitBatch:
        said, other = b'"migration":{"from":"', b'"migration":{"from":"other-'
        return changed(
            batch, made=[(each, payload.replace(said, other)) for each, payload in batch.decisions.made]
        )


class _LosesLetters(_Changing):
    """Counts records that make no sense, and throws them away."""

    def apply(self, batch: CommitBatch) -> Committed | NotCommitted:
        outcome = super().apply(batch)
        for letter in batch.decisions.dead_letters:
            self.database.dead_letters[letter.shard].remove(letter)
        return outcome

    def change(self, batch: CommitBatch) -> CommitBatch:
        return batch


class _BelievesClaims(_Changing):
    """Ends a placement when its producer says that it ended."""

    def change(self, batch: CommitBatch) -> CommitBatch:
        return changed(batch, closed=[each._replace(at_ms=0) for each in batch.pods.closed])


class _NeverOrphans(_Changing):
    """Does not say that a node went away under its pods."""

    def change(self, batch: CommitBatch) -> CommitBatch:
        told = [(d, payload.replace(b'"node-deleted"', b'"nothing"')) for d, payload in batch.decisions.made]
        return changed(batch, made=told)


class _ForgetsGhosts(_Changing):
    """Keeps in memory alone which pods are gone."""

    def change(self, batch: CommitBatch) -> CommitBatch:
        return changed(batch, tombstones=[])


class _WrongSums(_Changing):
    """Writes sums of nodes that lack a pod."""

    def change(self, batch: CommitBatch) -> CommitBatch:
        claims = [replace(claim, delta={**claim.delta, "pods": 0}) for claim in batch.cluster.claims]
        return changed(batch, claims=claims)


class _LosesDecisions(UnreliableLedger):
    """Loses a decision after it was committed."""

    def apply(self, batch: CommitBatch) -> Committed | NotCommitted:
        outcome = super().apply(batch)
        if isinstance(outcome, Committed) and batch.decisions.made and self._process.rng.random() < CHANCE:
            shard = batch.decisions.made[-1][0].shard
            self.database.decisions[shard].pop()
            self.database.recorded_ms[shard].pop()
        return outcome


# ------------------------------------------------------------------------------ what a worker starts from


class _Forgetting(UnreliableLedger):
    """Starts a worker from something else than what the ledger holds."""

    def forget(self, state: LedgerBase) -> LedgerBase:
        raise NotImplementedError

    async def load_base(self) -> LedgerBase:
        return self.forget(await super().__getattr__("load_base")())


class _ForgetsTaints(_Forgetting):
    """Forgets what nodes repel."""

    def forget(self, state: LedgerBase) -> LedgerBase:
        nodes = [
            row if row.spec is None else replace(row, spec=replace(row.spec, taints=()))
            for row in state.nodes
        ]
        return replace(state, nodes=nodes)


class _ForgetsZones(_Forgetting):
    """Takes all nodes for neighbours."""

    def forget(self, state: LedgerBase) -> LedgerBase:
        nodes = [
            row
            if row.spec is None
            else replace(row, spec=replace(row.spec, labels={**row.spec.labels, "zone": "a"}))
            for row in state.nodes
        ]
        return replace(state, nodes=nodes)


class _BelievesInRoom(_Forgetting):
    """Takes nodes for twice as large as they are."""

    def forget(self, state: LedgerBase) -> LedgerBase:
        nodes = []
        for row in state.nodes:
            if row.spec is not None:
                offers = {name: 2 * value for name, value in row.spec.allocatable.items()}
                row = replace(row, spec=replace(row.spec, allocatable=offers))
            nodes.append(row)
        return replace(state, nodes=nodes)


# --------------------------------------------------------------------------------------------- following


class _SkipsFeeds(UnreliableLedger):
    """Follows others, and misses what some of their batches did."""

    async def follow(self, seen: Mapping[int, int]) -> Sequence[Followed]:
        rows = await super().__getattr__("follow")(seen)
        rng = self._process.rng
        return [replace(row, feed=Feed()) if rng.random() < CHANCE else row for row in rows]


def _twice(row: Followed) -> Iterator[Any]:
    yield from events_of(row)
    yield from events_of(row)


_FEEDS_TWICE = mock.patch("services.worker.planner.events_of", _twice)
_LOSES_APART = mock.patch("services.adapters.memory.database.lost_together", lambda batch, lost: set(lost))

# ------------------------------------------------------------------------------------- taking shards


class _Whatever(dict[int, int]):
    """Is no other than anything."""

    def __ne__(self, other: object) -> bool:
        return False


async def _take_early(loop: Loop) -> None:
    """Begin with shards without what their last owners did last."""
    stop = loop.follower.stop

    async def read() -> bool:
        return False

    async def stop_somewhere(shards: Sequence[int]) -> Mapping[int, int]:
        return _Whatever(await stop(shards))

    with mock.patch.multiple(loop.follower, read=read, stop=stop_somewhere):
        await _TAKE(loop)


_TAKE = Loop._take
_TAKES_EARLY = mock.patch.object(Loop, "_take", _take_early)
_NO_GUARDS = mock.patch("services.adapters.memory.database.refused_nodes", return_value=set())
# What another worker did a moment ago is seldom unknown.
_FOLLOWS_SELDOM = mock.patch("tests.simulation.world.FOLLOW_SECONDS", (3.0,))
_MANY_APART = mock.patch("tests.simulation.scenario._APPS", ("spread", "spread", "zonal"))

# --------------------------------------------------------------------------------------- what nodes lend


class _LendsTwice(_Changing):
    """Claims what pods request, and not what they borrow."""

    def change(self, batch: CommitBatch) -> CommitBatch:
        claims = [replace(claim, resource_only=True) for claim in batch.cluster.claims]
        return changed(batch, claims=claims)


class _ActsTwice(_Changing):
    """Writes what agents did again."""

    def change(self, batch: CommitBatch) -> CommitBatch:
        return changed(batch, actions=[*batch.cluster.actions, *batch.cluster.actions])


def _never_stale(lending: Lending, node: str) -> int:
    return NEVER_MS - 1 if node in lending._measured else NEVER_MS


def _billing_again(
    of: Occupancy, usage: NodeUsage, record: QualityRecord | None, policy: CoLocationPolicy
) -> Billed:
    """Bill a report that comes again as if it came first."""
    if record is not None:
        counted = {uid: each for uid, each in record.counted.items() if each.at_ms < usage.at_ms}
        record = replace(record, counted=counted)
    return _BILL(of, usage, record, policy)


_BILL = billing.bill
_NEVER_STALE = mock.patch.object(Lending, "_end_ms", _never_stale)
_BILLS_TWICE = mock.patch("domain.state.cluster.bill", _billing_again)
_COVERS_ALL = mock.patch("domain.state.settling._covered_ms", return_value=NEVER_MS)
_MANY_BORROW = mock.patch.multiple("tests.simulation.scenario", _BORROWS=1.0, _LENDS=0.35, _APPS=("web",))


def _spec_of_now(position: int, *rest: object) -> SpecSet:
    """Date a spec as if it had always been so."""
    return SpecSet(0, *rest)  # type: ignore[arg-type]


def _never_ended(tables: PastTables, key: tuple[str, int], pod: PendingPod, position: int) -> None:
    """Forget that a pod waited."""
    tables.pending_added.pop(key, None)


class _DatesLate(SimulatedDatabase):
    """Dates what a batch places by the batch after it."""

    def _write_pods(self, pods: BatchPods, shards: Sequence[int]) -> None:
        self._writing_at += 1
        super()._write_pods(pods, shards)
        self._writing_at -= 1


_FORGETS_WAITS = mock.patch.object(PastTables, "end_wait", _never_ended)
_FORGETS_SPECS = mock.patch("services.adapters.memory.database.SpecSet", _spec_of_now)

# ------------------------------------------------------------------------------------------------ relays


class _Relaying(UnreliableLog):
    """Publishes something else than what the relay gave it."""

    def publish(self, entries: list[Entry], rng: random.Random) -> list[Entry]:
        raise NotImplementedError

    async def writer(self) -> UnreliableWriter:
        writer, inner = await super().writer(), self._process.rng

        class Writer(UnreliableWriter):
            async def append(
                self, topic: str, entries: Sequence[Entry], partition: int | None = None
            ) -> Sequence[Span]:
                if topic == DECISIONS_TOPIC:
                    entries = log.publish(list(entries), inner)
                return await super().append(topic, entries, partition)

        log = self
        writer.__class__ = Writer
        return writer


class _Skips(_Relaying):
    """Leaves a decision out at times."""

    def publish(self, entries: list[Entry], rng: random.Random) -> list[Entry]:
        return [entry for entry in entries if rng.random() > CHANCE]


class _Doubles(_Relaying):
    """Publishes everything twice."""

    def publish(self, entries: list[Entry], rng: random.Random) -> list[Entry]:
        return entries + entries


class _OtherTimeline(_Relaying):
    """Publishes what was decided elsewhere."""

    def publish(self, entries: list[Entry], rng: random.Random) -> list[Entry]:
        return [
            entry._replace(value=(entry.value or b"").replace(b'"node-1"', b'"node-2"')) for entry in entries
        ]


async def _believe_the_cursor(log: Log, outbox: Outbox, shard: int, noted: int, *_: object) -> Tail:
    """Go on where the ledger says that it was published up to, whatever the topic holds."""
    at = TopicPartition(DECISIONS_TOPIC, shard)
    return Tail(noted, (await log.backlogs({at: 0}))[at].end, None)


# -------------------------------------------------------------------------------------------- preemption


class _Retelling(_Changing):
    """Tells other outcomes of preemption than were decided."""

    retold: ClassVar[Mapping[bytes, bytes]]

    def change(self, batch: CommitBatch) -> CommitBatch:
        decisions = list(batch.decisions.made)
        for at, (decision, payload) in enumerate(decisions):
            for told, said in self.retold.items():
                payload = payload.replace(told, said)
            decisions[at] = decision, payload
        return changed(batch, made=decisions)


class _NeverClears(_Retelling):
    """Does not say that a promise has ended."""

    retold: ClassVar = {b'"outcome":"cleared"': b'"outcome":"unschedulable"'}


class _SparesNobody(_Retelling):
    """Evicts again who may stay."""

    retold: ClassVar = {b'"outcome":"spared"': b'"outcome":"evicted"'}


class _NamesAnother(_Retelling):
    """Evicts for a nomination that is none."""

    retold: ClassVar = {b'"nominated":"': b'"nominated":"9'}


def _evicting_all(run: CycleRun, of: Preempting, key: str, plan: Planned, attempt: int) -> None:
    """Evict all pods of lower priority of a node."""
    state, priority = run.state, run.state.pods[key].spec.template.priority
    evicted = state.nominations.evicted
    below = [
        each.spec.key
        for each in state.nodes[plan.node].pods.values()
        if each.spec.template.priority < priority and each.spec.key not in evicted
    ]
    _NOMINATE(run, of, key, plan._replace(victims=tuple(below)), attempt)


_NOMINATE = preempt.nominate
_EVICTS_ALL = mock.patch.object(preempt, "nominate", _evicting_all)
_ALL_PREEMPT = mock.patch("domain.cycle.preempt.may_preempt", return_value=True)
_WAITS_FOR_NOBODY = mock.patch("domain.cycle.preempt.has_leaving", return_value=False)

# ------------------------------------------------------------------------------------------------- gangs

_PARTS = mock.patch("domain.queue.gangs.Gang.lacking_count", property(lambda gang: 0))
_PARTS_LOSE = mock.patch("services.codec.settling._is_short", return_value=False)
_MANY_IN_GANGS = mock.patch.multiple(
    "tests.simulation.scenario", _IN_GANGS=0.8, _GANGS=tuple(f"gang-{number}" for number in range(8))
)

# --------------------------------------------------------------------------- what is judged, and tried again

_BELIEVES_LOSERS = mock.patch("services.worker.lost_claims.doubt", lambda batch, *lost: batch)
_NEVER_SETTLES = mock.patch.object(BatchGuards, "confirm_raised", return_value=None)
# A batch is planned while the one before it is on its way: the longer that takes, the more often.
_COMMITS_SLOWLY = mock.patch("tests.simulation.process.COMMIT_SECONDS_MAX", 0.5)


def _sleeping(scheduler: Scheduler, pod: PodSpec, *, arrival: int, shard: int, fresh: bool) -> bool:
    """Restore a pod that waits, and do not try it."""
    restored = _RESTORE(scheduler, pod, arrival=arrival, shard=shard, fresh=fresh)
    line = scheduler.queue._line_of.get(pod.key)
    if line is not None and not fresh and not line.group.held_by:
        line.group.parked = True
    return restored


_RESTORE = Scheduler.restore_pod
_SLEEPS = mock.patch.object(Scheduler, "restore_pod", _sleeping)


def _look_away(timing: DueMoments, scheduler: Scheduler, now_ms: int) -> bool:
    """See nothing that is timed."""
    timing._has_looked = True
    return False


_NEVER_DUE = mock.patch.object(DueMoments, "look", _look_away)

# ----------------------------------------------------------------------------------------------- controls

_JUDGES_AT_ONCE = mock.patch.object(LeaseJudge, "is_clear", True)
_RESTARTS = _often({Fault.LEDGER_RESTART: 0.2})
_NO_DEDUPE = mock.patch("domain.state.cluster.is_stale", return_value=False)
_NO_RESUME = mock.patch("services.relay.run.compare", _believe_the_cursor)
# A commit of a former owner that comes after the first one of the next owner meets a unique key, as that of
# the journal: only one that comes between is written.
_LATE = _often({Fault.LATE_COMMIT: 0.2})
# A worker that follows the others seldom releases a pod of a node that it has not seen as it is.
_UNSEEN = _often({Fault.FOREIGN_WRITE: 1.0})
# A relay that never gets in step publishes again and again: the day is judged before the loop gives up, and
# after the longest pause of a process.
_UNDONE = mock.patch("tests.simulation.world.CONVERGENCE_SECONDS", 90.0)

_OF_PREEMPTION = {
    Invariant.BROKEN_PROMISE,
    Invariant.EVICTED_TWICE,
    Invariant.WRONG_EVICTION,
    Invariant.EVICTED_FOR_NOTHING,
    Invariant.WRONG_NOMINATION,
    Invariant.WRONG_MOVE,
}

CONTROLS: list[tuple[str, Build, Any, Invariant]] = [
    ("fence off", Build(database=_NoFence), _LATE, Invariant.STALE_EPOCH_WRITE),
    ("offset outside the transaction", Build(ledger=_OffsetsApart), None, Invariant.LOST_POD),
    ("CAS off", Build(database=_BlindToVersions), None, Invariant.VERSION_CHAIN),
    ("fact refused", Build(database=_RefusesFacts), _UNSEEN, Invariant.WRONG_SUM),
    ("loser's placement kept", Build(), _KEEPS_LOSERS, Invariant.LEDGER_DIFFERS),
    ("loser's pending row lost", Build(), _LOSES_LOSERS, Invariant.LOST_POD),
    ("node version not shifted", Build(), _OLD_VERSIONS, Invariant.VERSION_CHAIN),
    ("duplicates of events", Build(), _NO_DEDUPE, Invariant.OLD_EVENT_WON),
    ("duplicates of decisions", Build(), _NO_RESUME, Invariant.PUBLISHED_TWICE),
    ("phantom decision", Build(ledger=_PhantomDecision), None, Invariant.PHANTOM_DECISION),
    ("lost pending", Build(ledger=_LosesPending), None, Invariant.LOST_POD),
    ("lost decision", Build(ledger=_LosesDecisions), _UNDONE, Invariant.HOLE_IN_SEQ),
    ("lost profile", Build(ledger=_LosesProfiles), None, Invariant.LOST_PROFILE),
    ("lost usage", Build(ledger=_LosesUsage), None, Invariant.LOST_USAGE),
    ("moves from elsewhere", Build(ledger=_MovesFromElsewhere), None, Invariant.WRONG_MOVE),
    ("lost letters", Build(ledger=_LosesLetters), None, Invariant.DEAD_LETTERS),
    ("wrong sums", Build(ledger=_WrongSums), None, Invariant.WRONG_SUM),
    ("believed claims", Build(ledger=_BelievesClaims), None, Invariant.WRONG_SPAN),
    ("never orphans", Build(ledger=_NeverOrphans), None, Invariant.UNTOLD),
    ("ghosts", Build(ledger=_ForgetsGhosts), None, Invariant.GHOST),
    ("forgotten taints", Build(ledger=_ForgetsTaints), None, Invariant.INFEASIBLE_PLACEMENT),
    ("forgotten zones", Build(ledger=_ForgetsZones), None, Invariant.INFEASIBLE_PLACEMENT),
    ("believed room", Build(ledger=_BelievesInRoom), None, Invariant.OVER_CAPACITY),
    ("feeds missed", Build(ledger=_SkipsFeeds), None, Invariant.FOLLOWED_DIFFERS),
    ("feeds twice", Build(), _FEEDS_TWICE, Invariant.FOLLOWED_DIFFERS),
    ("promise never cleared", Build(ledger=_NeverClears), None, Invariant.BROKEN_PROMISE),
    ("nobody spared", Build(ledger=_SparesNobody), None, Invariant.EVICTED_TWICE),
    ("evicted for another", Build(ledger=_NamesAnother), None, Invariant.WRONG_EVICTION),
    ("all evicted", Build(), _EVICTS_ALL, Invariant.EVICTED_FOR_NOTHING),
    ("all may preempt", Build(), _ALL_PREEMPT, Invariant.WRONG_NOMINATION),
    ("waits for nobody who leaves", Build(), _WAITS_FOR_NOBODY, Invariant.WRONG_NOMINATION),
    ("guards off", Build(), _all(_NO_GUARDS, _MANY_APART, _FOLLOWS_SELDOM), Invariant.INFEASIBLE_PLACEMENT),
    (
        "losers apart",
        Build(),
        _all(_LOSES_APART, _MANY_APART, _FOLLOWS_SELDOM),
        Invariant.INFEASIBLE_PLACEMENT,
    ),
    (
        "take-over without the end of the journal",
        Build(),
        _all(_TAKES_EARLY, _FOLLOWS_SELDOM),
        Invariant.UNRELEASED,
    ),
    (
        "judges others at once after an outage",
        Build(),
        _all(_JUDGES_AT_ONCE, _RESTARTS),
        Invariant.HEALTHY_FENCED,
    ),
    ("parts of gangs", Build(), _PARTS, Invariant.PART_OF_GANG),
    (
        "parts of gangs lose",
        Build(),
        _all(_PARTS_LOSE, _MANY_IN_GANGS, _FOLLOWS_SELDOM),
        Invariant.PART_OF_GANG,
    ),
    (
        "losers not doubted",
        Build(),
        _all(_BELIEVES_LOSERS, _MANY_APART, _FOLLOWS_SELDOM, _COMMITS_SLOWLY),
        Invariant.UNDOUBTED,
    ),
    ("waiting pods asleep after a take-over", Build(), _SLEEPS, Invariant.NOT_DRAINED),
    ("due moments ignored", Build(), _all(_NEVER_DUE, _UNDONE), Invariant.NO_CONVERGENCE),
    ("guards never settled", Build(), _all(_NEVER_SETTLES, _MANY_APART), Invariant.BLIND_GUARD),
    (
        "claims without what is lent",
        Build(ledger=_LendsTwice),
        _all(_MANY_BORROW, _FOLLOWS_SELDOM),
        Invariant.LENT_TWICE,
    ),
    ("pods covered at once", Build(), _COVERS_ALL, Invariant.LENT_TWICE),
    ("stale measurement believed", Build(), _NEVER_STALE, Invariant.STALE_VIEW),
    ("reports billed again", Build(), _BILLS_TWICE, Invariant.WRONG_BILL),
    ("actions written again", Build(ledger=_ActsTwice), None, Invariant.LOST_ACTION),
    ("waits of the past forgotten", Build(), _FORGETS_WAITS, Invariant.WRONG_PAST),
    ("specs of now told of the past", Build(), _FORGETS_SPECS, Invariant.WRONG_PAST),
    ("placements dated late", Build(database=_DatesLate), None, Invariant.WRONG_PAST),
    ("relay skips", Build(log=_Skips), _UNDONE, Invariant.HOLE_IN_SEQ),
    ("relay doubles", Build(log=_Doubles), None, Invariant.PUBLISHED_TWICE),
    ("relay of another timeline", Build(log=_OtherTimeline), None, Invariant.OTHER_TIMELINE),
]


SHOWN_BY = {
    "relay skips": 10,
    "guards never settled": 12,
    "judges others at once after an outage": 1,
    "guards off": 26,
    "all may preempt": 10,
    "CAS off": 2,
    "fact refused": 10,
    "loser's placement kept": 10,
    "node version not shifted": 2,
    "all evicted": 29,
    "moves from elsewhere": 8,
    "losers apart": 38,
    "parts of gangs": 17,
    "parts of gangs lose": 5,
    "fence off": 9,
    "phantom decision": 18,
    "offset outside the transaction": 4,
    "loser's pending row lost": 2,
    "duplicates of decisions": 13,
    "lost pending": 18,
    "lost letters": 2,
    "lost decision": 2,
    "lost usage": 2,
    "never orphans": 2,
    "nobody spared": 2,
    "forgotten taints": 14,
    "feeds missed": 4,
    "waits for nobody who leaves": 22,
    "take-over without the end of the journal": 34,
    "losers not doubted": 2,
    "waiting pods asleep after a take-over": 24,
    "due moments ignored": 10,
    "claims without what is lent": 30,
    "pods covered at once": 18,
    "stale measurement believed": 18,
    "reports billed again": 18,
    "actions written again": 18,
}
"""A short day that named a build which not every day names at once: it is lived before all others."""


def _end_once_named(world: World, named: Invariant) -> None:
    """Break a day off when the invariant is named: the rest of it would show nothing more."""

    def noted(invariant: Invariant) -> None:
        if invariant is named:
            world.loop.stop()

    world.auditor.findings.noted = noted


@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "build", "patch", "named"), [pytest.param(*control, id=control[0]) for control in CONTROLS]
)
def test_a_broken_build_is_named(name: str, build: Build, patch: Any, named: Invariant) -> None:
    found: set[Invariant] = set()
    with patch or contextlib.nullcontext():
        for seed in (SHOWN_BY.get(name, 0), *range(SEEDS_COUNT)):
            world = World(seed, build, preempts=named in _OF_PREEMPTION)
            _end_once_named(world, named)
            # What a broken build raises by itself does not count; what was noted before that does.
            with contextlib.suppress(Exception):
                world.run()
            found |= world.auditor.findings.names
            if named in found:
                return
            if seed % 5 == 4:
                gc.collect()  # the arrays of dead workers are large, and the collector does not know that
    pytest.fail(f"{SEEDS_COUNT} days of this build raise {sorted(n.name for n in found)}, not {named.name}")
