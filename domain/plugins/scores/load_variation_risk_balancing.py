"""LoadVariationRiskBalancing: prefer nodes with low and steady measured usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import StaticScore
from domain.plugins.measured_usage import PROVIDER_ARGUMENTS, load
from domain.plugins.view import NodeView

_HALVED = "(mu+sigma)/2"
_SUMMED = "mu+sigma"


class LoadVariationRiskBalancing(StaticScore):
    """Rate a node by mean plus deviation of its measured cpu and memory usage; the worse of both counts.

    Formula: ``100 * (1 - (mu + sigma) / 2)`` with ``mu`` the measured mean plus the pod's request over what
    the node offers, and ``sigma = margin * deviation ^ (1 / sensitivity)``, all cut to 0..1; ``mu+sigma``
    gives ``100 * (1 - min(mu + sigma, 1))``. With sensitivity 0, a deviation below 1 counts as 0. Where only
    one of both resources is measured it alone counts; a node without a measurement gets 0.

    Arguments: ``safeVarianceMargin``, ``safeVarianceSensitivity`` (negative: the default 1), ``formula``
    (``(mu+sigma)/2``, the default and upstream's, or ``mu+sigma``, that of its proposal).
    ``metricProvider`` and ``watcherAddress`` are taken without effect: usage comes by events.
    Source: scheduler-plugins, plugin LoadVariationRiskBalancing.
    """

    name: ClassVar[str] = "LoadVariationRiskBalancing"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})
    reads_usage = True

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        allowed = ("safeVarianceMargin", "safeVarianceSensitivity", "formula", *PROVIDER_ARGUMENTS)
        given = Arguments(args, path, allowed)
        margin = given.number("safeVarianceMargin", 1.0)
        sensitivity = given.number("safeVarianceSensitivity", 1.0)
        self._margin = margin if margin >= 0 else 1.0
        self._sensitivity = sensitivity if sensitivity >= 0 else 1.0
        self._halved = given.choice("formula", (_HALVED, _SUMMED)) == _HALVED

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
        power = 1.0 / self._sensitivity if self._sensitivity > 0 else np.inf
        sigma = np.clip(self._margin * np.power(measured.deviation, power), 0.0, 1.0)
        risk = measured.mean + sigma
        risk = risk / 2.0 if self._halved else np.minimum(risk, 1.0)
        rated: np.ndarray = measured.known & (view.allocatable(resource, rows) > 0)
        return np.where(rated, 100.0 * (1.0 - risk), 0.0), measured.known
