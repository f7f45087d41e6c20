"""TargetLoadPacking: fill nodes up to a target of measured cpu usage, and avoid those above it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.errors import FieldError
from domain.model.pods import CpuClaim, PodTemplate
from domain.model.quantities import to_milli
from domain.plugins.arguments import Arguments
from domain.plugins.base import Score
from domain.plugins.measuring import PROVIDER_ARGUMENTS, percent_used
from domain.plugins.view import NodeView

_TARGET_PERCENT = 40.0
_MULTIPLIER = 1.5
_DEFAULT_REQUEST_MILLI = 1000


class TargetLoadPacking(Score):
    """Rate a node by the cpu usage that is predicted with the pod on it.

    Formula: with ``u`` the predicted usage in percent of the node's capacity and ``t`` the target,
    ``(100 - t) * u / t + t`` up to the target, ``t * (100 - u) / (100 - t)`` up to 100, and 0 above. ``u``
    adds to the measured usage what the pod, and the pods that were placed since the measurement, will use:
    per container its limit, else its request times a multiplier, else a default, plus the overhead; init
    containers do not count. A node without a measurement of cpu gets 0.

    Arguments: ``targetUtilization`` (percent up to 100; 0 or less: the default 40),
    ``defaultRequestsMultiplier`` (default 1.5), ``defaultRequests`` (``cpu``, default 1000m).
    ``metricProvider`` and ``watcherAddress`` are taken without effect: usage comes with the scenario.
    Source: scheduler-plugins, plugin TargetLoadPacking.
    """

    name: ClassVar[str] = "TargetLoadPacking"
    reads: ClassVar[frozenset[str]] = frozenset({"cpu_claim"})

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        allowed = ("targetUtilization", "defaultRequestsMultiplier", "defaultRequests", *PROVIDER_ARGUMENTS)
        given = Arguments(args, path, allowed)
        target = given.number("targetUtilization", _TARGET_PERCENT, high=100)
        self._target = target if target > 0 else _TARGET_PERCENT
        self._multiplier = given.number("defaultRequestsMultiplier", _MULTIPLIER, 0)
        self._default_milli = float(_DEFAULT_REQUEST_MILLI)
        if "defaultRequests" in given:
            self._default_milli = _cpu_milli(given.section("defaultRequests", ("cpu", "memory")))

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        capacity = view.capacity("cpu", rows)
        own = self._predict(template.cpu_claim)
        recent = [sum(self._predict(pod.cpu_claim) for pod in view.unmeasured(row)) for row in rows.tolist()]
        extra = own + np.array(recent, dtype=np.float64)
        percent = percent_used(view, "cpu", rows)
        used = percent + np.divide(100.0 * extra, capacity, out=np.zeros(len(rows)), where=capacity > 0)
        used = np.where(capacity > 0, used, np.where(np.isnan(percent), np.nan, 0.0))
        target = self._target
        rising = (100.0 - target) * used / target + target
        falling = target * (100.0 - used) / (100.0 - target) if target < 100 else np.zeros(len(rows))
        score: np.ndarray = np.select([used <= target, used <= 100.0], [rising, falling], 0.0)
        return score

    def _predict(self, claim: CpuClaim) -> float:
        estimated = claim.requested_milli * self._multiplier + claim.silent_count * self._default_milli
        return claim.fixed_milli + estimated


def _cpu_milli(requests: Arguments) -> float:
    value = requests.raw("cpu")
    if value is None:
        return 0.0
    try:
        milli = to_milli(str(value))
    except FieldError as error:
        raise FieldError(requests.at("cpu"), error.message) from None
    if milli < 0:
        raise FieldError(requests.at("cpu"), f"{value} is negative; allowed is 0 or more")
    return float(milli)
