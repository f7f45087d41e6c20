"""GlobalVariance: place the pod where usage is spread most evenly over all nodes afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import Score
from domain.plugins.measuring import percent_used
from domain.plugins.normalising import by_range
from domain.plugins.view import NodeView

_REQUESTED = "requested/allocatable"
_MEASURED = "measured"


class GlobalVariance(Score):
    """Rate a node by the variance of a metric over all nodes once the pod is on it: the smallest wins.

    Formula: with ``d`` a node's distance from the mean of the metric, ``Q`` the sum of ``d^2`` over the ``n``
    nodes, and ``e`` what the pod adds to the candidate's metric, the variance becomes
    ``(Q + 2 * d * e + e^2) / n - (e / n)^2``: O(1) per candidate from sums that are made once. The smallest
    becomes 100, the largest 0, equal ones 100. All nodes count, feasible or not; those without the resource
    (or without a measurement) are left out and get 0.

    Arguments: ``resource`` (default memory), ``of`` (``requested/allocatable``, the default, or ``measured``:
    the measured usage, plus the pod's request over what the node offers), ``variance`` (``population``, the
    default, or ``sample``).
    Source: a node scoring study that uses it with high weight beside a usage-aware score.
    """

    name: ClassVar[str] = "GlobalVariance"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("resource", "of", "variance"))
        resource = given.raw("resource") or "memory"
        if not isinstance(resource, str):
            raise FieldError(given.at("resource"), "expected the name of a resource")
        self._resource = resource
        self._of = given.choice("of", (_REQUESTED, _MEASURED))
        self._is_sample = given.choice("variance", ("population", "sample")) == "sample"

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``: the variance with the pod on each node, NaN for a node that is left out."""
        every = view.all_rows()
        capacity = view.allocatable(self._resource, every).astype(np.float64)
        metric = np.full(len(every), np.nan)
        if self._of == _REQUESTED:
            used = view.requested(self._resource, every)
            np.divide(used, capacity, out=metric, where=capacity > 0)
        else:
            metric = np.where(capacity > 0, percent_used(view, self._resource, every) / 100.0, np.nan)
        counted = ~np.isnan(metric)
        n = int(counted.sum())
        if n == 0 or (self._is_sample and n == 1):
            return np.where(counted[rows], 0.0, np.nan)
        distance = metric - metric[counted].mean()
        squares = float((distance[counted] ** 2).sum())
        added = np.divide(
            template.requests.get(self._resource, 0), capacity, out=np.zeros(len(every)), where=counted
        )
        variance = (squares + (2.0 * distance + added) * added) / n - (added / n) ** 2
        found: np.ndarray = variance[rows] * (n / (n - 1) if self._is_sample else 1.0)
        return found

    def normalise(self, raw: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        return by_range(raw, reverse=True, flat=100.0)
