"""Makes decisions: each takes the next number of its shard, and its record as it is published."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from domain.model.decisions import Decision, Outcome
from domain.model.pods import PodSpec, PodTemplate
from services.codec.encode import Preempting, encode_decision
from services.worker.book import Book


class Decider:
    """Numbers the decisions of a batch. ``decisions`` are those made so far, with their records."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self.decisions: list[tuple[Decision, bytes]] = []
        self._templates: dict[bytes, PodTemplate] = {}

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
        seq = self._book.seq[shard]
        self._book.seq[shard] = seq + 1
        namespace, _, name = pod.key.partition("/")
        decision = Decision(
            shard=shard,
            epoch=self._book.epochs[shard],
            seq=seq,
            pod_uid=pod.uid,
            namespace=namespace,
            name=name,
            resource_version=pod.resource_version,
            outcome=outcome,
            node=node,
            decided_at_ms=at_ms,
            event_at_ms=event_at_ms,
            profile=pod.template.profile,
            signature=pod.signature,
            profile_revision=profile_revision,
            reason=reason,
            score=score,
            cycle_seq=cycle_seq,
        )
        self._need_template(pod)
        fragment = self._book.fragment(pod)
        payload = encode_decision(
            decision, fragment, pod.labels, node_version, sent_by, reasons, warnings, preemption
        )
        self.decisions.append((decision, payload))
        return decision

    def _need_template(self, pod: PodSpec) -> None:
        if self._book.is_new(pod.signature):
            self._templates[pod.signature] = pod.template
