"""Turns records into a batch: decode, fold, place. Nothing here waits or touches the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from operator import attrgetter
from typing import Self

from msgspec.structs import replace

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import CycleResult
from domain.model import limits
from domain.model.config import HOSTED_REPLICAS
from domain.model.errors import Fenced
from domain.model.events import ConfigUpserted, Event, NodeDeleted, ProfileEvent
from domain.model.limits import batch_decisions_max, tombstone_hours, tombstone_steps, usage_window_seconds
from domain.model.profiles import Profile
from domain.state.changes import LeftToReport, PodGiven
from domain.state.digest import sums_digest
from domain.state.steps import Given, Owned, Passed, Reached, Written
from services.codec.decode import Decoded
from services.codec.effects import Source, journal_row
from services.codec.feed import FeedEvent
from services.codec.seal import Senders
from services.ports.inbox import InboxRecord
from services.ports.journal import BATCHES, DIGEST_EVERY, Followed, JournalRow, Start, positions_of
from services.ports.ledger import CommitBatch, Lease, LedgerBase, LedgerPart, OffsetAdvance
from services.ports.log import CONFIG_TOPIC, PODS_TOPIC, TICKS_TOPIC, Record, TopicPartition
from services.worker.batch import BatchBuilder
from services.worker.batch_guards import BatchGuards
from services.worker.due_moments import DueMoments
from services.worker.follow.events import (
    as_folded,
    events_of,
    gone_of,
    is_news,
    take_followed,
    without_measured,
)
from services.worker.follow.positions import Folded, JournalPositions
from services.worker.forwarding import WAIT, Forwarding, is_member
from services.worker.hosting import HostedRows
from services.worker.ledger_view import LedgerView
from services.worker.read_ahead import ReadAhead, changes_plans, is_of_use
from services.worker.recent_claims import RecentClaims
from services.worker.restoring import restore, restore_gone, restore_waiting
from services.worker.shadow import Shadow


def _scheduler(start: Start) -> Scheduler:
    return Scheduler(
        start.profiles,
        seed=start.seed,
        usage_window_seconds=start.usage_window_seconds,
        preempts=start.preempts,
        preemption_seconds=start.preemption_seconds,
        reservation_seconds=start.reservation_seconds,
        backoff_ms=start.backoff_ms,
        cycle_pods_max=start.cycle_pods_max,
    )


class Planner:
    """The state of the cluster as of the last planned batch, and all that follows from it.

    Parameters
    ----------
    base : LedgerBase
        What the ledger says of the whole cluster. Which shards to decide for is told by ``take_shards``.
    tombstone_hours, preempts, preemption_seconds, reservation_seconds, backoff_ms, cycle_pods_max
        For how long, in log time, a pod that is gone is remembered; the others as of ``Scheduler``.
    stopwatch : callable
        Returns microseconds; how long a cycle took is stored with it, and decides nothing.
    writers : mapping of str to str
        Topic -> the one principal that writes to it beside the API (``services/codec/seal.py``).
    worker, build, incarnation : str
        Name and version of this worker, and what tells it from others of its name, for the journal.
    """

    shadow: Shadow | None = None  # of a worker that has a shadow profile; a replay never has

    def __init__(
        self,
        base: LedgerBase,
        profiles: Mapping[str, Profile],
        *,
        seed: int,
        usage_window_seconds: int = usage_window_seconds,
        tombstone_hours: int = tombstone_hours,
        preempts: bool = False,
        preemption_seconds: int = limits.preemption_seconds,
        reservation_seconds: int = 0,
        backoff_ms: tuple[int, int] = (0, 0),
        cycle_pods_max: int = limits.cycle_pods_max,
        stopwatch: Callable[[], int] = lambda: 0,
        writers: Mapping[str, str] = {},
        worker: str = "",
        build: str = "",
        incarnation: str = "",
    ) -> None:
        self._stopwatch = stopwatch
        self._senders = Senders(base.seal_secret, writers)
        self.shards_count = base.shards_count
        self.ledger_view = LedgerView()
        self._offsets: dict[Source, int] = {}
        self._refold_below: dict[Source, int] = {}
        self._now_ms = base.log_time_ms
        self._step_ms = tombstone_hours * 3_600_000 // tombstone_steps
        self._next_step_ms = 0  # log time at which pods that are gone are forgotten again
        self._due_moments = DueMoments()
        self.is_stalled = False  # the next record waits for what another shard folds
        self.result: CycleResult | None = None  # of the cycle of the last batch
        self.start = Start(
            worker=worker,
            build=build,
            seed=seed,
            writers=writers,
            profiles=profiles,
            tombstone_hours=tombstone_hours,
            usage_window_seconds=usage_window_seconds,
            preempts=preempts,
            preemption_seconds=preemption_seconds,
            reservation_seconds=reservation_seconds,
            backoff_ms=backoff_ms,
            cycle_pods_max=cycle_pods_max,
            leases={},
            offsets=[],
        )
        self.guards = BatchGuards(base.guards, base.log_time_ms)
        self._journal_positions = JournalPositions(
            {shard: base.batches.get(shard, 0) for shard in range(base.shards_count)}
        )
        self._incarnation, self._is_renewed = incarnation, False
        self._forgotten: Sequence[str] = ()
        self._left_to_report: list[LeftToReport] = []  # of shards taken
        self.position = 0  # of the last batch that was followed
        self.lacks_gone = False  # as the feed of an earlier build did not name the pods that are gone
        self.scheduler = _scheduler(self.start)
        self._recent_claims = RecentClaims(self.scheduler, self.ledger_view)
        self.read_ahead = ReadAhead(self.scheduler, self.ledger_view)
        self.scheduler.fold(Owned(frozenset(), self.shards_count))
        self.forwarding = Forwarding(base.shards_count, base.lanes, self.scheduler.state)
        restore(base, self.scheduler, self.ledger_view)
        restore_gone(base.tombstones, self.scheduler.state.tombstones, self._step_ms)
        self._hosted = HostedRows(self.scheduler, self.ledger_view, base)

    def take_shards(self, leases: Sequence[Lease], part: LedgerPart) -> None:
        """Decide for these shards, too, from where the ledger says that they are."""
        self.ledger_view.take_shards(leases, part.seq_next, part.dead_seq_next)
        self._offsets |= part.offsets
        self._refold_below |= part.refold_below
        self._now_ms = max(self._now_ms, part.log_time_ms)
        restore_waiting(part, self.scheduler, self.ledger_view)
        restore_gone(part.gone, self.scheduler.state.tombstones, self._step_ms)
        self.forwarding.take_shards(part)
        self._pass_to(self._now_ms)
        self._left_to_report += self._hold(part.orphaned)
        self._hosted.resume_from(part, self._now_ms)
        self._due_moments.expect(self.scheduler.hosting.due_ms(self._now_ms))
        self._journal_positions.note_taken(self.ledger_view.epochs, part.offsets)
        # Pods that wait were tried by another worker: what made room since may be known here already.
        self.scheduler.recheck_all_nodes()

    def give_shards(self, shards: Iterable[int]) -> Mapping[int, int]:
        """Leave these shards to others, but for what they placed; return the last batch of each."""
        given = frozenset(shards)
        left = [each.pod.key for each in self.scheduler.fold(Given(given)) if isinstance(each, PodGiven)]
        self.ledger_view.give_shards(given, left)
        batches = {shard: self._offsets[shard, BATCHES, 0] for shard in given}
        self._journal_positions.note_given(
            self.ledger_view.epochs, {at: n for at, n in self._offsets.items() if at[0] in given}
        )
        self._offsets = {at: offset for at, offset in self._offsets.items() if at[0] not in given}
        self._refold_below = {at: end for at, end in self._refold_below.items() if at[0] not in given}
        self.read_ahead.drop_shards(given)
        self.is_stalled = False
        self._is_renewed &= bool(self.ledger_view.epochs)
        self.forwarding.give_shards(given)
        self._left_to_report = [
            e for e in self._left_to_report if self.scheduler.state.pods[e.pod.key].shard not in given
        ]
        self._hold()
        return batches

    def rest(self, followed: Sequence[Followed]) -> None:
        """Begin anew with all own shards, as if they were given, and taken when others had done this.

        All that is in memory is in the ledger. So a worker that reads it has the same behind the next
        batch, which forgets what is not (``renew_queue``).
        """
        state, ledger_view = self.scheduler.state, self.ledger_view
        orphaned, epochs = list(state.orphaned), dict(ledger_view.epochs)
        self._journal_positions.note_given({}, self._offsets)
        # What others do to own pods is told behind it.
        self.scheduler.fold(Owned(frozenset(), self.shards_count))
        builder = BatchBuilder(self.scheduler, ledger_view, self._now_ms)
        self._follow(followed, builder)
        self._now_ms = builder.now_ms
        self.scheduler.fold(Reached(self._now_ms))
        self._journal_positions.note_taken(epochs, self._offsets)
        if self._now_ms >= self._next_step_ms:
            self._pass_to(self._now_ms)
        self.is_stalled = False
        self._left_to_report += self._hold(orphaned)
        self.renew_queue()

    def _hold(self, orphaned: Sequence[str] = ()) -> Iterable[LeftToReport]:
        """Note from where this worker goes on with its shards; return what is left to report."""
        offsets = [(*at, offset) for at, offset in sorted(self._offsets.items())]
        self.start = replace(self.start, leases=dict(self.ledger_view.epochs), offsets=offsets)
        changes = self.scheduler.fold(Owned(frozenset(self.ledger_view.epochs), self.shards_count, orphaned))
        return [each for each in changes if isinstance(each, LeftToReport)]

    def _pass_to(self, now_ms: int) -> None:
        """Let log time come to a step, and forget pods that were gone for longer than the horizon."""
        step_ms = now_ms - now_ms % self._step_ms
        self._next_step_ms = step_ms + self._step_ms
        self.scheduler.fold(passed := Passed(step_ms, step_ms - tombstone_steps * self._step_ms))
        self.forwarding.forget(passed.forget_before_ms)

    @property
    def owned(self) -> Set[int]:
        """The shards that this planner decides for."""
        return self.ledger_view.epochs.keys()

    @property
    def followed(self) -> Mapping[int, int]:
        """How far the journals of the shards that others hold are known: shard -> batch."""
        return self._journal_positions.followed

    @property
    def owns_all(self) -> bool:
        """Whether it decides for all shards."""
        return len(self.ledger_view.epochs) == self.shards_count

    def positions(self) -> dict[TopicPartition, int]:
        """Return where each partition goes on."""
        return positions_of(self._offsets)

    @property
    def held(self) -> Sequence[Record]:
        """Records that were read and are not folded yet; they come before any further one."""
        return self.read_ahead.records

    @property
    def has_work(self) -> bool:
        """Whether a batch can be planned without any further record."""
        has_records = self.read_ahead.handed or (self.read_ahead.records and not self.is_stalled)
        return bool(has_records or self._left_to_report) or self._has_pods_to_try

    @property
    def _has_pods_to_try(self) -> bool:
        """Whether a cycle could try pods. None is tried before all pods are known as the log has them."""
        return bool(self.ledger_view.epochs) and not self._refold_below and self.scheduler.has_work

    def plan(
        self,
        records: Sequence[Record],
        lost_keys: Sequence[str] = (),
        followed: Sequence[Followed] = (),
        due: int | None = None,
    ) -> CommitBatch | None:
        """Fold the records, place what can be placed, and return all of it as one batch; None: nothing came.

        A change of a profile or a priority class is a batch of its own, begun when nothing is left to try:
        what came before it is placed by the old one and what comes after by the new one, wherever the log was
        cut. All other configuration is folded in its place, as nodes are.
        Before a record behind the moment at which something timed is due, that is decided, at its moment.
        Likewise a master that lets more of its cluster share a node begins a batch, and a node that comes and
        goes under thousands of pods ends one: each time all are decided. Records behind are kept for later.

        ``lost_keys`` are those of pods that one of the last two batches had placed, and the ledger did not
        grant it. They wait again, and are tried as if they came now. ``followed`` are the next batches of
        others, which are folded before the records. ``due``: how many records, those held first, make the
        batch, None: all; with those that come first (``ReadAhead``).

        The state is ahead of the ledger from here on: if the batch does not commit, the planner is void.
        """
        builder, folded, is_any = self._decide(records, lost_keys, followed, due)
        return self._build(builder, folded) if is_any else None

    def plan_batch(
        self,
        records: Sequence[Record],
        lost_keys: Sequence[str] = (),
        followed: Sequence[Followed] = (),
        due: int | None = None,
        *,
        is_recorded: bool = False,
        until_ms: int = 0,
        call: int | None = None,
    ) -> CommitBatch:
        """Plan a batch, whatever comes of it; with a ``call`` to rest it is the last one before that.

        No record of a recorded one waits: looks for pods to try that found none left no trace. ``until_ms``
        is log time after it: where something was due, that is later than its records.
        """
        builder, folded, _ = self._decide(records, lost_keys, followed, due, is_recorded, until_ms)
        builder.call = call
        return self._build(builder, folded)

    def _decide(
        self,
        records: Sequence[Record],
        lost_keys: Sequence[str],
        followed: Sequence[Followed],
        due: int | None,
        is_recorded: bool = False,
        until_ms: int = 0,
    ) -> tuple[BatchBuilder, Folded, bool]:
        """Fold and place; say also whether anything came of it."""
        self._forgotten = lost_keys
        self._recent_claims.forget(lost_keys)
        if self._is_renewed:
            self.ledger_view.reasons_known.clear()
            for signature, shard in self.scheduler.renew_queue():
                self.ledger_view.reasons_known.setdefault(signature, {})[shard] = {}
        builder = BatchBuilder(self.scheduler, self.ledger_view, self._now_ms)
        while self._left_to_report:
            builder.add_change(self._left_to_report.pop(0), None, 0)
        began_us = self._stopwatch()
        self._follow(followed, builder)
        self.ledger_view.follow_us = self._stopwatch() - began_us
        self.scheduler.fold(Reached(builder.now_ms))
        self.read_ahead.add(records)
        folded = self._fold(due, builder, is_recorded, until_ms)
        builder.reach(self._due_moments.ended_ms(builder.now_ms, until_ms), None, "")
        self._now_ms = builder.now_ms
        began_us, is_tried = self._stopwatch(), False
        self.result = None
        if not self._refold_below:
            result = self.result = self._cycle(self._due_moments.passed_ms(self._now_ms))
            builder.decide(result, duration_us=self._stopwatch() - began_us)
            builder.cluster.strict |= self.guards.decide(result, self.scheduler.state)
            builder.cluster.hosted, builder.cluster.scales = self._hosted.look(self._now_ms)
            is_tried = self.scheduler.queue.take_put_off() or bool(result.attempts or result.looked_at)
            # A worker without a shard has no batch to say so in.
            is_tried |= self._due_moments.look(self.scheduler, self._now_ms) and bool(self.ledger_view.epochs)
        asked = folded.ends or lost_keys or is_tried or self._is_renewed
        changed = builder.has_any or self.scheduler.state.own_changes.has_any
        return builder, folded, bool(asked or changed)

    def beside(self, shadow: Shadow | None) -> Self:
        """Compare a shadow profile beside all cycles from now on."""
        self.shadow = shadow
        return self

    def _cycle(self, passed_ms: int) -> CycleResult:
        if self.shadow is None:
            return self.scheduler.cycle(self._now_ms, passed_ms)
        return self.shadow.cycle(self.scheduler, self._now_ms, passed_ms)

    def _build(self, builder: BatchBuilder, folded: Folded) -> CommitBatch:
        advances, due_ms = self._advance(folded.ends), self._due_moments.due_ms
        batch = builder.build(advances, self.forwarding.written(), due_ms)
        self.scheduler.fold(Written(builder.pods.placed_ms))
        self._recent_claims.note(batch.pods, builder.pods.kept)
        guards = self.guards.guards(self.scheduler.state, self._now_ms)
        followed = dict(self.followed if guards else {})
        return replace(
            batch,
            cluster=replace(batch.cluster, guards=guards, followed=followed),
            journal=replace(batch.journal, row=self._journal(batch, folded)),
        )

    def _follow(self, rows: Sequence[Followed], builder: BatchBuilder) -> None:
        """Fold what other workers did; what it means for own pods goes into the batch."""
        for row in sorted(rows, key=attrgetter("position")):
            self.position = max(self.position, row.position)
            self._journal_positions.follow(row)
            self.guards.follow(row.feed.raised)
            self.forwarding.note({at[:2]: at[2] for at in row.feed.lanes})
            if lost := sorted(row.seqs.keys() & self.ledger_view.epochs.keys()):
                raise Fenced(f"another worker decides for shards {lost}")
            self.ledger_view.seq |= {shard: following for shard, (_, following) in row.seqs.items()}
            builder.reach(row.log_time_ms, None, "")
            builder.changed_ms = builder.now_ms
            if builder.now_ms >= self._next_step_ms:
                self._pass_to(builder.now_ms)
            for event, sent_by in events_of(row):
                builder.sent_by = sent_by or ""
                for change in self.scheduler.fold(event, row.shard):
                    take_followed(change, builder, self.ledger_view)
            self.lacks_gone |= row.feed.gone is None
            if (gone := gone_of(row, self._step_ms)) is not None:
                self.scheduler.fold(gone, row.shard)

    def _fold(self, due: int | None, builder: BatchBuilder, is_recorded: bool, until_ms: int) -> Folded:
        """Fold records up to one that has to wait; that one and those behind it are kept.

        A tick behind log time, as some clock is or was ahead, moves it by ``tick_ms`` or to what is due
        before that, with which it is taken: it would be put off for ever where something is due each second.
        """
        ends, sources = dict[Source, int](), list[Source]()
        shared, end, home = list[tuple[int, FeedEvent]](), 0, 0
        state, is_spread, routes = self.scheduler.state, self.shards_count > 1, self.forwarding.routes
        below, fold, sent_by = self._refold_below, self.scheduler.fold, self._senders.of
        here = list[InboxRecord]()  # handed over to own shards, to be folded next
        due_ms = self._due_moments.ends_ms(builder.now_ms, is_recorded)
        for record, decoded in self.read_ahead.batch(due, looks_on=not (below or is_recorded)):
            shard = home = record.partition  # usage and configuration, which are of shard 0, have one
            at = shard, record.topic, shard
            topic, event = record.topic, decoded.event
            if below and record.offset < below.get(at, 0) and not is_of_use(event, state):
                decoded, event = Decoded(None, None), None
            configures = topic == CONFIG_TOPIC and changes_plans(event)
            if not is_recorded and self._waits(event, configures, end):
                break
            if len(builder.decider.made) >= batch_decisions_max:
                break
            at_ms = record.timestamp_ms
            is_behind = topic == TICKS_TOPIC and at_ms <= builder.now_ms
            if is_behind:
                at_ms = min(builder.now_ms + limits.tick_ms, until_ms or due_ms)
            elif at_ms >= due_ms:  # what is timed comes first
                builder.reach(due_ms, None, "")
                break
            read = record
            if type(record) is InboxRecord:
                read = self.forwarding.fold(record)
            elif is_spread and (routes or is_member(event)) and topic == PODS_TOPIC:
                home = self.forwarding.send(event, record, builder.now_ms, ends, here)
                if home == WAIT:
                    break
            end += 1
            sources.append(at)
            ends[at] = record.offset + 1
            builder.reach(at_ms, decoded.event_at_ms, sent_by(read))
            if builder.now_ms >= self._next_step_ms:
                self._pass_to(builder.now_ms)
            if decoded.rejected is not None:
                builder.refuse(read, shard, decoded.rejected)
            elif event is not None and home == shard:
                changes = fold(event, shard)
                for change in changes:
                    builder.add_change(change, read, shard)
                if topic != PODS_TOPIC and isinstance(event, FeedEvent) and is_news(changes):
                    shared.append((len(builder.pods.opened), as_folded(event, changes)))
                elif shared and isinstance(event, NodeDeleted):
                    shared = without_measured(shared, event.name)
            if configures or (is_behind and at_ms >= due_ms):
                break
            if topic == CONFIG_TOPIC and isinstance(event, ConfigUpserted) and event.kind == HOSTED_REPLICAS:
                due_ms = self._expect_step(builder.now_ms, is_recorded)
        self.read_ahead.forget_folded(end, () if is_recorded else here)
        self.is_stalled = home == WAIT and not here
        return Folded(ends, sources, shared)

    def _expect_step(self, now_ms: int, is_recorded: bool) -> int:
        """Return where the batch ends now that replicas are hosted: the first step ends as all others do."""
        self.scheduler.hosting.pass_to(now_ms)
        self._due_moments.expect(self.scheduler.hosting.due_ms(now_ms))
        return self._due_moments.ends_ms(now_ms, is_recorded)

    def _waits(self, event: Event | ProfileEvent | None, configures: bool, taken_count: int) -> bool:
        """Say whether a record begins a batch of its own."""
        if configures and (taken_count or self._has_pods_to_try):
            return True
        return not self._refold_below and event is not None and self.scheduler.settles_first(event)

    @property
    def lead(self) -> int:
        """The shard that counts the batches."""
        return min(self.ledger_view.epochs)

    def offsets(self) -> dict[Source, int]:
        """Return the next offset of each row, that of ``BATCHES`` included."""
        return dict(self._offsets)

    @property
    def batch(self) -> int:
        """The number of the last batch."""
        return self._offsets[self.lead, BATCHES, 0]

    def digest(self) -> str:
        """Return the digest of the state."""
        return sums_digest(self.scheduler.state)

    def renew_queue(self) -> None:
        """Forget with the next batch what a restart forgets: a start from a checkpoint goes on alike."""
        self._is_renewed = True
        self._hosted.look_again(self._now_ms)

    def _journal(self, batch: CommitBatch, folded: Folded) -> JournalRow:
        row, begins = self._journal_positions.tell(shard=self.lead, batch=self.batch)
        first = replace(
            row,
            worker=self._incarnation,
            start=self.start if begins else None,
            renewed=self._is_renewed,
            forgotten=self._forgotten,
        )
        self._is_renewed = False
        # Of pods that are gone a worker may remember those of shards that it held before.
        digest = self.digest() if self.owns_all and not self.batch % DIGEST_EVERY else None
        return journal_row(batch, folded.sources, first, digest, folded.shared)

    def _advance(self, ends: Mapping[Source, int]) -> list[OffsetAdvance]:
        count = (self.lead, BATCHES, 0)
        moves = {**ends, count: self._offsets[count] + 1}
        advances = []
        for key in sorted(moves):
            shard, topic, partition = key
            lo, hi = self._offsets.get(key, 0), moves[key]  # an inbox begins with its first use
            advances.append(OffsetAdvance(shard, topic, partition, self.ledger_view.epochs[shard], lo, hi))
            self._offsets[key] = hi
            if hi >= self._refold_below.get(key, hi + 1):
                del self._refold_below[key]
        return advances
