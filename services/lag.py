"""How far a shard is behind the log: in records, and in time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from services.ports.log import Log, TopicPartition, partitions_of


class Lag(NamedTuple):
    """What a shard has not folded yet: how many records, and how old the oldest of them is."""

    records: int
    seconds: float


async def lags(
    log: Log, shards: Iterable[int], folded: Mapping[TopicPartition, int], now_ms: int
) -> dict[int, Lag]:
    """Return the lag of each shard.

    Parameters
    ----------
    folded : mapping of TopicPartition to int
        Next offset of each partition; 0 where it is missing, so that nothing was folded yet.
    now_ms : int
        Wall time; the log dates its records by its own clock, so a second or so is within the error.

    Raises
    ------
    Unavailable
        The log does not answer, or a topic does not exist.
    """
    homes = {shard: partitions_of(shard) for shard in sorted(shards)}
    backlogs = await log.backlogs({at: folded.get(at, 0) for home in homes.values() for at in home})
    found = {}
    for shard, home in homes.items():
        records = sum(max(0, backlogs[at].end - folded.get(at, 0)) for at in home)
        oldest_ms = min((ms for at in home if (ms := backlogs[at].oldest_ms) is not None), default=now_ms)
        found[shard] = Lag(records, max(0, now_ms - oldest_ms) / 1000)
    return found
