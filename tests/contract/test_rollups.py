"""Is each decision counted exactly once, whoever counts, dies and prunes, and is each step sampled once?"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
import pytest_asyncio

from domain.model.decisions import Decision, Outcome
from domain.model.usage import SeriesRecord
from services.adapters.memory.rollups import MemoryRollups
from services.adapters.postgres.rollups import PostgresRollups
from services.ports.ledger import Committed, Lease, Ledger
from services.ports.rollups import STEP_MS, By, Figure, Rollups, UsageFilter, UsagePoint
from services.ports.store import Store
from tests.batches import batch_of
from tests.contract.batches import AT_MS, advance, decision, everything, record, usage
from tests.contract.ledgers import SHARDS, Backend, MemoryBackend, PostgresBackend, start

FIRST_MS = AT_MS - AT_MS % STEP_MS
NAMES = ("a", "b", "ä")
OUTCOMES = (Outcome.BOUND, Outcome.UNSCHEDULABLE, Outcome.EVICTED, Outcome.RELEASED)


@pytest_asyncio.fixture
async def leases(ledger: Ledger) -> list[Lease]:
    """Return the leases of all shards."""
    return await start(ledger, SHARDS)


def roller(backend: Backend) -> Rollups:
    """Return what rolls up, as another process would open it."""
    if isinstance(backend, MemoryBackend):
        return MemoryRollups(backend.database)
    assert isinstance(backend, PostgresBackend)
    return PostgresRollups(backend.dsn)


async def points(store: Store, by: By = By.NAMESPACE, **asked: Any) -> list[UsagePoint]:
    """Return all points, page by page."""
    which = UsageFilter(
        **{"since_ms": FIRST_MS, "until_ms": FIRST_MS + 100 * STEP_MS, "span_ms": STEP_MS, "by": by, **asked}
    )
    found: list[UsagePoint] = []
    while True:
        page = await store.over_time.points(which, 3, (found[-1].at_ms, found[-1].name) if found else None)
        found += page
        if not page.more:
            return found


def made(lease: Lease, seq: int, dice: random.Random) -> Decision:
    """Return a decision of any namespace, node, outcome and step."""
    node = dice.choice(("n1", "n2", None))
    given = {"namespace": dice.choice(NAMES), "outcome": dice.choice(OUTCOMES)}
    at_ms = FIRST_MS + dice.randrange(4 * STEP_MS)
    return decision(lease, seq, f"p{lease.shard}-{seq}", node, decided_at_ms=at_ms, **given)


class Deciding:
    """Commits batches of decisions, and counts them itself."""

    def __init__(self, ledger: Ledger, leases: list[Lease], dice: random.Random) -> None:
        self._ledger, self._leases, self._dice = ledger, leases, dice
        self._seqs = {lease.shard: 0 for lease in leases}
        self.by_namespace = Counter[tuple[int, str, str]]()
        self.by_node = Counter[tuple[int, str, str]]()

    async def commit(self) -> None:
        """Commit a batch of some decisions of a shard."""
        lease = self._dice.choice(self._leases)
        first = self._seqs[lease.shard]
        count = self._dice.randrange(1, 8)
        some = [made(lease, first + at, self._dice) for at in range(1, count + 1)]
        batch = batch_of(
            advances=[advance(lease, first, first + count)],
            made=[record(each) for each in some],
            seq_next={lease.shard: first + count + 1},
            log_time_ms=FIRST_MS,
        )
        assert await self._ledger.commit(batch) == Committed()
        self._seqs[lease.shard] += count
        for each in some:
            step_ms = each.decided_at_ms - each.decided_at_ms % STEP_MS
            self.by_namespace[step_ms, each.namespace, each.outcome] += 1
            if each.node is not None:
                self.by_node[step_ms, each.node, each.outcome] += 1


def counted(found: list[UsagePoint]) -> Counter[tuple[int, str, str]]:
    return Counter(
        {(each.at_ms, each.name, outcome): n for each in found for outcome, n in each.decisions.items()}
    )


async def _roll_up(backend: Backend, dice: random.Random) -> None:
    """Count a few decisions at a time until all are; die in the middle, now and then, and begin anew."""
    rollups, idle = roller(backend), 0
    while idle < 3:
        work = asyncio.create_task(rollups.count(dice.randrange(1, 5)))
        if dice.random() < 0.4:
            await asyncio.wait([work], timeout=dice.random() * 0.004)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await rollups.aclose()
            rollups, idle = roller(backend), 0
        else:
            idle = 0 if await work else idle + 1
        await asyncio.sleep(0.002 * dice.random())
    await rollups.aclose()


async def prune(backend: Backend, below: int) -> None:
    """Delete the first decisions of each shard."""
    if isinstance(backend, MemoryBackend):
        for shard, made in backend.database.decisions.items():
            gone = sum(each.seq < below for each, _ in made)
            del made[:gone], backend.database.recorded_ms[shard][:gone]
        return
    assert isinstance(backend, PostgresBackend)
    await backend.execute(f"DELETE FROM decisions WHERE seq < {below}")


@pytest.mark.parametrize("seed", range(5))
async def test_counts_are_those_of_the_decisions_whoever_counts_and_dies(
    backend: Backend, ledger: Ledger, leases: list[Lease], seed: int
) -> None:
    """Two count at once while decisions are committed, and both die again and again."""
    dice = random.Random(seed)
    deciding, store = Deciding(ledger, leases, dice), backend.store()

    async def decide() -> None:
        for _ in range(25):
            await deciding.commit()
            await asyncio.sleep(0)

    await asyncio.gather(decide(), _roll_up(backend, random.Random(seed + 100)), _roll_up(backend, dice))
    await _roll_up(backend, dice)
    assert counted(await points(store)) == deciding.by_namespace
    assert counted(await points(store, By.NODE)) == deciding.by_node
    cluster = Counter[tuple[int, str, str]]()
    for (step_ms, _, outcome), count in deciding.by_namespace.items():
        cluster[step_ms, "", outcome] += count
    assert counted(await points(store, By.CLUSTER)) == cluster
    rollups = roller(backend)
    assert await rollups.count() == 0
    await rollups.aclose()
    await prune(backend, below=20)
    for _ in range(5):
        await deciding.commit()
    await _roll_up(backend, dice)
    assert counted(await points(store)) == deciding.by_namespace, "what is deleted stays counted"
    assert counted(await points(store, By.NODE)) == deciding.by_node


async def test_spans_join_steps_from_where_they_begin(
    backend: Backend, ledger: Ledger, leases: list[Lease]
) -> None:
    deciding, store = Deciding(ledger, leases, random.Random(7)), backend.store()
    for _ in range(20):
        await deciding.commit()
    await _roll_up(backend, random.Random(7))
    since_ms = FIRST_MS + STEP_MS
    joined = Counter[tuple[int, str, str]]()
    for (step_ms, name, outcome), count in deciding.by_namespace.items():
        if since_ms <= step_ms < since_ms + 3 * STEP_MS:
            joined[since_ms + (step_ms - since_ms) // (2 * STEP_MS) * 2 * STEP_MS, name, outcome] += count
    found = await points(store, since_ms=since_ms, until_ms=since_ms + 3 * STEP_MS, span_ms=2 * STEP_MS)
    assert counted(found) == joined
    seen = await points(store, seen=["ä"])
    assert counted(seen) == Counter({k: n for k, n in deciding.by_namespace.items() if k[1] == "ä"})
    assert counted(await points(store, By.NODE, seen=["ä"])) == Counter()
    of_cluster = counted(await points(store, By.CLUSTER, seen=["ä"]))
    assert of_cluster.total() == counted(seen).total()


async def test_a_step_is_sampled_once_and_means_are_over_samples(
    backend: Backend, ledger: Ledger, leases: list[Lease]
) -> None:
    rollups, others, store = roller(backend), roller(backend), backend.store()
    assert not await rollups.sample(), "no log time has passed"
    assert await ledger.commit(everything(leases[0])) == Committed()
    assert sorted(await asyncio.gather(rollups.sample(), others.sample())) == [False, True]
    assert not await others.sample()
    (found,) = await points(store)
    assert (found.at_ms, found.name, found.samples_count) == (FIRST_MS, "ns", 1)
    assert found.figures == {
        Figure.PODS: 2,
        Figure.PENDING_PODS: 1,
        Figure.REQUESTED_CPU: 200,
        Figure.REQUESTED_MEMORY: 0,
    }
    first, second = await points(store, By.NODE)
    assert (first.name, second.name) == ("n1", "n2")
    assert first.figures[Figure.REQUESTED_CPU] == 100
    assert first.figures[Figure.ALLOCATABLE_CPU] == 8000
    assert first.figures[Figure.MEASURED_CPU] == 0, "it was measured, and is next to nothing"
    assert Figure.MEASURED_MEMORY not in first.figures
    assert Figure.MEASURED_CPU not in second.figures
    (cluster,) = await points(store, By.CLUSTER)
    assert cluster.figures[Figure.ALLOCATABLE_CPU] == 16_000
    assert (cluster.figures[Figure.REQUESTED_CPU], cluster.figures[Figure.PENDING_PODS]) == (350, 1)
    (cluster,) = await points(store, By.CLUSTER, seen=["other"])
    assert (cluster.figures[Figure.REQUESTED_CPU], cluster.figures[Figure.PENDING_PODS]) == (350, 0)
    half = usage(
        "n1", at_ms=AT_MS + STEP_MS, series={"cpu": SeriesRecord(ago_ms=[9, 0], percent=[1.0, 50.0])}
    )
    later = batch_of(
        advances=[advance(leases[0], 5, 6)],
        usage=[half],
        pending_removed=["uid-waits"],
        log_time_ms=AT_MS + STEP_MS,
    )
    assert await ledger.commit(later) == Committed()
    assert await rollups.sample()
    (both, _) = await points(store, By.NODE, span_ms=10 * STEP_MS)
    assert (both.samples_count, both.figures[Figure.MEASURED_CPU]) == (2, 2000)
    assert both.figures[Figure.REQUESTED_CPU] == 100
    (namespace,) = await points(store, span_ms=10 * STEP_MS)
    assert (namespace.figures[Figure.PENDING_PODS], namespace.figures[Figure.PODS]) == (0, 2)
    await rollups.aclose()
    await others.aclose()
