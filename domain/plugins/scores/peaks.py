"""Peaks: prefer the node whose power draw grows least with the pod on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.kernels.arrays import BY_POWER
from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.model.validation import key_path
from domain.plugins.arguments import Arguments
from domain.plugins.base import RelativeScore, StaticScore, TermPart
from domain.plugins.in_flight import ARGUMENT, in_flight
from domain.plugins.measured_usage import PROVIDER_ARGUMENTS, percent_used
from domain.plugins.normaliser import Normaliser
from domain.plugins.view import NodeView
from domain.state.resources import ResourceIndex

_COEFFICIENTS = ("k0", "k1", "k2")
_NO_POWER = (0.0, 0.0)


class _Models:
    """The arguments: the power model of each node that has one, ``k1`` and ``k2``."""

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("nodePowerModel", ARGUMENT, *PROVIDER_ARGUMENTS))
        given.flag(ARGUMENT)
        models = given.raw("nodePowerModel")
        if not isinstance(models, Mapping) or not models:
            raise FieldError(given.at("nodePowerModel"), "is missing; write node -> {k0, k1, k2}")
        self._models: dict[str, tuple[float, float]] = {}
        for node, model in models.items():
            power = Arguments(model, key_path(given.at("nodePowerModel"), str(node)), _COEFFICIENTS)
            _, k1, k2 = (power.number(k, 0.0) for k in _COEFFICIENTS)
            self._models[str(node)] = (k1, k2)

    def of(self, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """Return float64[2, len(rows)]: the coefficients, 0 for a node without a model."""
        names = view.table.names
        found = [self._models.get(names[row], _NO_POWER) for row in rows.tolist()]
        return np.array(found).reshape(-1, 2).T


class Peaks(StaticScore):
    """Rate a node by the growth of its power draw, which is ``k0 + k1 * exp(k2 * u)`` at usage ``u`` percent.

    Formula: ``k1 * (exp(k2 * after) - exp(k2 * before))``, where ``before`` is the measured cpu usage and
    ``after`` adds the pod's request (a container that asks for none counts as 100m) over the node's
    capacity; 0 where that is above 100, where cpu is not measured, and for a node without a model. Over the
    feasible nodes the smallest growth becomes 100 and the largest 0; equal ones 100, or 0 where all are 0.

    Arguments: ``nodePowerModel`` (node -> ``k0``, ``k1``, ``k2``; needed), ``inFlight`` (``before`` adds what
    the pods that no measurement covers yet are expected to use by the policy, and ``after`` what the pod is,
    in place of its request; growths are whole numbers of ``2^-30``; default false, as upstream).
    ``metricProvider`` and ``watcherAddress`` are taken without effect: usage comes by events.
    Source: scheduler-plugins, plugin Peaks.
    """

    name: ClassVar[str] = "Peaks"
    reads: ClassVar[frozenset[str]] = frozenset({"scoring_cpu_milli"})
    reads_usage = True
    normaliser = Normaliser(reverse=True, equal_full=True)

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        self._models = _Models(args, path)

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        k1, k2 = self._models.of(view, rows)
        capacity = view.capacity("cpu", rows)
        before = percent_used(view, "cpu", rows)
        asked = 100.0 * template.scoring_cpu_milli
        share = np.divide(asked, capacity, out=np.zeros(len(rows)), where=capacity > 0)
        after = np.where(capacity > 0, before + share, 0.0)
        rated = ~np.isnan(before) & (after <= 100.0)
        before, after = np.where(rated, before, 0.0), np.where(rated, after, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):  # a model that overflows rates nothing
            power = k1 * np.exp(k2 * np.array([before, after]))
            growth: np.ndarray = power[1] - power[0]
        return growth


class PeaksInFlight(RelativeScore):
    """Peaks with ``inFlight``: it follows from the pods of a node as well.

    Source: scheduler-plugins, plugin Peaks; pods in flight as in TargetLoadPacking.
    """

    name: ClassVar[str] = "Peaks"
    reads: ClassVar[frozenset[str]] = frozenset({"cpu_claim"})
    reads_usage = True
    normaliser = Peaks.normaliser
    kind = BY_POWER
    measured_count = 3
    parts_max = 2

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        self._models = _Models(args, path)

    def parts(self, template: PodTemplate, resources: ResourceIndex) -> tuple[TermPart, ...]:
        """See ``RelativeScore``: the capacity, and the pods in flight."""
        return in_flight("cpu", template, resources)

    def measured(self, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Plugin``: the used percentage, and the coefficients of each node."""
        return np.vstack([percent_used(view, "cpu", rows), self._models.of(view, rows)])
