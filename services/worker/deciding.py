"""Makes decisions: each takes the next number of its shard, and its record as it is published."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from domain.model.decisions import Decision, Outcome
from domain.model.pods import PodSpec, PodTemplate
from domain.model.timestamps import MOMENT_MS_MAX
from domain.state.changes import PodAdopted, PodOrphaned, PodResized, PodReturned
from services.codec.encode import Preempting, encode_decision
from services.codec.seal import UNVERIFIED
from services.worker.ledger_rows import describe_node
from services.worker.ledger_view import LedgerView


class Decider:
    """Numbers the decisions of a batch. ``decisions`` are those made so far, with their records.

    ``now_ms`` is the log time of the record being folded, and never goes back. ``event_at_ms`` is the time
    that its event claims, ``sent_by`` who sent it.
    """

    def __init__(self, ledger_view: LedgerView, now_ms: int) -> None:
        self._ledger_view = ledger_view
        self.now_ms = now_ms
        self.event_at_ms: int | None = None
        self.sent_by = ""
        self._unverified_count = 0
        self.decisions: list[tuple[Decision, bytes]] = []
        self._templates: dict[bytes, PodTemplate] = {}

    def reach(self, appended_at_ms: int, event_at_ms: int | None, sent_by: str) -> None:
        """Begin the next record. Brokers' clocks may disagree, so log time is the latest time so far."""
        if appended_at_ms > self.now_ms:
            self.now_ms = min(appended_at_ms, MOMENT_MS_MAX)
        self.event_at_ms = event_at_ms
        self.sent_by = sent_by
        self._unverified_count += sent_by is UNVERIFIED

    def _decide(
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
    ) -> Decision:
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
        self._need_template(pod)
        fragment = self._ledger_view.fragment(pod)
        payload = encode_decision(
            decision, fragment, pod.labels, node_version, sent_by, reasons, warnings, preemption
        )
        self.decisions.append((decision, payload))
        return decision

    def _decide_placed(
        self,
        change: PodAdopted | PodResized | PodOrphaned | PodReturned,
        outcome: Outcome,
        shard: int,
        event_at_ms: int | None,
    ) -> Decision:
        """Decide for a pod that counts on a node; the reason names what is amiss with the node."""
        return self._decide(
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

    def _need_template(self, pod: PodSpec) -> None:
        if self._ledger_view.is_new(pod.signature):
            self._templates[pod.signature] = pod.template
