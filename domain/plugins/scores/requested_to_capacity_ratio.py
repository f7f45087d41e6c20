"""NodeResourcesFit (score) with the strategy RequestedToCapacityRatio: rate fullness by a given curve."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.kernels.arrays import CAPACITY_RATIO
from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.plugins.arguments import CPU_AND_MEMORY, Arguments, number
from domain.plugins.base import ResourceScore, Term
from domain.plugins.scored_resources import fit_strategy, scoring_parts
from domain.plugins.view import NodeView
from domain.state.resources import ResourceIndex

_SCORE_MAX = 10


class RequestedToCapacityRatio(ResourceScore):
    """Weighted mean over resources of a curve: straight lines between given points.

    Formula: ``sum(w * f(100 * used / capacity)) / sum(w)``, where ``f`` is 10 times the interpolated score of
    the points, level before the first and behind the last one. ``used`` counts the pod itself, by non-zero
    requests for cpu and memory, and is cut to the capacity. A resource that the node does not have is left
    out, and so is one other than cpu, memory and ephemeral storage that the pod does not request. Computed
    in real numbers. A resource is also left out where upstream's whole-number ``f`` is 0: it takes the used
    percentage as a whole number, and cuts what a line adds to its left point towards 0.

    Arguments: ``scoringStrategy.type`` RequestedToCapacityRatio,
    ``scoringStrategy.requestedToCapacityRatio.shape`` (points ``utilization`` 0..100, rising, and ``score``
    0..10), ``scoringStrategy.resources`` (``name``, ``weight`` 1..100; default cpu and memory, 1 each).
    Source: kube-scheduler plugin NodeResourcesFit, scoringStrategy.
    """

    name: ClassVar[str] = "NodeResourcesFit"
    reads: ClassVar[frozenset[str]] = frozenset({"requests", "scoring_cpu_milli", "scoring_memory_bytes"})

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        strategy = fit_strategy(args, path)
        self._resources = strategy.resources("resources", CPU_AND_MEMORY, weight_max=100)
        ratio = strategy.section("requestedToCapacityRatio", ("shape",))
        self._utilisation, self._score = _points(ratio)
        self._counted = _counted(self._utilisation, self._score)
        points = zip(self._utilisation, self._score, strict=True)
        pairs = [number for pair in (*points, *self._counted) for number in pair]
        self._numbers = (float(len(self._score)), *pairs)
        self.parts_max, self.numbers_max = len(self._resources), len(self._numbers)

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``."""
        return Term(CAPACITY_RATIO, scoring_parts(self._resources, template, resources), self._numbers)

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        total, weights = np.zeros(len(rows)), np.zeros(len(rows))
        for part in scoring_parts(self._resources, template, view.resources):
            capacity = view.column(view.table.allocatable, part.column, rows)
            used = view.column(view.table.requested, part.column, rows) + part.value
            percent = np.minimum(used, capacity) * 100.0 / np.maximum(capacity, 1)
            within = [(low <= percent) & (percent < high) for low, high in self._counted]
            counts = (capacity != 0) & np.any(within, axis=0)
            total += np.where(counts, part.weight * self._curve(percent), 0.0)
            weights += np.where(counts, part.weight, 0.0)
        return np.divide(total, weights, out=np.zeros(len(rows)), where=weights > 0)

    def _curve(self, percent: np.ndarray) -> np.ndarray:
        """Interpolate as the kernel does: ``np.interp`` rounds differently."""
        x, y = np.array(self._utilisation), np.array(self._score)
        if len(x) == 1:
            return np.full(len(percent), y[0])
        at = np.clip(np.searchsorted(x, percent, side="left"), 1, len(x) - 1)
        slope = (y[at] - y[at - 1]) / (x[at] - x[at - 1])
        between = y[at - 1] + slope * (percent - x[at - 1])
        curve: np.ndarray = np.where(percent <= x[0], y[0], np.where(percent > x[-1], y[-1], between))
        return curve


def _counted(utilisation: list[float], score: list[float]) -> list[tuple[float, float]]:
    """Return the spans [from, below) of percentages where the whole-number score is above 0."""
    spans: list[tuple[float, float]] = []
    for whole in range(101):
        at = bisect_left(utilisation, whole)
        value = int(score[min(at, len(score) - 1)])
        if 0 < at < len(score):
            run, rise = utilisation[at] - utilisation[at - 1], score[at] - score[at - 1]
            value = int(score[at - 1]) + int(rise * (whole - utilisation[at - 1]) / run)
        if value > 0 and spans and spans[-1][1] == whole:
            spans[-1] = (spans[-1][0], whole + 1.0)
        elif value > 0:
            spans.append((float(whole), whole + 1.0))
    return spans


def _points(ratio: Arguments) -> tuple[list[float], list[float]]:
    utilisation: list[float] = []
    score: list[float] = []
    for path, item in ratio.items("shape"):
        point = Arguments(item, path, ("utilization", "score"))
        at = number(point.raw("utilization") or 0, point.at("utilization"), 0, 100)
        if utilisation and at <= utilisation[-1]:
            raise FieldError(point.at("utilization"), f"{at:g} is not above {utilisation[-1]:g} before it")
        utilisation.append(at)
        score.append(10.0 * number(point.raw("score") or 0, point.at("score"), 0, _SCORE_MAX))
    if not utilisation:
        raise FieldError(ratio.at("shape"), "is missing; write at least one point {utilization, score}")
    return utilisation, score
