"""LowRiskOverCommitment: avoid nodes that promise more than they have and use more than is requested."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.kernels.arrays import LOW_RISK
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import ResourceScore, Term, TermPart
from domain.plugins.in_flight import ARGUMENT, in_flight
from domain.plugins.measured_usage import PROVIDER_ARGUMENTS, load
from domain.plugins.view import NodeView
from domain.state.resources import CPU, CPU_BEYOND, MEMORY, MEMORY_BEYOND, ResourceIndex

_RESOURCES = ("cpu", "memory")
_WINDOW = 5.0
_WEIGHT = 0.5


class LowRiskOverCommitment(ResourceScore):
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
    0..1; default 0.5 each, also for what is beyond), ``inFlight`` (the mean is what was measured plus what
    the pods that no measurement covers yet are expected to use by the policy, over the node's capacity;
    without the pod, as are the requests with which it is compared; default false, as upstream).
    ``metricProvider`` and ``watcherAddress`` are taken without effect: usage comes by events.
    Source: scheduler-plugins, plugin LowRiskOverCommitment.
    """

    name: ClassVar[str] = "LowRiskOverCommitment"
    reads: ClassVar[frozenset[str]] = frozenset({"requests", "limits"})
    reads_usage = True
    measured_count = 4
    parts_max = 4
    numbers_max = 1

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        allowed = ("smoothingWindowSize", "riskLimitWeights", ARGUMENT, *PROVIDER_ARGUMENTS)
        given = Arguments(args, path, allowed)
        self._in_flight = given.flag(ARGUMENT)
        self.parts_max = 6 if self._in_flight else 4
        window = given.number("smoothingWindowSize", _WINDOW)
        self._window = window if window > 0 else _WINDOW
        weights = given.section("riskLimitWeights", _RESOURCES)
        given_weights = {name: weights.number(name, _WEIGHT) for name in _RESOURCES}
        self._weights = {name: w if 0 <= w <= 1 else _WEIGHT for name, w in given_weights.items()}

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``: per resource the requests, and what the limits are beyond them.

        Then the pods in flight of each, if these count; the kernel leaves the pod itself out.
        """
        if not any(template.requests.get(name) or template.limits.get(name) for name in _RESOURCES):
            return Term(LOW_RISK, ())
        parts = []
        for name, column, beyond in zip(_RESOURCES, (CPU, MEMORY), (CPU_BEYOND, MEMORY_BEYOND), strict=True):
            request = template.requests.get(name, 0)
            limit = max(template.limits.get(name, 0), request)
            parts += [
                TermPart(column, self._weights[name], request),
                TermPart(beyond, 0.0, limit - request),
            ]
        if self._in_flight:
            parts += [in_flight(name, template, resources)[1] for name in _RESOURCES]
        return Term(LOW_RISK, tuple(parts), (math.sqrt(self._window),))

    def measured(self, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Plugin``: mean and deviation per resource, NaN where it was not measured."""
        loads = [load(view, name, rows) for name in _RESOURCES]
        return np.array([np.where(each.known, f, np.nan) for each in loads for f in each[:2]])
