"""LoadVariationRiskBalancing: prefer nodes with low and steady measured usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from domain.kernels.arrays import LOAD_VARIATION
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import ResourceScore, StaticScore, Term
from domain.plugins.in_flight import ARGUMENT, READS, in_flight
from domain.plugins.measured_usage import PROVIDER_ARGUMENTS, load
from domain.plugins.view import NodeView
from domain.state.resources import ResourceIndex

_HALVED = "(mu+sigma)/2"
_SUMMED = "mu+sigma"
_RESOURCES = ("cpu", "memory")


class _Rule(NamedTuple):
    """The arguments: how much a deviation weighs, and whether mean and deviation are halved."""

    margin: float
    sensitivity: float
    halved: bool

    def sigma(self, deviation: np.ndarray) -> np.ndarray:
        """Return the weight of deviations, 0..1."""
        power = 1.0 / self.sensitivity if self.sensitivity > 0 else np.inf
        sigma: np.ndarray = np.clip(self.margin * np.power(deviation, power), 0.0, 1.0)
        return sigma


def _read(args: Mapping[str, Any], path: str) -> _Rule:
    allowed = ("safeVarianceMargin", "safeVarianceSensitivity", "formula", ARGUMENT, *PROVIDER_ARGUMENTS)
    given = Arguments(args, path, allowed)
    given.flag(ARGUMENT)
    margin = given.number("safeVarianceMargin", 1.0)
    sensitivity = given.number("safeVarianceSensitivity", 1.0)
    return _Rule(
        margin if margin >= 0 else 1.0,
        sensitivity if sensitivity >= 0 else 1.0,
        given.choice("formula", (_HALVED, _SUMMED)) == _HALVED,
    )


class LoadVariationRiskBalancing(StaticScore):
    """Rate a node by mean plus deviation of its measured cpu and memory usage; the worse of both counts.

    Formula: ``100 * (1 - (mu + sigma) / 2)`` with ``mu`` the measured mean plus the pod's request over what
    the node offers, and ``sigma = margin * deviation ^ (1 / sensitivity)``, all cut to 0..1; ``mu+sigma``
    gives ``100 * (1 - min(mu + sigma, 1))``. With sensitivity 0, a deviation below 1 counts as 0. Where only
    one of both resources is measured it alone counts; a node without a measurement gets 0.

    Arguments: ``safeVarianceMargin``, ``safeVarianceSensitivity`` (negative: the default 1), ``formula``
    (``(mu+sigma)/2``, the default and upstream's, or ``mu+sigma``, that of its proposal), ``inFlight``
    (``mu`` is the measured mean plus what the pod, and the pods that no measurement covers yet, are expected
    to use by the policy, over the node's capacity; default false, as upstream).
    ``metricProvider`` and ``watcherAddress`` are taken without effect: usage comes by events.
    Source: scheduler-plugins, plugin LoadVariationRiskBalancing.
    """

    name: ClassVar[str] = "LoadVariationRiskBalancing"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})
    reads_usage = True

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        self._rule = _read(args, path)

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        cpu, cpu_known = self._rate(template, view, rows, "cpu")
        memory, memory_known = self._rate(template, view, rows, "memory")
        score: np.ndarray = np.where(
            cpu_known & memory_known, np.minimum(cpu, memory), np.maximum(cpu, memory)
        )
        return score

    def _rate(
        self, template: PodTemplate, view: NodeView, rows: np.ndarray, resource: str
    ) -> tuple[np.ndarray, np.ndarray]:
        measured = load(view, resource, rows, template.requests.get(resource, 0))
        risk = measured.mean + self._rule.sigma(measured.deviation)
        risk = risk / 2.0 if self._rule.halved else np.minimum(risk, 1.0)
        rated: np.ndarray = measured.known & (view.allocatable(resource, rows) > 0)
        return np.where(rated, 100.0 * (1.0 - risk), 0.0), measured.known


class LoadVariationInFlight(ResourceScore):
    """LoadVariationRiskBalancing with ``inFlight``: it follows from the pods of a node as well.

    Source: scheduler-plugins, plugin LoadVariationRiskBalancing; pods in flight as in TargetLoadPacking.
    """

    name: ClassVar[str] = "LoadVariationRiskBalancing"
    reads: ClassVar[frozenset[str]] = READS
    reads_usage = True
    measured_count = 2 * len(_RESOURCES)
    parts_max = 2 * len(_RESOURCES)
    numbers_max = 1

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        self._rule = _read(args, path)

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``: for each resource its capacity, and the pods in flight."""
        parts = [part for name in _RESOURCES for part in in_flight(name, template, resources)]
        return Term(LOAD_VARIATION, tuple(parts), (float(self._rule.halved),))

    def measured(self, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Plugin``: for each resource mean and sigma, NaN where it was not measured."""
        loads = [load(view, name, rows) for name in _RESOURCES]
        each = [f for found in loads for f in (found.mean, self._rule.sigma(found.deviation))]
        known = np.repeat([found.known for found in loads], 2, axis=0)
        figures: np.ndarray = np.where(known, each, np.nan)
        return figures
