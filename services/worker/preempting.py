"""What a batch says of preemption: which pod is nominated, which pods leave its node, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from domain.engine.verdicts import Preemption
from domain.model.decisions import Attempt, Decision, Outcome
from domain.model.pods import PodSpec
from domain.model.timestamps import format_ms
from domain.state.changes import NominationEnded
from domain.state.nominations import Nomination, Nominations
from services.codec.encode import Preempting
from services.phrases import plural
from services.ports.ledger import NominationRow
from services.worker.ledger_rows import describe_attempt, describe_nodes

Decide = Callable[..., Decision]
"""Makes a decision under the next seq of a shard, and its record: of ``BatchBuilder``."""

_REASONS_MAX = 3
"""How many reasons for which the preemptor would wait each of its victims is told."""

_ENDS = {
    "adopted": "the log says where it runs",
    "changed": "the pod asks for something else now",
    "elsewhere": "another node has room now",
    "expired": "its victims did not leave in time",
    "gang": "another pod of its gang has no node promised any more",
    "gang-changed": "its gang lacks a pod or asks for something else now, or is gone",
    "no-room": "the room that its victims left was taken",
    "node-deleted": "the node was deleted",
    "not-held": "whoever leaves it, it can hold the pod no longer",
    "outbid": "a pod of higher priority was promised the node",
    "released": "the pod is gone",
}
"""Why a nomination ended. That of a pod that was bound has no decision of its own."""


When = tuple[int, int | None, str | None]
"""Log time of a decision, when the event behind it happened, and who sent that."""


def nominate(
    decide: Decide,
    verdict: Preemption,
    attempt: Attempt,
    shard: int,
    seq: int,
    when: When,
    shards: Sequence[int],
) -> None:
    """Nominate a node for a pod (decision ``nominated``), and tell its victims (``evicted``).

    All are decisions of the pod's own shard, also where a victim is of another one, so that one transaction
    holds them. ``seq`` is that of the attempt, ``shards`` are those of the victims.
    """
    pod, node = verdict.pod, verdict.node
    told = Preempting(
        victims=[victim.uid for victim in verdict.victims],
        violations=verdict.violations,
        expires_at=format_ms(verdict.expires_ms),
    )
    count = len(verdict.victims)
    told_of = f"is promised, {plural(count, 'pod')} to leave" if count else "is kept free for it"
    decision = decide(
        pod,
        shard,
        Outcome.NOMINATED,
        node,
        *when,
        node_version=verdict.node_version,
        profile_revision=attempt.profile_revision,
        warnings=attempt.warnings,
        reason=f"{node} {told_of}; {describe_attempt(attempt)}",
        reasons=attempt.reasons_at_failure,
        cycle_seq=seq,
        preemption=told,
    )
    by = Preempting(preemptor=pod.uid, priority=pod.template.priority, nominated=f"{shard}-{decision.seq}")
    lacking = describe_nodes(attempt, _REASONS_MAX)  # of another namespace, perhaps: it names no pods
    reason = f"makes room for a pod of priority {pod.template.priority} that would wait otherwise: {lacking}"
    for victim, its_own in zip(verdict.victims, shards, strict=True):
        of = msgspec.structs.replace(by, shard=shard_of(victim, its_own))
        _tell(decide, Outcome.EVICTED, [victim], node, shard, when, reason, of)


def shard_of(pod: PodSpec, its_own: int) -> int | msgspec.UnsetType:
    """Return the partition in which it is said that a pod left; unset: its key says it.

    Of a pod that was handed over to the home of its gang, the producer's partition is not known here.
    """
    return msgspec.UNSET if pod.template.gang else its_own


def end(decide: Decide, change: NominationEnded, when: When) -> None:
    """Say that a pod is no longer nominated, unless it was placed, and which victims may stay."""
    pod, node, shard = change.pod, change.nomination.node, change.nomination.shard
    if change.reason != "bound":
        decide(pod, shard, Outcome.CLEARED, node, *when, reason=f"{node}: {_ENDS[change.reason]}")
    by = Preempting(preemptor=pod.uid, priority=pod.template.priority)
    reason = "the pod for which it had to leave waits for the node no more"
    _tell(decide, Outcome.SPARED, change.spared, node, shard, when, reason, by)


def _tell(
    decide: Decide,
    outcome: Outcome,
    victims: Iterable[PodSpec],
    node: str,
    shard: int,
    when: When,
    reason: str,
    by: Preempting,
) -> None:
    for victim in victims:
        decide(victim, shard, outcome, node, *when, reason=reason, preemption=by)


def nomination_rows(known: Nominations, keys: Iterable[str]) -> list[NominationRow]:
    """Return the rows of nominations that a batch brings. One that ended since is not among them."""
    return [nomination_row(known.entries[key]) for key in keys if key in known.entries]


def nomination_row(nomination: Nomination) -> NominationRow:
    """Return the row of a nomination."""
    namespace, _, name = nomination.key.partition("/")
    return NominationRow(
        pod_uid=nomination.uid,
        namespace=namespace,
        name=name,
        shard=nomination.shard,
        signature=nomination.signature,
        node=nomination.node,
        at_ms=nomination.at_ms,
        expires_ms=nomination.expires_ms,
        victims=nomination.victims,
    )
