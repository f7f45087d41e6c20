"""`berth search`: compares the searches that can place pods, on functions whose least value is known."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domain.model.errors import FieldError
from research.cli.results import write_manifest, write_table
from services.cli.options import flowing
from services.cli.output import Column, Format, Json, Output, on_terminal, print_table, print_value, say
from services.cli.terminal import echo

if TYPE_CHECKING:
    from research.search.comparing import Compared

app = typer.Typer(help="Compare searches: bald eagle, TBESK and their rivals.", no_args_is_help=True)


class Algorithm(enum.StrEnum):
    """The keys of ``research.search.minimise.ALGORITHMS``."""

    BES = "bes"
    BES_2023 = "bes-2023"
    TBESK = "tbesk"
    TSSA = "tssa"
    TSBO = "tsbo"
    TPSO = "tpso"
    DE = "de"
    SCIPY_DE = "scipy-de"
    SCIPY_ANNEALING = "scipy-annealing"


_OF_SCIPY = (Algorithm.SCIPY_DE, Algorithm.SCIPY_ANNEALING)


class Function(enum.StrEnum):
    """The keys of ``research.search.functions.FUNCTIONS``."""

    SPHERE = "sphere"
    SCHWEFEL = "schwefel-2.22"
    ROSENBROCK = "rosenbrock"
    RASTRIGIN = "rastrigin"
    ACKLEY = "ackley"
    GRIEWANK = "griewank"


Algorithms = Annotated[
    list[Algorithm] | None,
    typer.Option(
        "--algorithm",
        "-a",
        metavar="NAME",
        help=f"Which one: {', '.join(Algorithm)}; again for more. (default: all that are installed)",
    ),
]
Functions = Annotated[
    list[Function] | None,
    typer.Option(
        "--function",
        "-f",
        metavar="NAME",
        help=f"On which one: {', '.join(Function)}; again for more. (default: all)",
    ),
]
Against = Annotated[
    Algorithm | None,
    typer.Option(
        "--against",
        metavar="NAME",
        help="Whose runs the others are ranked with. (default: tbesk, or else the first)",
    ),
]
Csv = Annotated[
    Path | None,
    typer.Option("--csv", metavar="DIR", help="Write functions.csv, runs.csv and convergence.csv into it."),
]
Plots = Annotated[
    Path | None,
    typer.Option("--plots", metavar="DIR", help="Draw the way to the least value into it (matplotlib)."),
]


@app.command("functions")
@flowing
def functions(
    algorithm: Algorithms = None,
    function: Functions = None,
    dimensions: Annotated[int, typer.Option(min=2, max=1000, help="Numbers that a position has.")] = 30,
    runs: Annotated[int, typer.Option(min=1, max=1000, help="Runs, each with a seed of its own.")] = 10,
    evaluations: Annotated[int, typer.Option(min=100, help="The budget of a run.")] = 30_000,
    population: Annotated[int, typer.Option(min=4, max=10_000, help="Members of a population.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="The first seed; equal seeds give equal results.")] = 1,
    against: Against = None,
    csv_: Csv = None,
    plots: Plots = None,
    output: Output = Format.TABLE,
) -> None:
    """Minimise six test functions, with the optimum at the origin and shifted away from it.

    A search whose steps are multiples of the position, or that draws towards a multiple of the best one, is
    pulled towards zero: it solves a function whose optimum is there, and fails where it is anywhere else.
    All of them together take some minutes; -f and -a choose.

    P is by which chance the runs of two searches that are alike would rank so far apart: the rank-sum test of
    Wilcoxon, Mann and Whitney with those of --against. It, scipy-de and scipy-annealing need SciPy.
    """
    from research.search import library
    from research.search.comparing import rank_tests

    algorithms, missing = _asked(algorithm)
    if plots is not None:
        from research.simulate.drawing import drawing
        from research.study.convergence import draw_convergence

        drawing()  # or say at once what is missing
    rival = _rival(algorithms, against)
    settings = {
        "algorithms": [each.value for each in algorithms],
        "functions": [each.value for each in function or Function],
        "dimensions": dimensions,
        "runs": runs,
        "evaluations": max(evaluations, population),
        "population": population,
    }
    found = _compared(settings, seed)
    if missing:
        say(f"Missing without SciPy: {', '.join(missing)}; get it by: pip install 'berth[search]'", err=True)
    chances = rank_tests(found, rival) if library.is_there() else [None] * len(found)
    rows = [_row(each, chance) for each, chance in zip(found, chances, strict=True)]
    if csv_ is not None:
        _write_csv(csv_, found, rows, seed)
    if plots is not None:
        draw_convergence(plots, found)
    settings["against"] = rival
    write_manifest((csv_, plots), "berth search functions", range(seed, seed + runs), settings)
    if output in (Format.JSON, Format.YAML):
        print_value(rows, output)
        return
    print_table("results", _COLUMNS, rows, wide=output is Format.WIDE)
    if on_terminal():
        echo()
        say("\n".join(said(found)))


def _rival(algorithms: list[Algorithm], against: Algorithm | None) -> str:
    """Return the search with whose runs the others are ranked."""
    if against is not None and against not in algorithms:
        raise FieldError("--against", f"must be one of those that run: {', '.join(algorithms)}")
    return (against or (Algorithm.TBESK if Algorithm.TBESK in algorithms else algorithms[0])).value


def _compared(settings: dict[str, Any], seed: int) -> list[Compared]:
    """Run the searches on the functions, and show the progress."""
    from rich.console import Console
    from rich.progress import Progress

    from research.search.comparing import compare

    algorithms, names = settings["algorithms"], settings["functions"]
    with Progress(console=Console(stderr=True), transient=True, disable=not on_terminal()) as progress:
        bar = progress.add_task("searching", total=2 * len(algorithms) * len(names))
        return compare(
            algorithms,
            names,
            dimensions=settings["dimensions"],
            runs=settings["runs"],
            evaluations_max=settings["evaluations"],
            population_count=settings["population"],
            seed=seed,
            report=lambda _: progress.advance(bar),
        )


def _asked(algorithm: list[Algorithm] | None) -> tuple[list[Algorithm], list[str]]:
    """Return the searches that run, and what does not as SciPy is missing."""
    from research.search import library

    algorithms = list(algorithm or Algorithm)
    if library.is_there():
        return algorithms, []
    if algorithm and any(each in _OF_SCIPY for each in algorithms):
        library.optimize()  # says what is missing
    missing = [] if algorithm else [each.value for each in _OF_SCIPY]
    return [each for each in algorithms if each not in _OF_SCIPY], [*missing, "the rank test"]


def _write_csv(folder: Path, found: list[Compared], rows: list[Json], first_seed: int) -> None:
    """Write the table, what each run found, and the way there."""
    titles = tuple(rows[0])
    write_table(folder / "functions.csv", titles, ([row[title] for title in titles] for row in rows))
    of = ("function", "optimum", "algorithm")
    keys = [tuple(row[title] for title in of) for row in rows]
    each_run = (
        (*key, first_seed + k, value)
        for key, each in zip(keys, found, strict=True)
        for k, value in enumerate(each.values)
    )
    write_table(folder / "runs.csv", (*of, "seed", "best"), each_run)
    way = (
        (*key, at, value)
        for key, each in zip(keys, found, strict=True)
        for at, value in zip(each.evaluations, each.way, strict=True)
    )
    write_table(folder / "convergence.csv", (*of, "evaluations", "median"), way)


def _row(of: Compared, chance: float | None) -> Json:
    return {
        "function": of.function,
        "optimum": "shifted" if of.is_shifted else "at zero",
        "algorithm": of.algorithm,
        "best": of.best,
        "median": of.median,
        "worst": of.worst,
        "mean": of.mean,
        "deviation": of.deviation,
        "p": chance,
        "iterations": round(of.iterations_mean, 1),
        "solved": of.solved_count,
        "runs": of.runs_count,
    }


def _value(name: str) -> Column:
    title = name.upper()
    return Column(title, lambda item: _short(item[name]), right=True, wide=name in ("median", "worst"))


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


_COLUMNS = (
    Column("FUNCTION", lambda item: item["function"], keep=True),
    Column("OPTIMUM", lambda item: item["optimum"]),
    Column("ALGORITHM", lambda item: item["algorithm"], keep=True),
    *map(_value, ("best", "median", "worst", "mean", "deviation", "p")),
    Column("ITERATIONS", lambda item: f"{item['iterations']:.0f}", right=True),
    Column("SOLVED", lambda item: f"{item['solved']}/{item['runs']}", right=True),
)


def said(found: list[Compared]) -> list[str]:
    """Return what the shift shows, a line for each algorithm."""
    lines = []
    for name in dict.fromkeys(each.algorithm for each in found):
        own = [each for each in found if each.algorithm == name]
        solved = [sum(each.solved_count for each in own if each.is_shifted is at) for at in (False, True)]
        runs = sum(each.runs_count for each in own) // 2
        line = f"{name}: solved {solved[0]} of {runs} runs with the optimum at zero, {solved[1]} shifted"
        if solved[0] > 2 * solved[1]:
            line += ": its moves pull towards zero"
        lines.append(line)
    lines.append(
        "P: the rank-sum test with the runs of --against; - is that search itself, or SciPy is missing."
    )
    lines.append("Solved: within 0.000001 of the least value. Iterations: until within 1 % of the end.")
    return lines
