"""One history of a pod, a node, a shard or a profile: what all sources of the ledger say, in one order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from domain.model.decisions import Outcome
from domain.model.limits import page_bytes_max
from services.api.answers_decisions import Decision, RefusedAttempts
from services.api.answers_past import HistoryEntry, HistoryPage, JournalSpan, WhyNow
from services.api.attempts import show_attempts
from services.api.explanation import decision_of, opening
from services.api.formats import cursor, instant, parse_past, profile_target, stamp
from services.api.stream_events import node_change
from services.api.views import action_of
from services.phrases import plural, reasons_in_words, said_in_words
from services.ports.chronicle import (
    PastAction,
    PastDecision,
    PastPlace,
    PastSpec,
    Rank,
    Window,
    in_window,
    recorded_at,
    recorded_us,
)
from services.ports.store import OwnerFilter, Rows, Store
from services.times import moment_ms

PLACEMENTS_MAX = 20
"""Nodes of a pod whose agents' actions are looked at, the latest first."""
OWNERS_MAX = 1_000
REVISIONS_MAX = 1_000
CHANGES_MAX = 200
"""What is looked at of a node to say what made room on it."""
CHANGES_SHOWN_MAX = 5


class Placed(NamedTuple):
    """An entry, and where it is in the history."""

    place: PastPlace
    entry: HistoryEntry


class Asked(NamedTuple):
    """Which part of a history is asked for; ``until_ms`` is the log time of the last entry that counts."""

    limit: int
    after: PastPlace | None
    newest_first: bool
    until_ms: int | None = None

    @staticmethod
    def of(limit: int, at: str | None, *, newest_first: bool, until_ms: int | None = None) -> Asked:
        """Read the cursor of a page before."""
        if at is None:
            return Asked(limit, None, newest_first, until_ms)
        at_ms, us, rank, is_last, number, shard = parse_past(at)
        return Asked(limit, PastPlace(at_ms, us, rank, bool(is_last), number, shard), newest_first, until_ms)

    @property
    def window(self) -> Window:
        """The same for a source."""
        before_ms = None if self.until_ms is None else self.until_ms + 1
        return Window(self.limit, self.after, self.newest_first, until_ms=before_ms)


def _page(of: str, found: Iterable[Placed], asked: Asked, *cut: Rows[Any]) -> HistoryPage:
    """Merge entries of all sources; of those in ``cut`` others may follow, so nothing behind their last ones.

    The page ends with the entry that reaches ``page_bytes_max``, too.
    """
    window = asked.window
    rows = sorted(
        (each for each in found if in_window(each.place, window)),
        key=lambda each: each.place,
        reverse=asked.newest_first,
    )
    more = False
    for source in cut:
        if source.more:
            last: PastPlace = source[-1].place
            rows = [each for each in rows if each.place == last or (each.place > last) == asked.newest_first]
            more = True
    shown: list[Placed] = []
    held_bytes = 0
    for each in rows[: asked.limit]:
        if held_bytes >= page_bytes_max:
            break
        shown.append(each)
        held_bytes += len(msgspec.json.encode(each.entry))
    more = more or len(shown) < len(rows)
    following = cursor(*map(int, shown[-1].place)) if more and shown else None
    return HistoryPage(of=of, items=[each.entry for each in shown], next=following)


# -------------------------------------------------------------------------------------------------- entries


def _target(*names: str) -> str:
    return "/v1/" + "/".join(quote(name, safe="") for name in names)


def _times(place: PastPlace) -> dict[str, str | None]:
    recorded = stamp(recorded_at(place.recorded_us)) if place.recorded_us else None
    return {"recorded_at": recorded}


def _entry(place: PastPlace, kind: str, says: str, **more: object) -> Placed:
    told = {"id": None, **_times(place), **more}
    return Placed(place, HistoryEntry(at=instant(place.at_ms), kind=kind, says=says, **told))  # type: ignore[arg-type]


def _decided(found: PastDecision, store: Store) -> Placed:
    decision = decision_of(found.row, store.seen)
    links = {
        "decision": _target("decisions", decision.id),
        "explanation": _target("decisions", decision.id, "explanation"),
        "pod": _target("pods", decision.pod.namespace, decision.pod.name),
    }
    if decision.node:
        links["node"] = _target("nodes", decision.node)
    if decision.preemption is not None and decision.preemption.nominated:
        links["leaves for"] = _target("decisions", decision.preemption.nominated)
    if decision.profile_revision:
        links["profile"] = profile_target(decision.profile, decision.profile_revision)
    return _entry(found.place, "decision", _said(decision), id=decision.id, links=links, decision=decision)


def _said(decision: Decision) -> str:
    reason = f" Reason: {said_in_words(decision.reason)}." if decision.reason else ""
    return opening(decision) + reason


def _refused(number: int, each: RefusedAttempts) -> Placed:
    place = PastPlace(moment_ms("since", each.since), 0, Rank.ATTEMPT, False, number, 0)
    looked = f"of {plural(each.nodes, 'node')}, {reasons_in_words(each.reasons)}"
    again = f"; {each.times} times until {each.last_at}" if each.times > 1 else ""
    return _entry(place, "attempt", f"No node was found: {looked}{again}.", id=each.cycle, attempt=each)


def _acted(found: PastAction, store: Store) -> Placed:
    action = action_of(found.state, store.seen)
    about = f" of {action.pod}" if action.pod else ""
    says = f"The agent of {action.node} did {action.action}{about}: {action.reason}."
    links = {"node": _target("nodes", action.node)}
    if action.pod:
        links["pod"] = _target("pods", *action.pod.split("/", 1))
    return _entry(found.place, "action", says, id=str(action.id), links=links, action=action)


def _specified(found: PastSpec, store: Store) -> Placed:
    sent_by = found.sent_by if store.seen is None else None
    change = node_change(found.spec, deleted=found.deleted, at_ms=found.place.at_ms, sent_by=sent_by)
    name = found.spec.name
    if found.deleted:
        says = f"{name} was deleted."
    elif found.is_first:
        says = f"{name} came."
    else:
        says = f"{name} was changed by its producer."
    return _entry(
        found.place, "spec", says, id=str(found.version), links={"node": _target("nodes", name)}, spec=change
    )


# ---------------------------------------------------------------------------------------------------- pods


async def of_pod(store: Store, namespace: str, name: str, asked: Asked) -> HistoryPage | None:
    """Return a part of what happened to pods of a name, or None where there never was one."""
    key, past = f"{namespace}/{name}", store.chronicle
    attempts = await show_attempts(store, namespace, name, None, sees_all=store.seen is None)
    if attempts is None:
        return None
    decisions = await past.of_pod(namespace, name, store.seen, asked.window)
    found = [_decided(each, store) for each in decisions]
    found += [_refused(number, each) for number, each in enumerate(attempts.items)]
    spans = await store.pod_placements(namespace, name, PLACEMENTS_MAX)
    nodes = sorted({span.node for span in spans})
    actions = await past.actions(nodes, key, store.seen, asked.window) if nodes else Rows[PastAction]()
    found += [_acted(each, store) for each in actions]
    page = _page(f"pod {key}", found, asked, decisions, actions)
    if asked.after is None and asked.until_ms is None:
        page.why_now = await _why_now(store, namespace, name, attempts.items)
    return page


async def _why_now(
    store: Store, namespace: str, name: str, attempts: Sequence[RefusedAttempts]
) -> WhyNow | None:
    """Return what made room for a pod, if it is placed and berth chose the node."""
    newest = await store.chronicle.of_pod(namespace, name, store.seen, Window(CHANGES_MAX, newest_first=True))
    decisions = [decision_of(each.row, store.seen) for each in newest]
    at = next((at for at, each in enumerate(decisions) if each.outcome in _PLACED), None)
    if at is None or decisions[0].outcome in _UNPLACED or decisions[at].outcome is not Outcome.BOUND:
        return None
    bound, placed = decisions[at], newest[at].place
    assert bound.node is not None
    refused = [each for each in attempts if moment_ms("since", each.since) <= placed.at_ms]
    began = [each for each in decisions[at + 1 :] if each.outcome in _PLACED]
    if began and refused and refused[-1].last_at < began[0].decided_at:
        refused = []  # that was before it was placed the last time
    last = refused[-1] if refused else None
    changed: list[HistoryEntry] = []
    if last is not None:
        since_ms = moment_ms("last_at", last.last_at)
        changed = await _room_on(
            store, bound.node, Window(CHANGES_MAX, None, False, since_ms, placed.at_ms + 1)
        )
    return WhyNow(
        decision=bound.id,
        node=bound.node,
        refused_at=None if last is None else last.last_at,
        reasons={} if last is None else last.reasons,
        changed=changed[:CHANGES_SHOWN_MAX],
        summary=_why_in_words(f"{namespace}/{name}", bound, last, changed),
    )


_PLACED = (Outcome.BOUND, Outcome.ADOPTED)
_UNPLACED = (Outcome.RELEASED, Outcome.BIND_FAILED, Outcome.UNSCHEDULABLE, Outcome.UNRESOLVABLE)


async def _room_on(store: Store, node: str, window: Window) -> list[HistoryEntry]:
    """Return what may have made room on a node: pods that left it, and what its producer changed."""
    left = [
        _decided(each, store)
        for each in await store.chronicle.on_node(node, store.seen, window)
        if decision_of(each.row, store.seen).outcome is Outcome.RELEASED
    ]
    specs = [
        _specified(each, store)
        for each in await store.chronicle.specs(node, window)
        if not (each.deleted or each.spec.unschedulable)
    ]
    return [each.entry for each in sorted([*left, *specs], key=lambda each: each.place)]


def _why_in_words(
    pod: str, bound: Decision, last: RefusedAttempts | None, changed: Sequence[HistoryEntry]
) -> str:
    placed = f"At {bound.decided_at} {pod} was placed on {bound.node} (decision {bound.id})."
    if last is None:
        return f"{placed} No attempt of its group had failed while it waited."
    looked = f"of {plural(last.nodes, 'node')}, {reasons_in_words(last.reasons)}"
    before = f"At {last.last_at} no node was found for it: {looked}."
    if not changed:
        told = f"Nothing that the ledger keeps of {bound.node} had changed since"
        return f"{before} {told}, or nothing that this key sees. {placed}"
    more = len(changed) - CHANGES_SHOWN_MAX
    beside = f" And {more} more happened there." if more > 0 else ""
    happened = " ".join(f"At {each.at}: {each.says}" for each in changed[:CHANGES_SHOWN_MAX])
    return f"{before} Then on {bound.node}: {happened}{beside} {placed}"


# --------------------------------------------------------------------------------- nodes, shards, profiles


async def of_node(store: Store, name: str, asked: Asked) -> HistoryPage | None:
    """Return a part of what happened to a node and on it, or None where there never was one."""
    if await store.node(name) is None:
        return None
    past = store.chronicle
    decisions = await past.on_node(name, store.seen, asked.window)
    specs = await past.specs(name, asked.window)
    actions = await past.actions([name], None, store.seen, asked.window)
    found = [_decided(each, store) for each in decisions]
    found += [_specified(each, store) for each in specs]
    found += [_acted(each, store) for each in actions]
    return _page(f"node {name}", found, asked, decisions, specs, actions)


async def of_shard(store: Store, shard: int, asked: Asked) -> HistoryPage | None:
    """Return a part of a shard's owners, and what its log had lost; None where there is no such shard."""
    if all(each.shard != shard for each in await store.processes.shards()):
        return None
    found = []
    for each in await store.processes.owners(OwnerFilter(shard), OWNERS_MAX, None):
        until = f"until {stamp(each.ended_at)}" if each.ended_at else "and owns it"
        us = recorded_us(each.taken_at)
        facts = {"owner": each.owner, "epoch": each.epoch, "to": stamp(each.ended_at)}
        place = PastPlace(us // 1000, us, Rank.OWNER, False, each.epoch, shard)
        says = f"{each.owner} took the shard, {until}."
        found.append(_entry(place, "owner", says, id=str(each.epoch), facts=facts))
    for fault in await store.chronicle.faults(shard):
        facts = {name: getattr(fault, name) for name in fault._fields[1:]}
        at = f"{fault.topic}/{fault.partition}"
        says = f"{at} had not what came next at {fault.next_offset}: {fault.code}; "
        says += f"the shard went on at {fault.goes_on_at}."
        found.append(_entry(fault.place, "log-fault", says, facts=facts))
    page = _page(f"shard {shard}", found, asked)
    kept = await store.chronicle.journal(shard)
    if kept is not None:
        page.journal = JournalSpan(first=kept.first, last=kept.last, missing=kept.missing_count)
    return page


async def of_profile(store: Store, name: str, asked: Asked) -> HistoryPage | None:
    """Return a part of the revisions of a profile, or None where events made none."""
    found = []
    for each in await store.profile_revisions(name, REVISIONS_MAX, None):
        place = PastPlace(each.at_ms, 0, Rank.REVISION, False, each.revision, 0)
        what = "was deleted" if each.spec is None else "is"
        says = f"Revision {each.revision} of {name} {what} from then on."
        facts = {"revision": each.revision, "deleted": each.spec is None, "sent_by": each.sent_by}
        links = {"profile": profile_target(name, each.revision)}
        found.append(_entry(place, "revision", says, id=str(each.revision), links=links, facts=facts))
    return _page(f"profile {name}", found, asked) if found else None
