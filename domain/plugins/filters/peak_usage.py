"""PeakUsage: a node that was at its limit yesterday will be there today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import Reason, StaticFilter
from domain.plugins.thresholds import MEASURED, Threshold, first_passed, read_thresholds
from domain.plugins.view import NodeView

_DEFAULT = Threshold("cpu", 80.0, MEASURED)


class PeakUsage(StaticFilter):
    """Refuse a node where yesterday's peak of a resource was above a threshold.

    A node of which no peak is known passes. Pods in flight do not matter to it: what is used today changes
    nothing of yesterday.

    Formula: refused where `highest usage measured on the day before > threshold`, both in percent.
    Arguments: ``resources``, a list of ``name`` and ``threshold`` (percent, 0..100); default cpu, 80.
    Reason codes: ``peak-usage:<resource>`` (evicting pods cannot help).
    Source: the machine filter of operations platforms by the peak of the day before.
    """

    name: ClassVar[str] = "PeakUsage"
    reads: ClassVar[frozenset[str]] = frozenset()
    phrases: ClassVar[Mapping[str, str]] = {"peak-usage": "were above the profile's threshold yesterday in"}
    reads_usage = True

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("resources",))
        self._thresholds = read_thresholds(given, of=(MEASURED,)) or [_DEFAULT]
        self.reasons = tuple(
            Reason(f"peak-usage:{each.resource}", unresolvable=True) for each in self._thresholds
        )

    def refuse(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """See ``StaticFilter``."""
        return first_passed(self._thresholds, lambda name: view.peak_yesterday(name, rows), len(rows))
