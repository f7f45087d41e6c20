"""Tells why a pod was refused while it waited: the attempts of its group, over time or at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from domain.model.decisions import Outcome
from services.api.answers_decisions import Decision, PodAttempts, RefusedAttempts
from services.api.explanation import decision_of
from services.api.formats import instant, row_id
from services.phrases import (
    held_for_profile,
    lost_its_node,
    plural,
    reasons_in_words,
    said_in_words,
    unknown_profile,
)
from services.ports.ledger import GroupAttempts
from services.ports.store import Store
from services.times import moment_ms

DECISIONS_MAX = 1000
_REFUSALS = (
    *(Outcome.UNSCHEDULABLE, Outcome.UNRESOLVABLE, Outcome.GANG_WAITING, Outcome.CONFLICT),
    *(Outcome.NOMINATED, Outcome.CLEARED, Outcome.BIND_FAILED),
)


class _Wait(NamedTuple):
    """A time span in which a pod waited; ``until_ms`` is None while it still does.

    ``signature`` is that of the pod when it began to wait, ``then`` at the end: another one if its priority
    class came.
    """

    shard: int
    signature: bytes
    since_ms: int
    until_ms: int | None
    then: bytes


async def show_attempts(
    store: Store, namespace: str, name: str, at_ms: int | None, *, sees_all: bool = True
) -> PodAttempts | None:
    """Return the recorded attempts that refused a pod; with ``at_ms`` the one that held at that moment.

    Where the caller does not see all, none began before the pod waited: that would tell since when equal pods
    of others do.
    """
    rows = await store.pod_decisions(namespace, name, DECISIONS_MAX)
    live = await store.pod(namespace, name)
    if live is None and not rows:
        return None
    decisions = [decision_of(row, store.seen) for row in reversed(rows)]
    waits = list(_waits(decisions))
    if live is not None and live.node is None:
        if not waits or waits[-1].until_ms is not None:  # it was not tried yet
            waits.append(_Wait(live.shard, live.signature, live.since_ms, None, live.signature))
        waits[-1] = waits[-1]._replace(then=live.signature)
    items: list[RefusedAttempts] = []
    for wait in waits:
        for part, found in await _parts(store, wait):
            items += _while_it_waited(found, part, at_ms, None if sees_all else part.since_ms)
    past = [each for each in decisions if at_ms is None or _decided_ms(each) <= at_ms]
    waiting = any(_holds(wait, at_ms) for wait in waits)
    bound = not waiting and bool(past) and past[-1].outcome not in (*_REFUSALS, Outcome.RELEASED)
    node = past[-1].node if bound else None
    state = "waiting" if waiting else "bound" if bound else "gone" if past else "not there yet"
    at = None if at_ms is None else instant(at_ms)
    return PodAttempts(
        namespace=namespace,
        name=name,
        at=at,
        state=state,
        node=node,
        items=items,
        summary=_summary(f"{namespace}/{name}", at, state, node, items, lost=_has_lost_its_node(past))
        + _nominated_or_leaving(state, past),
    )


def _has_lost_its_node(past: Sequence[Decision]) -> bool:
    """Return whether the last word on the node of a placed pod is that it is deleted."""
    of_node = (Outcome.BOUND, Outcome.ADOPTED, Outcome.ORPHANED, Outcome.RETURNED, Outcome.RELEASED)
    last = next((each.outcome for each in reversed(past) if each.outcome in of_node), None)
    return last is Outcome.ORPHANED


def _nominated_or_leaving(state: str, past: Sequence[Decision]) -> str:
    """Return what holds besides: the node that is nominated for a pod, or that a pod has to leave its own.

    A bind that was lost ends no nomination.
    """
    last = next((each for each in reversed(past) if each.outcome != Outcome.CONFLICT), None)
    if last is None:
        return ""
    if state == "waiting" and last.outcome == Outcome.NOMINATED:
        return f" {last.node} is nominated for it."
    if state == "bound" and last.outcome == Outcome.EVICTED:
        return f" It has to leave: it {said_in_words(last.reason)}."
    return ""


def _decided_ms(decision: Decision) -> int:
    return moment_ms("decided_at", decision.decided_at)


def _waits(decisions: Sequence[Decision]) -> Iterator[_Wait]:
    """Yield the spans from a refusal to the next decision about the pod that is no refusal."""
    began: Decision | None = None
    for decision in decisions:
        refused = decision.outcome in _REFUSALS
        if refused and began is not None and began.signature == decision.signature:
            continue
        if began is not None:
            signature = bytes.fromhex(began.signature)
            then = bytes.fromhex(decision.signature)
            yield _Wait(began.shard, signature, _decided_ms(began), _decided_ms(decision), then)
        began = decision if refused else None
    if began is not None:
        signature = bytes.fromhex(began.signature)
        yield _Wait(began.shard, signature, _decided_ms(began), None, signature)


async def _parts(store: Store, wait: _Wait) -> list[tuple[_Wait, Sequence[GroupAttempts]]]:
    """Split a wait where the pod's priority class came: from then on the pod was one of another group.

    No decision says when that was. It is taken to be the first attempt of the other group after all of those
    that lacked the class.
    """
    found = await store.group_attempts(wait.shard, wait.signature)
    lacked = any(code.startswith("unknown-priority-class:") for each in found for code in each.reasons)
    if wait.then == wait.signature or not lacked:
        return [(wait, found)]
    later = await store.group_attempts(wait.shard, wait.then)
    moments = [at_ms for each in later for at_ms in (each.at_ms, each.last_at_ms)]
    came_ms = min((at_ms for at_ms in moments if at_ms >= found[-1].last_at_ms), default=None)
    if came_ms is None or (wait.until_ms is not None and came_ms >= wait.until_ms):
        return [(wait, found)]
    before = wait._replace(until_ms=came_ms)
    return [(before, found), (wait._replace(signature=wait.then, since_ms=came_ms), later)]


def _holds(wait: _Wait, at_ms: int | None) -> bool:
    if at_ms is None:
        return wait.until_ms is None
    return wait.since_ms <= at_ms and (wait.until_ms is None or at_ms < wait.until_ms)


def _while_it_waited(
    found: Sequence[GroupAttempts], wait: _Wait, at_ms: int | None, since_ms_min: int | None
) -> Iterator[RefusedAttempts]:
    """Yield the attempts that held while the pod waited, and the one that held when it came."""
    if at_ms is not None and not _holds(wait, at_ms):
        return
    for i, each in enumerate(found):
        following = found[i + 1].at_ms if i + 1 < len(found) else None
        if wait.until_ms is not None and each.at_ms >= wait.until_ms:
            return
        if following is not None and following <= (wait.since_ms if at_ms is None else at_ms):
            continue
        ends = [end for end in (following, wait.until_ms) if end is not None]
        yield _refused(each, max(each.at_ms, since_ms_min or 0), min(ends, default=None))
        if at_ms is not None:
            return


def _refused(each: GroupAttempts, since_ms: int, until_ms: int | None) -> RefusedAttempts:
    return RefusedAttempts(
        number=each.number,
        since=instant(since_ms),
        last_at=instant(max(since_ms, each.last_at_ms)),
        until=None if until_ms is None else instant(until_ms),
        times=each.times,
        profile=each.profile,
        profile_revision=each.profile_revision or None,
        nodes=each.nodes_count,
        reasons=each.reasons,
        unresolvable=each.unresolvable,
        cycle=row_id(each.shard, each.cycle_seq) if each.cycle_seq else None,
    )


def _summary(
    name: str, at: str | None, state: str, node: str | None, items: Sequence[RefusedAttempts], *, lost: bool
) -> str:
    """Describe the pod at the moment, with the counts of the last item."""
    subject, was = (f"At {at}, {name}", "was") if at else (name, "is")
    if state == "bound" and lost:
        return f"{subject} {lost_its_node(str(node), is_past=at is not None)}."
    if state == "bound":
        return f"{subject} {was} placed on {node}."
    if state != "waiting":
        return f"{subject} {was} {state}."
    if not items:
        return f"{subject} {was} waiting and not tried yet."
    last = items[-1]
    missing = unknown_profile(last.reasons)
    if missing is None:
        why = f"of {plural(last.nodes, 'node')}, {reasons_in_words(last.reasons)}"
    else:
        why = held_for_profile(missing, is_past=at is not None)
    return f"{subject} {was} waiting: {why}. That was found first at {last.since}."
