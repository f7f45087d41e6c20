"""Which nominations run out with log time, and which are on nodes that changed."""

from __future__ import annotations

from collections.abc import Iterable

from domain.model.limits import dying_seconds_max
from domain.state.cluster import ClusterState
from domain.state.nominations import Nomination


def run_out(state: ClusterState, now_ms: int) -> list[Nomination]:
    """Return the nominations of own pods whose time is over."""
    known = state.nominations
    expired = [known.entries[key] for key in known.expired(now_ms)]
    return [each for each in expired if state.is_own_promise(each) and not _is_kept(state, each, now_ms)]


def _is_kept(state: ClusterState, nomination: Nomination, now_ms: int) -> bool:
    """Say whether a nomination stays beyond its time: the last victim just left, or takes time to end."""
    evicted = state.nominations.evicted
    left = [each.key for each in nomination.victims if evicted.get(each.key) == nomination.key]
    if not left:
        return state.table.rows.get(nomination.node) in state.improved_rows  # it is tried in this cycle
    is_dying = any(state.pods[key].spec.terminating for key in left)
    return is_dying and now_ms < nomination.at_ms + dying_seconds_max * 1_000


def promised_on(state: ClusterState, rows: Iterable[int]) -> list[Nomination]:
    """Return the nominations on some rows."""
    known, table = state.nominations, state.table
    if not known.entries:
        return []
    return [each for row in sorted(rows) if row < table.count for each in known.on(table.names[row])]
