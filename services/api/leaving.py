"""Which pods left for which: names the pods behind a preemption, as far as the caller sees them."""

from __future__ import annotations

from collections.abc import Sequence

from domain.model.decisions import Outcome
from services.api.answers_decisions import Decision, Explanation
from services.api.explanation import decision_of, why_moved
from services.api.explanation import explain as explain_decision
from services.api.formats import parse_row_id
from services.ports.store import DecisionFilter, Store
from services.times import moment_ms

HISTORY_MAX = 100
EVICTED_MAX = 1000
NAMED_MAX = 10
_CONCERNED = (Outcome.EVICTED, Outcome.SPARED, Outcome.RELEASED, Outcome.NOMINATED, Outcome.BOUND)


async def explain(store: Store, shard: int, seq: int) -> Explanation | None:
    """Return an explained decision; its summary names the pods that leave, and for which pod.

    A caller who sees some namespaces alone is not told that.
    """
    explanation = await explain_decision(store, shard, seq)
    if explanation is not None and store.seen is None and explanation.decision.outcome in _CONCERNED:
        told = await _told(store, explanation.decision)
        explanation.summary += f" {told}" if told else ""
    return explanation


async def _told(store: Store, decision: Decision) -> str:
    rows = await store.pod_decisions(decision.pod.namespace, decision.pod.name, HISTORY_MAX)
    history = [decision_of(row, store.seen) for row in rows]
    past = [each for each in history if each.pod.uid == decision.pod.uid]
    past = past[next((at for at, each in enumerate(past) if each.id == decision.id), 0) :]
    if decision.outcome in (Outcome.NOMINATED, Outcome.BOUND):
        return await _victims(store, decision, past)
    return await _preemptor(store, decision, past)


async def _preemptor(store: Store, decision: Decision, past: Sequence[Decision]) -> str:
    if decision.migration is not None:
        return ""  # its own words say all
    said = decision if decision.preemption else past[1] if len(past) > 1 else None
    if said is not None and said.outcome is Outcome.EVICTED and said.migration is not None:
        return f"It was told to leave (decision {said.id}). {why_moved(said.migration)}"
    if said is None or said.preemption is None or said.preemption.nominated is None:
        return ""
    if decision.outcome is Outcome.RELEASED and said.outcome is not Outcome.EVICTED:
        return ""
    nominated = said.preemption.nominated
    row = await store.decision(*parse_row_id(nominated))
    pod = None if row is None else decision_of(row, store.seen).pod
    name = said.preemption.preemptor if pod is None else f"{pod.namespace}/{pod.name}"
    verb = {Outcome.EVICTED: "has to", Outcome.SPARED: "was to"}.get(decision.outcome, "had to")
    return f"It {verb} leave for {name} of priority {said.preemption.priority} (decision {nominated})."


async def _victims(store: Store, decision: Decision, past: Sequence[Decision]) -> str:
    """Name the victims by their own decisions, which lie on the node from that moment on."""
    before = decision if decision.outcome is Outcome.NOMINATED else next(iter(past[1:]), None)
    if before is None or before.outcome is not Outcome.NOMINATED or before.node != decision.node:
        return ""
    since_ms = moment_ms("decided_at", before.decided_at)
    which = DecisionFilter(node=before.node, outcome=Outcome.EVICTED, since_ms=since_ms)
    rows = await store.decisions(which, EVICTED_MAX, None, False)
    evicted = [decision_of(row, store.seen) for row in rows]
    names = [
        f"{each.pod.namespace}/{each.pod.name}"
        for each in evicted
        if each.preemption is not None and each.preemption.nominated == before.id
    ]
    uids = before.preemption.victims if before.preemption else []
    names = names or uids
    if not names:
        return ""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    has = (
        "had to" if decision.outcome is not Outcome.NOMINATED else "has to" if len(names) == 1 else "have to"
    )
    return f"For it {', '.join(names[:NAMED_MAX])}{more} {has} leave {before.node} (decision {before.id})."
