"""Builds one batch: turns changes of the fold and decisions of the cycle into rows of the ledger."""

from __future__ import annotations

import msgspec

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import CycleResult, Failure, Placement, Preemption
from domain.model.decisions import Attempt, Decision, Outcome
from domain.model.pods import PodSpec
from domain.state.changes import (
    OF_NO_NODE,
    BindUndone,
    Change,
    ConfigChanged,
    NodeChanged,
    NodeMeasured,
    NominationEnded,
    PodAdopted,
    PodMissed,
    PodOrphaned,
    PodRefreshed,
    PodReleased,
    PodResized,
    PodResolved,
    PodReturned,
    PodWaits,
    ProfileChanged,
    Refused,
    Skipped,
)
from domain.state.nominations import Nomination
from services.codec.envelope import Rejected
from services.ports.inbox import Sent
from services.ports.ledger import (
    AttemptRows,
    CommitBatch,
    ConfigRow,
    DeadLetter,
    OffsetAdvance,
    PendingGroup,
    PlacementClosed,
    PlacementOpened,
    PlacementRefreshed,
    PodTombstone,
    ProfileRow,
)
from services.ports.log import Record
from services.worker.deciding import Decider
from services.worker.ledger_rows import (
    config_row,
    count_placements,
    dead_letter,
    describe_attempt,
    gangs_placed,
    node_claims,
    node_facts,
    pending_groups,
    pending_pods,
    placement_opened,
    profile_row,
    usage_rows,
)
from services.worker.ledger_view import LedgerView
from services.worker.preempting import When, end, nominate, nomination_row, nomination_rows


class BatchBuilder(Decider):
    """Collects what one batch changes.

    ``strict`` are nodes of bound pods that ask for more than spec and room.
    """

    def __init__(self, scheduler: Scheduler, ledger_view: LedgerView, now_ms: int) -> None:
        super().__init__(ledger_view, now_ms)
        self._scheduler = scheduler
        self._pods = scheduler.state.pods
        self.opened: dict[str, PlacementOpened] = {}
        self.placed_ms: dict[str, int] = {}  # log time of these placements, by the keys of pods
        self._closed: list[PlacementClosed] = []
        self._refreshed: dict[str, PlacementRefreshed] = {}
        self.pending_removed: list[str] = []
        self.waiting: dict[str, tuple[PodSpec, int]] = {}  # with their arrival; pending rows to be written
        self._came: dict[str, int | None] = {}  # pods that began to wait in this batch: when, as events claim
        self._tombstones: dict[tuple[str, str, str], PodTombstone] = {}
        self._dead_letters: list[DeadLetter] = []
        self._skipped: dict[str, int] = {}  # events that changed nothing, by reason
        self._profiles: list[ProfileRow] = []
        self._config: list[ConfigRow] = []
        self.measured: dict[str, str] = {}  # nodes whose usage is to be written: who sent the measurement
        self._specs: dict[str, str] = {}  # nodes whose spec changed: who sent that
        self._waited: dict[str, tuple[int, int, str | None]] = {}  # bound pods: see CommitBatch
        self.kept: dict[str, Nomination] = {}  # bound pods: what was promised to them
        self.strict: set[str] = set()
        self._gangs: dict[str, int] = {}  # of which pods claim nodes: how many must keep theirs
        self._members: dict[str, list[str]] = {}  # the nodes of these pods
        self._attempts: list[AttemptRows] = []
        self._pending_groups: dict[tuple[int, bytes], PendingGroup] = {}
        self.call: int | None = None  # see CommitBatch
        self.changed_ms = 0  # log time of the last change of a node, or of what counts on one

    # ------------------------------------------------------------------------------------------- events

    def refuse(self, record: Record, shard: int, rejected: Rejected) -> None:
        """Write a dead letter for a record."""
        seq = self._ledger_view.dead_seq[shard]
        self._ledger_view.dead_seq[shard] = seq + 1
        self._dead_letters.append(
            dead_letter(record, rejected, shard=shard, seq=seq, at_ms=self.now_ms, sent_by=self.sent_by)
        )

    def take(self, change: Change, record: Record | None, shard: int) -> None:
        """Add what folding a record changed, or following another worker."""
        if type(change) not in OF_NO_NODE:
            self.changed_ms = self.now_ms
        match change:
            case PodWaits():
                if change.previous is not None:
                    self._end_wait(change.previous)
                self._ledger_view.wait(change.pod.key, self.now_ms, self.sent_by)
                self.waiting[change.pod.key] = (change.pod, change.arrival)
                self._came[change.pod.key] = self.event_at_ms
            case PodRefreshed():
                self._refresh(change)
            case PodAdopted():
                self._adopt(change, shard)
            case PodResized():
                self._end_placement(change.pod)
                decision = self._decide_placed(change, Outcome.RESIZED, shard, self.event_at_ms)
                self._open(change.pod, decision, adopted=change.adopted)
            case PodOrphaned() | PodReturned():
                outcome = Outcome.ORPHANED if isinstance(change, PodOrphaned) else Outcome.RETURNED
                self._decide_placed(change, outcome, self._pods[change.pod.key].shard, None)
            case PodReleased():
                self._release(change, shard)
            case BindUndone():
                self._undo_bind(change)
            case PodMissed():
                self._remember_gone(change.key, change.uid, change.resource_version, shard)
                self._skip(change.reason)
            case NominationEnded():
                end(self._decide, change, (self.now_ms, None, self.sent_by or None))
                if change.reason == "bound":  # who may stay is told so, also where the bind is lost
                    self.kept[change.pod.uid] = msgspec.structs.replace(change.nomination, victims=())
            case NodeChanged():
                self._specs[change.name] = self.sent_by
                if change.replaced is not None:
                    self._remember_gone(change.name, *change.replaced, shard)
            case NodeMeasured():
                if change.newer:
                    self._ledger_view.mark(change.name)
                self.measured[change.name] = self.sent_by
            case PodResolved():
                self._resolve(change)
            case ProfileChanged():
                self._profiles.append(profile_row(change.revision, self.now_ms, self.sent_by))
            case ConfigChanged():
                self._config.append(config_row(change.object, self.now_ms, self.sent_by))
            case Refused() if record is not None:
                self.refuse(record, shard, Rejected(change.code, change.path, change.message))
            case Skipped():
                self._skip(change.reason)

    def _skip(self, reason: str) -> None:
        self._skipped[reason] = self._skipped.get(reason, 0) + 1

    def _resolve(self, change: PodResolved) -> None:
        """Write a pod's row again: it goes on waiting in another group, which was not tried yet."""
        pod = change.pod
        self._end_wait(change.previous)
        self.waiting[pod.key] = (pod, change.arrival)
        self._ledger_view.reasons_known.setdefault(pod.signature, {})[self._pods[pod.key].shard] = {}

    def _end_wait(self, pod: PodSpec) -> None:
        self._ledger_view.untried.discard(pod.key)
        if self.waiting.pop(pod.key, None) is None:
            self.pending_removed.append(pod.uid)

    def _end_placement(self, pod: PodSpec) -> None:
        if self.opened.pop(pod.uid, None) is None:
            self._closed.append(PlacementClosed(pod.uid, self.now_ms))
        self._refreshed.pop(pod.uid, None)

    def _refresh(self, change: PodRefreshed) -> None:
        pod = change.pod
        if not change.placed:
            self._end_wait(pod)
            self.waiting[pod.key] = (pod, change.arrival)
        elif pod.uid in self.opened:
            opened = self.opened[pod.uid]
            self.opened[pod.uid] = msgspec.structs.replace(
                opened, resource_version=pod.resource_version, labels=pod.labels, life=pod.life
            )
        else:
            self._refreshed[pod.uid] = PlacementRefreshed(pod.uid, pod.resource_version, pod.labels, pod.life)

    def _adopt(self, change: PodAdopted, shard: int) -> None:
        pod = change.pod
        self._ledger_view.end_wait(pod.key)
        if change.waited is not None:
            self._end_wait(change.waited)
        if change.previous_node:
            self._end_placement(pod)
        decision = self._decide_placed(change, Outcome.ADOPTED, shard, self.event_at_ms)
        self._open(pod, decision, adopted=True)

    def _open(self, pod: PodSpec, decision: Decision, *, adopted: bool) -> None:
        self.opened[pod.uid] = placement_opened(pod, decision, adopted=adopted)
        self.placed_ms[pod.key] = decision.decided_at_ms

    def _undo_bind(self, change: BindUndone) -> None:
        pod, shard = change.pod, self._pods[change.pod.key].shard
        self._end_placement(pod)
        self.take(PodWaits(pod, change.arrival), None, shard)
        at = self.now_ms, self.event_at_ms, self.sent_by
        version, why = change.node_version, f"could not be bound to {change.node}"
        self._decide(pod, shard, Outcome.BIND_FAILED, change.node, *at, node_version=version, reason=why)

    def _release(self, change: PodReleased, shard: int) -> None:
        pod = change.pod
        self._ledger_view.end_wait(pod.key)
        (self._end_placement if change.node else self._end_wait)(pod)
        self._decide(
            pod,
            shard,
            Outcome.RELEASED,
            change.node or None,
            self.now_ms,
            self.event_at_ms,
            self.sent_by,
            node_version=change.node_version,
            reason=change.reason,
        )
        if change.resource_version is not None or pod.uid != pod.key:
            self._remember_gone(pod.key, pod.uid, change.resource_version, shard)

    def _remember_gone(self, key: str, uid: str, version: int | None, shard: int) -> None:
        namespace, _, name = key.rpartition("/")  # that of a node has none
        self._tombstones[namespace, name, uid] = PodTombstone(
            namespace=namespace, name=name, uid=uid, resource_version=version, shard=shard, at_ms=self.now_ms
        )

    # -------------------------------------------------------------------------------------------- cycle

    def decide(self, result: CycleResult, *, duration_us: int = 0) -> None:
        """Add what a cycle decided, and how long the whole cycle took."""
        seqs: list[dict[int, int]] = [{} for _ in result.attempts]
        pods, numbers, attempts, strict = self._pods, self._ledger_view.seq, result.attempts, result.strict
        for verdict in result.verdicts:
            if isinstance(verdict, NominationEnded):
                self.take(verdict, None, verdict.nomination.shard)
                continue
            index, shard = verdict.attempt, pods[verdict.pod.key].shard
            cycle_seq = seqs[index].setdefault(shard, numbers[shard])
            if isinstance(verdict, Placement):
                self._bind(verdict, attempts[index], shard, cycle_seq)
                if index in strict:
                    self.strict.add(verdict.node)
            elif isinstance(verdict, Failure):
                self._let_wait(verdict, attempts[index], shard, cycle_seq)
            else:
                self._nominate(verdict, attempts[index], shard, cycle_seq)
        for name, needed_count in result.gangs.items():
            self._gangs[name] = max(needed_count, self._gangs.get(name, 0))
        self._attempts += [
            AttemptRows(msgspec.structs.replace(attempt, duration_us=duration_us), of)
            for attempt, of in zip(result.attempts, seqs, strict=True)
            if of
        ]
        for group in pending_groups(result, seqs, self._ledger_view, self._scheduler, self.now_ms):
            self._pending_groups[group.shard, group.signature] = group

    def _nominate(self, nomination: Preemption, attempt: Attempt, shard: int, cycle_seq: int) -> None:
        pod = nomination.pod
        self._end_wait(pod)  # its row is written again: it says otherwise where the nomination is lost
        self.waiting[pod.key] = (pod, nomination.arrival)
        self.strict.add(nomination.node)
        if pod.template.gang:
            self._members.setdefault(pod.template.gang, []).append(nomination.node)
        shards = [self._pods[victim.key].shard for victim in nomination.victims]
        nominate(self._decide, nomination, attempt, shard, cycle_seq, self._when(pod.key), shards)

    def _bind(self, placement: Placement, attempt: Attempt, shard: int, cycle_seq: int) -> None:
        pod = placement.pod
        at_ms, event_at_ms, sent_by = self._when(pod.key)
        self._waited[pod.uid] = (placement.arrival, *self._ledger_view.waits.pop(pod.key))
        self._end_wait(pod)
        decision = self._decide(
            pod,
            shard,
            Outcome.BOUND,
            placement.node,
            at_ms,
            event_at_ms,
            sent_by,
            node_version=placement.node_version,
            profile_revision=attempt.profile_revision,
            warnings=attempt.warnings,
            score=None if placement.is_promised else placement.score,
            cycle_seq=cycle_seq,
        )
        self._open(pod, decision, adopted=False)
        if pod.template.gang:
            self._members.setdefault(pod.template.gang, []).append(placement.node)

    def _note_tried(self, pod: PodSpec, arrival: int) -> None:
        if pod.key in self._ledger_view.untried:
            self._end_wait(pod)
            self.waiting[pod.key] = (pod, arrival)

    def _when(self, key: str) -> When:
        """Return the time of the last event that a decision rests on: room may be made after a pod came."""
        since_ms, sent_by = self._ledger_view.waits[key]
        if key not in self._came:
            return self.now_ms, None, sent_by
        changed_ms = self.changed_ms
        return since_ms if since_ms > changed_ms else changed_ms, self._came[key], sent_by

    def _let_wait(self, failure: Failure, attempt: Attempt, shard: int, cycle_seq: int) -> None:
        self._note_tried(failure.pod, failure.arrival)
        self._decide(
            failure.pod,
            shard,
            attempt.outcome_at_failure,
            None,
            *self._when(failure.pod.key),
            profile_revision=attempt.profile_revision or None,
            warnings=attempt.warnings,
            reason=describe_attempt(attempt),
            reasons=attempt.reasons_at_failure,
            cycle_seq=cycle_seq,
        )

    # ------------------------------------------------------------------------------------------- result

    def build(self, offsets: list[OffsetAdvance], sent: Sent) -> CommitBatch:
        """Return the batch."""
        state = self._scheduler.state
        for pod, _ in self.waiting.values():
            self._need_template(pod)
        shards = {advance.shard for advance in offsets} | {d.shard for d, _ in self.decisions}
        return CommitBatch(
            offsets=offsets,
            shards=dict(self._ledger_view.epochs),
            facts=node_facts(state, self._specs),
            claims=node_claims(state, self.strict),
            counted=count_placements(self.opened, state),
            gangs=gangs_placed(self._gangs, self._members, state),
            orphaned=dict(state.own_changes.told),
            waited=self._waited,
            kept={uid: nomination_row(each) for uid, each in self.kept.items()},
            templates=self._templates,
            placements_closed=self._closed,
            placements_opened=list(self.opened.values()),
            placements_refreshed=list(self._refreshed.values()),
            decisions=self.decisions,
            attempts=self._attempts,
            pending_removed=self.pending_removed,
            pending_added=pending_pods(self.waiting.values(), self._scheduler, self._ledger_view),
            pending_groups=list(self._pending_groups.values()),
            unnominated=list(state.own_changes.unnominated),
            nominated=nomination_rows(state.nominations, state.own_changes.nominated),
            tombstones=list(self._tombstones.values()),
            handed=sent.handed,
            forwarded=sent.forwarded,
            dead_letters=self._dead_letters,
            profiles=self._profiles,
            config=self._config,
            usage=usage_rows(self.measured, state, self._ledger_view),
            seq_next={shard: self._ledger_view.seq[shard] for shard in shards},
            dead_seq_next={shard: self._ledger_view.dead_seq[shard] for shard in shards},
            skipped=self._skipped,
            log_time_ms=self.now_ms,
            call=self.call,
            unverified_count=self._unverified_count,
        )
