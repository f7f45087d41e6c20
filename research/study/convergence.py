"""Draws how quickly searches come near the least value of a function."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from research.search.comparing import Compared
from research.simulate.drawing import drawing, line_style, write


def draw_convergence(directory: Path, found: Sequence[Compared]) -> list[Path]:
    """Write a picture per function into a directory, and return the paths."""
    pyplot = drawing()
    names = dict.fromkeys(each.function for each in found)
    figures = ((name, _panels(pyplot, [each for each in found if each.function == name])) for name in names)
    return write(directory, figures)


def _panels(pyplot: ModuleType, found: Sequence[Compared]) -> Any:
    """Draw the median over the runs of the least value so far, with the optimum at the origin and shifted."""
    figure, grid = pyplot.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
    for axes, is_shifted in zip(grid, (False, True), strict=True):
        own = [each for each in found if each.is_shifted is is_shifted]
        for i, each in enumerate(own):
            # From its first moment on: before that a search has found nothing.
            way = [
                (at, value) for at, value in zip(each.evaluations, each.way, strict=True) if value is not None
            ]
            at, values = zip(*way, strict=True) if way else ((), ())
            axes.plot(at, values, label=each.algorithm, markevery=0.2, **line_style(i))
        axes.set_yscale("symlog", linthresh=1e-10)
        axes.set_ylim(bottom=0)
        axes.set_title(
            f"{found[0].function}, optimum {'shifted' if is_shifted else 'at zero'}", fontsize="medium"
        )
        axes.set_xlabel("evaluations")
        axes.grid(color="0.9")
    grid[0].set_ylabel("least value so far, median of the runs")
    grid[1].legend(fontsize="small")
    return figure
