"""NodeResourcesFit (score) with the strategy RequestedToCapacityRatio: a curve of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.plugins.arguments import CPU_AND_MEMORY, Arguments, number
from domain.plugins.base import Score
from domain.plugins.scoring import scoring_parts
from domain.plugins.view import NodeView

_SCORE_MAX = 10


class RequestedToCapacityRatio(Score):
    """Weighted mean over resources of a curve that goes in straight lines through given points.

    Formula: ``sum(w * f(100 * used / capacity)) / sum(w)`` over the resources whose ``f`` is above 0, where
    ``f`` is 10 times the interpolated score of the points, level before the first and behind the last one.
    ``used`` counts the pod itself, by non-zero requests for cpu and memory, and is cut to the capacity. A
    resource that the node does not have is left out, and so is an extended one that the pod does not request.
    Computed in real numbers.

    Arguments: ``scoringStrategy.type`` RequestedToCapacityRatio,
    ``scoringStrategy.requestedToCapacityRatio.shape`` (points ``utilization`` 0..100, rising, and ``score``
    0..10), ``scoringStrategy.resources`` (``name``, ``weight`` 1..100; default cpu and memory, 1 each).
    Source: kube-scheduler plugin NodeResourcesFit, scoringStrategy.
    """

    name: ClassVar[str] = "NodeResourcesFit"
    reads: ClassVar[frozenset[str]] = frozenset({"requests", "scoring_cpu_milli", "scoring_memory_bytes"})

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        allowed = ("scoringStrategy", "ignoredResources", "ignoredResourceGroups", "arithmetic")
        given = Arguments(args, path, allowed)
        given.choice("arithmetic", ("real",))
        strategy = given.section("scoringStrategy", ("type", "resources", "requestedToCapacityRatio"))
        self._resources = strategy.resources("resources", CPU_AND_MEMORY, weight_max=100)
        ratio = strategy.section("requestedToCapacityRatio", ("shape",))
        self._utilisation, self._score = _points(ratio)

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        total, weights = np.zeros(len(rows)), np.zeros(len(rows))
        for part in scoring_parts(self._resources, template, view.resources):
            capacity = view.column(view.table.allocatable, part.column, rows)
            used = view.column(view.table.requested, part.column, rows) + part.value
            percent = np.minimum(used, capacity) * 100.0 / np.maximum(capacity, 1)
            score = np.interp(percent, self._utilisation, self._score)
            counts = (capacity != 0) & (score > 0)
            total += np.where(counts, part.weight * score, 0.0)
            weights += np.where(counts, part.weight, 0.0)
        return np.divide(total, weights, out=np.zeros(len(rows)), where=weights > 0)


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
