"""ResourceThreshold: keep a reserve of each resource, in what is requested or in what is really used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import Cure, Limit, LimitFilter, Reason, StaticFilter
from domain.plugins.in_flight import ARGUMENT, ESTIMATED, READS, in_flight
from domain.plugins.measured_usage import percent_used
from domain.plugins.thresholds import MEASURED, REQUESTED, first_passed, read_thresholds
from domain.plugins.view import NodeView
from domain.state.resources import ResourceIndex


class ResourceThreshold(StaticFilter, LimitFilter):
    """Refuse a node where a resource is used beyond a threshold: by requests, with the pod, or as measured.

    The measured value is the average, else the latest value; a node that was not measured passes. Measured
    thresholds are checked before requested ones. Evicting pods may not lower what is measured. It does lower
    what is requested, unless the pod alone exceeds the threshold.

    Formula: refused where `sum of requests + request > threshold / 100 * allocatable`, or where
    `measured > threshold`; with ``inFlight`` `estimates > (threshold - measured) / 100 * capacity`.
    Arguments: ``resources``, a list of ``name`` (cpu, memory, network, or any other), ``threshold`` (percent,
    0..100) and ``of`` (``requested``, the default, or ``measured``); ``inFlight`` (measured thresholds of cpu
    and memory also count what the pod, and the pods that no measurement covers yet, are expected to use by
    the policy; default false).
    Reason codes: ``over-threshold-measured:<resource>`` (evicting pods cannot help),
    ``over-threshold:<resource>`` (evicting pods could help, unless the pod alone passes the threshold).
    Source: the machine filters of operations platforms, by CPU, memory and network.
    """

    name: ClassVar[str] = "ResourceThreshold"
    reads: ClassVar[frozenset[str]] = READS
    phrases: ClassVar[Mapping[str, str]] = {
        "over-threshold": "would request more than the profile allows of",
        "over-threshold-measured": "were measured above the profile's threshold for",
    }
    reads_usage = True

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("resources", ARGUMENT))
        thresholds = read_thresholds(given, of=(REQUESTED, MEASURED))
        if not thresholds:
            raise FieldError(given.at("resources"), "is missing; a threshold for one resource at least")
        counts = given.flag(ARGUMENT)
        self._requested = [each for each in thresholds if each.of == REQUESTED]
        measured = [each for each in thresholds if each.of == MEASURED]
        self._in_flight = [each for each in measured if counts and each.resource in ESTIMATED]
        if counts and not self._in_flight:
            raise FieldError(given.at(ARGUMENT), "needs a threshold of cpu or memory with of: measured")
        self._measured = [each for each in measured if each not in self._in_flight]
        self.measured_count = len(self._in_flight)
        self.limits_max = len(self._in_flight) + len(self._requested)
        self.reads_usage = bool(measured)
        self.reasons = tuple(
            Reason(f"over-threshold-measured:{each.resource}", unresolvable=True) for each in self._measured
        )

    def cures(self, code: str) -> Cure:
        """See ``Plugin``."""
        if not code.startswith("over-threshold-measured"):
            return Cure.NODE | Cure.ROOM
        return Cure.NODE | Cure.USAGE | (Cure.ROOM if self._in_flight else Cure(0))

    @property
    def static_reads(self) -> frozenset[str]:
        """See ``StaticFilter``: what is measured is the same for every pod."""
        return frozenset()

    def refuse(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """See ``StaticFilter``."""
        return first_passed(self._measured, lambda name: percent_used(view, name, rows), len(rows))

    def limits(self, template: PodTemplate, resources: ResourceIndex) -> list[Limit]:
        """See ``LimitFilter``: first what was measured, and may be used beside it."""
        beside = [
            Limit(
                columns=(estimates.column,),
                value=estimates.value,
                capacity=capacity.column,
                percent=each.percent,
                reason=f"over-threshold-measured:{each.resource}",
                measured=i,
            )
            for i, each in enumerate(self._in_flight)
            for capacity, estimates in (in_flight(each.resource, template, resources),)
        ]
        return beside + [
            Limit(
                columns=(resources.column(each.resource),),
                value=1 if each.resource == "pods" else template.requests.get(each.resource, 0),
                capacity=resources.column(each.resource),
                percent=each.percent,
                reason=f"over-threshold:{each.resource}",
            )
            for each in self._requested
        ]

    def measured(self, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Limit``: how much more may be used, times 100; infinite where a node was not measured."""
        found = [np.empty((0, len(rows)))]
        for each in self._in_flight:
            left = (each.percent - percent_used(view, each.resource, rows)) * view.capacity(
                each.resource, rows
            )
            found.append(np.where(np.isnan(left), np.inf, left)[None, :])
        return np.concatenate(found)
