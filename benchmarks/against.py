"""This build beside an earlier one, in turns: ``make bench-against`` or ``python -m benchmarks.against``.

A build is compared with its neighbour when it is made, and each step costs 0 to 3 %. What they cost together
shows beside a build of long ago. That one is taken out of this repository's history into ``build/against``,
with an environment of its own, and kept there. Both build the same workload from nothing for each run, one
after the other, so that what else the machine does meets both alike.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from ops.child import environment

REF = "85ee777"
HERE = Path(__file__).resolve().parent.parent
PROCESSES = ("worker", "relay", "broker", "database", "polling", "bench")
_WARM_UP_PODS = 2_000
_GREATER_IS_BETTER = "decisions/s"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a run's report: a build of long ago has these keys, too."""

    workload: str
    nodes: int
    pods: int
    groups: int
    shards: int
    decisions: int
    decisions_per_second: float
    cpu_seconds: dict[str, float | None]
    machine: dict[str, Any]


class Build(NamedTuple):
    """A build: what it is called, and where it is."""

    name: str
    home: Path

    def bench(self, options: Sequence[str]) -> list[Run]:
        """Run a measurement with these options."""
        command = [str(self.home / ".venv/bin/berth"), "bench", "e2e", *options, "-o", "json"]
        done = _run(command, self.home)
        return [msgspec.json.decode(line, type=Run) for line in done.splitlines() if line.strip()]

    def knows(self, option: str) -> bool:
        """Say whether its command has an option."""
        command = [str(self.home / ".venv/bin/berth"), "bench", "e2e", "--help"]
        return option.encode() in _run(command, self.home)


def checked_out(ref: str) -> Build:
    """Return an earlier build of this repository, made ready if it is not: that takes minutes, once."""
    commit = _git("rev-parse", "--short=12", f"{ref}^{{commit}}").decode().strip()
    home = HERE / "build" / "against" / commit
    if not (home / "Makefile").exists():
        home.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as packed:
            packed.extractall(home, filter="data")
    _run(["make", "--silent", "dev"], home)
    return Build(commit, home)


def _git(*arguments: str) -> bytes:
    return _run(["git", *arguments], HERE)


def _run(command: Sequence[str], home: Path) -> bytes:
    """Run a command of a build to its end, and return what it says; pip's settings go with it."""
    env = environment(*(name for name in os.environ if name.startswith("PIP_")))
    return subprocess.run(command, cwd=home, env=env, stdout=subprocess.PIPE, check=True).stdout


def in_turns(
    builds: Sequence[Build], options: Mapping[str, Sequence[str]], runs: int, say: Callable[[str], None]
) -> dict[str, list[Run]]:
    """Run each build so often, one after the other; ``options`` are those of each, by its name."""
    for build in builds:
        say(f"{build.name}: warming up, which may compile")
        build.bench([*options[build.name], "--pods", str(_WARM_UP_PODS)])
    found: dict[str, list[Run]] = {build.name: [] for build in builds}
    for number in range(runs):
        for build in builds:
            say(f"{build.name}: run {number + 1} of {runs}")
            found[build.name] += build.bench(options[build.name])
    return found


def figures(run: Run) -> dict[str, float]:
    """Return what is compared of a run."""
    costs = {of: seconds for of in PROCESSES if (seconds := run.cpu_seconds.get(of)) is not None}
    each = {f"CPU µs a decision: {of}": seconds * 1e6 / run.decisions for of, seconds in costs.items()}
    berth = sum(seconds for of, seconds in costs.items() if of not in ("polling", "bench"))
    return {
        _GREATER_IS_BETTER: run.decisions_per_second,
        **each,
        "CPU µs a decision: all but polling and bench": berth * 1e6 / run.decisions,
        "load before": float(run.machine["load_1m_before"]),
    }


def table(found: Mapping[str, Sequence[Run]], workload: str) -> list[str]:
    """Return lines of Markdown: of one workload the median of each build with all runs, and their ratio."""
    of_builds = [[figures(run) for run in runs if run.workload == workload] for runs in found.values()]
    first = next(run for runs in found.values() for run in runs if run.workload == workload)
    lines = [
        f"{workload}: {first.nodes:,} nodes, {first.pods:,} pods, {first.groups:,} groups, "
        f"{first.shards} shards, offered as fast as the log takes it",
        "",
        f"|  | {' | '.join(found)} | ratio |",
        f"| --- | {' | '.join('---:' for _ in found)} | ---: |",
    ]
    for name in of_builds[0][0]:
        values = [[each[name] for each in runs if name in each] for runs in of_builds]
        medians = [median(each) for each in values]
        cells = [
            f"{_shown(m)} ({', '.join(map(_shown, each))})" for m, each in zip(medians, values, strict=True)
        ]
        ratio = f"{medians[-1] / medians[0]:.2f}" if medians[0] and name != "load before" else "–"
        lines.append(f"| {name} | {' | '.join(cells)} | {ratio} |")
    return lines


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print one table per workload."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ref", nargs="?", default=REF, help="the earlier build: anything that git knows")
    parser.add_argument(
        "-w", "--workload", action="append", help="as of berth bench e2e; several are allowed"
    )
    parser.add_argument("--runs", type=int, default=3, help="how often each build is measured")
    parser.add_argument("--profile", help="of the pods, for builds whose command has the option")
    told, others = parser.parse_known_args(arguments)
    before, now = checked_out(told.ref), Build("this build", HERE)
    for workload in told.workload or ["groups-1000"]:
        asked = ["-w", workload, *others]
        options = {
            build.name: [*asked, "--profile", told.profile]
            if told.profile and build.knows("--profile")
            else asked
            for build in (before, now)
        }
        found = in_turns((before, now), options, told.runs, lambda text: print(text, file=sys.stderr))
        print("\n".join([*table(found, workload), ""]))


if __name__ == "__main__":
    main()
