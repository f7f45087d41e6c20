"""Pictures with matplotlib: readable without colour, and the same files for the same figures."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from domain.model.errors import FieldError

FORMATS = ("png", "svg")
_LINES = list(itertools.product(("black", "0.45"), ("-", "--", "-.", ":")))
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


def line_style(number: int) -> dict[str, Any]:
    """Return how the line with this number is drawn."""
    colour, line = _LINES[number % len(_LINES)]
    marker = _MARKERS[number % len(_MARKERS)]
    return {"color": colour, "linestyle": line, "marker": marker, "markersize": 4, "linewidth": 1}


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
