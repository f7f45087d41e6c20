"""Do workers share the shards evenly, and leave them where they are once they do?"""

from __future__ import annotations

import asyncio
import logging
import re
from random import Random

import pytest

from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.ledger import MemoryLedger
from services.log_limit import REMIND_SECONDS
from services.worker.holding import Holding, gives, share
from services.worker.progress import Progress
from tests.simulation.loop import SimulatedLoop, VirtualClock


def _step(held: dict[str, int], free: int, shards: int, who: str) -> tuple[int, bool]:
    """Let one worker look; return what is free then, and whether anything moved."""
    others = {other: count for other, count in held.items() if other != who}
    taken = share(held[who], others.values(), free, shards)
    gave = not free and gives(held[who], who, others)
    held[who] += taken - gave
    return free - taken + gave, bool(taken or gave)


def _settle(held: dict[str, int], free: int, shards: int, random: Random) -> int:
    """Let workers look in any order until nothing moves; return how many shards were given up."""
    given, moves = 0, True
    while moves:
        moves = False
        for who in random.sample(sorted(held), len(held)):
            before, (free, moved) = free, _step(held, free, shards, who)
            given, moves = given + (free > before), moves or moved
        assert given <= shards, "shards go to and fro"
    assert free == 0
    return given


@pytest.mark.parametrize("seed", range(50))
def test_workers_that_come_and_go_share_evenly(seed: int) -> None:
    random = Random(seed)
    shards, held = random.randint(1, 40), {"w0": 0}
    free = shards
    for number in range(1, 12):
        _settle(held, free, shards, random)
        assert max(held.values()) - min(held.values()) <= 1
        assert sum(held.values()) == shards
        free = 0
        if random.random() < 0.6 or len(held) == 1:
            held[f"w{number}"] = 0
        else:
            free = held.pop(random.choice(sorted(held)))


def test_one_worker_takes_all_at_once_and_two_that_start_together_half_each() -> None:
    assert share(0, [], 4, 4) == 4
    assert share(0, [0], 4, 4) == 2


def test_who_holds_more_waits_for_who_holds_fewer() -> None:
    assert share(1, [0, 2], 1, 4) == 0
    assert share(0, [1, 2], 1, 4) == 1


def test_only_one_of_those_who_hold_most_gives() -> None:
    held = {"a": 2, "b": 2, "c": 0}
    assert [who for who in held if gives(held[who], who, {o: n for o, n in held.items() if o != who})] == [
        "a"
    ]


def test_an_outage_of_the_ledger_is_said_when_it_begins_now_and_then_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = SimulatedLoop()
    ledger = MemoryLedger(MemoryDatabase(2), VirtualClock(loop))

    async def live() -> None:
        holding = Holding(ledger, "w", 2.0, 0.5, Progress(10.0))
        keeping = asyncio.create_task(holding.keep(2))
        for outage_seconds in (4 * REMIND_SECONDS, 1.0):
            await asyncio.sleep(5)
            ledger._severed = True
            await asyncio.sleep(outage_seconds)
            ledger._severed = False
        await asyncio.sleep(5)
        assert not keeping.done()
        keeping.cancel()
        await asyncio.wait({keeping})

    caplog.set_level(logging.WARNING)
    loop.run_until_complete(live())
    loop.end()
    told = [record.getMessage() for record in caplog.records]
    first, *still, over, again, soon = told
    assert first == again == "could not renew the leases: the connection to the ledger is closed"
    assert len(still) in (3, 4)
    assert all(line.startswith("could not renew the leases for ") for line in still), still
    assert re.fullmatch(r"could renew the leases again, after 1(19|20)\.\d s", over)
    assert re.fullmatch(r"could renew the leases again, after [01]\.\d s", soon)
