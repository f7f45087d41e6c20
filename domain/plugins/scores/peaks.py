"""Peaks: prefer the node whose power draw grows least with the pod on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.model.validation import key_path
from domain.plugins.arguments import Arguments
from domain.plugins.base import StaticScore
from domain.plugins.measured_usage import PROVIDER_ARGUMENTS, percent_used
from domain.plugins.normaliser import Normaliser
from domain.plugins.view import NodeView

_COEFFICIENTS = ("k0", "k1", "k2")
_NO_POWER = (0.0, 0.0)


class Peaks(StaticScore):
    """Rate a node by the growth of its power draw, which is ``k0 + k1 * exp(k2 * u)`` at usage ``u`` percent.

    Formula: ``k1 * (exp(k2 * after) - exp(k2 * before))``, where ``before`` is the measured cpu usage and
    ``after`` adds the pod's request (a container that asks for none counts as 100m) over the node's
    capacity; 0 where that is above 100, where cpu is not measured, and for a node without a model. Over the
    feasible nodes the smallest growth becomes 100 and the largest 0; equal ones 100, or 0 where all are 0.

    Arguments: ``nodePowerModel`` (node -> ``k0``, ``k1``, ``k2``; needed).
    ``metricProvider`` and ``watcherAddress`` are taken without effect: usage comes by events.
    Source: scheduler-plugins, plugin Peaks.
    """

    name: ClassVar[str] = "Peaks"
    reads: ClassVar[frozenset[str]] = frozenset({"scoring_cpu_milli"})
    reads_usage = True
    normaliser = Normaliser(reverse=True, equal_full=True)

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        allowed = ("nodePowerModel", *PROVIDER_ARGUMENTS)
        given = Arguments(args, path, allowed)
        models = given.raw("nodePowerModel")
        if not isinstance(models, Mapping) or not models:
            raise FieldError(given.at("nodePowerModel"), "is missing; write node -> {k0, k1, k2}")
        self._models: dict[str, tuple[float, float]] = {}
        for node, model in models.items():
            power = Arguments(model, key_path(given.at("nodePowerModel"), str(node)), _COEFFICIENTS)
            _, k1, k2 = (power.number(k, 0.0) for k in _COEFFICIENTS)
            self._models[str(node)] = (k1, k2)

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        names = view.table.names
        models = np.array([self._models.get(names[row], _NO_POWER) for row in rows.tolist()]).reshape(-1, 2)
        capacity = view.capacity("cpu", rows)
        before = percent_used(view, "cpu", rows)
        asked = 100.0 * template.scoring_cpu_milli
        share = np.divide(asked, capacity, out=np.zeros(len(rows)), where=capacity > 0)
        after = np.where(capacity > 0, before + share, 0.0)
        rated = ~np.isnan(before) & (after <= 100.0)
        before, after = np.where(rated, before, 0.0), np.where(rated, after, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):  # a model that overflows rates nothing
            power = models[:, 0] * np.exp(models[:, 1] * np.array([before, after]))
            growth: np.ndarray = power[1] - power[0]
        return growth
