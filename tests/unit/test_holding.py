"""Do workers share the shards evenly, and leave them where they are once they do?"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Coroutine
from random import Random

import pytest

from domain.model.errors import Unavailable
from domain.model.limits import returning_seconds
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.ledger import MemoryLedger, drop_lease
from services.log_limit import REMIND_SECONDS
from services.ports.ledger import Incarnation
from services.worker.holding import Holding, gives, share
from services.worker.lease_judge import LeaseJudge
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
        holding = Holding(ledger, "w", 2.0, 0.5, Progress(10.0), LeaseJudge(2.0, 0.5))
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


class _Cut(MemoryLedger):
    """A ledger that workers do not reach at times."""

    is_away = False

    def _answering(self) -> MemoryDatabase:
        if self.is_away:
            raise Unavailable("injected")
        return super()._answering()


class _Team:
    """Holders of shards on one ledger, on virtual time."""

    def __init__(self, shards: int, names: str) -> None:
        self.loop = SimulatedLoop()
        self.database, self.shards = MemoryDatabase(shards, VirtualClock(self.loop).now_ms), shards
        self.ledgers = {name: _Cut(self.database, VirtualClock(self.loop)) for name in names}
        self.holdings: dict[str, Holding] = {}
        self.keeping: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str) -> None:
        """Let a worker hold shards, and show that it is up."""
        sight, ledger = LeaseJudge(2.0, 0.5), self.ledgers[name]
        holding = self.holdings[name] = Holding(ledger, name, 2.0, 0.5, Progress(1e9), sight)

        async def beat() -> None:
            while True:
                with contextlib.suppress(Unavailable):
                    await ledger.announce(Incarnation(name=name), is_ready=True)
                await asyncio.sleep(1.0)

        async def give() -> None:
            while True:
                await asyncio.sleep(0.1)
                holding.taken.clear()
                if holding.surplus is not None:
                    with contextlib.suppress(Unavailable):
                        await holding.release([holding.surplus])

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(beat())
                group.create_task(give())
                group.create_task(holding.keep(self.shards))

        self.keeping[name] = self.loop.create_task(work())

    async def start_all(self, names: str) -> dict[str, list[int]]:
        """Let workers begin one after another, and return what each holds when all have their share."""
        for name in names:
            self.start(name)
            await asyncio.sleep(0.13)
        await asyncio.sleep(12)
        return self.held()

    async def cut(self, seconds: float, names: str) -> None:
        """Keep some from the ledger for a while."""
        for name in names:
            self.ledgers[name].is_away = True
        await asyncio.sleep(seconds)
        for name in names:
            self.ledgers[name].is_away = False

    def held(self) -> dict[str, list[int]]:
        """Return who holds what."""
        return {name: sorted(holding.leases) for name, holding in self.holdings.items()}

    def live(self, day: Coroutine[None, None, None]) -> None:
        """Live a day."""
        try:
            self.loop.run_until_complete(day)
        finally:
            self.loop.end()


@pytest.mark.parametrize("seconds", [1.0, 2.0, 5.0, 10.0, 60.0])
def test_after_an_outage_all_have_the_shards_that_they_had(seconds: float) -> None:
    team = _Team(6, "abc")

    async def day() -> None:
        before = await team.start_all("abc")
        assert sorted(map(len, before.values())) == [2, 2, 2]
        epochs = {shard: row.epoch for shard, row in team.database.worker_leases.items()}
        for _ in range(10):
            await team.cut(seconds, "abc")
            await asyncio.sleep(7.3)
            assert team.held() == before
        assert {shard: row.epoch for shard, row in team.database.worker_leases.items()} == epochs

    team.live(day())


def test_two_outages_with_too_short_a_time_between_them_are_one() -> None:
    """A call that hangs when the first one ends has not ended yet when the second one begins."""
    team = _Team(6, "abc")

    async def day() -> None:
        before = await team.start_all("abc")
        for _ in range(10):
            await team.cut(0.9, "abc")
            await team.cut(0.4, "b")
            await team.cut(0.9, "abc")
            await team.cut(0.7, "b")
            await asyncio.sleep(7.3)
            assert team.held() == before

    team.live(day())


def test_a_worker_that_starts_when_the_outage_ends_takes_nothing_from_healthy_ones() -> None:
    team = _Team(4, "abc")

    async def day() -> None:
        team.start("a")
        team.start("b")
        await asyncio.sleep(12)
        before = team.held()
        outage = asyncio.create_task(team.cut(8.0, "abc"))
        await asyncio.sleep(7.99)
        team.start("c")
        await outage
        await asyncio.sleep(0.5)
        assert team.held() == {**before, "c": []}
        await asyncio.sleep(20)
        assert all(team.held().values()), "shards are given to a worker that has fewer"

    team.live(day())


def test_the_shards_of_a_worker_that_died_are_taken_within_three_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    team = _Team(4, "ab")

    async def day() -> None:
        team.start("a")
        team.start("b")
        await asyncio.sleep(20)
        team.keeping.pop("a").cancel()
        gone = team.holdings.pop("a")
        assert len(gone.leases) == 2
        await asyncio.sleep(3.0)
        assert team.held() == {"b": [0, 1, 2, 3]}

    team.live(day())
    (line,) = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"took over shards \d, \d from worker a, whose leases ran out", line)


def test_the_shards_of_a_worker_that_died_in_an_outage_are_taken_after_it() -> None:
    team = _Team(4, "ab")

    async def day() -> None:
        team.start("a")
        team.start("b")
        await asyncio.sleep(20)
        outage = asyncio.create_task(team.cut(8.0, "ab"))
        await asyncio.sleep(1.0)
        team.keeping.pop("a").cancel()
        team.holdings.pop("a")
        await outage
        await asyncio.sleep(2.0 + returning_seconds + 1.0)
        assert team.held() == {"b": [0, 1, 2, 3]}

    team.live(day())


def test_a_lease_that_was_lost_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    team = _Team(2, "ab")

    async def day() -> None:
        team.start("a")
        await asyncio.sleep(3)
        assert team.held() == {"a": [0, 1]}
        drop_lease(team.database.worker_leases[1])
        assert await team.ledgers["b"].acquire("b", 30.0, [1])
        await asyncio.sleep(1)
        holding = team.holdings["a"]
        assert not team.keeping["a"].done()
        assert list(holding.leases) == [0]
        assert list(holding.lost) == [1]

    team.live(day())
