"""Draws days of co-location, with a batch job and without it, over the hours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from research.simulate.day import Day, Step
from research.simulate.drawing import colour, drawing, from_zero, line_style, write

NAME = "colocation_day"
_LABELS = {"none": "without the job", "high": "job as high pods", "low": "job as low pods"}


def draw_days(directory: Path, days: Sequence[Day]) -> list[Path]:
    """Write the picture into a directory, and return its paths."""
    figure, grid = drawing().subplots(2, 2, figsize=(9, 6.5), sharex=True, layout="constrained")
    cores = days[0].cores
    panels: tuple[tuple[str, Callable[[Step], float]], ...] = (
        ("cpu in use, % of all cores", lambda step: 100 * (step.services + step.job) / cores),
        ("cores that the job uses", lambda step: step.job),
        ("cores wanted by low pods and not given", lambda step: step.suppressed),
        ("pods of the job that were ended, each step", lambda step: step.ended),
    )
    for axes, (title, read) in zip(grid.flat, panels, strict=True):
        for number, day in enumerate(days):
            axes.plot(
                _hours(day), [read(step) for step in day.steps], label=_LABELS[day.job], **_style(number)
            )
        axes.set_title(title, fontsize="medium")
        axes.grid(color="0.9")
        shown = [read(step) for day in days for step in day.steps]
        from_zero(axes, [*shown, *(_lend(axes, days) if axes is grid[0, 1] else ())])
    for axes in grid[1]:
        axes.set_xlabel("hours")
    grid[0, 0].legend(fontsize="small")
    return write(directory, ((NAME, figure),))


def _lend(axes: Any, days: Sequence[Day]) -> list[float]:
    """Draw what low pods may use, on the day on which there are any, and return it."""
    lent = [(day, [step.lent for step in day.steps]) for day in days if day.job == "low"]
    for day, cores in lent:
        axes.fill_between(_hours(day), cores, color=colour(5), alpha=0.3, label="lent to low pods")
        axes.legend(fontsize="small")
    return [each for _, cores in lent for each in cores]


def _hours(day: Day) -> list[float]:
    return [step.seconds / 3_600 for step in day.steps]


def _style(number: int) -> dict[str, Any]:
    return {**line_style(number), "markersize": 2.5}
