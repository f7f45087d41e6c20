"""TargetLoadPacking: fill nodes up to a target of measured cpu usage, and avoid those above it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.kernels.arrays import TARGET_LOAD
from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.model.quantities import to_milli
from domain.plugins.arguments import Arguments
from domain.plugins.base import ResourceScore, Term, TermPart
from domain.plugins.in_flight import ESTIMATED, READS, in_flight
from domain.plugins.measured_usage import PROVIDER_ARGUMENTS, percent_used
from domain.plugins.view import NodeView
from domain.state.resources import (
    CPU_BEYOND,
    RECENT_FIXED,
    RECENT_REQUESTED,
    RECENT_SILENT,
    ResourceIndex,
)

_TARGET_PERCENT = 40.0
_MULTIPLIER = 1.5
_DEFAULT_REQUEST_MILLI = 1000
_OF_CPU_ALONE = ("defaultRequestsMultiplier", "defaultRequests")


class TargetLoadPacking(ResourceScore):
    """Rate a node by the cpu or memory usage that is predicted with the pod on it.

    Formula: with ``u`` the predicted usage in percent of the node's capacity and ``t`` the target,
    ``(100 - t) * u / t + t`` up to the target, ``t * (100 - u) / (100 - t)`` up to 100, and 0 above. ``u``
    adds to the measured usage what the pod, and the pods that no measurement covers yet, will use: of cpu per
    container its limit, else its request times a multiplier, else a default, plus the overhead; init
    containers do not count. Of memory it is what the policy expects. A node without a measurement gets 0.

    Arguments: ``targetUtilization`` (percent up to 100; 0 or less: the default 40), ``resource`` (``cpu``,
    the default and upstream's, or ``memory``), and for cpu alone ``defaultRequestsMultiplier`` (default 1.5)
    and ``defaultRequests`` (``cpu``, default 1000m).
    ``metricProvider`` and ``watcherAddress`` are taken without effect: usage comes by events.
    Source: scheduler-plugins, plugin TargetLoadPacking.
    """

    name: ClassVar[str] = "TargetLoadPacking"
    reads: ClassVar[frozenset[str]] = READS
    reads_usage = True
    measured_count = 1
    parts_max = 4
    numbers_max = 1

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("targetUtilization", "resource", *_OF_CPU_ALONE, *PROVIDER_ARGUMENTS))
        self._resource = given.choice("resource", ESTIMATED)
        for key in _OF_CPU_ALONE if self._resource != "cpu" else ():
            if key in given:
                raise FieldError(given.at(key), "is of cpu; what pods use of memory is up to the policy")
        target = given.number("targetUtilization", _TARGET_PERCENT, high=100)
        self._target = target if target > 0 else _TARGET_PERCENT
        self._multiplier = given.number("defaultRequestsMultiplier", _MULTIPLIER, 0)
        self._default_milli = float(_DEFAULT_REQUEST_MILLI)
        if "defaultRequests" in given:
            self._default_milli = _cpu_milli(given.section("defaultRequests", ("cpu", "memory")))

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``: the column with the capacity, then the claims that were not measured yet."""
        if self._resource == "memory":
            return Term(TARGET_LOAD, in_flight("memory", template, resources), (self._target,))
        claim = template.cpu_claim
        parts = (
            TermPart(CPU_BEYOND, 0.0, 0),
            TermPart(RECENT_FIXED, 1.0, claim.fixed_milli),
            TermPart(RECENT_REQUESTED, self._multiplier, claim.requested_milli),
            TermPart(RECENT_SILENT, self._default_milli, claim.silent_count),
        )
        return Term(TARGET_LOAD, parts, (self._target,))

    def measured(self, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Plugin``: the percentage that is used."""
        return percent_used(view, self._resource, rows)[None, :]


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
