"""`berth bench`: measures berth on this machine, and says on what and how."""

from __future__ import annotations

import enum
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.commands.options import CommandError
from services.commands.output import Column, on_terminal, print_table

if TYPE_CHECKING:
    from services.bench.engine import EngineRun
    from services.bench.report import Report

app = typer.Typer(
    help="Measure: the whole way of an event on real servers, or the engine alone.", no_args_is_help=True
)


class BenchFormat(enum.StrEnum):
    """What `-o` takes here."""

    TABLE = "table"
    JSON = "json"


class WorkloadName(enum.StrEnum):
    """The workloads of the table in ``services.bench.workloads``."""

    OPENB = "openb"
    PLAIN_500 = "plain-500"
    PLAIN_5000 = "plain-5000"
    GROUPS_1000 = "groups-1000"
    DISTINCT = "distinct"


Workloads = Annotated[
    list[WorkloadName] | None,
    typer.Option("--workload", "-w", help="Which one; give it again for more. [default: openb]"),
]
Output = Annotated[BenchFormat, typer.Option("--output", "-o", help="How to show it.")]


@app.command("e2e")
def e2e(
    workload: Workloads = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Other number of nodes.")] = None,
    pods: Annotated[int | None, typer.Option(min=1, help="Other number of measured pods.")] = None,
    groups: Annotated[int | None, typer.Option(min=1, help="Other number of kinds of pods.")] = None,
    shards: Annotated[int, typer.Option(min=1, max=1024, help="Shards, all of one worker.")] = 1,
    rate: Annotated[
        float | None, typer.Option(min=0.1, help="Pods offered a second, come what may; else unbounded.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Measure so often, each time from nothing.")] = 1,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="On the embedded Postgres alone, without Kafka.")
    ] = False,
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Your own broker; it keeps what was measured.")
    ] = None,
    dsn: Annotated[
        str | None, typer.Option(metavar="DSN", help="Your own empty database; it keeps what was measured.")
    ] = None,
    poll_ms: Annotated[
        float, typer.Option(min=0.1, help="How often the ledger is asked how far it is.")
    ] = 5.0,
    timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which a measurement is given up.")
    ] = 300,
    output: Output = BenchFormat.TABLE,
) -> None:
    """Measure from the first pod produced to the last decision durable, on servers started for it."""
    from services.bench.e2e import measure
    from services.bench.report import Options
    from services.bench.workloads import WORKLOADS, resized

    names = workload or [WorkloadName.OPENB]
    if (kafka is None) != (dsn is None):
        raise CommandError("--kafka and --dsn come together: give both, or none")
    if kafka is not None and embedded:
        raise CommandError("--embedded has no Kafka; leave --kafka and --dsn out")
    if kafka is not None and len(names) * runs > 1:
        raise CommandError("with --kafka and --dsn one measurement is possible: it needs an empty database")
    wanted = [resized(WORKLOADS[name], nodes=nodes, pods=pods, groups=groups) for name in names]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is to be stopped then too
    for each in wanted:
        options = Options(
            workload=each,
            shards=shards,
            rate=rate,
            embedded=embedded,
            kafka=kafka,
            dsn=dsn,
            poll_ms=poll_ms,
            timeout_seconds=timeout,
        )
        reports = []
        for _ in range(runs):
            reports.append(measure(options))
            if output is BenchFormat.JSON:
                _print_json(reports[-1])
        if output is BenchFormat.TABLE:
            _print_e2e(reports)


@app.command("engine")
def engine(workload: Workloads = None, output: Output = BenchFormat.TABLE) -> None:
    """Measure decode, fold and cycle alone, in this process. Without --workload: all of them."""
    from services.bench.engine import measure

    run = measure(workload or list(WorkloadName))
    if output is BenchFormat.JSON:
        _print_json(run)
    else:
        _print_engine(run)


def _print_json(report: Any) -> None:
    """Print one object on one line."""
    import msgspec

    typer.echo(msgspec.json.encode(report).decode())


def _print_e2e(reports: Sequence[Report]) -> None:
    """Print what was measured: the value of one run, or median (min..max) of several."""
    from services.bench.statistics import spread

    def over(read: Callable[[Report], float], digits: int = 0) -> str:
        return spread([read(report) for report in reports], digits)

    first = reports[0]
    rows = [
        ("workload", first.workload),
        ("nodes", f"{first.nodes:,}"),
        ("pods", f"{first.pods:,} in {first.groups:,} groups, {first.pods_before:,} before the clock starts"),
        ("shards, workers", f"{first.shards}, 1"),
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


def _print_engine(run: EngineRun) -> None:
    columns = (
        Column("WORKLOAD", lambda item: item["workload"]),
        *(
            Column(title, lambda item, k=key: item[k], right=True)  # type: ignore[misc]
            for title, key in (
                ("NODES", "nodes"),
                ("PODS", "pods"),
                ("GROUPS", "groups"),
                ("PODS/CYCLE", "pods_per_cycle"),
                ("DECODE µs/POD", "decode_us_per_pod"),
                ("FOLD µs/POD", "fold_us_per_pod"),
                ("CYCLE µs/POD", "cycle_us_per_pod"),
                ("PODS/S", "pods_per_second"),
            )
        ),
        Column("CYCLE ms MEDIAN", lambda item: item["cycle_ms"]["median"], right=True),
    )
    import msgspec

    print_table("workloads", columns, [msgspec.to_builtins(report) for report in run.workloads])
    typer.echo(f"first cycle of the process, which compiles or loads: {run.first_cycle_seconds:g} s")
    _print_machine(run.machine, 1)


def _print_rows(rows: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows) if on_terminal() else 0
    for name, value in rows:
        typer.echo(f"{name:{width}}  {value}" if width else f"{name.strip()}\t{value}")


def _print_machine(machine: dict[str, Any], runs: int) -> None:
    memory_gib = machine["memory_bytes"] / (1 << 30)
    typer.echo(
        f"{runs} run{'s' if runs > 1 else ''} on {machine['cores']} cores ({machine['model']}), "
        f"{memory_gib:.0f} GiB, {machine['system']}, load {machine['load_1m_before']:g} before"
    )
