"""Pictures with matplotlib: colours that the colour-blind tell apart; equal files for equal figures.

Lines differ without colour, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from domain.model.errors import FieldError

FORMATS = ("png", "svg")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The palette of Okabe and Ito (2008) without its yellow, which is too pale for a line on white."""

_LINES = ("-", "--", "-.", ":")
_MARKERS = "osv^D*xP+"
_DPI = 120
_FIXED = {"png": {"Software": None}, "svg": {"Date": None}}
"""What would make two equal pictures differ."""


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

    found: ModuleType = pyplot
    return found


def colour(number: int) -> str:
    """Return the colour of what has this number."""
    return COLOURS[number % len(COLOURS)]


def line_style(number: int) -> dict[str, Any]:
    """Return how the line with this number is drawn: by its dashes and marker alone it is one of 36."""
    line, marker = _LINES[number % len(_LINES)], _MARKERS[number % len(_MARKERS)]
    return {"color": colour(number), "linestyle": line, "marker": marker, "markersize": 4, "linewidth": 1.2}


def from_zero(axes: Any, values: Iterable[float]) -> None:
    """Let the axis of these values begin at zero; where all are zero it says so, and has no other tick."""
    if any(values):
        axes.set_ylim(bottom=0)
        return
    axes.set_ylim(-0.05, 1)
    axes.set_yticks([0])
    axes.text(0.5, 0.5, "0 throughout", transform=axes.transAxes, ha="center", va="center", color="0.35")


def write(directory: Path, figures: Iterable[tuple[str, Any]]) -> list[Path]:
    """Write named figures into a directory, in all formats; return the paths."""
    pyplot = drawing()
    directory.mkdir(parents=True, exist_ok=True)
    found = []
    for name, figure in figures:
        for form in FORMATS:
            found.append(directory / f"{name}.{form}")
            figure.savefig(found[-1], dpi=_DPI, metadata=_FIXED[form])
        pyplot.close(figure)
    return found
