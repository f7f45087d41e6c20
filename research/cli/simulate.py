"""`berth simulate`: a trace under several profiles side by side, on a virtual clock."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from research.cli.day import AskedDays, compare_days
from services.cli import inputs, options
from services.cli.options import PLACE, CommandError, with_settings
from services.cli.output import Format, Output
from services.config import Settings

if TYPE_CHECKING:
    from research.simulate.methods import Method
    from research.simulate.running import Every, Run
    from research.simulate.trace import Trace

_LOOKS = 20
_PROFILES = ("default-scheduler", "most-allocated")
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class TraceName(enum.StrEnum):
    """The traces of ``research.simulate.traces``."""

    OPENB = "openb"
    AZURE = "azure"
    ALIBABA = "alibaba"
    TIANCHI = "tianchi"
    IMBALANCE = "imbalance"
    DAY = "day"


class JobQuality(enum.StrEnum):
    """As what the pods of a batch job run."""

    HIGH = "high"
    LOW = "low"


Name = Annotated[
    TraceName | None,
    typer.Argument(
        metavar="TRACE",
        show_choices=False,
        help="openb: a GPU cluster, comes with berth. azure: virtual machines by flavour. alibaba: nodes "
        "that fail. tianchi: containers that use more by day. imbalance: 31 generated nodes. day: generated "
        "services that use more by day.",
    ),
]
FromLog = Annotated[
    bool,
    typer.Option("--from-log", help="Instead of a trace: what the log of a running berth holds."),
]
Profiles = Annotated[
    list[str] | None,
    typer.Option(
        "--profile",
        "-p",
        metavar="NAME",
        help="A built-in profile, a file with one, lns or tbesk (searches), or own (each pod by the profile "
        "that it names); again for more. "
        f"(default: {' and '.join(_PROFILES)})",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder with the trace's files, or with folders of them."),
]
PodList = Annotated[
    str, typer.Option(metavar="NAME", help="openb: which pod list; gpuspec33 comes with berth, too.")
]
Nodes = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=100_000,
        metavar="N",
        help="azure, tianchi, day: so many nodes; of tianchi as large a part of the pods. "
        "(default: 640, all, 20)",
    ),
]
ErrorMinutes = Annotated[
    float, typer.Option(min=0.1, metavar="M", help="alibaba: how long a node takes no pods after an error.")
]
Drain = Annotated[
    bool, typer.Option("--drain", help="alibaba: the pods of a node that fails are evicted, and wait.")
]
Pods = Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N pods. (default: all)")]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Stop at this time of the trace, such as 12h.")
]
Stay = Annotated[bool, typer.Option("--stay", help="No pod leaves: fill the cluster.")]
Step = Annotated[
    str | None,
    typer.Option(
        metavar="STEP",
        help="Look after each so many pods (500), or at each so much time (6h). (default: 20 looks)",
    ),
]
Series = Annotated[bool, typer.Option("--series", help="Show every look, not only the last one.")]
Moves = Annotated[int, typer.Option(min=0, metavar="N", help="lns: move at most N pods at each look.")]
Job = Annotated[
    float | None,
    typer.Option(
        min=1,
        max=1_000_000,
        metavar="CORE-HOURS",
        help="tianchi, day: compare days of co-location, without a batch job of so many core-hours, and with "
        "it as high and as low pods, by one profile. (default of --profile: colocation)",
    ),
]
As = Annotated[
    list[JobQuality] | None,
    typer.Option("--as", help="With --job: only as such pods; again for more. (default: high and low)"),
]
Policy = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="With --job: the CoLocationPolicy of all nodes. (default: berth's own)"
    ),
]
Csv = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write all looks, a line for each resource.")
]
Plots = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Draw PNG and SVG pictures into it (needs matplotlib).")
]


@with_settings("seed", *PLACE)
def simulate(
    settings: Settings,
    trace: Name = None,
    from_log: FromLog = False,
    profile: Profiles = None,
    data: Data = None,
    pod_list: PodList = "default",
    nodes: Nodes = None,
    error_minutes: ErrorMinutes = 30.0,
    drain: Drain = False,
    pods: Pods = None,
    until: Until = None,
    stay: Stay = False,
    every: Step = None,
    series: Series = False,
    moves: Moves = 100,
    job: Job = None,
    as_: As = None,
    policy: Policy = None,
    csv: Csv = None,
    plots: Plots = None,
    output: Output = Format.TABLE,
) -> None:
    """Let a trace happen under several profiles, side by side, and compare what became of it.

    The scheduler is that of a worker: the same filters, scores, queue and backoff. Only the clock is
    virtual, so that months pass in seconds. Nothing is written to a running berth; `--from-log` reads the
    log of one, embedded or Kafka, and shows what would have become of the same pods.

    Equal seeds give equal answers, but for the times that placing took. `--series`, `--csv` and `-o json`
    have every look. What a trace leaves open was chosen; the choices are printed below the tables.

    With `--job` days of co-location are compared instead: looks are the steps of the trace's curves.
    """
    from research.cli import simulated
    from research.simulate.traces import Choices, trace_of

    if plots is not None:
        from research.simulate.drawing import drawing
        from research.simulate.plots import draw

        drawing()  # or say at once what is missing
    choices = Choices(
        folder=data, pod_list=pod_list, nodes_count=nodes, error_minutes=error_minutes, drain=drain
    )
    if from_log is (trace is not None):
        raise CommandError(f"name one trace ({', '.join(TraceName)}), or give --from-log")
    whole = _recorded(settings) if trace is None else trace_of(trace.value, choices, seed=settings.seed)
    until_ms = None if until is None else _milliseconds("--until", until)
    found = whole.cut(pods_max=pods, until_ms=until_ms, stay=stay)
    _check_together(job, {"--every": every, "--series": series}, {"--as": as_, "--policy": policy})
    if job is not None:
        asked = AskedDays(job, as_ or list(JobQuality), profile or (), policy, settings.seed)
        compare_days(found, asked, csv, plots, output)
        return
    methods = _methods(profile or _PROFILES, found, moves)
    with inputs.patience():
        step = _every(every, found)
        runs = _run(found, methods, settings.seed, step)
    if csv is not None:
        simulated.write_csv(csv, runs)
    if plots is not None:
        draw(plots, runs, by_pods=step.ms is None)
    simulated.show(found, runs, output, series=series)


def _check_together(job: float | None, without: Mapping[str, object], with_: Mapping[str, object]) -> None:
    """Raise where an option is given that says nothing beside ``--job``, or nothing without it."""
    given = [name for name, value in (with_ if job is None else without).items() if value]
    if given:
        raise CommandError(f"{given[0]} says nothing {'without' if job is None else 'beside'} --job")


def _recorded(settings: Settings) -> Trace:
    from research.simulate.recorded import recorded_trace
    from services import bootstrap

    async def read() -> Trace:
        async with bootstrap.place(settings, join=True) as at:
            log = bootstrap.open_log(at)
            try:
                return await recorded_trace(log)
            finally:
                await log.aclose()

    return options.run(read())


def _methods(names: Sequence[str], trace: Trace, moves_max: int) -> list[Method]:
    from research.simulate.methods import OWN, SEARCHES, method_of

    found = []
    for name in dict.fromkeys(names):
        profile = None if name in (OWN, *SEARCHES) else inputs.profile_of(name)
        shown = name if profile is None or not Path(name).exists() else Path(name).stem
        found.append(method_of(shown, profile, trace.resources, moves_max))
    if len({each.name for each in found}) < len(found):
        raise CommandError("two profiles have the same name; rename one of the files")
    return found


def _run(trace: Trace, methods: Sequence[Method], seed: int, every: Every) -> list[Run]:
    from rich.console import Console
    from rich.progress import Progress

    from research.simulate.running import simulate as run

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        found = []
        for method in methods:
            bar = progress.add_task(method.name, total=len(trace.moments))
            report = functools.partial(progress.advance, bar)
            found.append(run(trace, method, seed=seed, every=every, report=report))
        return found


def _every(text: str | None, trace: Trace) -> Every:
    from research.simulate.running import Every

    if text is None and trace.curves is not None:
        return Every(ms=trace.curves.step_ms * -(-trace.curves.steps_count // _LOOKS))
    if text is None:
        return Every(pods=max(1, -(-trace.pods_count // _LOOKS)))
    if text.isdecimal() and int(text):
        return Every(pods=int(text))
    return Every(ms=_milliseconds("--every", text))


def _milliseconds(option: str, text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if match is None or not float(match[1]):
        number = "a number of pods such as 500, or " if option == "--every" else ""
        raise CommandError(f"{option} {text}: expected {number}a time such as 90s, 30m, 6h or 2d")
    return max(1, int(float(match[1]) * _UNITS_MS[match[2]]))
