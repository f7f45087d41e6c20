"""GlobalVariance: place the pod where usage is spread most evenly over all nodes afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.kernels.arrays import BY_VARIANCE, METRIC_MAX, METRIC_ONE
from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import RelativeScore, TermPart
from domain.plugins.in_flight import ARGUMENT, ESTIMATED, READS, in_flight
from domain.plugins.measured_usage import percent_used
from domain.plugins.view import NodeView
from domain.state.resources import ResourceIndex

_REQUESTED = "requested/allocatable"
_MEASURED = "measured"
_RESOURCES_MAX = 4


class GlobalVariance(RelativeScore):
    """Rate a node by the variance of a metric over all nodes once the pod is on it: the smallest wins.

    Formula: with ``m`` a node's metric, ``S`` the sum of all ``n`` nodes', and ``e`` what the pod adds to the
    candidate's, the variance times ``n^2`` grows by ``e * (2 * (m * n - S) + e * (n - 1))``: O(1) per
    candidate from one sum. Metrics are whole numbers of ``2^-20``, cut off beyond 4, so that the order of
    nodes changes nothing. The smallest growth becomes 100, the largest 0, equal ones 100. All nodes count,
    feasible or not; those without the resource (or without a measurement) are left out and get 0. Of several
    resources, the growths are summed up before they become 0 to 100: what is uneven weighs most. A node
    that lacks one gets 0; metrics are then cut off beyond 2.

    Arguments: ``resource`` (default memory), or ``resources`` (a list of up to four names), ``of``
    (``requested/allocatable``, the default, or ``measured``: the measured usage, plus the pod's request over
    what the node offers), ``inFlight`` (with ``measured``, of cpu and memory: the measured usage, plus what
    the pod, and the pods that no measurement covers yet, are expected to use by the policy, over the node's
    capacity; default false), ``variance`` (``population``, the default, or ``sample``: which nodes are best
    is the same).
    Source: a node scoring study that uses it with high weight beside a usage-aware score.
    """

    name: ClassVar[str] = "GlobalVariance"
    reads: ClassVar[frozenset[str]] = READS
    kind = BY_VARIANCE

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("resource", "resources", "of", ARGUMENT, "variance"))
        resource = given.raw("resource") or "memory"
        if not isinstance(resource, str):
            raise FieldError(given.at("resource"), "expected the name of a resource")
        if "resource" in given and "resources" in given:
            raise FieldError(given.at("resources"), "is given beside resource; write one of both")
        self._names = given.name_list("resources", [resource], least=1, most=_RESOURCES_MAX)
        self.reads_usage = given.choice("of", (_REQUESTED, _MEASURED)) == _MEASURED
        self._in_flight = given.flag(ARGUMENT)
        if self._in_flight and not self.reads_usage:
            raise FieldError(given.at(ARGUMENT), "needs of: measured; what is requested counts all pods")
        unknown = [name for name in self._names if name not in ESTIMATED]
        if self._in_flight and unknown:
            message = (
                f"what pods are expected to use is known of {' and '.join(ESTIMATED)}, not of {unknown[0]}"
            )
            raise FieldError(given.at(ARGUMENT), message)
        self.metrics_count, self.parts_max = len(self._names), 2 * len(self._names)
        self.measured_count = len(self._names) if self.reads_usage else 0
        given.choice("variance", ("population", "sample"))

    def parts(self, template: PodTemplate, resources: ResourceIndex) -> tuple[TermPart, ...]:
        """See ``RelativeScore``: for each resource what a node has, and what is counted of it."""
        parts: list[TermPart] = []
        for name in self._names:
            if self._in_flight:
                parts += in_flight(name, template, resources)
            else:
                column, value = resources.column(name), template.requests.get(name, 0)
                parts += [TermPart(column, 1.0, 0), TermPart(column, 1.0, value)]
        return tuple(parts)

    def measured(self, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Plugin``: the metrics, if they are the measured ones."""
        if not self.reads_usage:
            return super().measured(view, rows)
        shares = np.array([percent_used(view, name, rows) / 100.0 for name in self._names])
        metrics: np.ndarray = np.clip(np.floor(shares * METRIC_ONE), 0, METRIC_MAX)
        return metrics
