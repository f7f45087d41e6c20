"""NodeResourcesFit (score) with the strategy RequestedToCapacityRatio: rate fullness by a given curve."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels.arrays import CAPACITY_RATIO
from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.plugins.arguments import CPU_AND_MEMORY, Arguments, number
from domain.plugins.base import ResourceScore, Term
from domain.plugins.scored_resources import fit_strategy, scoring_parts
from domain.state.resources import ResourceIndex

_SCORE_MAX = 10


class RequestedToCapacityRatio(ResourceScore):
    """Weighted mean over resources of a curve: straight lines between given points.

    Formula: ``sum(w * f(100 * used / capacity)) / sum(w)``, where ``f`` is 10 times the interpolated score of
    the points, level before the first and behind the last one. ``used`` counts the pod itself, by non-zero
    requests for cpu and memory, and is cut to the capacity. A resource that the node does not have is left
    out, and so is one other than cpu, memory and ephemeral storage that the pod does not request. A resource
    is also left out where upstream's whole-number ``f`` is 0: it takes the used percentage as a whole number,
    and cuts what a line adds to its left point towards 0.

    Arguments: ``scoringStrategy.type`` RequestedToCapacityRatio,
    ``scoringStrategy.requestedToCapacityRatio.shape`` (points ``utilization`` 0..100, rising, and ``score``
    0..10), ``scoringStrategy.resources`` (``name``, ``weight`` 1..100; default cpu and memory, 1 each);
    ``arithmetic`` (``real``, the default, or ``integer``: the whole-number ``f``, and the mean rounded to the
    nearest, as upstream does).
    Source: kube-scheduler plugin NodeResourcesFit, scoringStrategy.
    """

    name: ClassVar[str] = "NodeResourcesFit"
    reads: ClassVar[frozenset[str]] = frozenset({"requests", "scoring_cpu_milli", "scoring_memory_bytes"})

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        strategy, whole = fit_strategy(args, path)
        self._resources = strategy.resources("resources", CPU_AND_MEMORY, weight_max=100)
        utilisation, score = _points(strategy.section("requestedToCapacityRatio", ("shape",)))
        self._kind, self._numbers = CAPACITY_RATIO + whole, _whole_curve(utilisation, score)
        if not whole:
            pairs = [*zip(utilisation, score, strict=True), *_counted(self._numbers)]
            self._numbers = (float(len(score)), *(number for pair in pairs for number in pair))
        self.parts_max, self.numbers_max = len(self._resources), len(self._numbers)

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``."""
        return Term(self._kind, scoring_parts(self._resources, template, resources), self._numbers)


def _whole_curve(utilisation: list[float], score: list[float]) -> tuple[float, ...]:
    """Return upstream's whole-number score at each percentage 0..100."""
    found = []
    for percent in range(101):
        at = bisect_left(utilisation, percent)
        value = int(score[min(at, len(score) - 1)])
        if 0 < at < len(score):
            run, rise = utilisation[at] - utilisation[at - 1], score[at] - score[at - 1]
            value = int(score[at - 1]) + int(rise * (percent - utilisation[at - 1]) / run)
        found.append(float(value))
    return tuple(found)


def _counted(whole_curve: tuple[float, ...]) -> list[tuple[float, float]]:
    """Return the spans [from, below) of percentages where the whole-number score is above 0."""
    spans: list[tuple[float, float]] = []
    for percent, value in enumerate(whole_curve):
        if value > 0 and spans and spans[-1][1] == percent:
            spans[-1] = (spans[-1][0], percent + 1.0)
        elif value > 0:
            spans.append((float(percent), percent + 1.0))
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
