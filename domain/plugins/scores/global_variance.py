"""GlobalVariance: place the pod where usage is spread most evenly over all nodes afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.kernels.arrays import METRIC_MAX, METRIC_ONE
from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import Demand, VarianceScore
from domain.plugins.measured_usage import percent_used
from domain.plugins.normaliser import Normaliser
from domain.plugins.view import NodeView
from domain.state.resources import ResourceIndex

_REQUESTED = "requested/allocatable"
_MEASURED = "measured"


class GlobalVariance(VarianceScore):
    """Rate a node by the variance of a metric over all nodes once the pod is on it: the smallest wins.

    Formula: with ``m`` a node's metric, ``S`` the sum of all ``n`` nodes', and ``e`` what the pod adds to the
    candidate's, the variance times ``n^2`` grows by ``e * (2 * (m * n - S) + e * (n - 1))``: O(1) per
    candidate from one sum. Metrics are whole numbers of ``2^-20``, cut off beyond 4, so that the order of
    nodes changes nothing. The smallest growth becomes 100, the largest 0, equal ones 100. All nodes count,
    feasible or not; those without the resource (or without a measurement) are left out and get 0.

    Arguments: ``resource`` (default memory), ``of`` (``requested/allocatable``, the default, or ``measured``:
    the measured usage, plus the pod's request over what the node offers), ``variance`` (``population``, the
    default, or ``sample``: which nodes are best is the same).
    Source: a node scoring study that uses it with high weight beside a usage-aware score.
    """

    name: ClassVar[str] = "GlobalVariance"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})
    normaliser = Normaliser(reverse=True, equal_full=True, zero_full=True)

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("resource", "of", "variance"))
        resource = given.raw("resource") or "memory"
        if not isinstance(resource, str):
            raise FieldError(given.at("resource"), "expected the name of a resource")
        self._resource = resource
        self.reads_usage = given.choice("of", (_REQUESTED, _MEASURED)) == _MEASURED
        self.measured_count = int(self.reads_usage)
        given.choice("variance", ("population", "sample"))

    def demand(self, template: PodTemplate, resources: ResourceIndex) -> Demand:
        """See ``VarianceScore``."""
        value = template.requests.get(self._resource, 0)
        return Demand(resources.column(self._resource), value, self._resource)

    def measured(self, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``: the metric, if it is the measured one."""
        share = percent_used(view, self._resource, rows) / 100.0
        metric: np.ndarray = np.clip(np.floor(share * METRIC_ONE), 0, METRIC_MAX)
        return metric[None, :][: self.measured_count]
