"""`berth study`: compares ways to place pods on a generated setting, in figures."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from research.cli.results import write_manifest, write_table
from services.cli.options import flowing
from services.cli.output import Column, Format, Json, Output, on_terminal, print_table, print_value
from services.cli.terminal import echo

if TYPE_CHECKING:
    from research.study.gathering import Gathering
    from research.study.imbalance import Run

app = typer.Typer(help="Compare ways to place pods, in tables and files of figures.", no_args_is_help=True)


class MethodName(enum.StrEnum):
    """The keys of ``research.study.methods.METHODS``."""

    LRA = "lra"
    BRA = "bra"
    CWT = "cwt"
    BES = "bes"
    TBESK = "tbesk"
    TBESK_Z = "tbesk-z"
    SEARCH_SCORE = "search-score"
    LEAST_BALANCED = "least-balanced"
    GLOBAL_VARIANCE = "global-variance"
    LNS = "lns"


class ProfileName(enum.StrEnum):
    """The keys of ``research.study.gathering.PROFILES``."""

    LEAST = "least"
    BALANCED = "balanced"
    LEAST_BALANCED = "least-balanced"
    TRIMARAN = "trimaran"
    GLOBAL_VARIANCE = "global-variance"
    GLOBAL_VARIANCE_TRIMARAN = "global-variance-trimaran"
    MEMORY_VARIANCE_TRIMARAN = "memory-variance-trimaran"
    GLOBAL_VARIANCE_SUM = "global-variance-sum"
    GLOBAL_VARIANCE_MEASURED = "global-variance-measured"
    GLOBAL_VARIANCE_IN_FLIGHT = "global-variance-in-flight"
    TRIMARAN_IN_FLIGHT = "trimaran-in-flight"


Seed = Annotated[int, typer.Option(min=0, help="The first seed; equal seeds give equal placements.")]
Runs = Annotated[int, typer.Option(min=1, max=1000, help="Settings, each with a seed of its own.")]
Plots = Annotated[
    Path | None,
    typer.Option("--plots", metavar="DIR", help="Draw PNG and SVG pictures into it (needs matplotlib)."),
]


@app.command("imbalance")
@flowing
def imbalance(
    method: Annotated[
        list[MethodName] | None,
        typer.Option(
            "--method",
            "-m",
            metavar="NAME",
            help=f"Which one: {', '.join(MethodName)}; again for more. (default: all)",
        ),
    ] = None,
    seed: Seed = 1,
    runs: Runs = 5,
    pods: Annotated[int, typer.Option(min=100, max=20_000, help="Pods of a setting.")] = 1_800,
    csv_: Annotated[
        Path | None,
        typer.Option("--csv", metavar="DIR", help="Write imbalance.csv and utilisation.csv into it."),
    ] = None,
    plots: Plots = None,
    output: Output = Format.TABLE,
) -> None:
    """Place 1,800 pods on 31 nodes by several methods, and compare how evenly the nodes are used.

    Nodes are of three kinds, pods of three types; they ask for 82 % of cpu, memory, bandwidth and disk. Z is
    the imbalance of a node's four resources, on the mean of the nodes. It says nothing of nodes that are
    fuller than others: the deviation and the range over the nodes do.
    """
    from rich.console import Console
    from rich.progress import Progress

    from research.search.setting import RESOURCES
    from research.study.imbalance import study, summaries

    if plots is not None:
        from research.simulate.drawing import drawing
        from research.study.plots import draw

        drawing()  # or say at once what is missing
    names = [each.value for each in method or MethodName]
    with Progress(console=Console(stderr=True), transient=True, disable=not on_terminal()) as progress:
        bar = progress.add_task("placing", total=len(names) * runs)
        found = study(
            names,
            range(seed, seed + runs),
            pods_count=pods,
            report=lambda _: progress.advance(bar),
        )
    if csv_ is not None:
        write_csv(csv_, found, RESOURCES)
    if plots is not None:
        draw(plots, found, RESOURCES)
    settings = {"methods": names, "runs": runs, "pods": pods}
    write_manifest((csv_, plots), "berth study imbalance", range(seed, seed + runs), settings)
    if output in (Format.JSON, Format.YAML):
        print_value({"resources": list(RESOURCES), "runs": [_document(run) for run in found]}, output)
        return
    import msgspec

    rows = [msgspec.to_builtins(each) for each in summaries(found)]
    print_table("results", _columns(RESOURCES), rows, wide=output is Format.WIDE)
    if on_terminal():
        echo()
        echo(f"Medians over {runs} seeds. RANGE: highest less lowest utilisation of a node, per resource.")
        echo("OVER: nodes with more than they offer. POD: processor time of one pod, all in.")


@app.command("gather")
@flowing
def gather(
    profile: Annotated[
        list[ProfileName] | None,
        typer.Option(
            "--profile",
            "-p",
            metavar="NAME",
            help=f"Which one: {', '.join(ProfileName)}; again for more. (default: all)",
        ),
    ] = None,
    seed: Seed = 1,
    runs: Runs = 5,
    csv_: Annotated[
        Path | None, typer.Option("--csv", metavar="DIR", help="Write gather.csv into it, a line per node.")
    ] = None,
    plots: Plots = None,
    output: Output = Format.TABLE,
) -> None:
    """Place 800 pods on 100 nodes of unequal load, and see which profiles make the nodes alike.

    All nodes are of one size. Where they gather, the standard deviation of their cpu and memory falls: of
    what is requested, and of what their pods use, which is measured each minute. The pictures show each node
    by its cpu and memory, before and after.
    """
    from rich.console import Console
    from rich.progress import Progress

    from research.study import gathering

    if plots is not None:
        from research.simulate.drawing import drawing
        from research.study.plots import draw_gathering

        drawing()  # or say at once what is missing
    names = [each.value for each in profile or ProfileName]
    with Progress(console=Console(stderr=True), transient=True, disable=not on_terminal()) as progress:
        bar = progress.add_task("placing", total=len(names) * runs)
        found = gathering.gather(names, range(seed, seed + runs), report=lambda _: progress.advance(bar))
    if csv_ is not None:
        _write_gathering(csv_, found)
    if plots is not None:
        draw_gathering(plots, found)
    settings = {"profiles": names, "runs": runs}
    write_manifest((csv_, plots), "berth study gather", range(seed, seed + runs), settings)
    import msgspec

    if output in (Format.JSON, Format.YAML):
        print_value({"resources": list(gathering.RESOURCES), "runs": msgspec.to_builtins(found)}, output)
        return
    rows = [msgspec.to_builtins(each) for each in gathering.spreads(found)]
    print_table("results", _SPREADS, rows, wide=output is Format.WIDE)
    if on_terminal():
        echo()
        echo(f"Standard deviation over the nodes, in percent: cpu and memory. Medians over {runs} seeds.")


def _write_gathering(directory: Path, found: Sequence[Gathering]) -> None:
    moments = ("before", "after", "used_before", "used_after")
    titles = [f"{resource}_{moment}" for moment in moments for resource in ("cpu", "memory")]
    rows = (
        (each.method, each.seed, node, *(share for of in moments for share in getattr(each, of)[node]))
        for each in found
        for node in each.before
    )
    write_table(directory / "gather.csv", ("profile", "seed", "node", *titles), rows)


def write_csv(directory: Path, runs: list[Run], resources: tuple[str, ...]) -> None:
    """Write Z after each step, and the utilisation of each node in the end, a line per number of each run."""
    steps = (
        (run.method, run.seed, *each) for run in runs for each in zip(run.pods, run.imbalance, strict=True)
    )
    write_table(directory / "imbalance.csv", ("method", "seed", "pods", "z"), steps)
    nodes = ((run.method, run.seed, node, *of) for run in runs for node, of in run.utilisation.items())
    write_table(directory / "utilisation.csv", ("method", "seed", "node", *resources), nodes)


def _document(run: Run) -> Json:
    import msgspec

    document: Json = msgspec.to_builtins(run)
    return document


def _columns(resources: tuple[str, ...]) -> tuple[Column, ...]:
    short = "/".join(name.rpartition("/")[2] for name in resources)

    def listed(key: str, form: str) -> Any:
        return lambda item: " ".join(form.format(each) for each in item[key])

    return (
        Column("METHOD", lambda item: item["method"], keep=True),
        Column("Z", lambda item: f"{item['imbalance']:.4f}", right=True),
        Column(
            "LOWEST..HIGHEST",
            lambda item: f"{item['imbalance_lowest']:.4f}..{item['imbalance_highest']:.4f}",
            wide=True,
        ),
        Column(f"STD ({short})", listed("deviation", "{:.3f}"), wide=True),
        Column(f"RANGE % ({short})", lambda item: " ".join(f"{100 * each:.0f}" for each in item["ranges"])),
        Column("OVER", lambda item: " ".join(f"{each:g}" for each in item["overloaded"])),
        Column("UNPLACED", lambda item: f"{item['unplaced_count']:g}", right=True),
        Column("POD", lambda item: _cost(item["pod_us"]), right=True),
    )


def _cost(us: float) -> str:
    return f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} us"


def _pair(title: str, key: str) -> Column:
    return Column(title, lambda item: " ".join(f"{100 * each:.1f}" for each in item[key]), right=True)


_SPREADS = (
    Column("PROFILE", lambda item: item["method"], keep=True),
    _pair("BEFORE", "requested_before"),
    _pair("AFTER", "requested_after"),
    _pair("USED BEFORE", "used_before"),
    _pair("USED AFTER", "used_after"),
    Column("UNPLACED", lambda item: f"{item['unplaced_count']:g}", right=True),
)
