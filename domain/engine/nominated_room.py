"""Which nominations run out with log time, and which are on nodes that changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from domain.model.limits import dying_seconds_max
from domain.state.cluster import ClusterState
from domain.state.nominations import Nomination
from domain.state.snapshot import Snapshot


def run_out(state: ClusterState, now_ms: int) -> list[Nomination]:
    """Return the nominations of own pods whose time is over; those of a gang are over together."""
    known = state.nominations
    together: dict[tuple[str, str], list[Nomination]] = {}
    for each in map(known.entries.__getitem__, known.expired(now_ms)):
        if state.is_own_nomination(each):
            gang = each.template.gang
            together.setdefault((gang, "" if gang else each.key), []).append(each)
    return [each for some in together.values() if not _are_kept(state, some, now_ms) for each in some]


def _are_kept(state: ClusterState, nominations: Sequence[Nomination], now_ms: int) -> bool:
    """Say whether nominations stay beyond their time: the last victim just left, or takes time to end."""
    left = [key for each in nominations for key in left_for(state, each)]
    if not left:  # they are tried in this cycle
        return any(state.table.rows.get(each.node) in state.improved_rows for each in nominations)
    is_dying = any(state.pods[key].spec.terminating for key in left)
    return is_dying and now_ms < nominations[0].at_ms + dying_seconds_max * 1_000


def left_for(state: ClusterState, nomination: Nomination) -> list[str]:
    """Return the keys of the victims that have not left yet."""
    evicted = state.nominations.evicted
    return [each.key for each in nomination.victims if evicted.get(each.key) == nomination.key]


def waits_for_any(state: ClusterState, node: str) -> bool:
    """Say whether any pod is yet to leave a node: nominations there may count on each of them."""
    return state.nominations.waits_for_any(node) or bool(state.moves.left_on(node))


def to_try(state: ClusterState, nominations: Iterable[Nomination]) -> list[Nomination]:
    """Return those of some nominations that are of own pods, the most urgent first.

    The least urgent one of a gang stands for all of it.
    """
    tries: dict[str, Nomination] = {}
    for each in filter(state.is_own_nomination, nominations):
        last = each
        if each.template.gang:
            last = max(mates_of(state, each), key=lambda mate: urgency(state, mate))
        tries[last.key] = last
    return sorted(tries.values(), key=lambda each: urgency(state, each))


def mates_of(state: ClusterState, nomination: Nomination) -> list[Nomination]:
    """Return the nominations of own pods of the same gang; of a pod without one, its own."""
    gang = nomination.template.gang
    if not gang:
        return [nomination]
    return [each for each in state.nominations.of_gang(gang) if state.is_own_nomination(each)]


def urgency(state: ClusterState, nomination: Nomination) -> tuple[int, int]:
    """Return what orders nominations: the priority of the pod, the highest first, and its arrival."""
    return -nomination.priority, state.pods[nomination.key].arrival


def nominated_on(state: ClusterState, rows: Iterable[int]) -> list[Nomination]:
    """Return the nominations on some rows."""
    known, table = state.nominations, state.table
    if not known.entries:
        return []
    return [each for row in sorted(rows) if row < table.count for each in known.on(table.names[row])]


def count_in_snapshot(
    state: ClusterState, snapshot: Snapshot, nominations: Iterable[Nomination], sign: int
) -> None:
    """Count in a snapshot what nominations ask for (1), or take it out (-1); its change log has room for it.

    Equal pods go together: one by one they cost ten times as much.
    """
    rows = state.table.rows
    kinds: dict[bytes, tuple[Nomination, list[int]]] = {}
    for each in nominations:
        if (row := rows.get(each.node)) is not None:
            kinds.setdefault(each.signature, (each, []))[1].append(row)
    for like, of in kinds.values():
        snapshot.count_nominations(np.array(of), *state.nominations.amounts(like), sign)
