"""Turns records into a batch: decode, fold, place. Nothing here waits or touches the network."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from domain.cycle.schedule import Scheduler
from domain.manifests.profile import profile_from_spec
from domain.model.config import PRIORITY_CLASS
from domain.model.errors import FieldError
from domain.model.events import ConfigDeleted, ConfigUpserted, Event, PodUpserted, ProfileEvent
from domain.model.limits import batch_decisions_max, tombstone_hours, tombstone_steps, usage_window_seconds
from domain.model.pods import PodLife, PodSpec, PodTemplate
from domain.model.profiles import Profile, ProfileRevision
from domain.state.digest import sums_digest
from domain.state.steps import Owned, Passed, Reached, Written
from services.codec.decode import Decoded, Decoder
from services.codec.effects import Source, journal_row
from services.codec.feed import FeedEvent
from services.codec.seal import Senders
from services.ports.journal import BATCHES, DIGEST_EVERY, JournalRow, Start, positions_of
from services.ports.ledger import (
    CommitBatch,
    Lease,
    LedgerBase,
    LedgerPart,
    LedgerState,
    OffsetAdvance,
    PlacementOpened,
    PodRow,
    ProfileRow,
)
from services.ports.log import CONFIG_TOPIC, Record, TopicPartition
from services.worker.batch import BatchBuilder
from services.worker.book import Book
from services.worker.following import is_news
from services.worker.ledger_rows import config_object

_LOGGER = logging.getLogger(__name__)

_NO_LIFE = PodLife()


class Planner:
    """The state of the cluster as of the last planned batch, and all that follows from it.

    Parameters
    ----------
    base : LedgerBase
        What the ledger says of the whole cluster. Which shards to decide for is told by ``take``.
    tombstone_hours : int
        For how long, in log time, a pod that is gone is remembered.
    stopwatch : callable
        Returns microseconds that only go up; how long a cycle took is stored with it and decides nothing.
    writers : mapping of str to str
        Topic -> the one principal that writes to it beside the API (``services/codec/seal.py``).
    worker, build : str
        The name and the version of who plans, for the journal.
    """

    def __init__(
        self,
        base: LedgerBase,
        profiles: Mapping[str, Profile],
        *,
        seed: int,
        usage_window_seconds: int = usage_window_seconds,
        tombstone_hours: int = tombstone_hours,
        stopwatch: Callable[[], int] = lambda: 0,
        writers: Mapping[str, str] = {},
        worker: str = "",
        build: str = "",
    ) -> None:
        self._stopwatch = stopwatch
        self._decoder = Decoder()
        self._senders = Senders(base.seal_secret, writers)
        self.shards_count = base.shards_count
        self.book = Book()
        self._offsets: dict[Source, int] = {}
        self._refold_below: dict[Source, int] = {}
        self._now_ms = base.log_time_ms
        self._step_ms = tombstone_hours * 3_600_000 // tombstone_steps
        self._next_step_ms = 0  # log time at which pods that are gone are forgotten again
        self._rest: list[Record] = []  # records that wait behind a change of a profile
        self.start = Start(
            worker=worker,
            build=build,
            seed=seed,
            usage_window_seconds=usage_window_seconds,
            tombstone_hours=tombstone_hours,
            profiles=profiles,
            writers=writers,
            leases={},
            offsets=[],
        )
        self._is_first = True
        self._is_renewed = False
        self._waited: dict[str, tuple[int, int, str | None]] = {}  # of the last two batches: see CommitBatch
        self._waited_before: Mapping[str, tuple[int, int, str | None]] = {}
        self._forgotten: Sequence[str] = ()
        self.scheduler = Scheduler(profiles, seed=seed, usage_window_seconds=usage_window_seconds)
        self.scheduler.state.apply(Owned(frozenset(), self.shards_count))
        self._restore(base)

    def _restore(self, base: LedgerBase) -> None:
        for row in base.profiles:
            self._restore_profile(row)
        for thing in sorted(base.config, key=lambda row: (row.at_ms, row.kind, row.namespace, row.name)):
            self.scheduler.state.config.restore(config_object(thing))
        for node in sorted(base.nodes, key=lambda row: row.id):
            if node.spec is not None:
                self.scheduler.state.restore_node(
                    name=node.name,
                    ordinal=node.id,
                    version=node.version,
                    spec_count=node.spec_count,
                    spec=node.spec,
                    deleted=node.deleted,
                )
        self.book.know(base.templates)
        self._restore_placed(base)

    def take(self, leases: Sequence[Lease], part: LedgerPart) -> None:
        """Decide for these shards, too, from where the ledger says that they are."""
        self.book.take(leases, part.seq_next, part.dead_seq_next)
        self._offsets |= part.offsets
        self._refold_below |= part.refold_below
        self._now_ms = max(self._now_ms, part.log_time_ms)
        self.book.know(part.templates)
        for waiting in sorted(part.pending, key=lambda row: row.arrival):
            pod = _pod_of(waiting, part.templates, "")
            self.scheduler.restore_pod(
                pod, arrival=waiting.arrival, shard=waiting.shard, fresh=not waiting.tried
            )
            self.book.wait(pod.key, waiting.since_ms, waiting.sent_by)
            if not waiting.tried:
                self.book.untried.add(pod.key)
            self.book.reasons_known.setdefault(waiting.signature, {})[waiting.shard] = {}
        add_tombstone = self.scheduler.state.tombstones.add
        for gone in sorted(part.tombstones, key=lambda row: (row.at_ms, row.namespace, row.name, row.uid)):
            at_ms = gone.at_ms - gone.at_ms % self._step_ms
            key = f"{gone.namespace}/{gone.name}" if gone.namespace else gone.name
            add_tombstone(key, gone.uid, gone.resource_version, at_ms)
        self._pass_to(self._now_ms)
        self._hold()

    def _hold(self) -> None:
        """Note from where this worker goes on with its shards."""
        offsets = [(*at, offset) for at, offset in sorted(self._offsets.items())]
        self.start = msgspec.structs.replace(self.start, leases=dict(self.book.epochs), offsets=offsets)
        self.scheduler.state.apply(Owned(frozenset(self.book.epochs), self.shards_count))

    def _pass_to(self, now_ms: int) -> None:
        """Let log time come to a step, and forget who was gone for longer than the horizon."""
        step_ms = now_ms - now_ms % self._step_ms
        self._next_step_ms = step_ms + self._step_ms
        self.scheduler.state.apply(Passed(step_ms, step_ms - tombstone_steps * self._step_ms))

    def _restore_placed(self, base: LedgerBase) -> None:
        """Restore placed pods and measurements as they were folded: a measurement after the pods it knows."""
        marks = self.book.marks = {record.node: marks for record, marks, _ in base.usage}
        later = []
        rows = base.placements
        rows.reverse()
        while rows:  # each row makes room for what is made of it: a million of both need not fit memory
            placed = rows.pop()
            if placed.node in marks and placed.seq >= marks[placed.node].get(placed.shard, 0):
                later.append(placed)
            else:
                self._restore_placement(placed, base.templates)
        for record, *_ in base.usage:
            self.scheduler.state.restore_usage(record)
        for placed in later:
            self._restore_placement(placed, base.templates)

    def _restore_placement(self, placed: PlacementOpened, templates: Mapping[bytes, PodTemplate]) -> None:
        pod = _pod_of(placed, templates, placed.node if placed.adopted else "")
        self.scheduler.restore_pod(
            pod, node=placed.node, adopted=placed.adopted, shard=placed.shard, counted=placed.counted
        )

    def _restore_profile(self, row: ProfileRow) -> None:
        """Restore a profile. One that this version of berth no longer accepts counts as deleted."""
        kept = ProfileRevision(
            name=row.name, revision=row.revision, profile=None, resource_version=row.resource_version
        )
        try:
            profile = None if row.spec is None else profile_from_spec(row.spec, name=row.name, path="spec")
            if profile is not None:
                profile = msgspec.structs.replace(profile, revision=row.revision)
            self.scheduler.profiles.restore(msgspec.structs.replace(kept, profile=profile))
        except FieldError as error:
            _LOGGER.error("profile %s, revision %d: %s; its pods wait", row.name, row.revision, error)
            self.scheduler.profiles.restore(kept)

    def positions(self) -> dict[TopicPartition, int]:
        """Return where each partition goes on."""
        return positions_of(self._offsets)

    @property
    def held(self) -> Sequence[Record]:
        """Records that wait behind one that had to be folded first; they come before any further one."""
        return self._rest

    @property
    def has_work(self) -> bool:
        """Whether a batch can be planned without any further record."""
        return bool(self._rest) or self._has_pods_to_try

    @property
    def _has_pods_to_try(self) -> bool:
        """Whether a cycle could try pods. None is tried before all pods are known as the log has them."""
        return not self._refold_below and self.scheduler.has_work

    def _is_of_use(self, event: Event | ProfileEvent) -> bool:
        """Say whether an event that comes once more is about a known pod, or an object that was not kept.

        What it changed otherwise is in the ledger.
        """
        if isinstance(event, PodUpserted):
            known = self.scheduler.state.pods.get(event.pod.key)
            return known is not None and known.spec.uid == event.pod.uid and not event.pod.finished
        return isinstance(event, ConfigUpserted | ConfigDeleted) and event.kind != PRIORITY_CLASS

    def plan(self, records: Sequence[Record], lost: Sequence[str] = ()) -> CommitBatch:
        """Fold the records, place what can be placed, and return all of it as one batch.

        A change of configuration is a batch of its own, begun when nothing is left to try: what came before
        it is placed by the old profile and what comes after by the new one, wherever the log was cut.
        Likewise a master that lets more of its cluster share a node begins a batch, and a node that comes and
        goes under thousands of pods ends one: each time all of them are decided. Records behind are kept for
        the next call.

        ``lost`` are keys of pods to be taken back before: one of the last two batches had placed them, and
        the ledger did not grant it. They wait again, and are tried as if they came now.

        The state is ahead of the ledger from here on: if the batch does not commit, the planner is void.
        """
        self._forget(lost)
        if self._is_renewed:
            self.book.reasons_known.clear()
            pods = self.scheduler.state.pods
            for pod in self.scheduler.renew():
                self.book.reasons_known.setdefault(pod.signature, {})[pods[pod.key].shard] = {}
        self.scheduler.state.apply(Reached(self._now_ms))
        builder = BatchBuilder(self.scheduler, self.book, self._now_ms)
        ends: dict[Source, int] = {}
        sources: list[Source] = []
        shared: list[tuple[int, FeedEvent]] = []
        records = [*self._rest, *records]
        end = 0
        for record in records:
            decoded = self._decoder.decode(record)
            shard = record.partition  # those of usage and configuration, which are of shard 0, have one
            at = shard, record.topic, record.partition
            if record.offset < self._refold_below.get(at, 0) and (
                decoded.event is None or not self._is_of_use(decoded.event)
            ):
                decoded = Decoded(None, None)
            configures = record.topic == CONFIG_TOPIC and decoded.event is not None
            if configures and (end or self._has_pods_to_try):
                break
            if not self._refold_below and decoded.event and self.scheduler.settles_first(decoded.event):
                break
            if len(builder.decisions) >= batch_decisions_max:
                break
            end += 1
            sources.append(at)
            ends[at] = record.offset + 1
            builder.reach(record.timestamp_ms, decoded.event_at_ms, self._senders.of(record))
            if builder.now_ms >= self._next_step_ms:
                self._pass_to(builder.now_ms)
            if decoded.rejected is not None:
                builder.refuse(record, shard, decoded.rejected)
            elif decoded.event is not None:
                changes = self.scheduler.fold(decoded.event, shard)
                for change in changes:
                    builder.take(change, record, shard)
                if isinstance(decoded.event, FeedEvent) and is_news(changes):
                    shared.append((len(builder.opened), decoded.event))
            if configures:
                break
        self._rest = records[end:]
        self._now_ms = builder.now_ms
        began_us = self._stopwatch()
        if not self._refold_below:
            result = self.scheduler.cycle(self._now_ms)
            builder.decide(result, duration_us=self._stopwatch() - began_us)
        batch = builder.build(self._advance(ends))
        self.scheduler.state.apply(Written())
        self._waited, self._waited_before = {**self._waited_before, **batch.waited}, batch.waited
        return msgspec.structs.replace(batch, journal=self._journal(batch, sources, shared))

    @property
    def lead(self) -> int:
        """The shard that counts the batches."""
        return min(self.book.epochs)

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

    def _forget(self, keys: Sequence[str]) -> None:
        self._forgotten = keys
        arrivals: dict[str, int] = {}
        for key in keys:
            entry = self.scheduler.state.pods[key]
            if entry.node:  # else the state was read after the batch that lost it
                arrivals[key], since_ms, sent_by = self._waited[entry.spec.uid]
                self.book.wait(key, since_ms, sent_by)
                self.book.untried.add(key)
        self.scheduler.forget(arrivals)

    def renew(self) -> None:
        """Forget with the next batch what a restart forgets: who starts from a checkpoint goes on alike."""
        self._is_renewed = True

    def _journal(
        self, batch: CommitBatch, sources: Sequence[Source], shared: Sequence[tuple[int, FeedEvent]]
    ) -> JournalRow:
        first = JournalRow(
            shard=self.lead,
            batch=self.batch,
            start=self.start if self._is_first else None,
            renewed=self._is_renewed,
            forgotten=self._forgotten,
        )
        self._is_first = self._is_renewed = False
        digest = None if self.batch % DIGEST_EVERY else self.digest()
        return journal_row(batch, sources, first, digest, shared)

    def _advance(self, ends: Mapping[Source, int]) -> list[OffsetAdvance]:
        count = (self.lead, BATCHES, 0)
        moves = {**ends, count: self._offsets[count] + 1}
        advances = []
        for key in sorted(moves):
            shard, topic, partition = key
            lo, hi = self._offsets[key], moves[key]
            advances.append(OffsetAdvance(shard, topic, partition, self.book.epochs[shard], lo, hi))
            self._offsets[key] = hi
            if hi >= self._refold_below.get(key, hi + 1):
                del self._refold_below[key]
        return advances


def _pod_of(row: PodRow, templates: Mapping[bytes, PodTemplate], node_name: str) -> PodSpec:
    life = row.life or _NO_LIFE
    return PodSpec(
        uid=row.pod_uid,
        key=f"{row.namespace}/{row.name}",
        resource_version=row.resource_version,
        template=templates[row.signature],
        signature=row.signature,
        labels=row.labels,
        node_name=node_name,
        start_time=life.start_time,
        terminating=life.terminating,
        controller=life.controller,
    )


def planner_at(
    leases: Sequence[Lease], state: LedgerState, profiles: Mapping[str, Profile], **settings: Any
) -> Planner:
    """Return a planner that goes on from one moment of the ledger, with the settings of ``Planner``."""
    planner = Planner(state, profiles, **settings)
    planner.take(leases, state.part)
    return planner
