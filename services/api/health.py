"""Whether the deployment can decide: what `/readyz` checks, and how far each shard is behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import NamedTuple

from domain.model.errors import BerthError, Unavailable
from services.background import begin
from services.lag import Lag, lags
from services.log_limit import Outage
from services.ports.log import Log, TopicPartition
from services.ports.store import Processes, ShardState, Store

_log = logging.getLogger("berth.api")

WATCH_SECONDS = 2.0
"""How often the database is asked for the log, whether a caller asks or not."""

LOOK_SECONDS = 1.0
"""The ledger and the log are looked at once in this time, however many clients ask."""

ANSWER_SECONDS = 2.0
"""How long either may take to answer."""


class Condition(NamedTuple):
    """ "ok" or what is wrong, per part, the lag per shard if the log answers, and the relays' alarms."""

    checks: Mapping[str, str]
    lags: Mapping[int, Lag]
    alarms: Sequence[str] = ()


class Lookout:
    """Looks at the deployment for all callers.

    Parameters
    ----------
    why_not : callable
        Says of the database's revision, and of the oldest one that may work on a newer database, why this
        version cannot work on it; "" where it can.
    """

    def __init__(self, store: Store, log: Log, why_not: Callable[[str | None, str | None], str]) -> None:
        self._store = store
        self._log = log
        self._why_not = why_not
        self._looking: asyncio.Task[None] | None = None
        self._seen: Condition | None = None
        self._seen_at = 0.0

    def _refresh(self) -> asyncio.Task[None] | None:
        """Return the look that is under way; begin one if the last is a second old.

        It belongs to no caller, so that one that goes away does not make the next one begin again.
        """
        if self._looking is None or self._looking.done():
            fresh = self._seen is not None and time.monotonic() - self._seen_at < LOOK_SECONDS
            self._looking = None if fresh else begin("looking at the deployment", self._note())
        return self._looking

    async def _note(self) -> None:
        self._seen = await self._look()
        self._seen_at = time.monotonic()

    async def look(self) -> Condition:
        """Return the deployment's condition, which is at most a second old."""
        if (looking := self._refresh()) is not None:
            await asyncio.shield(looking)
        assert self._seen is not None
        return self._seen

    async def glance(self) -> Condition:
        """Return the condition as ``look``, but the last one where the log was away: no caller waits."""
        if self._seen is not None and self._seen.checks.get("log", "ok") != "ok":
            self._refresh()
            return self._seen
        return await self.look()

    async def aclose(self) -> None:
        """End the look that is under way."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def _look(self) -> Condition:
        checks = {"database": "ok"}
        try:
            async with _in_time("the ledger"):
                pulse = await self._store.processes.pulse()
                shards = await self._store.processes.shards()
                rows = await self._store.processes.offsets()
        except Unavailable as error:
            return Condition({"database": str(error)}, {})
        except BerthError as error:
            return Condition(checks | {"migrations": str(error)}, {})
        folded = {TopicPartition(row.topic, row.partition): row.next_offset for row in rows}
        checks["migrations"] = self._why_not(pulse.revision, pulse.works_from) or "ok"
        checks["workers"] = _workers(shards, pulse.workers_count)
        behind: Mapping[int, Lag] = {}
        try:
            async with _in_time("the log"):
                behind = await lags(self._log, [s.shard for s in shards], folded, time.time_ns() // 1_000_000)
            checks["log"] = "ok"
        except BerthError as error:
            checks["log"] = str(error)
        return Condition(checks, behind, [shard.alarm for shard in shards if shard.alarm])


async def watch_database(processes: Processes) -> None:
    """Say in the log that the database is away, while it lasts, and that it is back; until cancelled."""
    outage = Outage(_log, "use the database", asyncio.get_running_loop().time)
    while True:
        try:
            async with _in_time("the ledger"):
                await processes.pulse()
            outage.over()
        except Exception as error:
            outage.failed(error)
        await asyncio.sleep(WATCH_SECONDS)


@contextlib.asynccontextmanager
async def _in_time(what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            yield
    except TimeoutError:
        raise Unavailable(f"{what} does not answer within {ANSWER_SECONDS:g} s") from None


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
