"""Makes decisions: each takes the next number of its shard, and its record as it is published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from domain.model.decisions import Attempt, Decision, Outcome
from domain.model.pods import PodSpec, PodTemplate
from services.codec.encode import Migrating, Preempting, encode_decision
from services.codec.envelope import Rejected
from services.ports.ledger import AttemptRows, BatchDecisions, DeadLetter
from services.ports.log import Record
from services.worker.ledger_rows import dead_letter
from services.worker.ledger_view import LedgerView


class Decider:
    """Collects what became of the events of a batch.

    ``made`` are the decisions so far, with their records, ``templates`` those of their pods that the ledger
    may not have yet.
    """

    def __init__(self, ledger_view: LedgerView) -> None:
        self._ledger_view = ledger_view
        self.made: list[tuple[Decision, bytes]] = []
        self.templates: dict[bytes, PodTemplate] = {}
        self._attempts: list[AttemptRows] = []
        self._dead_letters: list[DeadLetter] = []
        self._skipped: dict[str, int] = {}  # events that changed nothing, by reason

    def decide(
        self,
        pod: PodSpec,
        shard: int,
        outcome: Outcome,
        node: str | None,
        at_ms: int,
        event_at_ms: int | None,
        sent_by: str | None,
        *,
        node_version: int | None = None,
        profile_revision: int | None = None,
        reason: str = "",
        reasons: Mapping[str, int] = {},
        warnings: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET,
        score: float | None = None,
        cycle_seq: int = 0,
        preemption: Preempting | msgspec.UnsetType = msgspec.UNSET,
        migration: Migrating | msgspec.UnsetType = msgspec.UNSET,
    ) -> Decision:
        """Add the next decision of a shard."""
        seq = self._ledger_view.seq[shard]
        self._ledger_view.seq[shard] = seq + 1
        namespace, _, name = pod.key.partition("/")
        decision = Decision(  # by position: to name the fields costs three times as much
            shard,
            self._ledger_view.epochs[shard],
            seq,
            pod.uid,
            namespace,
            name,
            pod.resource_version,
            outcome,
            node,
            at_ms,
            pod.template.profile,
            pod.signature,
            event_at_ms,
            profile_revision,
            reason,
            score,
            cycle_seq,
            pod.devices if node else (),
        )
        self.need_template(pod)
        fragment = self._ledger_view.fragment(pod)
        payload = encode_decision(
            decision, fragment, pod.labels, node_version, sent_by, reasons, warnings, preemption, migration
        )
        self.made.append((decision, payload))
        return decision

    def need_template(self, pod: PodSpec) -> None:
        """Add a pod's template, where the ledger may not have it."""
        if self._ledger_view.is_new(pod.signature):
            self.templates[pod.signature] = pod.template

    def explain(
        self, attempts: Sequence[Attempt], seqs: Sequence[Mapping[int, int]], duration_us: int
    ) -> None:
        """Add the attempts of a cycle for which there are decisions, given the first seq of each by shard."""
        self._attempts += [
            AttemptRows(msgspec.structs.replace(attempt, duration_us=duration_us), of)
            for attempt, of in zip(attempts, seqs, strict=True)
            if of
        ]

    def refuse(self, record: Record, shard: int, rejected: Rejected, at_ms: int, sent_by: str) -> None:
        """Add a dead letter for a record."""
        seq = self._ledger_view.dead_seq[shard]
        self._ledger_view.dead_seq[shard] = seq + 1
        self._dead_letters.append(
            dead_letter(record, rejected, shard=shard, seq=seq, at_ms=at_ms, sent_by=sent_by)
        )

    def skip(self, reason: str) -> None:
        """Count an event that changed nothing."""
        self._skipped[reason] = self._skipped.get(reason, 0) + 1

    def rows(self, unverified_count: int) -> BatchDecisions:
        """Return what became of the events."""
        return BatchDecisions(
            made=self.made,
            attempts=self._attempts,
            dead_letters=self._dead_letters,
            skipped=self._skipped,
            unverified_count=unverified_count,
        )
