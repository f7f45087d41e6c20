"""Reports of `berth bench ... -o json` as Markdown tables: ``python -m benchmarks.table < reports``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from benchmarks.engine import EngineRun
from benchmarks.memory import MemoryReport, MemoryRun
from benchmarks.report import Report
from benchmarks.statistics import number, spread


class Line(NamedTuple):
    """A line of the table: what it is called, how it is read from one report, digits shown."""

    title: str
    read: Callable[[Report], float | None]
    digits: int = 0


PLAIN = ("numpy", "python")
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
    Line("the cores do so many times the work of one", lambda r: r.machine["parallel_speedup"], 1),
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


def engine_markdown(run: EngineRun) -> list[str]:
    """Return the tables of parts and of workloads, each if there is one."""
    parts: list[tuple[str, ...]] = [
        (
            part.part,
            f"{part.nodes:,}",
            f"**{number(part.figure.median)}** "
            f"({number(part.figure.min)}..{number(part.figure.max)}) {part.figure.unit}",
            "–" if part.target is None else number(part.target),
            *(
                f"{number(part.times_faster_than[key])}" if key in part.times_faster_than else "–"
                for key in PLAIN
            ),
            ", ".join(f"{key} {number(value)}" for key, value in part.besides.items()) or "–",
        )
        for part in run.parts
    ]
    workloads: list[tuple[str, ...]] = [
        (
            each.workload,
            f"{each.nodes:,}",
            f"{each.pods:,}",
            f"{each.groups:,}",
            f"{each.decode_us_per_pod:.1f}",
            f"{each.fold_us_per_pod:.1f}",
            f"{each.cycle_us_per_pod:.1f}",
            f"{each.pods_per_second:,.0f}",
            f"{each.cycle_ms['median']:.1f}",
        )
        for each in run.workloads
    ]
    return [
        *_table("part|nodes|measured|target|times NumPy|times Python|besides", parts),
        *([""] if parts and workloads else []),
        *_table(
            "workload|nodes|pods|groups|decode µs/pod|fold µs/pod|cycle µs/pod|pods/s|cycle ms, median",
            workloads,
        ),
    ]


def memory_markdown(run: MemoryRun) -> list[str]:
    """Return a table with one column per way."""
    lines: tuple[tuple[str, Callable[[MemoryReport], str]], ...] = (
        ("bytes per pod, everything", lambda way: f"{way.bytes_per_pod:,.0f}"),
        ("bytes per pod over the baseline", lambda way: f"{way.bytes_per_pod_over_baseline:,.0f}"),
        ("resident MB", lambda way: f"{way.resident_bytes / 1e6:,.0f}"),
        ("peak MB", lambda way: f"{way.peak_bytes / 1e6:,.0f}"),
        ("baseline MB", lambda way: f"{way.baseline_bytes / 1e6:,.0f}"),
        ("seconds", lambda way: f"{way.seconds:,.1f}"),
    )
    rows = [(title, *(read(way) for way in run.ways)) for title, read in lines]
    return _table("|".join(["", *(way.way for way in run.ways)]), rows)


def _table(titles: str, rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    head = titles.split("|")
    return [f"| {' | '.join(row)} |" for row in (head, ["---", *("---:" for _ in head[1:])], *rows)]


def main(lines: Iterable[str]) -> None:
    """Print the tables. A run of the engine or of the memory gets its own, all reports share one."""
    reports: list[Report] = []
    for line in lines:
        if line.strip():
            keys = msgspec.json.decode(line, type=dict[str, msgspec.Raw]).keys()
            if "parts" in keys:
                print("\n".join(engine_markdown(msgspec.json.decode(line, type=EngineRun))))
            elif "ways" in keys:
                print("\n".join(memory_markdown(msgspec.json.decode(line, type=MemoryRun))))
            else:
                reports.append(msgspec.json.decode(line, type=Report))
    if reports:
        print("\n".join(markdown(reports)))


if __name__ == "__main__":
    main(sys.stdin)
