"""Do the searches follow their formulas, find what can be found, and repeat themselves?"""

from __future__ import annotations

import csv
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from domain.model.errors import FieldError
from research.cli.search import Algorithm, Function, said
from research.search import bald_eagle, library
from research.search.chaos import STEPS_MAX, bernoulli, spread, tent
from research.search.comparing import WAY_POINTS, compare
from research.search.functions import FUNCTIONS, drawn_shift, problem
from research.search.minimise import ALGORITHMS, Step, minimise
from research.search.population import BudgetSpent, Evaluations, Population, Problem
from services.build import build
from services.cli.main import app
from tests.conformance.tables import formula_cases


def exactly(wanted: Any) -> Any:
    return wanted["value"] if isinstance(wanted, dict) and "value" in wanted else wanted


def of(equation: str, name: str = "") -> Any:
    return next(c for c in formula_cases() if c["equation"] == equation and name in c["name"])


def installed(name: str) -> None:
    if name.startswith("scipy-"):
        pytest.importorskip("scipy")


# ------------------------------------------------------------------------------------------- the formulas


@pytest.mark.parametrize(("equation", "map_"), [("13", tent), ("14", bernoulli)])
def test_chaotic_maps_step_as_published(equation: str, map_: Any) -> None:
    case = of(equation)
    x, found = np.array([case["in"]["x0"]]), []
    for _ in case["expect"]["sequence"]:
        x = map_(x)
        found.append(float(x[0]))
    assert found == pytest.approx([exactly(each) for each in case["expect"]["sequence"]])


def test_the_select_stage() -> None:
    case = of("3/28")
    at = case["in"]
    found = bald_eagle.selected(at["P_best"], at["P_mean"], at["Pos_ki"], at["alpha"], at["lambda"])
    assert found == exactly(case["expect"]["P_new"])


def test_the_spiral() -> None:
    case = of("4-9")
    at = case["in"]
    x, y = bald_eagle.spiral(at["alpha"], at["R"], np.array(at["rand_theta"]), np.array(at["rand_r"]))
    assert x == pytest.approx(case["expect"]["x"], abs=1e-12)
    assert y == pytest.approx(case["expect"]["y"], abs=1e-12)


def test_the_search_stage() -> None:
    case = of("10/30")
    at = case["in"]
    here, following = np.array([at["P_ki"]]), np.array([at["P_ki_next"]])
    found = bald_eagle.searched(here, following, np.array([at["P_mean"]]), at["x"], at["y"])
    assert found == [exactly(case["expect"]["P_new"])]


@pytest.mark.parametrize("equation", ["11-12/31", "swoop, original BES"])
def test_the_swoop_of_both_papers(equation: str) -> None:
    case = of(equation)
    at = case["in"]
    is_first = equation.startswith("swoop")
    x, y, one, two = ("x1", "y1", "c1", "c2") if is_first else ("x", "y", "C1", "C2")
    best, mean = np.array([at["P_best"]]), np.array([at["P_mean"]])
    found = bald_eagle.swooped(
        np.array([at["P_i"]]),
        best,
        mean,
        best if is_first else mean,
        at[x],
        at[y],
        (at[one], at[two]),
        at["rand"],
    )
    assert found == [exactly(case["expect"]["P_new"])]


@pytest.mark.parametrize("map_", [tent, bernoulli])
def test_a_chaotic_start_never_decays_to_zero(map_: Any) -> None:
    """In double precision either map is 0 after about 55 steps and stays there."""
    x = np.array([0.3])
    for _ in range(80):
        x = map_(x)
    assert x[0] == 0.0
    box = Problem(lambda x: x.sum(axis=1), np.zeros(3), np.ones(3))
    found = spread(box, 10 * STEPS_MAX, np.random.default_rng(1), map_)
    assert found[-STEPS_MAX:].min() > 0.0
    assert np.abs(np.histogram(found, bins=4, range=(0, 1))[0] / found.size - 0.25).max() < 0.05


# ------------------------------------------------------------------------------------------- the searches


@pytest.mark.parametrize("name", ALGORITHMS)
def test_equal_seeds_give_equal_results_and_the_way_there(name: str) -> None:
    installed(name)
    box, told = problem(FUNCTIONS["rastrigin"], 5), list[Step]()
    once, again, other = (
        minimise(name, box, seed=seed, evaluations_max=1_000, report=told.append) for seed in (3, 3, 4)
    )
    assert (once.value, once.steps) == (again.value, again.steps)
    assert once.position.tolist() == again.position.tolist() != other.position.tolist()
    assert told == once.steps + again.steps + other.steps
    values = [step.best_value for step in once.steps]
    assert values == sorted(values, reverse=True)
    assert once.evaluations_count <= 1_000
    assert once.value == box.objective(once.position[None, :])[0]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_position_leaves_the_bounds(name: str) -> None:
    installed(name)
    seen: list[np.ndarray] = []

    def objective(positions: np.ndarray) -> np.ndarray:
        seen.append(positions)
        found: np.ndarray = np.square(positions + 9.0).sum(axis=1)  # draws beyond the bound
        return found

    minimise(name, Problem(objective, np.full(4, -2.0), np.full(4, 3.0)), seed=1, evaluations_max=2_000)
    assert min(each.min() for each in seen) >= -2.0
    assert max(each.max() for each in seen) <= 3.0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_least_at_the_origin_or_where_it_is_shifted_to(name: str) -> None:
    rng = np.random.default_rng(5)
    shift = drawn_shift(FUNCTIONS[name], 6, rng)
    for moved in (None, shift):
        box = problem(FUNCTIONS[name], 6, moved)
        least = np.zeros(6) if moved is None else moved
        around = least + rng.normal(0.0, 0.3, (500, 6))
        assert box.objective(least[None, :])[0] == pytest.approx(0.0, abs=1e-12)
        assert box.objective(around).min() > 0.0


def test_a_shift_shows_which_searches_pull_towards_zero() -> None:
    found = compare(
        ["bes", "tbesk", "de"],
        ["sphere", "griewank"],
        dimensions=10,
        runs=3,
        evaluations_max=20_000,
        population_count=30,
        seed=1,
        report=lambda each: None,
    )
    solved = {
        (each.algorithm, each.is_shifted): each.solved_count for each in found if each.function == "sphere"
    }
    assert [solved[name, False] for name in ("bes", "tbesk", "de")] == [3, 3, 3]
    assert [solved[name, True] for name in ("bes", "tbesk", "de")] == [0, 0, 3]
    assert "pull towards zero" in said(found)[0]
    assert "pull" not in said(found)[2]


def test_what_a_population_keeps() -> None:
    box = Problem(lambda x: np.abs(x).sum(axis=1), np.full(1, -9.0), np.full(1, 9.0))
    evaluations = Evaluations(box, 12)
    population = Population(np.array([[1.0], [5.0], [3.0], [4.0]]), evaluations, np.random.default_rng(1))
    population.offer(np.array([[2.0], [2.0], [20.0], [0.5]]))
    assert population.positions.ravel().tolist() == [1.0, 2.0, 3.0, 0.5]
    assert (population.best.tolist(), evaluations.best_value) == ([0.5], 0.5)
    population.select(np.array([[0.1], [8.0], [0.6], [3.0]]))
    assert population.positions.ravel().tolist() == [0.1, 0.5, 0.6, 1.0]
    with pytest.raises(BudgetSpent):
        population.offer(population.positions)


@pytest.mark.parametrize(
    ("name", "count", "path"), [("none", 30, "algorithm"), ("de", 3, "population"), ("de", 101, "population")]
)
def test_what_cannot_be_searched_is_refused(name: str, count: int, path: str) -> None:
    with pytest.raises(FieldError) as error:
        minimise(name, problem(FUNCTIONS["sphere"], 2), seed=1, population_count=count, evaluations_max=100)
    assert error.value.path == path


@pytest.mark.parametrize("name", ["scipy-de", "scipy-annealing"])
def test_searches_of_scipy_do_not_know_where_zero_is(name: str) -> None:
    installed(name)
    found = compare(
        [name],
        ["sphere"],
        dimensions=10,
        runs=2,
        evaluations_max=10_000,
        population_count=30,
        seed=1,
        report=lambda each: None,
    )
    assert [each.solved_count for each in found] == [2, 2]


def test_our_differential_evolution_is_that_of_scipy_with_its_settings() -> None:
    """Draws differ, so the medians of many runs are compared: each within the quartiles of the other."""
    optimize = pytest.importorskip("scipy.optimize")
    box = problem(FUNCTIONS["sphere"], 8)
    bounds = list(zip(box.low, box.high, strict=True))
    ours = [np.log10(minimise("de", box, seed=k, evaluations_max=6_000).value) for k in range(25)]
    theirs = [
        np.log10(
            optimize.differential_evolution(
                lambda columns: box.objective(columns.T),
                bounds,
                strategy="rand1bin",
                mutation=0.5,
                recombination=0.9,
                init=np.random.default_rng(k).uniform(box.low, box.high, (30, 8)),
                maxiter=199,
                tol=0.0,
                polish=False,
                vectorized=True,
                updating="deferred",
                rng=k,
            ).fun
        )
        for k in range(25)
    ]
    for one, other in ((ours, theirs), (theirs, ours)):
        low, high = np.quantile(other, (0.25, 0.75))
        assert low < np.median(one) < high


# -------------------------------------------------------------------------------------------- the command


def test_the_command_knows_all_of_them() -> None:
    assert [each.value for each in Algorithm] == list(ALGORITHMS)
    assert [each.value for each in Function] == list(FUNCTIONS)


def test_the_command_prints_a_row_for_each_search_function_and_place() -> None:
    asked = ["-a", "tbesk", "-a", "de", "-f", "sphere", "--runs", "2"]
    asked += ["--evaluations", "500", "--dimensions", "3"]
    shown = CliRunner().invoke(app, ["search", "functions", *asked])
    assert shown.exit_code == 0, shown.output
    rows = [line.split("\t")[:3] for line in shown.stdout.splitlines()]
    assert rows[1:] == [
        ["sphere", place, name] for place in ("at zero", "shifted") for name in ("tbesk", "de")
    ]


def test_a_folder_of_results_says_how_they_came_about(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    asked = ["-a", "tbesk", "-a", "de", "-f", "sphere", "--runs", "6", "--seed", "3"]
    asked += ["--evaluations", "500", "--dimensions", "3", "--csv", str(tmp_path), "--plots", str(tmp_path)]
    shown = CliRunner().invoke(app, ["search", "functions", *asked, "-o", "wide"])
    assert shown.exit_code == 0, shown.output
    tables = {}
    for name in ("functions", "runs", "convergence"):
        with (tmp_path / f"{name}.csv").open(newline="") as lines:
            tables[name] = list(csv.DictReader(lines))
    titles = shown.stdout.splitlines()[0].lower().split("\t")
    assert titles == [each for each in tables["functions"][0] if each != "runs"]
    assert [len(tables[name]) for name in tables] == [4, 4 * 6, 4 * WAY_POINTS]
    tbesk, de = tables["functions"][:2]
    values = [
        [float(x["best"]) for x in tables["runs"] if (x["algorithm"], x["optimum"]) == (name, "at zero")]
        for name in ("tbesk", "de")
    ]
    assert [x["seed"] for x in tables["runs"][:6]] == ["3", "4", "5", "6", "7", "8"]
    assert float(de["mean"]) == pytest.approx(statistics.fmean(values[1]))
    assert float(de["deviation"]) == pytest.approx(statistics.stdev(values[1]))
    # All runs of the one before all of the other: 2 of the 924 ways to rank 6 and 6 are so far apart.
    assert max(values[0]) < min(values[1])
    assert tbesk["p"] == ""
    assert float(de["p"]) == pytest.approx(2 / 924)
    way = [float(x["median"]) for x in tables["convergence"][:WAY_POINTS] if x["median"]]
    assert way == sorted(way, reverse=True)
    assert way[-1] == pytest.approx(float(tbesk["median"]))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["berth"], manifest["seeds"]) == (build(), [3, 4, 5, 6, 7, 8])
    assert manifest["settings"]["against"] == "tbesk"
    assert {"sphere.png", "sphere.svg"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("asked", [[], ["-a", "scipy-de"]])
def test_without_scipy_the_others_run_and_a_note_names_what_is_missing(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    asked += ["-f", "sphere", "--runs", "1", "--evaluations", "100", "--dimensions", "2"]
    shown = CliRunner().invoke(app, ["search", "functions", *asked])
    assert "pip install 'berth[search]'" in " ".join(shown.stderr.split())
    assert not library.is_there()
    if "-a" in asked:
        assert (shown.exit_code, shown.stdout) == (1, "")
    else:
        assert [line.split("\t")[2] for line in shown.stdout.splitlines()[1:]] == [
            name for name in ALGORITHMS if not name.startswith("scipy-")
        ] * 2
