"""Many seeded scenarios against kube-scheduler's own code: ``python -m tests.upstream.nightly [FIRST:LAST]``.

Each scenario is made of its seed alone. Differences are counted by family and kind, and the first ones of
each kind are printed with their seed. ``--write DIR`` also writes the scenarios that differ, for
``berth plan -f``; ``--family NAME``, once or more often, runs only the seeds of these families.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.upstream.compare import BY_INTENT, Difference, compared
from tests.upstream.program import NotBuilt, Program, build
from tests.upstream.scenarios import FAMILIES, PREEMPTING, family_of, scenario_of
from tests.ways import choose_way

SHOWN_MAX = 3  # differences of a kind and family that are printed

_program: list[Program] = []  # the one of this worker process


def _start(binary: Path) -> None:
    _program.append(Program(binary))


def outcome_of(seed: int) -> tuple[int, int, list[Difference]]:
    """Return the seed, how many pods were compared, and what differs."""
    try:
        choose_way(seed // 8)  # families take turns
        pods, found = compared(_program[0], scenario_of(seed))
    except Exception:  # whatever it is, the seed is what has to be known
        return seed, 0, [Difference("", "failed", traceback.format_exc()[-1500:])]
    return seed, pods, found


def main(arguments: list[str]) -> int:
    """Run the seeds; return 1 if anything differs, 2 if the program cannot be built."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("seeds", nargs="?", default="0:1000", help="FIRST:LAST, without LAST")
    parser.add_argument("--family", action="append", choices=[*FAMILIES, *PREEMPTING])
    parser.add_argument("--write", type=Path, metavar="DIR")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    asked = parser.parse_args(arguments)
    first, _, last = asked.seeds.partition(":")
    seeds = [s for s in range(int(first), int(last)) if not asked.family or family_of(s) in asked.family]
    print("building kube-scheduler's plugins, minutes the first time", flush=True)
    try:
        binary = build()
    except NotBuilt as error:
        print(error)
        return 2
    began, pods, differing, unlike, intended = time.monotonic(), 0, 0, 0, 0
    counts: Counter[tuple[str, str]] = Counter()
    with multiprocessing.get_context("spawn").Pool(asked.workers, _start, (binary,)) as workers:
        for seed, compared_count, found in workers.imap(outcome_of, seeds, chunksize=8):
            pods += compared_count
            real = [each for each in found if each.what != BY_INTENT]
            intended += len(found) - len(real)
            differing += bool(real)
            unlike += len({each.pod for each in real})
            for each in found:
                kind = (family_of(seed), each.what)
                counts[kind] += 1
                if counts[kind] <= SHOWN_MAX:
                    print(f"seed {seed} ({kind[0]}) {each.pod}: {each.what}: {each.detail}", flush=True)
            if found and asked.write:
                asked.write.mkdir(parents=True, exist_ok=True)
                scenario = json.dumps(scenario_of(seed), indent=1)
                (asked.write / f"seed-{seed}.json").write_text(scenario)
    for (family, what), count in sorted(counts.items()):
        print(f"{count:8} {family}: {what}")
    print(
        f"{len(seeds)} scenarios, {pods} pods, {time.monotonic() - began:.0f} s: "
        f"{differing} scenarios and {unlike} pods differ, {intended} by intent"
    )
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
