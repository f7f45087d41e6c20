"""Decisions and their explanations: the outcome for a pod, its inputs, and a summary in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from domain.manifests.codes import ignored_in_words
from domain.manifests.profile import profile_to_spec
from domain.model.colocation import QUALITY_OF
from domain.model.decisions import Attempt, Basis, Outcome
from domain.model.profiles import BUILT_IN_PROFILES
from services.api.answers_decisions import (
    Candidate,
    CandidateInputs,
    Decision,
    ExplainedAttempt,
    Explanation,
    Extremes,
    Figures,
    Migration,
    Preemption,
    RuleSeen,
    SumOfNode,
    UsageThen,
)
from services.api.formats import instant, profile_target, quantities, row_id, stamp, sum_in_units
from services.phrases import (
    EVICTION_RULE,
    held_for_profile,
    parts_in_words,
    plural,
    reasons_in_words,
    rule_in_words,
    said_in_words,
    tied_in_words,
    unknown_profile,
)
from services.ports.store import DecisionRow, Store


class _Requests(msgspec.Struct):
    requests: dict[str, int] = {}


class _Record(msgspec.Struct):
    """The fields of a record of ``berth.decisions`` that the answer shows in another form."""

    template: _Requests = msgspec.field(default_factory=_Requests)


OF_THE_POD = frozenset(
    (
        *(Outcome.BOUND, Outcome.ADOPTED, Outcome.RESIZED, Outcome.RELEASED, Outcome.BIND_FAILED),
        *(Outcome.UNSCHEDULABLE, Outcome.UNRESOLVABLE, Outcome.GANG_WAITING, Outcome.CONFLICT),
        Outcome.NOMINATED,
    )
)
"""The outcomes whose ``sent_by`` names the sender of an event of the pod itself. That of any other outcome
sent something else: a node, or a pod that is perhaps of another namespace."""

_decode_decision = msgspec.json.Decoder(Decision, strict=False).decode
_decode_record = msgspec.json.Decoder(_Record).decode


def decision_of(row: DecisionRow, seen: Collection[str] | None) -> Decision:
    """Return a decision: its published record, and the fields that only the ledger has.

    Who sees the pods of the namespaces ``seen`` (None: all) is told who sent events of these pods alone, and
    not which pods leave for which: the record does not say of which namespaces those are.
    """
    decision = _decode_decision(row.payload)
    if seen is not None and decision.outcome not in OF_THE_POD:
        decision.sent_by = None
    if decision.preemption is not None and seen is not None:
        told = decision.preemption
        decision.preemption = Preemption(
            violations=told.violations, expires_at=told.expires_at, shard=told.shard
        )
    decision.requests = quantities(_decode_record(row.payload).template.requests)
    decision.signature = row.signature.hex()
    decision.recorded_at = stamp(row.recorded_at)
    decision.cycle = row_id(row.shard, row.cycle_seq) if row.cycle_seq else None
    return decision


# -------------------------------------------------------------------------------------------------- cycle


def explained_attempt(attempt: Attempt, weights: Mapping[str, float]) -> ExplainedAttempt:
    """Return an attempt, with the weights of its profile's scores."""
    basis = attempt.basis or Basis(resources=(), allocatable=[], requested=[])
    return ExplainedAttempt(
        id=row_id(attempt.shard, attempt.seq),
        profile=attempt.profile,
        profile_revision=attempt.profile_revision,
        weights=dict(weights),
        seed=attempt.seed,
        generation=attempt.generation,
        nodes=attempt.nodes_count,
        nodes_home=attempt.nodes_home or None,
        feasible=attempt.feasible_count,
        unresolvable=attempt.unresolvable_count,
        reasons=attempt.reasons,
        rules=[msgspec.convert(msgspec.to_builtins(each), RuleSeen) for each in attempt.rules or ()],
        looked_at=instant(attempt.looked_at_ms) if attempt.looked_at_ms else None,
        repeated_at_generation=attempt.repeated_at or None,
        candidates=[
            Candidate(node=each.node, score=each.score, parts=each.parts, inputs=_inputs(basis, i))
            for i, each in enumerate(attempt.candidates)
        ],
        extremes={
            label: Extremes(
                low=each.low,
                high=each.high,
                nodes=each.nodes_count,
                metrics_sum=each.metrics_sum,
                further=list(each.further),
            )
            for label, each in basis.extremes.items()
        },
        pods=attempt.pods_count,
        bound=attempt.bound_count,
        duration_us=attempt.duration_us,
    )


def _inputs(basis: Basis, i: int) -> CandidateInputs | None:
    """Return the inputs of the score of candidate ``i``, or None where they are not kept."""
    width = len(basis.resources)
    of_each = slice(i * width, (i + 1) * width)
    offers, holds = basis.allocatable[of_each], basis.requested[of_each]
    if not offers:
        return None
    return CandidateInputs(
        node_version=basis.node_versions[i] if basis.node_versions else None,
        resource_version=basis.resource_versions[i] if basis.resource_versions else None,
        sums={
            name: SumOfNode(allocatable=sum_in_units(name, offered), requested=sum_in_units(name, held))
            for name, offered, held in zip(basis.resources, offers, holds, strict=True)
        },
        usage=_usage(basis, i) if basis.usage else None,
    )


def _usage(basis: Basis, i: int) -> UsageThen:
    at_ms = basis.usage_at_ms[i] if basis.usage_at_ms else 0
    return UsageThen(
        at=instant(at_ms) if at_ms else None,
        resources={
            name: Figures(avg=each.avg, std=each.std, latest=each.latest, peak_yesterday=each.peak)
            for name, each in basis.usage[i].items()
        },
    )


def weights_of(spec: Mapping[str, Any]) -> dict[str, float]:
    """Return the weight of each score of a profile, by the label that the score has in candidates."""
    weights: dict[str, float] = {}
    seen: Counter[str] = Counter()
    for use in spec["scores"]:
        seen[use["name"]] += 1
        again = f"#{seen[use['name']]}" if seen[use["name"]] > 1 else ""
        weights[use["name"] + again] = use["weight"]
    return weights


async def _weights(store: Store, name: str, revision: int) -> dict[str, float]:
    rows = await store.profile_revisions(name, 1, revision)
    if rows and rows[0].spec is not None:
        return weights_of(rows[0].spec)
    built_in = BUILT_IN_PROFILES.get(name)
    return weights_of(profile_to_spec(built_in)) if built_in and built_in.revision == revision else {}


# -------------------------------------------------------------------------------------------- explanation


async def explain(store: Store, shard: int, seq: int) -> Explanation | None:
    """Return a decision with the attempt that explains it and a summary in sentences."""
    row = await store.decision(shard, seq)
    if row is None:
        return None
    decision, cycle = decision_of(row, store.seen), None
    found = await store.attempt(shard, row.cycle_seq) if row.cycle_seq else None
    if found is not None:
        cycle = explained_attempt(found, await _weights(store, found.profile, found.profile_revision))
    template = await store.template(row.signature)
    revision = decision.profile_revision
    explanation = Explanation(
        decision=decision,
        requests=decision.requests,
        template={} if template is None else _not_empty(template),
        quality=None if template is None else QUALITY_OF[template.qos_class],
        reasons=decision.reasons or (cycle.reasons if cycle else {}),
        cycle=cycle,
        profile=profile_target(decision.profile, revision) if revision else None,
        summary="",
    )
    explanation.summary = summary(explanation)
    return explanation


def _not_empty(template: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(template).items() if value}


def summary(explanation: Explanation) -> str:
    """Return a few sentences: what was decided for a pod and why, with the counts of the explanation."""
    return " ".join(_sentences(explanation))


def _sentences(explanation: Explanation) -> Iterator[str]:
    decision, cycle = explanation.decision, explanation.cycle
    waits = decision.outcome in (Outcome.UNSCHEDULABLE, Outcome.UNRESOLVABLE, Outcome.GANG_WAITING)
    missing = unknown_profile(explanation.reasons) if waits else None
    yield opening(decision) if missing is None else _held(decision, missing)
    alone = decision.outcome is not Outcome.GANG_WAITING
    if missing is None and waits and alone and explanation.reasons:
        yield f"Of all nodes, {reasons_in_words(explanation.reasons)}."
    elif missing is None and decision.reason:
        yield f"Reason: {said_in_words(decision.reason)}."
    if waits and cycle is not None:
        yield from map(rule_in_words, cycle.rules)
    if decision.warnings:
        yield f"Not looked at: {'; '.join(map(ignored_in_words, decision.warnings))}."
    if cycle is None or decision.outcome is Outcome.CONFLICT:
        return
    if cycle.repeated_at_generation:
        yield (
            f"Nothing was looked at anew for it: its group was parked at generation {cycle.generation}"
            f" (log time {cycle.looked_at}), and what changed until generation"
            f" {cycle.repeated_at_generation} made no room for it."
        )
    if not waits:
        yield from _choice(explanation, cycle)
    elif cycle.feasible and alone:
        room, before = plural(cycle.feasible, "node"), plural(cycle.bound, "equal pod")
        yield f"When its cycle began, {room} had room; {before} got there first."


def _held(decision: Decision, profile: str) -> str:
    name = f"{decision.pod.namespace}/{decision.pod.name}"
    return f"{name} waits: {held_for_profile(profile)}; it asks for {_asks(decision)}."


def _asks(decision: Decision) -> str:
    return ", ".join(f"{amount} {resource}" for resource, amount in decision.requests.items()) or "nothing"


def opening(decision: Decision) -> str:
    """Return in a sentence what was decided for a pod."""
    name, node, asks = f"{decision.pod.namespace}/{decision.pod.name}", decision.node, _asks(decision)
    from_node = f" from {node}" if node else ""
    match decision.outcome:
        case Outcome.BOUND:
            return f"{name} was placed on {node}; it asks for {asks}."
        case Outcome.ADOPTED:
            return f"{name} was already bound to {node} when its event arrived; berth counts it there."
        case Outcome.UNSCHEDULABLE:
            return f"{name} waits: no node fits now; it asks for {asks}."
        case Outcome.UNRESOLVABLE:
            return f"{name} waits: no node would fit even if all other pods left; it asks for {asks}."
        case Outcome.GANG_WAITING:
            return f"{name} waits for the others of its gang; it asks for {asks}."
        case Outcome.CONFLICT:
            return f"{name} waits: another worker changed the chosen node first; it asks for {asks}."
        case Outcome.BIND_FAILED:
            return f"{name} waits: it could not be bound to {node}; it asks for {asks}."
        case Outcome.RELEASED:
            return f"{name} is gone{from_node}; what it held is free: {asks}."
        case Outcome.RESIZED:
            return f"{name} was changed on {node}; it stays there and asks for {asks} now."
        case Outcome.ORPHANED:
            return f"{name} lost its node {node}; it asks for {asks}."
        case Outcome.RETURNED:
            return f"{name} has its node {node} again; it asks for {asks}."
        case Outcome.NOMINATED:
            return f"{name} waits for {node}, which is nominated for it; it asks for {asks}."
        case Outcome.CLEARED:
            return f"{name} waits; {node} is nominated for it no more; it asks for {asks}."
        case Outcome.EVICTED if decision.migration is not None:
            return f"{name} has to leave {node}, which is hot; until it has, it counts there."
        case Outcome.EVICTED:
            return f"{name} has to leave {node} for a pod of higher priority; until it has, it counts there."
        case Outcome.SPARED:
            return f"{name} does not have to leave {node} any more."


def why_moved(migration: Migration) -> str:
    """Return why a pod had to leave a hot node, in two sentences."""
    used = ", ".join(f"{amount} {name}" for name, amount in quantities(migration.relief).items())
    return (
        f"{migration.source} was hot: {'; '.join(migration.why)}. The pod was expected to use {used}, for "
        f"which {migration.to} had room."
    )


def _choice(explanation: Explanation, cycle: ExplainedAttempt) -> Iterator[str]:
    decision = explanation.decision
    looked = plural(cycle.nodes_home, "home node") if cycle.nodes_home else plural(cycle.nodes, "node")
    yield f"{cycle.feasible:,} of {looked} could take a pod of its group."
    if cycle.nodes_home:
        others = plural(cycle.nodes - cycle.nodes_home, "other node")
        yield f"Its worker looks at its home nodes first, so the {others} were not looked at."
    if explanation.reasons:
        yield f"Of the others, {reasons_in_words(explanation.reasons)}."
    chosen = next((each for each in cycle.candidates if each.node == decision.node), None)
    if chosen is not None:
        parts = ", ".join(parts_in_words(chosen.parts, cycle.weights))
        yield f"{chosen.node} scored {chosen.score:.6g}{f' ({parts})' if parts else ''}."
        tied_count = sum(each.score == chosen.score for each in cycle.candidates)
        if tied_count > 1:
            yield f"{tied_in_words(tied_count)}."
    elif decision.score is not None:
        yield f"{decision.node} scored {decision.score:.6g}, the best when its turn came."
    if decision.outcome is Outcome.NOMINATED:
        yield f"{EVICTION_RULE}."
    else:
        yield f"Profile {cycle.profile}, revision {cycle.profile_revision}, says what is best."
    if cycle.pods > 1:
        yield f"The cycle placed {cycle.bound:,} of {plural(cycle.pods, 'equal pod')}."
