"""`berth search`: compares the searches that can place pods, on functions whose least value is known."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.options import flowing
from services.cli.output import Column, Format, Json, Output, on_terminal, print_table, print_value, say
from services.cli.terminal import echo

if TYPE_CHECKING:
    from domain.search.comparing import Compared

app = typer.Typer(help="Compare searches: bald eagle, TBESK and their rivals.", no_args_is_help=True)


class Algorithm(enum.StrEnum):
    """The keys of ``domain.search.minimise.ALGORITHMS``."""

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
    """The keys of ``domain.search.functions.FUNCTIONS``."""

    SPHERE = "sphere"
    SCHWEFEL = "schwefel-2.22"
    ROSENBROCK = "rosenbrock"
    RASTRIGIN = "rastrigin"
    ACKLEY = "ackley"
    GRIEWANK = "griewank"


@app.command("functions")
@flowing
def functions(
    algorithm: Annotated[
        list[Algorithm] | None,
        typer.Option(
            "--algorithm",
            "-a",
            metavar="NAME",
            help=f"Which one: {', '.join(Algorithm)}; again for more. (default: all that are installed)",
        ),
    ] = None,
    function: Annotated[
        list[Function] | None,
        typer.Option(
            "--function",
            "-f",
            metavar="NAME",
            help=f"On which one: {', '.join(Function)}; again for more. (default: all)",
        ),
    ] = None,
    dimensions: Annotated[int, typer.Option(min=2, max=1000, help="Numbers that a position has.")] = 30,
    runs: Annotated[int, typer.Option(min=1, max=1000, help="Runs, each with a seed of its own.")] = 10,
    evaluations: Annotated[int, typer.Option(min=100, help="The budget of a run.")] = 30_000,
    population: Annotated[int, typer.Option(min=4, max=10_000, help="Members of a population.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="The first seed; equal seeds give equal results.")] = 1,
    output: Output = Format.TABLE,
) -> None:
    """Minimise six test functions, with the optimum at the origin and shifted away from it.

    A search whose steps are multiples of the position, or that draws towards a multiple of the best one, is
    pulled towards zero: it solves a function whose optimum is there, and fails where it is anywhere else.
    All of them together take some minutes; -f and -a choose.

    scipy-de and scipy-annealing are those of scipy.optimize; they need SciPy.
    """
    from rich.console import Console
    from rich.progress import Progress

    from domain.search import library
    from domain.search.comparing import compare

    algorithms, missing = list(algorithm or Algorithm), list[str]()
    if any(each in _OF_SCIPY for each in algorithms):
        if algorithm:
            library.optimize()  # or say at once what is missing
        elif not library.is_there():
            missing = [each.value for each in _OF_SCIPY]
            algorithms = [each for each in algorithms if each not in _OF_SCIPY]
    names = list(function or Function)
    with Progress(console=Console(stderr=True), transient=True, disable=not on_terminal()) as progress:
        bar = progress.add_task("searching", total=2 * len(algorithms) * len(names))
        found = compare(
            [each.value for each in algorithms],
            [each.value for each in names],
            dimensions=dimensions,
            runs=runs,
            evaluations_max=max(evaluations, population),
            population_count=population,
            seed=seed,
            report=lambda _: progress.advance(bar),
        )
    if missing:
        say(f"Without {' and '.join(missing)}, which need SciPy: pip install 'berth[search]'", err=True)
    rows = [_row(each) for each in found]
    if output in (Format.JSON, Format.YAML):
        print_value(rows, output)
        return
    print_table("results", _COLUMNS, rows, wide=output is Format.WIDE)
    if on_terminal():
        echo()
        say("\n".join(said(found)))


def _row(of: Compared) -> Json:
    return {
        "function": of.function,
        "optimum": "shifted" if of.is_shifted else "at zero",
        "algorithm": of.algorithm,
        "best": of.best,
        "median": of.median,
        "worst": of.worst,
        "iterations": round(of.iterations_mean, 1),
        "solved": of.solved_count,
        "runs": of.runs_count,
    }


def _value(name: str) -> Column:
    return Column(name.upper(), lambda item: f"{item[name]:.3g}", right=True, wide=name == "median")


_COLUMNS = (
    Column("FUNCTION", lambda item: item["function"], keep=True),
    Column("OPTIMUM", lambda item: item["optimum"]),
    Column("ALGORITHM", lambda item: item["algorithm"], keep=True),
    *map(_value, ("best", "median", "worst")),
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
    lines.append("Solved: within 0.000001 of the least value. Iterations: until within 1 % of the end.")
    return lines
