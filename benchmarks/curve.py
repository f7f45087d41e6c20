"""`python -m benchmarks.curve`: decisions a second with 1 to 64 workers, from measured service times.

A model, and no measurement: each worker has one processor and goes through the loop of ``services/worker``.
It folds what others decided, plans a batch while the one before commits, and waits where that one is not in.
The database has some processors, and a commit keeps one busy. Nodes have room for so many equal pods. As many
leave as come, so that the cluster stays as full as it was. A worker takes the emptiest of its home nodes, and
others where none has room, by what it has followed. The ledger grants what fits; who lost tries again.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
from collections import deque

import numpy as np

NODES = 20_000
ROOM = 50  # pods on an empty node
WORKERS = (1, 2, 4, 8, 16, 32, 64)


@dataclasses.dataclass(frozen=True)
class Costs:
    """Microseconds of one processor for a decision, and the rest of a batch in milliseconds.

    ``plan`` is what a worker does for a decision of its own, ``follow`` what each other worker does for it,
    ``commit`` what the database does.
    """

    plan_us: float = 72.0
    follow_us: float = 3.3
    commit_us: float = 22.0
    fsync_ms: float = 2.0
    poll_ms: float = 15.0
    batch: int = 1_000
    database_cores: int = 16


@dataclasses.dataclass
class _Worker:
    """``seen`` is how many batches of the journal it has folded; ``free_at`` when its commit is in."""

    home: np.ndarray
    used: np.ndarray  # pods on each node, as this worker knows it
    seen: int = 0
    free_at: float = 0.0
    following: float = 0.0
    planning: float = 0.0


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run with so many workers came to, in the time that was measured."""

    workers: int
    rate: float
    planning: float  # share of the workers' time
    following: float
    database_cores: float
    conflicts: float  # share of attempts


def run(workers_count: int, costs: Costs, *, fill: float, batches: int, seed: int = 7) -> Result:
    """Let workers place pods from this fill on, for so many batches in all."""
    rng = np.random.default_rng(seed)
    used = np.clip(rng.binomial(ROOM, fill, NODES), 0, ROOM).astype(np.int16)
    homes = rng.integers(workers_count, size=NODES)
    crew = [_Worker(np.flatnonzero(homes == n), used.copy()) for n in range(workers_count)]
    journal: list[tuple[float, int, np.ndarray]] = []  # when it is in, whose, nodes
    cores = [0.0] * costs.database_cores
    turns = [(rng.uniform(0.0, 0.05), n) for n in range(workers_count)]
    heapq.heapify(turns)
    arriving: deque[tuple[float, int, np.ndarray]] = deque()
    attempts = conflicts = 0
    database_busy = end = 0.0
    while len(journal) + len(arriving) < batches:
        now, number = heapq.heappop(turns)
        _land(arriving, journal, used, crew, now, rng)
        worker = crew[number]
        foreign = _follow(worker, number, journal, now - costs.poll_ms / 2e3)
        worker.following += foreign * costs.follow_us * 1e-6
        planned_at = now + (foreign * costs.follow_us + costs.batch * costs.plan_us) * 1e-6
        worker.planning += costs.batch * costs.plan_us * 1e-6
        nodes = _choose(worker, costs.batch, rng)
        worker.used[nodes] += 1
        begins = max(planned_at, worker.free_at)
        core = heapq.heappop(cores)
        busy = costs.batch * costs.commit_us * 1e-6
        done = max(begins, core) + busy + costs.fsync_ms * 1e-3
        heapq.heappush(cores, max(begins, core) + busy)
        database_busy += busy
        worker.free_at = end = done
        arriving.append((done, number, nodes))
        attempts += len(nodes)
        heapq.heappush(turns, (begins, number))
    _land(arriving, journal, used, crew, end + 1.0, rng)
    placed = sum(len(nodes) for _, _, nodes in journal)
    conflicts = attempts - placed
    spent = workers_count * end
    return Result(
        workers=workers_count,
        rate=placed / end,
        planning=sum(each.planning for each in crew) / spent,
        following=sum(each.following for each in crew) / spent,
        database_cores=database_busy / end,
        conflicts=conflicts / max(attempts, 1),
    )


def _choose(worker: _Worker, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return a node for each pod of a batch: the emptiest at home, then the emptiest of all."""
    room = ROOM - worker.used[worker.home]
    at_home = _emptiest(worker.home, room, count, rng)
    if len(at_home) == count:
        return at_home
    away = ROOM - worker.used
    away[worker.home] = 0
    return np.concatenate([at_home, _emptiest(np.arange(NODES), away, count - len(at_home), rng)])


def _emptiest(nodes: np.ndarray, room: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the emptiest nodes, each once, as pods would find them one after another."""
    found = np.flatnonzero(room > 0)
    order = found[np.lexsort((rng.random(len(found)), -room[found]))]
    return nodes[order[:count]]


def _follow(worker: _Worker, number: int, journal: list[tuple[float, int, np.ndarray]], until: float) -> int:
    """Fold what is in the journal by then; return how many decisions of others it was."""
    foreign = 0
    while worker.seen < len(journal) and journal[worker.seen][0] <= until:
        _, whose, nodes = journal[worker.seen]
        worker.seen += 1
        if whose != number:
            worker.used[nodes] += 1
            foreign += len(nodes)
    return foreign


def _land(
    arriving: deque[tuple[float, int, np.ndarray]],
    journal: list[tuple[float, int, np.ndarray]],
    used: np.ndarray,
    crew: list[_Worker],
    now: float,
    rng: np.random.Generator,
) -> None:
    """Let the ledger judge the commits that are in by now, one after another, and as many pods leave."""
    for item in sorted((each for each in arriving if each[0] <= now), key=lambda each: each[0]):
        arriving.remove(item)
        at, whose, nodes = item
        fits = used[nodes] < ROOM
        used[nodes[fits]] += 1
        crew[whose].used[nodes[~fits]] -= 1
        journal.append((at, whose, nodes[fits]))
        left = rng.choice(np.flatnonzero(used), int(fits.sum()), replace=False)
        used[left] -= 1
        for worker in crew:  # what that costs is among the costs of a decision
            worker.used[left] -= 1


def main() -> None:
    """Print a table for each fill."""
    parser = argparse.ArgumentParser(description="Model the throughput of many workers.")
    defaults = Costs()
    for field in dataclasses.fields(Costs):
        name, value = field.name.replace("_", "-"), getattr(defaults, field.name)
        parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--batches", type=int, default=1_500, help="of all workers")
    told = vars(parser.parse_args())
    batches = told.pop("batches")
    costs = Costs(**told)
    print(costs)
    for fill in (0.5, 0.9, 0.98):
        print(f"\nnodes {fill:.0%} full")
        print("| workers | decisions/s | a worker | planning | following | database processors | conflicts |")
        print("|---|---|---|---|---|---|---|")
        for count in WORKERS:
            each = run(count, costs, fill=fill, batches=min(batches, 20 * count + 50))
            print(
                f"| {count} | {each.rate:,.0f} | {each.rate / count:,.0f} | {each.planning:.0%} | "
                f"{each.following:.0%} | {each.database_cores:.1f} | {each.conflicts:.2%} |"
            )


if __name__ == "__main__":
    main()
