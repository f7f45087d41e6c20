"""ResourceThreshold: keep a reserve of each resource, in what is requested or in what is really used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import Cure, Limit, LimitFilter, Reason, StaticFilter
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
    `measured > threshold`.
    Arguments: ``resources``, a list of ``name`` (cpu, memory, network, or any other), ``threshold`` (percent,
    0..100) and ``of`` (``requested``, the default, or ``measured``).
    Reason codes: ``over-threshold-measured:<resource>`` (evicting pods cannot help),
    ``over-threshold:<resource>`` (evicting pods could help, unless the pod alone passes the threshold).
    Source: the machine filters of operations platforms, by CPU, memory and network.
    """

    name: ClassVar[str] = "ResourceThreshold"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})
    phrases: ClassVar[Mapping[str, str]] = {
        "over-threshold": "would request more than the profile allows of",
        "over-threshold-measured": "were measured above the profile's threshold for",
    }
    reads_usage = True

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("resources",))
        thresholds = read_thresholds(given, of=(REQUESTED, MEASURED))
        if not thresholds:
            raise FieldError(given.at("resources"), "is missing; a threshold for one resource at least")
        self._requested = [each for each in thresholds if each.of == REQUESTED]
        self._measured = [each for each in thresholds if each.of == MEASURED]
        self.limits_max = len(self._requested)
        self.reads_usage = bool(self._measured)
        self.reasons = tuple(
            Reason(f"over-threshold-measured:{each.resource}", unresolvable=True) for each in self._measured
        )

    def cures(self, code: str) -> Cure:
        """See ``Plugin``."""
        return Cure.NODE | (Cure.USAGE if code.startswith("over-threshold-measured") else Cure.ROOM)

    @property
    def static_reads(self) -> frozenset[str]:
        """See ``StaticFilter``: what is measured is the same for every pod."""
        return frozenset()

    def refuse(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """See ``StaticFilter``."""
        return first_passed(self._measured, lambda name: percent_used(view, name, rows), len(rows))

    def limits(self, template: PodTemplate, resources: ResourceIndex) -> list[Limit]:
        """See ``LimitFilter``."""
        return [
            Limit(
                columns=(resources.column(each.resource),),
                value=1 if each.resource == "pods" else template.requests.get(each.resource, 0),
                capacity=resources.column(each.resource),
                percent=each.percent,
                reason=f"over-threshold:{each.resource}",
            )
            for each in self._requested
        ]
