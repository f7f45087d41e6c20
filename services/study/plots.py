"""Draws the study of imbalance with matplotlib: lines that differ without colour, as PNG and SVG."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from domain.model.errors import FieldError
from services.study.imbalance import Run

FORMATS = ("png", "svg")
_LINES = list(itertools.product(("black", "0.45"), ("-", "--", "-.", ":")))
_MARKERS = "osv^D*xP+"
_DPI = 120
_FIXED = {"png": {"Software": None}, "svg": {"Date": None}}
"""What would make two equal pictures differ."""


def draw(directory: Path, runs: Sequence[Run], resources: Sequence[str]) -> list[Path]:
    """Write the pictures into a directory, and return their paths."""
    pyplot = drawing()
    directory.mkdir(parents=True, exist_ok=True)
    found = []
    for name, figure in (
        ("imbalance", _curves(pyplot, runs)),
        ("utilisation", _nodes(pyplot, runs, resources)),
    ):
        for form in FORMATS:
            found.append(directory / f"{name}.{form}")
            figure.savefig(found[-1], dpi=_DPI, metadata=_FIXED[form])
        pyplot.close(figure)
    return found


def drawing() -> ModuleType:
    """Return matplotlib's pyplot, set up to write files that are the same for the same figures.

    Raises
    ------
    FieldError
        matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        message = "needs matplotlib, which is not installed; get it by: pip install 'berth[plots]'"
        raise FieldError("--plots", message) from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "berth"
    from matplotlib import pyplot

    drawing: ModuleType = pyplot
    return drawing


def _curves(pyplot: ModuleType, runs: Sequence[Run]) -> Any:
    """Z after each step: the median over the seeds, and the range as a band."""
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for i, name in enumerate(dict.fromkeys(run.method for run in runs)):
        own = [run for run in runs if run.method == name]
        each = list(zip(*(run.imbalance for run in own), strict=True))
        colour, line = _LINES[i % len(_LINES)]
        axes.plot(
            own[0].pods, [statistics.median(z) for z in each], label=name, color=colour, linestyle=line,
            marker=_MARKERS[i % len(_MARKERS)], markersize=4, markevery=2, linewidth=1,
        )  # fmt: skip
        axes.fill_between(own[0].pods, [min(z) for z in each], [max(z) for z in each], color="0.8", alpha=0.5)
    axes.set_yscale("log")
    axes.set_xlabel("pods placed")
    axes.set_ylabel("imbalance Z (mean over nodes)")
    axes.grid(color="0.9")
    axes.legend(ncols=2, fontsize="small")
    return figure


def _nodes(pyplot: ModuleType, runs: Sequence[Run], resources: Sequence[str]) -> Any:
    """Utilisation of every node in the end, of the first seed: a column of points per method."""
    first = [run for run in runs if run.seed == runs[0].seed]
    figure, grid = pyplot.subplots(2, 2, figsize=(9, 7), sharex=True, sharey=True, layout="constrained")
    for r, (axes, resource) in enumerate(zip(grid.flat, resources, strict=False)):
        for column, run in enumerate(first):
            shares = [100.0 * of[r] for of in run.utilisation.values()]
            axes.plot([column] * len(shares), shares, linestyle="", marker="_", color="black", markersize=9)
        axes.axhline(100.0, color="0.5", linestyle="--", linewidth=1)
        axes.set_title(resource.rpartition("/")[2])
        axes.set_xticks(range(len(first)), [run.method for run in first], rotation=60, ha="right")
        axes.grid(color="0.9", axis="y")
    for axes in grid[:, 0]:
        axes.set_ylabel("utilisation of a node, %")
    return figure
