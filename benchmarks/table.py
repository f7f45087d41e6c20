"""Reports of `berth bench e2e -o json` as a Markdown table: ``python -m benchmarks.table < reports``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from services.bench.report import Report
from services.bench.statistics import spread


class Line(NamedTuple):
    """A line of the table: what it is called, how it is read from one report, digits shown."""

    title: str
    read: Callable[[Report], float | None]
    digits: int = 0


LINES = (
    Line("nodes", lambda r: r.nodes),
    Line("pods before the clock", lambda r: r.pods_before),
    Line("pods measured", lambda r: r.pods),
    Line("groups", lambda r: r.groups),
    Line("shards", lambda r: r.shards),
    Line("offered pods/s", lambda r: r.rate_offered),
    Line("**decisions/s**", lambda r: r.decisions_per_second),
    Line("pending at the end", lambda r: r.pending),
    Line("latency p50 ms", lambda r: r.latency_ms["p50"]),
    Line("latency p99 ms", lambda r: r.latency_ms["p99"]),
    Line("CPU s worker", lambda r: r.cpu_seconds["worker"], 2),
    Line("CPU s relay", lambda r: r.cpu_seconds["relay"], 2),
    Line("CPU s broker", lambda r: r.cpu_seconds["broker"], 2),
    Line("CPU s database", lambda r: r.cpu_seconds["database"], 2),
    Line("CPU s bench and its polls", lambda r: sum(r.cpu_seconds[k] or 0 for k in ("bench", "polling")), 2),
    Line("batches", lambda r: r.batches),
    Line("plan ms a batch", lambda r: r.plan_ms_mean),
    Line("commit ms a batch", lambda r: r.commit_ms_mean),
    Line("load before", lambda r: float(r.machine["load_1m_before"]), 1),
)


def markdown(reports: Iterable[Report]) -> list[str]:
    """Return the lines of a table with one column per workload and offered rate."""
    columns: dict[str, list[Report]] = {}
    for report in reports:
        title = report.workload + (f" at {report.rate_asked:g}/s" if report.rate_asked else "")
        columns.setdefault(title, []).append(report)
    rows = [["", *columns], ["---", *("---:" for _ in columns)]]
    rows += [[line.title, *(_cell(line, runs) for runs in columns.values())] for line in LINES]
    return [f"| {' | '.join(row)} |" for row in rows]


def _cell(line: Line, runs: list[Report]) -> str:
    values = [value for run in runs if (value := line.read(run)) is not None]
    if not values:
        return "–"
    return spread(values[:1] if len(set(values)) == 1 else values, line.digits)


def main(lines: Any) -> None:
    """Print the table."""
    print("\n".join(markdown(msgspec.json.decode(line, type=Report) for line in lines if line.strip())))


if __name__ == "__main__":
    main(sys.stdin)
