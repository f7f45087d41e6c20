"""How measurements are shown: a table for a person, one JSON object on one line for a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from services.cli.output import Column, on_terminal, print_table
from services.cli.terminal import echo

if TYPE_CHECKING:
    from benchmarks.colocation import ColocationReport
    from benchmarks.domains import DomainsRun
    from benchmarks.engine import EngineRun
    from benchmarks.gangs import GangReport
    from benchmarks.memory import MemoryRun
    from benchmarks.preemption import PreemptionReport
    from benchmarks.query import QueryReport
    from benchmarks.report import Report


def show_json(report: Any) -> None:
    """Print one object on one line."""
    echo(msgspec.json.encode(report).decode())


def show_e2e(reports: Sequence[Report]) -> None:
    """Print what was measured: the value of one run, or median (min..max) of several."""
    from benchmarks.statistics import spread

    def over(read: Callable[[Report], float], digits: int = 0) -> str:
        return spread([read(report) for report in reports], digits)

    first = reports[0]
    rows = [
        ("workload", first.workload),
        ("profile", first.profile),
        ("nodes", f"{first.nodes:,}"),
        ("pods", f"{first.pods:,} in {first.groups:,} groups, {first.pods_before:,} before the clock starts"),
        ("shards, workers", f"{first.shards}, {first.workers}"),
        ("log, ledger", f"{first.log}; Postgres {first.versions['postgres']}, {first.ledger}"),
        ("clock", first.clock),
        ("offered pods/s", over(lambda r: r.rate_offered)),
        ("decisions/s", over(lambda r: r.decisions_per_second)),
        ("seconds", over(lambda r: r.seconds, 2)),
        ("placed", over(lambda r: r.placed)),
        ("pending", over(lambda r: r.pending)),
        *((f"latency {key} ms", over(lambda r, k=key: r.latency_ms[k])) for key in first.latency_ms),  # type: ignore[misc]
        ("  counted from", first.produced),
        (
            "  resolution ms",
            f"{over(lambda r: r.poll_ms['median'], 1)}, worst {over(lambda r: r.poll_ms['max'])}",
        ),
        *(
            (f"CPU s {key}", over(lambda r, k=key: r.cpu_seconds[k] or 0, 2))  # type: ignore[misc]
            for key, value in first.cpu_seconds.items()
            if value is not None
        ),
        ("batches", over(lambda r: r.batches)),
        ("plan ms a batch", over(lambda r: r.plan_ms_mean)),
        ("commit ms a batch", over(lambda r: r.commit_ms_mean)),
    ]
    _print_rows(rows)
    _print_machine(first.machine, len(reports))


def show_shards(columns: Sequence[Sequence[Report]]) -> None:
    """Print a line per number of workers: the value of one run, or median (min..max) of several."""
    from benchmarks.statistics import spread

    def over(reports: Sequence[Report], read: Callable[[Report], float | None], digits: int = 0) -> str:
        values = [value for report in reports if (value := read(report)) is not None]
        return spread(values, digits) if values else "–"

    def us(report: Report, kind: str) -> float | None:
        seconds = report.cpu_seconds[kind]
        return None if seconds is None else seconds * 1e6 / report.decisions

    kinds = ("worker", "database", "relay", "broker")
    reads: list[tuple[str, Callable[[Report], float | None], int]] = [
        ("WORKERS", lambda r: r.workers, 0),
        ("OF THEM OWNERS", lambda r: r.owners, 0),
        ("DECISIONS/S", lambda r: r.decisions_per_second, 0),
        ("p99 ms", lambda r: r.latency_ms["p99"], 0),
        *((f"µs OF {kind.upper()}", lambda r, k=kind: us(r, k), 1) for kind in kinds),
        ("% FOLLOWING", lambda r: 100 * r.follow_seconds / (r.cpu_seconds["worker"] or 1), 1),
        ("LAG p99 ms", lambda r: r.follow_lag_p99_ms, 0),
        ("CONFLICTS", lambda r: r.conflicts, 0),
        ("MOVED", lambda r: r.moved, 0),
        ("PENDING", lambda r: r.pending, 0),
        ("STD OF CPU USE", lambda r: r.cpu_use_std, 4),
    ]
    items = [{title: over(runs, read, digits) for title, read, digits in reads} for runs in columns]
    titles = [Column(title, lambda item, t=title: item[t], right=True) for title, _, _ in reads]  # type: ignore[misc]
    print_table("workers", titles, items)
    _print_machine(columns[0][0].machine, len(columns[0]))


def show_preemption(reports: Sequence[PreemptionReport]) -> None:
    """Print a line per number of nodes."""
    kinds = ("worker", "database", "relay", "executor", "broker")
    columns = _columns(
        ("NODES", "nodes"),
        ("PODS", "pods"),
        ("NOMINATIONS/S", "nominations_per_second"),
        ("BOUND/S", "bound_per_second"),
        ("SECONDS", "seconds"),
        ("DECISIONS", "decisions"),
        ("DECISIONS/S", "decisions_per_second"),
        *((f"CPU s {kind.upper()}", f"cpu_seconds.{kind}") for kind in kinds),
    )
    print_table("sizes", columns, [msgspec.to_builtins(report) for report in reports])
    echo(f"the clock {reports[0].clock}")
    _print_machine(reports[0].machine, 1)


def show_gangs(report: GangReport) -> None:
    """Print one line of the engine, and one of the whole way."""
    engine = _columns(
        *(("GANGS", "gangs"), ("PODS EACH", "members"), ("NODES", "nodes")),
        *(
            (f"µs A POD {kind.upper()}", f"engine_us_per_pod.{kind}")
            for kind in ("alone", "in gangs", "undone")
        ),
    )
    kinds = ("worker", "database", "relay", "broker")
    whole = _columns(
        *(("GANGS/S", "gangs_per_second"), ("PODS/S", "pods_per_second"), ("SECONDS", "seconds")),
        *(("DECISIONS", "decisions"), ("BATCHES", "batches")),
        *((f"CPU s {kind.upper()}", f"cpu_seconds.{kind}") for kind in kinds),
    )
    item = [msgspec.to_builtins(report)]
    print_table("engine", engine, item)
    print_table("whole", whole, item)
    echo(f"the clock {report.clock}")
    _print_machine(report.machine, 1)


def show_colocation(report: ColocationReport) -> None:
    """Print one line, with all runs in the order in which they were made."""
    columns = _columns(
        *(("NODES", "nodes"), ("LOW GROUPS", "low_groups"), ("LOW PODS", "low_pods")),
        *(("HIGH PODS", "high_pods"), ("µs A POD ALONE", "alone_us"), ("µs BESIDE", "beside_us")),
        *(("RATIO", "ratio"), ("MEASUREMENTS", "measurements"), ("LOW PLACED", "low_placed")),
    )
    print_table("colocation", columns, [msgspec.to_builtins(report)])
    echo(f"the clock: {report.clock}")
    _print_machine(report.machine, 1)


def show_query(report: QueryReport) -> None:
    """Print a line per question, and how long commits took alone and beside them."""
    columns = _columns(
        *(("QUESTION", "question"), ("TIMES", "times"), ("p50 ms", "p50_ms"), ("p99 ms", "p99_ms")),
        ("BYTES", "answer_bytes"),
    )
    print_table("questions", columns, [msgspec.to_builtins(each) for each in report.asked])
    columns = _columns(
        *(("COMMITS BESIDE", "beside"), ("BATCHES", "batches"), ("OFFERED/s", "offered_per_second")),
        ("PLACED/s", "placed_per_second"),
        *(("p50 ms", "p50_ms"), ("p99 ms", "p99_ms")),
    )
    print_table("commits", columns, [msgspec.to_builtins(each) for each in report.commits])
    echo(
        f"{report.decisions:,} decisions, {report.nodes:,} nodes, {report.placed:,} pods placed, "
        f"{report.shards} shards; generated in {report.generated_seconds:.0f} s"
    )
    echo(f"the clock: {report.clock}")
    _print_machine(report.machine, 1)


def show_engine(run: EngineRun) -> None:
    """Print a line per part, and one per workload."""
    if run.parts:
        columns = (
            *_columns(("PART", "part"), ("NODES", "nodes"), ("PODS", "pods"), ("GROUPS", "groups")),
            Column("MEASURED", lambda item: _spread(item["figure"]), right=True),
            Column("TARGET", _target, right=True),
            Column("TIMES FASTER THAN", lambda item: _pairs(item["times_faster_than"])),
            Column("BESIDES", lambda item: _pairs(item["besides"])),
        )
        print_table("parts", columns, [msgspec.to_builtins(part) for part in run.parts])
    if run.workloads:
        columns = _columns(
            ("WORKLOAD", "workload"),
            ("NODES", "nodes"),
            ("PODS", "pods"),
            ("GROUPS", "groups"),
            ("PODS/CYCLE", "pods_per_cycle"),
            ("DECODE µs/POD", "decode_us_per_pod"),
            ("FOLD µs/POD", "fold_us_per_pod"),
            ("CYCLE µs/POD", "cycle_us_per_pod"),
            ("PODS/S", "pods_per_second"),
            ("CYCLE ms MEDIAN", "cycle_ms.median"),
        )
        print_table("workloads", columns, [msgspec.to_builtins(report) for report in run.workloads])
    echo(f"first cycle of the process, which compiles or loads: {run.first_cycle_seconds:g} s")
    _print_machine(run.machine, 1)


def _number(value: float) -> str:
    from benchmarks.statistics import number

    return number(value)


def _spread(figure: dict[str, Any]) -> str:
    median, low, high = (_number(figure[key]) for key in ("median", "min", "max"))
    return f"{median} {figure['unit']} ({low}..{high})"


def _target(item: dict[str, Any]) -> str:
    if item["target"] is None:
        return ""
    bound = "at least" if item["figure"]["unit"].endswith("/s") else "at most"
    return f"{bound} {_number(item['target'])}"


def _pairs(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {_number(value)}" for name, value in values.items())


def show_memory(run: MemoryRun) -> None:
    """Print a line per way."""
    columns = _columns(
        ("WAY", "way"),
        ("SHAPE", "shape"),
        ("NODES", "nodes"),
        ("PODS", "pods"),
        ("BYTES/POD", "bytes_per_pod"),
        ("TARGET", "bytes_per_pod_target"),
        ("OVER BASELINE", "bytes_per_pod_over_baseline"),
        ("RESIDENT", "resident_bytes"),
        ("PEAK", "peak_bytes"),
        ("BASELINE", "baseline_bytes"),
        ("SECONDS", "seconds"),
        ("NEXT BATCH s", "first_batch_seconds"),
    )
    print_table("ways", columns, [msgspec.to_builtins(report) for report in run.ways])
    _print_machine(run.machine, 1)


def show_domains(run: DomainsRun) -> None:
    """Print a line per row."""
    columns = _columns(
        ("WORKLOAD", "workload"),
        ("PROFILE", "profile"),
        ("BY", "table"),
        ("NODES", "nodes"),
        ("PODS BEFORE", "pods_before"),
        ("PODS", "pods"),
        ("GROUPS", "groups"),
        ("FOLD µs/POD", "fold_us_per_pod"),
        ("CYCLE µs/POD", "cycle_us_per_pod"),
        ("BOTH", "us_per_pod"),
        ("TIMES THE FIRST", "times_first"),
        ("AT MOST", "times_first_target"),
    )
    print_table("rows", columns, [msgspec.to_builtins(row) for row in run.domains])
    _print_machine(run.machine, run.runs)


def _columns(*titles: tuple[str, str]) -> tuple[Column, ...]:
    """Return columns by title and key; ``a.b`` is key ``b`` of what stands under ``a``."""

    def read(path: str) -> Callable[[dict[str, Any]], object]:
        def value(item: Any) -> object:
            for key in path.split("."):
                item = item[key]
            return item

        return value

    return tuple(Column(title, read(path), right=i > 0) for i, (title, path) in enumerate(titles))


def _print_rows(rows: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows) if on_terminal() else 0
    for name, value in rows:
        echo(f"{name:{width}}  {value}" if width else f"{name.strip()}\t{value}")


def _print_machine(machine: dict[str, Any], runs: int) -> None:
    memory_gib = machine["memory_bytes"] / (1 << 30)
    echo(
        f"{runs} run{'s' if runs > 1 else ''} on {machine['cores']} cores ({machine['model']}), which do "
        f"{machine['parallel_speedup']:g} times the work of one, "
        f"{memory_gib:.0f} GiB, {machine['system']}, load {machine['load_1m_before']:g} before"
    )
