"""Gives a deployment more shards, while nothing is on its way between them.

A key's events come by another partition once there are more. So those in the old ones are read to the end
before, and what is open goes to the shard of its key in the transaction that lays down the shards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence

from domain.model.errors import BerthError
from domain.model.limits import refold_lease_seconds
from services.ports.inbox import Lanes, home_of, inbox_topic, lanes_of
from services.ports.ledger import Lease, Ledger
from services.ports.log import NODES_TOPIC, PODS_TOPIC, TOPICS_BY_SHARD, Log, TopicPartition


class ShardsHeld(BerthError):
    """A worker holds the shards, which no other process may change meanwhile."""

    code = "shards-held"
    retriable = True


class ShardsBehind(BerthError):
    """A shard has not read its partitions to the end."""

    code = "shards-behind"
    retriable = True


async def hold_all(ledger: Ledger, name: str) -> Sequence[Lease]:
    """Take all shards, for a minute.

    Raises
    ------
    ShardsHeld
        A worker holds one.
    """
    leases = await ledger.acquire(name, refold_lease_seconds)
    if not leases:
        raise ShardsHeld("a worker holds the shards; stop all workers first")
    return leases


async def grow(
    log: Log, ledger: Ledger, shards: int, lay_down: Callable[[Sequence[Lease]], Awaitable[None]]
) -> None:
    """Add partitions, and then shards by ``lay_down``. If it fails half way, do it again.

    Raises
    ------
    ShardsHeld
        A worker is at work.
    ShardsBehind
        Something is not read yet. The topics are as they were, unless it was sent at the same time.
    """
    async with contextlib.AsyncExitStack() as stack:
        leases = await hold_all(ledger, "berth init")
        stack.push_async_callback(ledger.release, leases)
        await _check_read(log, ledger, leases, shards)
        await log.add_partitions(TOPICS_BY_SHARD, shards)
        await _check_read(log, ledger, leases, shards)  # a producer that still runs
        await lay_down(leases)


def _check_inboxes(lanes: Lanes, shards: int) -> None:
    """Refuse while a shard has not folded what another one handed over to it."""
    for (source, topic), end in lanes.items():
        home = home_of(topic)
        if home is not None and lanes.get((home, inbox_topic(source)), 0) < end:
            raise ShardsBehind(
                f"shard {home} has not folded all that shard {source} handed over to it. Start the workers, "
                f"wait until berth_inbox_waiting is 0, stop them, and run `berth init --shards {shards}` "
                "again"
            )


async def _check_read(log: Log, ledger: Ledger, leases: Sequence[Lease], shards: int) -> None:
    kept = {(shard, at): each.next_offset for (shard, at), each in (await ledger.positions(leases)).items()}
    positions = {
        at: kept.get((lease.shard, at), 0)
        for lease in leases
        for at in (TopicPartition(NODES_TOPIC, lease.shard), TopicPartition(PODS_TOPIC, lease.shard))
    }
    backlogs = await log.backlogs(positions)
    behind = [at for at, each in backlogs.items() if each.oldest_ms is not None]
    _check_inboxes(lanes_of({(shard, *at): count for (shard, at), count in kept.items()}), shards)
    if not behind:
        return
    unread = ", ".join(f"{at.topic} of shard {at.partition} from offset {positions[at]} on" for at in behind)
    found = await log.topics(TOPICS_BY_SHARD)
    is_wider = any(state.partitions > len(leases) for state in found.values())
    drain = "run one `berth worker --drain`" if is_wider else "start the workers"
    raise ShardsBehind(
        f"not everything is read: {unread}. Stop the producers, {drain}, wait until `berth get shards` shows "
        f"no lag, stop the workers, and run `berth init --shards {shards}` again. Then start the workers, "
        "and the producers last"
    )
