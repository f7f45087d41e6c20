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


def days(seeds: int) -> Iterator[Lived]:
    """Yield the days, one after another: each takes memory."""
    yield asyncio.run(recorded())
    yield asyncio.run(openb_day(_OPENB_PODS, _OPENB_PIECES))
    for seed in range(seeds):
        for preempts in (False, True):
            try:
                yield simulated(seed, preempts=preempts)
            except Violation as violation:
                print(f"simulated {seed}, {preempts=}: not lived to its end: {violation}")


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
    count = 2 + 2 * told.seeds
    for day in days(told.seeds):
        share = 5 if day.name in ("openb", "recorded") else 1
        some = [-(-each * share // (count + 8)) for each in (told.decisions, told.cases)]
        found, written = asyncio.run(_look(day, random, *some))
        total += found
        cases += written
        print(f"{day.name}: {len(day.decisions):,} decisions; {dict(found)}; {dict(written)}", flush=True)
    print(f"decisions: {dict(total)}\ncases: {dict(cases)}\n{time.monotonic() - began:.0f} s")
    wrong = total["different"] + sum(each for name, each in cases.items() if "OTHERWISE" in name)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
