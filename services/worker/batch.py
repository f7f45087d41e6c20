"""Builds one batch: turns changes of the fold and decisions of the cycle into rows of the ledger."""

from __future__ import annotations

import msgspec

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import CycleResult, Failure, Migration, Placement, Preemption
from domain.model.decisions import Attempt, Decision, Outcome
from domain.model.pods import PodSpec
from domain.model.timestamps import MOMENT_MS_MAX
from domain.state.changes import (
    OF_NO_NODE,
    ActionTaken,
    BindUndone,
    Change,
    ConfigChanged,
    MovesEnded,
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
from services.codec.envelope import Rejected
from services.codec.seal import UNVERIFIED
from services.ports.inbox import Sent
from services.ports.ledger import ActionRow, BatchJournal, BatchOffsets, CommitBatch, OffsetAdvance
from services.ports.log import Record
from services.worker.cluster_rows import ClusterRows
from services.worker.deciding import Decider
from services.worker.ledger_rows import describe_attempt, describe_node, pending_groups
from services.worker.ledger_view import LedgerView
from services.worker.moving import relieve, spare
from services.worker.pod_rows import PodRows
from services.worker.preempting import When, end, nominate


class BatchBuilder:
    """Collects what one batch changes.

    Attributes
    ----------
    now_ms : int
        The log time of the record being folded; it never goes back.
    sent_by : str
        The sender of its event.
    changed_ms : int
        Log time of the last change of a node, or of what counts on one.
    call : int or None
        See ``BatchJournal``.
    """

    def __init__(self, scheduler: Scheduler, ledger_view: LedgerView, now_ms: int) -> None:
        self._scheduler, self._ledger_view = scheduler, ledger_view
        self.now_ms = now_ms
        self.sent_by = ""
        self.changed_ms = 0
        self.call: int | None = None
        self.decider, self.pods, self.cluster = Decider(ledger_view), PodRows(ledger_view), ClusterRows()
        self._event_at_ms: int | None = None  # the time that the event of the record claims
        self._came: dict[str, int | None] = {}  # pods that began to wait in this batch: when, as events claim
        self._unverified_count = 0

    @property
    def has_any(self) -> bool:
        """Whether anything is to be written, beside what the state says of nodes."""
        cluster = self.cluster
        has_any = cluster.measured or cluster.actions or cluster.hosted.has_any
        return bool(self.decider.made or self.pods.has_waits or has_any)

    def reach(self, appended_at_ms: int, event_at_ms: int | None, sent_by: str) -> None:
        """Begin the next record. Brokers' clocks may disagree, so log time is the latest time so far."""
        if appended_at_ms > self.now_ms:
            self.now_ms = min(appended_at_ms, MOMENT_MS_MAX)
        self._event_at_ms = event_at_ms
        self.sent_by = sent_by
        self._unverified_count += sent_by is UNVERIFIED

    # ------------------------------------------------------------------------------------------- events

    def refuse(self, record: Record, shard: int, rejected: Rejected) -> None:
        """Write a dead letter for a record."""
        self.decider.refuse(record, shard, rejected, self.now_ms, self.sent_by)

    def add_change(self, change: Change, record: Record | None, shard: int) -> None:
        """Add what folding a record changed, or following another worker."""
        if type(change) not in OF_NO_NODE:
            self.changed_ms = self.now_ms
        match change:
            case PodWaits():
                if change.previous is not None:
                    self.pods.end_wait(change.previous)
                self._ledger_view.wait(change.pod.key, self.now_ms, self.sent_by)
                self.pods.waiting[change.pod.key] = (change.pod, change.arrival)
                self._came[change.pod.key] = self._event_at_ms
            case PodRefreshed():
                self.pods.refresh(change)
            case PodAdopted():
                self._adopt(change, shard)
            case PodResized():
                self.pods.end(change.pod, self.now_ms)
                decision = self._decide_placed(change, Outcome.RESIZED, shard, self._event_at_ms)
                self.pods.begin(change.pod, decision, adopted=change.adopted)
            case PodOrphaned() | PodReturned():
                outcome = Outcome.ORPHANED if isinstance(change, PodOrphaned) else Outcome.RETURNED
                self._decide_placed(change, outcome, self._shard_of(change.pod), None)
            case PodReleased():
                self._release(change, shard)
            case BindUndone():
                self._undo_bind(change)
            case PodMissed():
                self._remember_gone(change.key, change.uid, change.resource_version, shard)
                self.decider.skip(change.reason)
            case NominationEnded():
                end(self.decider.decide, change, (self.now_ms, None, self.sent_by or None))
                if change.reason == "bound":  # victims that may stay are told so, also where the bind is lost
                    self.pods.kept[change.pod.uid] = msgspec.structs.replace(change.nomination, victims=())
            case MovesEnded():
                spare(self.decider.decide, change, (self.now_ms, None, None))
            case NodeChanged():
                self.cluster.specs[change.name] = self.sent_by
                if change.replaced is not None:
                    self._remember_gone(change.name, *change.replaced, shard)
            case NodeMeasured():
                self.cluster.measured[change.name] = self.sent_by
                if record is not None:  # what is followed was billed where it came from the log
                    self.cluster.bill(change)
            case ActionTaken():
                self.cluster.actions.append(ActionRow(change.action, self.now_ms, self.sent_by))
            case PodResolved():
                self._resolve(change)
            case ProfileChanged() | ConfigChanged():
                self.cluster.configure(change, self.now_ms, self.sent_by)
            case Refused() if record is not None:
                self.refuse(record, shard, Rejected(change.code, change.path, change.message))
            case Skipped():
                self.decider.skip(change.reason)

    def _shard_of(self, pod: PodSpec) -> int:
        return self._scheduler.state.pods[pod.key].shard

    def _resolve(self, change: PodResolved) -> None:
        """Write a pod's row again: it goes on waiting in another group, which was not tried yet."""
        pod = change.pod
        self.pods.end_wait(change.previous)
        self.pods.waiting[pod.key] = (pod, change.arrival)
        self._ledger_view.reasons_known.setdefault(pod.signature, {})[self._shard_of(pod)] = {}

    def _adopt(self, change: PodAdopted, shard: int) -> None:
        pod = change.pod
        self._ledger_view.end_wait(pod.key)
        if change.waited is not None:
            self.pods.end_wait(change.waited)
        if change.previous_node:
            self.pods.end(pod, self.now_ms)
        decision = self._decide_placed(change, Outcome.ADOPTED, shard, self._event_at_ms)
        self.pods.begin(pod, decision, adopted=True)

    def _decide_placed(
        self,
        change: PodAdopted | PodResized | PodOrphaned | PodReturned,
        outcome: Outcome,
        shard: int,
        event_at_ms: int | None,
    ) -> Decision:
        """Decide for a pod that counts on a node; the reason names what is amiss with the node."""
        return self.decider.decide(
            change.pod,
            shard,
            outcome,
            change.node,
            self.now_ms,
            event_at_ms,
            self.sent_by,
            node_version=change.node_version,
            reason=describe_node(change.node, change.reasons),
            reasons=dict.fromkeys(change.reasons, 1),
        )

    def _undo_bind(self, change: BindUndone) -> None:
        pod, shard = change.pod, self._shard_of(change.pod)
        self.pods.end(pod, self.now_ms)
        self.add_change(PodWaits(pod, change.arrival), None, shard)
        at = self.now_ms, self._event_at_ms, self.sent_by
        version, why = change.node_version, f"could not be bound to {change.node}"
        self.decider.decide(
            pod, shard, Outcome.BIND_FAILED, change.node, *at, node_version=version, reason=why
        )

    def _release(self, change: PodReleased, shard: int) -> None:
        pod = change.pod
        self._ledger_view.end_wait(pod.key)
        if change.node:
            self.pods.end(pod, self.now_ms)
        else:
            self.pods.end_wait(pod)
        self.decider.decide(
            pod,
            shard,
            Outcome.RELEASED,
            change.node or None,
            self.now_ms,
            self._event_at_ms,
            self.sent_by,
            node_version=change.node_version,
            reason=change.reason,
        )
        if change.resource_version is not None or pod.uid != pod.key:
            self._remember_gone(pod.key, pod.uid, change.resource_version, shard)

    def _remember_gone(self, key: str, uid: str, version: int | None, shard: int) -> None:
        self.pods.remember_gone(key, uid, version, shard, self.now_ms)

    # -------------------------------------------------------------------------------------------- cycle

    def decide(self, result: CycleResult, *, duration_us: int = 0) -> None:
        """Add what a cycle decided, and how long the whole cycle took."""
        seqs: list[dict[int, int]] = [{} for _ in result.attempts]
        pods, numbers = self._scheduler.state.pods, self._ledger_view.seq
        attempts, strict = result.attempts, result.strict
        for verdict in result.verdicts:
            if isinstance(verdict, NominationEnded):
                self.add_change(verdict, None, verdict.nomination.shard)
                continue
            index, shard = verdict.attempt, pods[verdict.pod.key].shard
            cycle_seq = seqs[index].setdefault(shard, numbers[shard])
            if isinstance(verdict, Placement):
                self._bind(verdict, attempts[index], shard, cycle_seq)
                if index in strict:
                    self.cluster.strict.add(verdict.node)
            elif isinstance(verdict, Failure):
                self._let_wait(verdict, attempts[index], shard, cycle_seq)
            else:
                self._nominate(verdict, attempts[index], shard, cycle_seq)
        for moved in result.moves:
            if isinstance(moved, Migration):
                self._relieve(moved)
            else:
                self.add_change(moved, None, moved.shard)
        self.cluster.need(result.gangs)
        self.decider.explain(attempts, seqs, duration_us)
        self.pods.explain(pending_groups(result, seqs, self._ledger_view, self._scheduler, self.now_ms))

    def _relieve(self, migration: Migration) -> None:
        self.cluster.strict.add(migration.node)
        shards = [self._shard_of(moved.pod) for moved in migration.moves]
        relieve(self.decider.decide, migration, shards, self.now_ms)

    def _nominate(self, nomination: Preemption, attempt: Attempt, shard: int, cycle_seq: int) -> None:
        pod = nomination.pod
        self.pods.wait_on(pod, nomination.arrival)  # the row says otherwise where the nomination is lost
        self.cluster.strict.add(nomination.node)
        self.cluster.claim(pod, nomination.node)
        shards = [self._shard_of(victim) for victim in nomination.victims]
        nominate(self.decider.decide, nomination, attempt, shard, cycle_seq, self._when(pod.key), shards)

    def _bind(self, placement: Placement, attempt: Attempt, shard: int, cycle_seq: int) -> None:
        pod = placement.pod
        at_ms, event_at_ms, sent_by = self._when(pod.key)
        self.pods.bind(pod, placement.arrival)
        decision = self.decider.decide(
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
            score=None if placement.is_nominated else placement.score,
            cycle_seq=cycle_seq,
        )
        self.pods.begin(pod, decision, adopted=False)
        self.cluster.claim(pod, placement.node)

    def _when(self, key: str) -> When:
        """Return the time of the last event that a decision rests on: room may be made after a pod came."""
        since_ms, sent_by = self._ledger_view.waits[key]
        if key not in self._came:
            return self.now_ms, None, sent_by
        changed_ms = self.changed_ms
        return since_ms if since_ms > changed_ms else changed_ms, self._came[key], sent_by

    def _let_wait(self, failure: Failure, attempt: Attempt, shard: int, cycle_seq: int) -> None:
        if failure.pod.key in self._ledger_view.untried:
            self.pods.wait_on(failure.pod, failure.arrival)
        self.decider.decide(
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

    def build(self, advances: list[OffsetAdvance], sent: Sent, due_ms: int) -> CommitBatch:
        """Return the batch, but for its guards and its row in the journal."""
        for pod, _ in self.pods.waiting.values():
            self.decider.need_template(pod)
        shards = {advance.shard for advance in advances} | {d.shard for d, _ in self.decider.made}
        return CommitBatch(
            offsets=BatchOffsets(
                advances=advances,
                shards=dict(self._ledger_view.epochs),
                seq_next={shard: self._ledger_view.seq[shard] for shard in shards},
                dead_seq_next={shard: self._ledger_view.dead_seq[shard] for shard in shards},
                log_time_ms=self.now_ms,
                due_ms=due_ms,
            ),
            cluster=self.cluster.rows(self._scheduler.state),
            pods=self.pods.rows(self._scheduler, self.decider.templates, sent),
            decisions=self.decider.rows(self._unverified_count),
            journal=BatchJournal(call=self.call),
        )
