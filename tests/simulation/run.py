"""Lives many simulated days on all cores and prints what struck and what held.

``python -m tests.simulation.run --seeds 2000``, or ``--faults 1000000`` to go on until so many faults struck;
the noise of producers does not count for that. The exit code is 1 where an invariant was violated or a
process failed; the seeds are shown, and how to replay them. So it is where a run that holds a whole design
(``covering.py``) let a lasting fault not meet a feature of days, or never took a named path. Of each ten days
the first seed is lived once more and planned again from its journal.
"""

from __future__ import annotations

import argparse
import functools
import gc
import logging
import math
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.simulation.covering import DAYS, Pair, features, missed
from tests.simulation.faults import NOISE, Fault
from tests.simulation.invariants import Violation
from tests.simulation.replaying import compare, lived
from tests.simulation.world import World

SEEDS_PER_CHUNK = 10
_SAYS_EVERY_SECONDS = 60.0
_LINE = "  {:<28} {:>12,}"


class Tally:
    """What happened on the days that were lived."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.faults: Counter[Fault] = Counter()
        self.pairs: Counter[Pair] = Counter()  # on how many days a fault struck that had a feature
        self.violations: Counter[str] = Counter()
        self.failures: list[str] = []

    @property
    def struck(self) -> int:
        """How many faults struck, without the noise of producers."""
        return self.faults.total() - sum(self.faults[fault] for fault in NOISE)

    def live(self, seed: int, *, preempts: bool = False) -> None:
        """Live one day."""
        world = World(seed, preempts=preempts)
        try:
            world.run()
        except Violation as violation:
            self.violations.update({invariant.name for invariant, _ in violation.found})
            self._fail(world, seed, violation)
        except Exception as error:
            self.violations["FAILED"] += 1
            self._fail(world, seed, repr(error))
        self.counts.update(world.numbers())
        self.faults.update(world.faults.counts)
        self.pairs.update((f, name) for f in world.faults.counts for name in features(world.kind))

    def replay(self, seed: int) -> None:
        """Live one day without what no journal knows, and plan it again from its journal and log."""
        try:
            compare(lived(seed))
        except Exception as error:
            self.violations["NOT REPLAYED"] += 1
            how = f"compare(lived({seed})) of tests.simulation.replaying"
            self.failures.append(f"seed {seed}: {error!r}\n  replay it with: {how}")
        self.counts["days planned again"] += 1

    def _fail(self, world: World, seed: int, why: object) -> None:
        how = f"python -m tests.simulation.world {seed}{' --preempting' * world.preempts}"
        self.failures.append(f"seed {seed}: {why}\n  replay it with: {how}")

    def add(self, other: Tally) -> None:
        """Add what happened on other days."""
        self.counts += other.counts
        self.faults += other.faults
        self.pairs += other.pairs
        self.violations += other.violations
        self.failures += other.failures

    def table(self) -> Iterator[str]:
        """Return the lines to print."""
        yield from (_LINE.format(name, count) for name, count in self.counts.items())
        yield ""
        yield _LINE.format("faults", self.faults.total())
        yield _LINE.format("  struck", self.struck)
        yield from (_LINE.format(f"    {fault}", self.faults[fault]) for fault in Fault if fault not in NOISE)
        yield _LINE.format("  noise of producers", self.faults.total() - self.struck)
        yield from (_LINE.format(f"    {fault}", self.faults[fault]) for fault in NOISE)
        yield ""
        yield _LINE.format("violations", self.violations.total())
        yield from (_LINE.format(f"  {name}", count) for name, count in sorted(self.violations.items()))


def _start() -> None:
    logging.disable(logging.CRITICAL)
    gc.freeze()  # to look through all modules once a day takes a tenth of it


def _live_chunk(first: int, preempts: bool) -> Tally:
    tally = Tally()
    for seed in range(first, first + SEEDS_PER_CHUNK):
        tally.live(seed, preempts=preempts)
    tally.replay(first)
    return tally


def main() -> int:
    """Live days until there were enough of them, or enough faults."""
    parser = argparse.ArgumentParser(description="Live simulated days, and audit them from outside.")
    parser.add_argument("--seeds", type=int, default=2000, help="so many days, rounded up to tens")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--faults", type=int, default=0, help="go on until so many faults struck")
    parser.add_argument("--preempting", action="store_true", help="have preemption on all days")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--failures", type=int, default=20, help="stop after so many bad days")
    chosen = parser.parse_args()
    began, tally = time.monotonic(), Tally()
    says_at = began + _SAYS_EVERY_SECONDS
    last = sys.maxsize if chosen.faults else chosen.first + chosen.seeds
    live = functools.partial(_live_chunk, preempts=chosen.preempting)
    firsts = range(chosen.first, last, SEEDS_PER_CHUNK)
    # A worker of the pool gives way to a new one after some days, since what it frees stays in pieces.
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), _start, maxtasksperchild=50) as pool:
        for part in pool.imap(live, firsts):  # in their order, so that a second run lives the same days
            tally.add(part)
            for failure in part.failures:
                print(failure, flush=True)
            if time.monotonic() > says_at:
                says_at = time.monotonic() + _SAYS_EVERY_SECONDS
                print(f"{tally.counts['seeds']} days, {tally.struck:,} faults struck", file=sys.stderr)
            enough = chosen.faults and tally.struck >= chosen.faults
            late = time.monotonic() - began > 60 * chosen.minutes
            if enough or late or len(tally.failures) >= chosen.failures:
                break
    seconds = time.monotonic() - began
    print(f"{tally.counts['seeds']} days from seed {chosen.first} on in {seconds:.0f} s")
    print("\n".join(tally.table()))
    days = range(chosen.first, chosen.first + tally.counts["seeds"])
    lacks = list(missed(days, tally.pairs, tally.counts, preempts=chosen.preempting))
    print("\n".join(f"not covered: {each}" for each in lacks) or f"quotas apply to each {DAYS} whole days")
    return 1 if tally.failures or lacks else 0


if __name__ == "__main__":
    sys.exit(main())
