"""Many seeded cases against the oracle, over all cores: ``python -m tests.oracle.nightly [CASES [FIRST]]``.

Each case is made of its seed alone, and is three: one with all plugins and measured usage (``seeded.py``),
one of 1 to 2,000 nodes and 1 to 5,000 pods with the plain ones, where the oracle decides every pod, and one
of pods that ask for and shun one another, with restarts (``crowds.py``). A seed that fails is printed with
its traceback, and fails again by itself with ``python -m tests.oracle.nightly 1 SEED``.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
from random import Random

from tests.oracle.crowd_pair import CrowdPair, restart_at_random
from tests.oracle.crowds import size_of
from tests.oracle.pair import Pair
from tests.oracle.scenarios import Scenario, World
from tests.oracle.seeded import run_seeded
from tests.ways import choose_way

CASES = 10_000
_WORK_MAX = 60_000  # nodes times pods: the oracle looks at every node for every pod


def scenario_of(seed: int) -> Scenario:
    """Return the case of a seed; a few are large in nodes or in pods."""
    random = Random(seed)
    nodes = int(10 ** random.uniform(0, 3.301))  # 1 to 2,000, small ones as often as large ones
    pods = min(int(10 ** random.uniform(0, 3.7)), max(1, _WORK_MAX // nodes))
    return Scenario(
        seed=seed,
        nodes=nodes,
        pods=pods,
        groups=int(10 ** random.uniform(0, 1.7)),
        resources=random.randint(1, 8),
        cycles=random.randint(1, 6),
        changes=random.randint(0, 12),
        alike=random.random() < 0.5,
        constraints=random.random() < 0.5,
        priorities=random.random() < 0.5,
        own_profiles=random.random() < 0.5,
    )


def failure_of(seed: int) -> tuple[int, str]:
    """Return the seed, and what went wrong, "" if nothing did."""
    try:
        choose_way(seed // 20)  # what is large goes by seed % 20
        run_seeded(seed)
        Pair(World(scenario_of(seed))).run()
        work_max = 20_000 if (seed + 1) % 20 else 400_000  # nodes and pods times pods
        CrowdPair(size_of(seed, work_max=work_max)).run(restart_at_random(seed))
    except Exception:  # whatever it is, the seed is what has to be known
        return seed, traceback.format_exc()
    return seed, ""


def main(cases: int = CASES, first: int = 0) -> int:
    """Run the cases; return 1 if any failed."""
    began, failed = time.monotonic(), 0
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as workers:
        seeds = range(first, first + cases)
        for done, (seed, wrong) in enumerate(workers.imap_unordered(failure_of, seeds, chunksize=8), start=1):
            if wrong:
                failed += 1
                print(f"seed {seed} failed\n{wrong}", flush=True)
            if done % 1_000 == 0 or done == cases:
                print(f"{done:,} of {cases:,}, {failed} failed, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
