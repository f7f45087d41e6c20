"""Draws the studies with matplotlib, as PNG and SVG."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from research.simulate.drawing import colour, drawing, line_style, write
from research.study.gathering import Gathering
from research.study.imbalance import Run


def draw(directory: Path, runs: Sequence[Run], resources: Sequence[str]) -> list[Path]:
    """Write the pictures into a directory, and return their paths."""
    pyplot = drawing()
    figures = (("imbalance", _curves(pyplot, runs)), ("utilisation", _nodes(pyplot, runs, resources)))
    return write(directory, figures)


def draw_gathering(directory: Path, gatherings: Sequence[Gathering]) -> list[Path]:
    """Write a picture of the nodes before and after, of the first seed, and return its paths."""
    first = [each for each in gatherings if each.seed == gatherings[0].seed]
    return write(directory, (("gather", _scattered(drawing(), first)),))


def _curves(pyplot: ModuleType, runs: Sequence[Run]) -> Any:
    """Z after each step: the median over the seeds, and the range as a band."""
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for i, name in enumerate(dict.fromkeys(run.method for run in runs)):
        own = [run for run in runs if run.method == name]
        each = list(zip(*(run.imbalance for run in own), strict=True))
        middle = [statistics.median(z) for z in each]
        axes.plot(own[0].pods, middle, label=name, markevery=2, **line_style(i))
        low, high = [min(z) for z in each], [max(z) for z in each]
        axes.fill_between(own[0].pods, low, high, color=colour(i), alpha=0.15, linewidth=0)
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
            style = {"linestyle": "", "marker": "_", "markersize": 9, "color": colour(column)}
            axes.plot([column] * len(shares), shares, **style)
        axes.axhline(100.0, color="0.5", linestyle="--", linewidth=1)
        axes.set_title(resource.rpartition("/")[2])
        axes.set_xticks(range(len(first)), [run.method for run in first], rotation=60, ha="right")
        axes.grid(color="0.9", axis="y")
    for axes in grid[:, 0]:
        axes.set_ylabel("utilisation of a node, %")
    return figure


def _scattered(pyplot: ModuleType, gatherings: Sequence[Gathering]) -> Any:
    """A square per method: each node at its cpu and memory, before (hollow) and after (full)."""
    rows = -(-len(gatherings) // 3)
    figure, grid = pyplot.subplots(
        rows, 3, figsize=(9, 3.2 * rows), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for axes, each in zip(grid.flat, gatherings, strict=False):
        for shares, face, edge, label in (
            (each.before, "none", colour(1), "before"),
            (each.after, colour(0), colour(0), "after"),
        ):
            cpu, memory = zip(*((100 * c, 100 * m) for c, m in shares.values()), strict=True)
            axes.scatter(cpu, memory, s=12, facecolors=face, edgecolors=edge, linewidths=0.8, label=label)
            axes.plot(
                [statistics.fmean(cpu)], [statistics.fmean(memory)], marker="+", markersize=13, color="black"
            )
        axes.set_title(each.method, fontsize="medium")
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 100)
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
    for axes in grid.flat[len(gatherings) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("memory, %")
    for axes in grid[-1]:
        axes.set_xlabel("cpu, %")
    grid[0, 0].legend(fontsize="small", loc="upper left")
    return figure
