"""ColocationFit: pods of weaker quality go where what is idle suffices for what they are expected to use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from domain.model.colocation import QUALITY_OF, Quality
from domain.model.pods import PodTemplate
from domain.plugins.base import Cure, Demand, FirmFilter, Reason, StaticFilter
from domain.plugins.view import NodeView
from domain.state.resources import ResourceIndex, room_columns

_HOT = 1


class ColocationFit(StaticFilter, FirmFilter):
    """Refuse a node that lends a mid or low pod less than the pod is expected to use, or that is hot.

    A high pod (Guaranteed) has what it requests, whatever is lent: nothing is asked for it. A mid pod
    (Burstable) must find room beside its request, which NodeResourcesFit looks at; a low pod (BestEffort)
    requests nothing and needs room alone. Room follows from what was measured by quality; a node that was
    not, or too long ago, lends nothing (docs/colocation.md). What is lent is measured use: no eviction raises
    it before the next measurement.

    Formula: refused where `estimate > room of the pod's quality - estimates of pods that no measurement
    covers yet`, for cpu or memory.
    Reason codes: ``hot-node``, ``insufficient-room:<resource>``, comma-joined (evicting pods cannot help).
    Source: the resource view of Baidu's co-location; Koordinator's batch and mid resources.
    """

    name: ClassVar[str] = "ColocationFit"
    reads: ClassVar[frozenset[str]] = frozenset(
        {"qos_class", "cpu_claim", "memory_claim", "requests", "limits"}
    )
    phrases: ClassVar[Mapping[str, str]] = {
        "insufficient-room": "lend too little",
        "hot-node": "are hot: too busy to lend anything",
    }
    reasons = (Reason("hot-node", unresolvable=True),)

    def cures(self, code: str) -> Cure:
        """See ``Plugin``: a node that calms down counts as one with another spec."""
        return Cure.NODE if code == "hot-node" else Cure.NODE | Cure.ROOM | Cure.USAGE

    @property
    def static_reads(self) -> frozenset[str]:
        """See ``StaticFilter``."""
        return frozenset({"qos_class"})

    def refuse(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """See ``StaticFilter``."""
        if QUALITY_OF[template.qos_class] is Quality.HIGH:
            return None
        hot = view.hot(rows)
        return hot.astype(np.uint8) * _HOT if hot.any() else None

    def demands(self, template: PodTemplate, resources: ResourceIndex) -> list[Demand]:
        """See ``FirmFilter``: the estimate of the pod, of cpu and memory."""
        quality = QUALITY_OF[template.qos_class]
        if quality is Quality.HIGH:
            return []
        estimate, (cpu, memory) = resources.estimate(template), room_columns(quality)
        asked = Demand(cpu, estimate.cpu_milli, "cpu"), Demand(memory, estimate.memory_bytes, "memory")
        return [demand for demand in asked if demand.value]

    def reason(self, short: list[str]) -> Reason:
        """See ``FirmFilter``."""
        return Reason(",".join(f"insufficient-room:{name}" for name in short), unresolvable=True)
