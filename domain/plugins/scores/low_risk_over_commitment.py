"""LowRiskOverCommitment: avoid nodes that promise more than they have and are used beyond requests."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import Score
from domain.plugins.beta import fit, variance_max
from domain.plugins.measuring import PROVIDER_ARGUMENTS, load
from domain.plugins.view import NodeView

_RESOURCES = ("cpu", "memory")
_WINDOW = 5.0
_WEIGHT = 0.5
_VARIANCE_SHARE_MAX = 0.99


class LowRiskOverCommitment(Score):
    """Rate a node by the risk that its pods want more than it has; the riskier of cpu and memory counts.

    Formula: ``100 * (1 - max(risk))``, ``risk = w * promised + (1 - w) * loaded``, cut to 0..1. Over all pods
    of the node, each limit at least the request and the sum of requests at most the capacity:
    ``promised = (limits - capacity) / (limits - requests)`` with the pod, 0 where limits are within capacity;
    ``loaded`` is the probability that usage exceeds the requests without the pod, by a beta distribution of
    the measured mean and of ``sqrt(window)`` times the measured deviation (at most 0.99 of the largest
    variance), under the condition that usage stays within the limits where these are below the capacity.
    A pod without requests and limits, and a node without a measurement, get 0; an unmeasured resource has
    ``loaded`` 0.

    Arguments: ``smoothingWindowSize`` (0 or less: the default 5), ``riskLimitWeights`` (``cpu``, ``memory``,
    0..1, default 0.5 each).
    ``metricProvider`` and ``watcherAddress`` are taken without effect: usage comes with the scenario.
    Source: scheduler-plugins, plugin LowRiskOverCommitment.
    """

    name: ClassVar[str] = "LowRiskOverCommitment"
    reads: ClassVar[frozenset[str]] = frozenset({"requests", "limits"})

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        allowed = ("smoothingWindowSize", "riskLimitWeights", *PROVIDER_ARGUMENTS)
        given = Arguments(args, path, allowed)
        window = given.number("smoothingWindowSize", _WINDOW)
        self._window = window if window > 0 else _WINDOW
        weights = given.section("riskLimitWeights", _RESOURCES)
        self._weights = {name: weights.number(name, _WEIGHT, 0, 1) for name in _RESOURCES}

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        if not any(template.requests.get(name) or template.limits.get(name) for name in _RESOURCES):
            return np.zeros(len(rows))
        risks = np.array([self._risks(template, view, rows, name) for name in _RESOURCES])
        measured = np.array([load(view, name, rows).known for name in _RESOURCES]).any(axis=0)
        return np.where(measured, 100.0 * (1.0 - risks.max(axis=0)), 0.0)

    def _risks(self, template: PodTemplate, view: NodeView, rows: np.ndarray, resource: str) -> list[float]:
        measured = load(view, resource, rows)
        capacities = view.allocatable(resource, rows).tolist()
        weight = self._weights[resource]
        own_request, own_limit = _sums([template], resource)
        found = []
        for i, row in enumerate(rows.tolist()):
            request, limit = _sums(view.pods(row), resource)
            promised = promised_risk(request + own_request, limit + own_limit, capacities[i])
            loaded = 0.0
            if measured.known[i]:
                deviation = float(measured.deviation[i]) * math.sqrt(self._window)
                loaded = loaded_risk(float(measured.mean[i]), deviation, request, limit, capacities[i])
            found.append(min(max(weight * promised + (1.0 - weight) * loaded, 0.0), 1.0))
        return found


def promised_risk(request: int, limit: int, capacity: int) -> float:
    """Return the share of what is promised beyond the requests that the node does not have."""
    return (limit - capacity) / (limit - min(request, capacity)) if limit > capacity else 0.0


def loaded_risk(mean: float, deviation: float, request: int, limit: int, capacity: int) -> float:
    """Return how likely usage exceeds the requests, all without the pod."""
    request = min(request, capacity)
    deviation = min(deviation, math.sqrt(variance_max(mean) * _VARIANCE_SHARE_MAX))
    threshold = min(max(request / capacity, 0.0), 1.0) if capacity > 0 else 0.0
    within, distribution = 0.0, None
    if mean == 0.0 or (deviation == 0.0 and mean <= threshold):
        within = 1.0
    elif deviation > 0.0:
        distribution = fit(mean, deviation)
        within = 0.0 if distribution is None else distribution.below(threshold)
    if limit < capacity and request <= limit:
        if limit == 0:
            within = 1.0
        elif distribution is not None and (within_limit := distribution.below(limit / capacity)) > 0.0:
            within = min(max(within / within_limit, 0.0), 1.0)
    return 1.0 - within


def _sums(templates: Iterable[PodTemplate], resource: str) -> tuple[int, int]:
    """Return the sums of requests and of limits, each limit at least its request."""
    requests = limits = 0
    for template in templates:
        request = template.requests.get(resource, 0)
        requests += request
        limits += max(template.limits.get(resource, 0), request)
    return requests, limits
