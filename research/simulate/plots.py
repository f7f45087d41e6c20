"""Draws simulations, what became of the pods and nodes of a trace over time, and the way of a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from research.simulate.drawing import colour, drawing, from_zero, line_style, write
from research.simulate.measuring import Look, titles
from research.simulate.running import Run

_UNITS = ((2 * 86_400, 86_400, "days"), (2 * 3_600, 3_600, "hours"), (0, 60, "minutes"))


def draw(directory: Path, runs: Sequence[Run], *, by_pods: bool) -> list[Path]:
    """Write the pictures into a directory, and return their paths.

    Parameters
    ----------
    by_pods : bool
        Over the pods that came, not over time.
    """
    name = runs[0].trace.replace("/", "-")
    figures = ((f"{name}-pods", _pods(runs, by_pods)), (f"{name}-nodes", _nodes(runs, by_pods)))
    return write(directory, figures)


def draw_way(
    directory: Path, name: str, points: Sequence[tuple[float, float]], *, bound: float
) -> list[Path]:
    """Write the way of a search, a picture of its score (how low it is) by processor seconds.

    Parameters
    ----------
    points : sequence of (float, float)
        Processor seconds, and the best score so far.
    bound : float
        A score below which there is none.
    """
    figure, axes = drawing().subplots(figsize=(7, 4), layout="constrained")
    axes.plot([at for at, _ in points], [score for _, score in points], label="best so far", **line_style(0))
    axes.axhline(bound, color=colour(1), linestyle="--", linewidth=1, label=f"no score is below {bound:,.0f}")
    axes.set_xlabel("processor seconds")
    axes.set_ylabel("score")
    axes.grid(color="0.9")
    axes.legend(fontsize="small")
    return write(directory, ((name, figure),))


def _pods(runs: Sequence[Run], by_pods: bool) -> Any:
    """Pods that wait, pods that were moved (or fragmentation), Z, and what is used of the last resource."""
    last = len(runs[0].resources) - 1
    title = titles(runs[0].resources)[last]
    second: tuple[str, Callable[[Look], float]] = ("pods that were moved", lambda look: look.moved)
    if runs[0].looks[-1].fragmentation is not None:
        second = ("GPUs fragmented (FGD), %", lambda look: 100 * (look.fragmentation or 0.0))
    panels: tuple[tuple[str, Callable[[Look], float]], ...] = (
        ("pods that wait", lambda look: look.waiting),
        second,
        (f"{title} requested of all nodes, %", lambda look: 100 * look.allocated[last]),
        ("imbalance Z (mean over nodes)", lambda look: look.imbalance),
    )
    return _panels(runs, panels, by_pods)


def _nodes(runs: Sequence[Run], by_pods: bool) -> Any:
    """Of the first two resources: deviation of the nodes' utilisation, and what is stranded."""
    panels: list[tuple[str, Callable[[Look], float]]] = []
    for r, title in list(enumerate(titles(runs[0].resources)))[:2]:
        panels.append((f"{title}: std over nodes, %", lambda look, r=r: 100 * look.deviation[r]))  # type: ignore[misc]
        panels.append((f"{title}: stranded, %", lambda look, r=r: 100 * look.stranded[r]))  # type: ignore[misc]
    return _panels(runs, panels, by_pods)


def _panels(runs: Sequence[Run], panels: Sequence[tuple[str, Callable[[Look], float]]], by_pods: bool) -> Any:
    longest = max(look.seconds for run in runs for look in run.looks)
    size, unit = next((size, unit) for least, size, unit in _UNITS if longest >= least)
    figure, grid = drawing().subplots(2, 2, figsize=(9, 6.5), sharex=True, layout="constrained")
    for axes, (title, read) in zip(grid.flat, panels, strict=False):
        for i, run in enumerate(runs):
            at = [look.arrived if by_pods else look.seconds / size for look in run.looks]
            axes.plot(at, [read(look) for look in run.looks], label=run.method, **line_style(i))
        axes.set_title(title, fontsize="medium")
        from_zero(axes, (read(look) for run in runs for look in run.looks))
        axes.grid(color="0.9")
    for axes in grid[1]:
        axes.set_xlabel("pods that came" if by_pods else unit)
    grid[0, 0].legend(fontsize="small")
    return figure
