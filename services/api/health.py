"""Whether the deployment can decide: what `/readyz` checks, and how far each shard is behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from domain.model.errors import BerthError, Unavailable
from services.lag import Lag, lags
from services.ports.log import Log, TopicPartition
from services.ports.store import ShardState, Store

LOOK_SECONDS = 1.0
"""The ledger and the log are looked at once in this time, however many clients ask."""


class Condition(NamedTuple):
    """ "ok" or what is wrong, per part, and the lag per shard if the log answers."""

    checks: Mapping[str, str]
    lags: Mapping[int, Lag]


class Lookout:
    """Looks at the deployment for everybody who asks.

    Parameters
    ----------
    revision : str
        The newest migration; the database has to be at it.
    """

    def __init__(self, store: Store, log: Log, revision: str) -> None:
        self._store = store
        self._log = log
        self._revision = revision
        self._turn = asyncio.Lock()
        self._seen: Condition | None = None
        self._seen_at = 0.0

    async def look(self) -> Condition:
        """Return the deployment's condition, which is at most a second old."""
        async with self._turn:
            now = time.monotonic()
            if self._seen is None or now - self._seen_at >= LOOK_SECONDS:
                self._seen, self._seen_at = await self._look(), now
            return self._seen

    async def _look(self) -> Condition:
        checks = {"database": "ok"}
        try:
            pulse = await self._store.pulse()
            shards = await self._store.shards()
            folded = {
                TopicPartition(r.topic, r.partition): r.next_offset for r in await self._store.offsets()
            }
        except Unavailable as error:
            return Condition({"database": str(error)}, {})
        except BerthError as error:
            return Condition(checks | {"migrations": str(error)}, {})
        at = pulse.revision
        checks["migrations"] = (
            "ok" if at == self._revision else f"at {at}, not {self._revision}; run `berth init`"
        )
        checks["workers"] = _workers(shards, pulse.workers_count)
        behind: Mapping[int, Lag] = {}
        try:
            behind = await lags(self._log, [s.shard for s in shards], folded, time.time_ns() // 1_000_000)
            checks["log"] = "ok"
        except BerthError as error:
            checks["log"] = str(error)
        return Condition(checks, behind)


def _workers(shards: Sequence[ShardState], workers_count: int) -> str:
    """Return a text that says which workers are missing. One that compiles or stands by is not missing."""
    if not shards:
        return "there are no shards; run `berth init`"
    orphans = [str(shard.shard) for shard in shards if shard.owner is None]
    if not orphans:
        return "ok"
    which = "any shard" if len(orphans) == len(shards) else f"shard {', '.join(orphans)}"
    if workers_count:
        return (
            f"no worker holds {which} yet; {workers_count} {'is' if workers_count == 1 else 'are'} starting"
        )
    return f"no worker holds {which}, and none is up; start `berth worker` or `berth up`"
