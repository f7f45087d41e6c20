"""What befalls the processes and the servers of one day, drawn from its seed."""

from __future__ import annotations

import asyncio
import enum
import random
from collections import Counter
from collections.abc import Sequence

from tests.chaos.processes import Slot
from tests.chaos.servers import Servers

LEASES_PAUSED = (1.1, 3.0)
_CUT_SECONDS = (0.5, 6.0)


class Strike(enum.StrEnum):
    """What goes wrong, as it is counted."""

    KILL = "kills (SIGKILL)"
    PAUSE = "pauses beyond the lease (SIGSTOP)"
    STOP = "stops (SIGTERM)"
    LOG_CUT = "cuts from Kafka, refused"
    LOG_SILENCE = "cuts from Kafka, silent"
    LEDGER_CUT = "cuts from Postgres, refused"
    LEDGER_SILENCE = "cuts from Postgres, silent"
    SESSIONS = "sessions terminated"
    KAFKA_KILLED = "brokers killed"
    KAFKA_RESTARTED = "brokers restarted"
    POSTGRES_CRASHED = "databases crashed"
    POSTGRES_RESTARTED = "databases restarted"
    FAIL_OVER = "fail-overs to a replica"


_OF_A_PROCESS = {
    Strike.KILL: 10,
    Strike.PAUSE: 8,
    Strike.STOP: 2,
    Strike.LOG_CUT: 1,
    Strike.LOG_SILENCE: 1,
    Strike.LEDGER_CUT: 1,
    Strike.LEDGER_SILENCE: 1,
}
"""How often each strikes, compared with the others."""


class Weather:
    """Strikes processes all the time, each on its own, and one server after another."""

    def __init__(self, rng: random.Random, servers: Servers, slots: Sequence[Slot], quiet: float) -> None:
        self.counts: Counter[Strike] = Counter()
        self.late_relays = 0  # whose records may have come after those of the next one
        self._rng = rng
        self._servers = servers
        self._slots = slots
        self._quiet_seconds = quiet

    async def rage(self, seconds: float) -> None:
        """Strike for so long; let everything that was begun end."""
        until = asyncio.get_running_loop().time() + seconds
        rngs = [random.Random(self._rng.random()) for _ in range(len(self._slots) + 1)]
        await asyncio.gather(
            self._strike_servers(rngs[-1], until),
            *(self._torment(slot, rng, until) for slot, rng in zip(self._slots, rngs, strict=False)),
        )

    async def _torment(self, slot: Slot, rng: random.Random, until: float) -> None:
        time = asyncio.get_running_loop().time
        kinds, weights = list(_OF_A_PROCESS), list(_OF_A_PROCESS.values())
        while True:
            await asyncio.sleep(rng.expovariate(1 / self._quiet_seconds))
            if time() >= until:
                return
            kind = rng.choices(kinds, weights)[0]
            if await self._strike(kind, slot, rng):
                self.counts[kind] += 1
                self.late_relays += slot.kind == "relay"

    async def _strike(self, kind: Strike, slot: Slot, rng: random.Random) -> bool:
        cut_seconds = rng.uniform(*_CUT_SECONDS)
        match kind:
            case Strike.KILL:
                return slot.kill()
            case Strike.PAUSE:
                return await slot.pause(rng.uniform(*LEASES_PAUSED))
            case Strike.STOP:
                return await slot.stop()
            case Strike.LOG_CUT | Strike.LOG_SILENCE:
                await slot.way.kafka.cut(cut_seconds, silent=kind is Strike.LOG_SILENCE)
            case Strike.LEDGER_CUT | Strike.LEDGER_SILENCE:
                await slot.way.postgres.cut(cut_seconds, silent=kind is Strike.LEDGER_SILENCE)
            case _:
                raise AssertionError(f"{kind} is no strike at a process")
        return True

    async def _strike_servers(self, rng: random.Random, until: float) -> None:
        """End sessions now and then; restart each server, and let the database fail over."""
        time = asyncio.get_running_loop().time
        large = [
            rng.choice((Strike.KAFKA_KILLED, Strike.KAFKA_RESTARTED)),
            rng.choice((Strike.POSTGRES_CRASHED, Strike.POSTGRES_RESTARTED)),
            Strike.FAIL_OVER,
        ]
        rng.shuffle(large)
        pause_seconds = (until - time()) / (len(large) + 1)
        while large:
            quiet_until = min(until, time() + pause_seconds * rng.uniform(0.5, 1.0))
            while time() < quiet_until:
                await asyncio.sleep(rng.uniform(1.0, 5.0))
                self.counts[Strike.SESSIONS] += await self._servers.terminate_sessions(rng.random())
            if time() >= until:
                return
            kind = large.pop()
            await self._strike_server(kind)
            self.counts[kind] += 1

    async def _strike_server(self, kind: Strike) -> None:
        match kind:
            case Strike.KAFKA_KILLED | Strike.KAFKA_RESTARTED:
                await self._servers.restart_kafka(kill=kind is Strike.KAFKA_KILLED)
            case Strike.POSTGRES_CRASHED | Strike.POSTGRES_RESTARTED:
                await self._servers.restart_postgres(kill=kind is Strike.POSTGRES_CRASHED)
            case Strike.FAIL_OVER:
                await self._servers.fail_over()
            case _:
                raise AssertionError(f"{kind} is no strike at a server")
