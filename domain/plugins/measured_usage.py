"""The rule for measured usage: the average wins over the latest value, and either may be missing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from domain.plugins.view import NodeView

PROVIDER_ARGUMENTS = ("metricProvider", "watcherAddress")
"""Where upstream's usage-aware plugins fetch measurements from. Accepted, without effect here."""

_PERCENT_MAX = 1e6


class Load(NamedTuple):
    """Measured usage as fractions of what a node offers, float64[K]; ``known`` bool[K]."""

    mean: np.ndarray
    deviation: np.ndarray
    known: np.ndarray


def percent_used(view: NodeView, resource: str, rows: np.ndarray) -> np.ndarray:
    """Return float64[K]: the average, else the latest value, in percent; NaN where there is neither.

    Cut to 0..1,000,000: anything beyond is an error of the measurement, and must not break a formula.
    """
    average, _, latest = view.figures(resource, rows)
    percent = np.where(np.isnan(average), latest, average)
    cut: np.ndarray = np.clip(percent, 0.0, _PERCENT_MAX)
    return cut


def load(view: NodeView, resource: str, rows: np.ndarray, request: int = 0) -> Load:
    """Return mean and deviation of a resource, with a pod's request on top, each cut to 0..1.

    A resource is known where any figure of the window was measured; missing figures count as 0. Where the
    node offers nothing of the resource, mean and deviation are 0.
    Source: scheduler-plugins, trimaran resource statistics.
    """
    figures = view.figures(resource, rows)
    offered = view.allocatable(resource, rows).astype(np.float64)
    average = np.clip(np.nan_to_num(percent_used(view, resource, rows)) / 100.0, 0.0, 1.0)
    spread = np.nan_to_num(figures[1]) / 100.0
    asked = np.divide(float(request), offered, out=np.zeros(len(rows)), where=offered > 0)
    there = offered > 0
    return Load(
        mean=np.where(there, np.clip(average + asked, 0.0, 1.0), 0.0),
        deviation=np.where(there, np.clip(spread, 0.0, 1.0), 0.0),
        known=~np.isnan(figures).all(axis=0),
    )
