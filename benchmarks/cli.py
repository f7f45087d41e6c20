"""`berth bench`: measures berth on this machine, and reports the machine and the method."""

from __future__ import annotations

import enum
import signal
from typing import Annotated

import typer

from benchmarks.measured import (
    show_colocation,
    show_domains,
    show_e2e,
    show_engine,
    show_gangs,
    show_json,
    show_memory,
    show_preemption,
    show_query,
    show_shards,
)
from services.cli.options import CommandError
from services.config import Settings

app = typer.Typer(
    help="Measure: the whole way of an event on real servers, or the engine alone.", no_args_is_help=True
)


class BenchFormat(enum.StrEnum):
    """The formats of `-o` here."""

    TABLE = "table"
    JSON = "json"


class WorkloadName(enum.StrEnum):
    """The workloads of the table in ``benchmarks.workloads``."""

    OPENB = "openb"
    PLAIN_500 = "plain-500"
    PLAIN_5000 = "plain-5000"
    GROUPS_1000 = "groups-1000"
    DISTINCT = "distinct"
    SPREAD_ZONE_HARD = "spread-zone-hard"
    SPREAD_ZONE_SOFT = "spread-zone-soft"
    AFFINITY_ZONE = "affinity-zone"
    AFFINITY_HOST_SOFT = "affinity-host-soft"
    ANTI_HOST = "anti-host"
    ANTI_HOST_SOFT = "anti-host-soft"
    MIXED = "mixed"
    NAMESPACES_ANTI = "namespaces-anti"
    NAMESPACES_AFFINITY = "namespaces-affinity"
    DEPLOYMENTS_500 = "deployments-500"


Workloads = Annotated[
    list[WorkloadName] | None,
    typer.Option(
        "--workload",
        "-w",
        metavar="NAME",
        help=f"Which one: {', '.join(WorkloadName)}; again for more. (default: openb)",
    ),
]
Output = Annotated[BenchFormat, typer.Option("--output", "-o", help="How to show it.")]
OtherNodes = Annotated[int | None, typer.Option(min=1, help="Other number of nodes.")]
OtherPods = Annotated[int | None, typer.Option(min=1, help="Other number of measured pods.")]
ProfileName = Annotated[
    str | None, typer.Option(metavar="NAME", help="The built-in profile of the pods; not of a trace.")
]
Timeout = Annotated[float, typer.Option(min=1, help="Seconds after which a measurement is given up.")]


@app.command("e2e")
def e2e(
    workload: Workloads = None,
    nodes: OtherNodes = None,
    pods: OtherPods = None,
    groups: Annotated[int | None, typer.Option(min=1, help="Other number of kinds of pods.")] = None,
    profile: ProfileName = None,
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
        str | None,
        typer.Option(
            metavar="DSN",
            help="Your own empty database; it keeps what was measured. Password: BERTH_POSTGRES_PASSWORD.",
        ),
    ] = None,
    poll_ms: Annotated[
        float, typer.Option(min=0.1, help="How often the ledger is asked how far it is.")
    ] = 5.0,
    timeout: Timeout = 300,
    output: Output = BenchFormat.TABLE,
) -> None:
    """Measure from the first pod produced to the last decision durable, on servers started for it."""
    from benchmarks.e2e import measure
    from benchmarks.report import Options
    from benchmarks.workloads import WORKLOADS, resized

    names = workload or [WorkloadName.OPENB]
    if (kafka is None) != (dsn is None):
        raise CommandError("--kafka and --dsn come together: give both, or none")
    if kafka is not None and embedded:
        raise CommandError("--embedded has no Kafka; leave --kafka and --dsn out")
    if kafka is not None and len(names) * runs > 1:
        raise CommandError("with --kafka and --dsn one measurement is possible: it needs an empty database")
    wanted = [
        resized(WORKLOADS[name], nodes=nodes, pods=pods, groups=groups, profile=profile) for name in names
    ]
    dsn = dsn and Settings.from_env(None, postgres_dsn=dsn).dsn
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # then, too, stop what was started
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
                show_json(reports[-1])
        if output is BenchFormat.TABLE:
            show_e2e(reports)


@app.command("shards")
def shards(
    workers: Annotated[
        list[int] | None,
        typer.Option(min=1, max=64, help="So many workers; again for more. (default: 1, 2, 4)"),
    ] = None,
    shards: Annotated[int, typer.Option(min=1, max=1024, help="Shards, spread over the workers.")] = 4,
    workload: Annotated[
        WorkloadName,
        typer.Option("--workload", "-w", metavar="NAME", help="Which one; as of `bench e2e`."),
    ] = WorkloadName.GROUPS_1000,
    nodes: OtherNodes = None,
    pods: OtherPods = None,
    profile: ProfileName = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0.1, help="Pods offered a second, come what may; else all before the clock starts."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Measure so often, in turns.")] = 1,
    timeout: Timeout = 300,
    output: Output = BenchFormat.TABLE,
) -> None:
    """Measure what several workers do side by side, on servers started for each measurement."""
    from benchmarks.e2e import measure
    from benchmarks.report import Options, Report
    from benchmarks.workloads import WORKLOADS, resized

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # then, too, stop what was started
    what = resized(WORKLOADS[workload], nodes=nodes, pods=pods, profile=profile)
    columns: dict[int, list[Report]] = {count: [] for count in workers or (1, 2, 4)}
    for _ in range(runs):
        for count, reports in columns.items():
            options = Options(
                workload=what,
                shards=shards,
                workers=count,
                rate=rate,
                ahead=rate is None,
                timeout_seconds=timeout,
            )
            reports.append(measure(options))
            if output is BenchFormat.JSON:
                show_json(reports[-1])
    if output is BenchFormat.TABLE:
        show_shards(list(columns.values()))


@app.command("preemption")
def preemption(
    nodes: Annotated[
        list[int] | None,
        typer.Option(min=1, help="So many nodes; again for more. (default: 500, 1000, 5000)"),
    ] = None,
    timeout: Timeout = 300,
    output: Output = BenchFormat.TABLE,
) -> None:
    """Measure how fast pods get the room of others, on servers started for it, with an executor."""
    from benchmarks.preemption import measure

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # then, too, stop what was started
    reports = []
    for count in nodes or (500, 1_000, 5_000):
        reports.append(measure(count, timeout))
        if output is BenchFormat.JSON:
            show_json(reports[-1])
    if output is BenchFormat.TABLE:
        show_preemption(reports)


@app.command("gangs")
def gangs(
    gangs: Annotated[int, typer.Option(min=1, help="Number of gangs.")] = 1_000,
    members: Annotated[int, typer.Option(min=2, max=10_000, help="Pods of each gang.")] = 100,
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes.")] = 5_000,
    timeout: Timeout = 300,
    output: Output = BenchFormat.TABLE,
) -> None:
    """Measure gangs in the engine alone, and on servers started for it."""
    from benchmarks.gangs import measure

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # then, too, stop what was started
    report = measure(gangs, members, nodes, timeout)
    if output is BenchFormat.JSON:
        show_json(report)
    else:
        show_gangs(report)


@app.command("colocation")
def colocation(
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes, each measured every 10 s.")] = 20_000,
    groups: Annotated[int, typer.Option(min=1, help="Groups of low pods that wait for room.")] = 1_000,
    low: Annotated[int, typer.Option(min=1, help="Low pods that wait.")] = 1_000_000,
    rate: Annotated[int, typer.Option(min=1, help="High pods a second, of 1,000 groups.")] = 10_000,
    seconds: Annotated[int, typer.Option(min=1, help="Seconds of log time.")] = 10,
    runs: Annotated[int, typer.Option(min=1, help="How often, in turns.")] = 3,
    output: Output = BenchFormat.TABLE,
) -> None:
    """Measure high pods in the engine alone, and beside measured nodes and low pods that wait."""
    from benchmarks.colocation import Size, measure

    report = measure(Size(nodes, groups, low, rate, seconds), runs)
    if output is BenchFormat.JSON:
        show_json(report)
    else:
        show_colocation(report)


@app.command("query")
def query(
    decisions: Annotated[int, typer.Option(min=10_000, help="Decisions in the ledger.")] = 10_000_000,
    nodes: Annotated[int, typer.Option(min=10, help="Number of nodes.")] = 5_000,
    rate: Annotated[int, typer.Option(min=10, help="Pods a second of log time in the history.")] = 1_000,
    life: Annotated[int, typer.Option(min=4, help="Seconds that a pod stays, a multiple of 4.")] = 100,
    offered: Annotated[int, typer.Option(min=100, help="Decisions a second that are committed.")] = 5_000,
    dsn: Annotated[str, typer.Option(help="An empty database; without it a server is started.")] = "",
    output: Output = BenchFormat.TABLE,
) -> None:
    """Measure the API's answers about millions of decisions, now and of the past, and commits beside them."""
    from benchmarks.query import Size, run

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # then, too, stop what was started
    if life % 4 or decisions // (2 * rate) <= life:
        raise CommandError("--life is a multiple of 4, and shorter than the history of --decisions")
    report = run(Size(decisions, nodes, rate, life), offered, dsn)
    if output is BenchFormat.JSON:
        show_json(report)
    else:
        show_query(report)


@app.command("engine")
def engine(
    workload: Workloads = None,
    parts: Annotated[
        bool,
        typer.Option("--parts", help="The parts by themselves: kernels, a group, all different, a sync."),
    ] = False,
    output: Output = BenchFormat.TABLE,
) -> None:
    """Measure the engine alone, in this process. Without --workload and --parts: everything."""
    from benchmarks.engine import measure

    everything = not workload and not parts
    names = list(WorkloadName) if everything else workload or []
    run = measure(names, parts=parts or everything)
    if output is BenchFormat.JSON:
        show_json(run)
    else:
        show_engine(run)


@app.command("domains")
def domains(
    workload: Annotated[
        list[WorkloadName] | None,
        typer.Option(
            "--workload",
            "-w",
            metavar="NAME",
            help="Only this workload of pods that ask where other pods are; again for more.",
        ),
    ] = None,
    growth: Annotated[
        bool,
        typer.Option("--growth", help="Instead: the cost of a pod by nodes, by groups and by pods placed."),
    ] = False,
    nodes: OtherNodes = None,
    pods: Annotated[int | None, typer.Option(min=1, help="At most so many measured pods.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Measure so often, and take the median.")] = 3,
    output: Output = BenchFormat.TABLE,
) -> None:
    """Measure what pods cost in the engine that ask where other pods are, beside plain pods."""
    from benchmarks import domains as bench

    unknown = [name for name in workload or () if name not in bench.NAMES]
    if unknown:
        raise CommandError(f"{unknown[0]} asks for no other pods; choose from {', '.join(bench.NAMES)}")
    if growth and (workload or nodes or pods):
        raise CommandError("--growth has its own workloads and sizes; leave the others out")
    table = bench.shapes(workload or bench.NAMES, nodes=nodes, pods=pods)
    run = bench.measure(bench.growth() if growth else [table], runs)
    if output is BenchFormat.JSON:
        show_json(run)
    else:
        show_domains(run)


@app.command("memory")
def memory(
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes.")] = 20_000,
    pods: Annotated[int, typer.Option(min=1, help="Number of placed pods.")] = 1_000_000,
    deployments: Annotated[
        bool,
        typer.Option("--deployments", help="Pods of 1,000 Deployments that are spread over zones and nodes."),
    ] = False,
    output: Output = BenchFormat.TABLE,
) -> None:
    """Measure the resident memory of a worker per placed pod: pods that it placed, and a ledger read back."""
    from benchmarks.memory import DEPLOYMENTS, PLAIN, measure

    run = measure(nodes, pods, DEPLOYMENTS if deployments else PLAIN)
    if output is BenchFormat.JSON:
        show_json(run)
    else:
        show_memory(run)
