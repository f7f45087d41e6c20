"""`berth study`: compares ways to place pods on a generated setting, in figures."""

from __future__ import annotations

import csv
import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli.output import Column, Format, Json, Output, on_terminal, print_table, print_value
from services.cli.terminal import echo

if TYPE_CHECKING:
    from services.study.imbalance import Run

app = typer.Typer(help="Compare ways to place pods, in tables and files of figures.", no_args_is_help=True)


class MethodName(enum.StrEnum):
    """The keys of ``services.study.methods.METHODS``."""

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


@app.command("imbalance")
def imbalance(
    method: Annotated[
        list[MethodName] | None,
        typer.Option(
            "--method",
            "-m",
            metavar="NAME",
            help=f"Which one: {', '.join(MethodName)}; again for more. [default: all]",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The first seed; equal seeds give equal placements.")] = 1,
    runs: Annotated[int, typer.Option(min=1, max=1000, help="Settings, each with a seed of its own.")] = 5,
    pods: Annotated[int, typer.Option(min=100, max=20_000, help="Pods of a setting.")] = 1_800,
    csv_: Annotated[
        Path | None,
        typer.Option("--csv", metavar="DIR", help="Write imbalance.csv and utilisation.csv into it."),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option("--plots", metavar="DIR", help="Draw PNG and SVG pictures into it (berth[plots])."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Place 1,800 pods on 31 nodes by several methods, and compare how evenly the nodes are used.

    Nodes are of three kinds, pods of three types; they ask for 82 % of cpu, memory, bandwidth and disk. Z is
    the imbalance of a node's four resources, on the mean of the nodes. It says nothing of nodes that are
    fuller than others: the deviation and the range over the nodes do.
    """
    from rich.console import Console
    from rich.progress import Progress

    from domain.search.setting import RESOURCES
    from services.study.imbalance import study, summaries

    if plots is not None:
        from services.study.plots import draw, drawing

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


def write_csv(directory: Path, runs: list[Run], resources: tuple[str, ...]) -> None:
    """Write Z after each step, and the utilisation of each node in the end, a line per number of each run."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "imbalance.csv").open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("method", "seed", "pods", "imbalance"))
        for run in runs:
            lines.writerows(
                (run.method, run.seed, pods, repr(z)) for pods, z in zip(run.pods, run.imbalance, strict=True)
            )
    with (directory / "utilisation.csv").open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("method", "seed", "node", *resources))
        for run in runs:
            for node, shares in run.utilisation.items():
                lines.writerow((run.method, run.seed, node, *map(repr, shares)))


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
