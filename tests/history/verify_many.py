"""Verifies random decisions of many days, and writes some of them as cases that `berth plan` answers alike.

``python -m tests.history.verify_many`` takes the recorded day, simulated days (several workers, conflicts,
gangs, preemption, moves) and openb. The exit code is 1 where a decision differs, or where a case is answered
otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from random import Random

from tests.history.lived import Lived, answered, cases_of, openb_day, recorded, simulated, verify_some
from tests.simulation.invariants import Violation

_OPENB_PODS, _OPENB_PIECES = 8_152, 80


def days(seeds: int) -> Iterator[tuple[Lived, int]]:
    """Yield the days, one after another, as each takes memory; and a share of all: 1 of so many.

    Days without a fault of the log come last and make up for those that cannot be planned again.
    """
    for seed in range(seeds):
        for preempts in (False, True):
            try:
                yield simulated(seed, preempts=preempts), 2 * seeds + 8 - 2 * seed - preempts
            except Violation as violation:
                print(f"simulated {seed}, {preempts=}: not lived to its end: {violation}")
    yield asyncio.run(recorded()), 2
    yield asyncio.run(openb_day(_OPENB_PODS, _OPENB_PIECES)), 1


async def _look(day: Lived, random: Random, verify: int, write: int) -> tuple[Counter[str], Counter[str]]:
    found, cases = await verify_some(day, random, verify), Counter[str]()
    async for outcome, document in cases_of(day, random, write):
        if document is None:
            cases[f"{outcome}: cannot be written"] += 1
            continue
        wanted = document["expect"]
        is_alike = answered(document) == (wanted.get("node"), wanted["reasons"])
        cases[f"{outcome}: {'answered alike' if is_alike else 'ANSWERED OTHERWISE'}"] += 1
    return found, cases


def main() -> None:
    """Verify, write and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=1_000)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1, help="Of the random choice.")
    told = parser.parse_args()
    logging.disable(logging.CRITICAL)
    random, total, cases, began = Random(told.seed), Counter[str](), Counter[str](), time.monotonic()
    for day, share in days(told.seeds):
        left = told.decisions - total["same"] - total["different"], told.cases - cases.total()
        some = [-(-each // share) for each in left]
        found, written = asyncio.run(_look(day, random, *some))
        total += found
        cases += written
        print(f"{day.name}: {len(day.decisions):,} decisions; {dict(found)}; {dict(written)}", flush=True)
    print(f"decisions: {dict(total)}\ncases: {dict(cases)}\n{time.monotonic() - began:.0f} s")
    wrong = total["different"] + sum(each for name, each in cases.items() if "OTHERWISE" in name)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
