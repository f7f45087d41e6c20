"""Lives days on real servers and prints what struck and what held: ``python -m tests.chaos.run --seeds 20``.

The exit code is 1 where an invariant was violated. With ``--build`` a build that is broken on purpose runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from tests.chaos.broken import BUILDS
from tests.chaos.day import Lived, Shape, live

_LINE = "  {:<40} {:>10,}"
_FOUND_MAX = 12


def table(title: str, counts: Counter[str]) -> list[str]:
    """Return the lines of one table."""
    return [title, *(_LINE.format(name, count) for name, count in sorted(counts.items()))]


def report(seed: int, lived: Lived, logs: Path | None) -> None:
    """Print what one day was."""
    kinds = Counter(name for name, _ in lived.found)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(lived.counts.items()))
    print(f"seed {seed}: {dict(kinds) or 'no violation'}; {counts}", flush=True)
    for name, message in lived.found[:_FOUND_MAX]:
        print(f"  {name}: {message[:1000]}", flush=True)
    if logs is not None and lived.found:
        logs.mkdir(parents=True, exist_ok=True)
        (logs / f"seed-{seed}.log").write_text(lived.said)
        (logs / f"seed-{seed}.records").write_text(lived.records)


def main() -> int:
    """Live the days."""
    parser = argparse.ArgumentParser(description="Live days on real servers, and audit them from outside.")
    parser.add_argument("--seeds", type=int, default=20, help="so many days")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=Shape().seconds, help="so long everything fails")
    parser.add_argument("--per-second", type=float, default=Shape().per_second, help="events a second")
    parser.add_argument("--minutes", type=float, default=120.0, help="begin no day after so long")
    parser.add_argument("--build", choices=["sound", *BUILDS], default="sound")
    parser.add_argument(
        "--everything", action="store_true", help="with preemption, gangs and failed bindings"
    )
    parser.add_argument("--logs", type=Path, help="keep there what was printed, sent and written on bad days")
    asked = parser.parse_args()
    shape = Shape(seconds=asked.seconds, per_second=asked.per_second, build=asked.build, logs=asked.logs)
    shape = shape._replace(everything=asked.everything)
    counts: Counter[str] = Counter()
    restarts: Counter[str] = Counter()
    violations: Counter[str] = Counter()
    began = time.monotonic()
    for seed in range(asked.first, asked.first + asked.seeds):
        if time.monotonic() > began + asked.minutes * 60:
            break
        lived = live(seed, shape)
        report(seed, lived, asked.logs)
        counts["seeds"] += 1
        counts += lived.counts
        restarts += lived.restarts
        violations += Counter({name for name, _ in lived.found})
    print("\n".join(table(f"\nfrom seed {asked.first} on in {time.monotonic() - began:.0f} s", counts)))
    print("\n".join(table("\nworkers and relays started over", restarts)))
    print("\n".join(table("\ndays with a violation", violations) if violations else ["\nviolations: 0"]))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
