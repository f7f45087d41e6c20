"""The part of a commit that spans nodes: the versions of what its pods read and count in."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.adapters.batches import own_shards
from services.adapters.postgres import sql_guards
from services.adapters.postgres.connections import Connection
from services.ports.guards import (
    GuardRow,
    announced_keys,
    dropped_keys,
    first_keys,
    raised_keys,
    refused_nodes,
)
from services.ports.ledger import CommitBatch

_batches = msgspec.json.Decoder(dict[int, int]).decode


async def check_guards(connection: Connection, batch: CommitBatch) -> tuple[set[int], list[str]]:
    """Return the ids of nodes whose claims are refused, and the keys that the batch announced or dropped.

    Every batch with guards shares a lock until its end, and one that does either holds it alone. So
    each other batch came before the matcher, and is known by its number, or is told of it by a namespace.
    Cost: two statements, and one more each where it raises anything, and where that was never raised before.
    """
    guards = batch.cluster.guards
    if not guards:
        return set(), []
    is_alone = any(guard.announces_to or guard.drops for guard in guards)
    await connection.execute(sql_guards.LOCK_ALONE if is_alone else sql_guards.LOCK_SHARED)
    if first := first_keys(guards):  # another batch with the same keys waits here, and finds them raised
        await connection.execute(sql_guards.BRING, first)
    raising = [guard.key for guard in guards if guard.raises]
    found = dict(
        await _found(connection, sql_guards.READ, [guard.key for guard in guards if not guard.raises])
    )
    if raising:
        found |= await _found(connection, sql_guards.LOCK_RAISED, raising)
    announced = announced_keys(guards, found)
    if announced:
        await connection.execute(sql_guards.ANNOUNCE, announced)
    if dropped := dropped_keys(guards, found):
        await connection.execute(sql_guards.DROP, [key[1:] for key in dropped])
    return refused_nodes(guards, found, batch.cluster.followed, own_shards(batch)), announced + dropped


async def raise_guards(connection: Connection, batch: CommitBatch, lost_nodes: set[int]) -> list[str]:
    """Raise what the pods read and count in that the batch places after all; return these keys."""
    keys = raised_keys(batch.cluster.guards, lost_nodes)
    if keys:
        await connection.execute(sql_guards.RAISE, keys)
    return keys


async def _found(connection: Connection, query: str, keys: list[str]) -> Mapping[str, GuardRow]:
    rows = await connection.fetch(query, keys)
    return {key: GuardRow(version, _batches(batches)) for key, version, batches in rows}
