"""What waits, group by group: why, for how long, how often it was tried, and what stands before it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from services.api.answers import PendingGroup, PendingPage
from services.api.formats import cursor, instant, parse_group, quantities, row_id
from services.ports.store import QueuePlace, Store, WaitingGroup


async def list_pending(
    store: Store, shard: int | None, *, limit: int, at: str | None, oldest_first: bool
) -> PendingPage:
    """Return a page of the groups of pending pods with why they wait, the largest or the oldest first."""
    after = parse_group(at) if at else None
    rows = await store.pending(shard, None, limit, after, oldest_first=oldest_first)
    last = rows[-1] if rows.more else None
    following = None
    if last is not None:
        place = last.since_ms if oldest_first else last.pods_count
        following = cursor(place, last.shard, last.signature.hex())
    return PendingPage(items=await _groups(store, rows), next=following)


async def show_group(
    store: Store, shard: int, signature: bytes, *, is_placed: bool = True
) -> PendingGroup | None:
    """Return one group of pending pods; None: no pod of it waits in the shard, or none that is seen.

    With ``is_placed`` it says what stands before it, for which all that waits in the shard is counted.
    """
    found = await _groups(store, await store.pending(shard, signature, 1), is_placed=is_placed)
    return found[0] if found else None


async def _groups(
    store: Store, rows: Sequence[WaitingGroup], *, is_placed: bool = True
) -> list[PendingGroup]:
    """Return groups as the API shows them.

    What pods of all namespaces stand before one, and how often those were tried that are equal to it, is told
    to callers that see all namespaces alone.
    """
    if not rows:
        return []
    at_ms = _looked_at_ms(store)
    if store.moment is not None:  # what stood before a group in the past is not told
        return [_group(each, at_ms, None) for each in rows]
    queue_places = await store.queue_places(rows) if is_placed and store.seen is None else {}
    return [_group(each, at_ms, queue_places.get((each.shard, each.signature))) for each in rows]


def _looked_at_ms(store: Store) -> int:
    """Return until when pods have waited: now by the clock of this process, or the moment that is asked for.

    Log time stands still while nothing happens, and pods wait on.
    """
    now_ms = time.time_ns() // 1_000_000
    if store.moment is None:
        return now_ms
    asked_ms = store.moment.asked_ms
    return store.moment.log_time_ms if asked_ms is None else min(asked_ms, now_ms)


def _group(group: WaitingGroup, at_ms: int, place: QueuePlace | None) -> PendingGroup:
    template = group.template
    return PendingGroup(
        signature=group.signature.hex(),
        shard=group.shard,
        count=group.pods_count,
        reasons=group.reasons or {},
        unresolvable=bool(group.unresolvable),
        since=instant(group.since_ms),
        tried_at=None if group.at_ms is None else instant(group.at_ms),
        cycle=row_id(group.shard, group.cycle_seq) if group.cycle_seq else None,
        requests=quantities(template.requests if template else {}),
        profile=template.profile if template else "",
        priority=template.priority if template else 0,
        examples=list(group.examples),
        waits_seconds=max(0, at_ms - group.since_ms) // 1000,
        attempts=place and place.attempts_count,
        groups_before=place and place.groups_before,
        pods_before=place and place.pods_before,
    )
