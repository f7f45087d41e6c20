"""ColocationScore: prefer the node that has most left to lend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels.arrays import ROOM, WHOLE
from domain.model.colocation import QUALITY_OF
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import ResourceScore, Term, TermPart
from domain.state.resources import CPU_BEYOND, MEMORY_BEYOND, ResourceIndex, room_columns


class ColocationScore(ResourceScore):
    """Rate a node by what it has left to lend once the pod is on it, in share of its capacity.

    Formula: `100 * min((room - estimate) / capacity)` over cpu and memory, at least 0. Room is that of the
    pod's quality without the estimates of pods that no measurement covers yet; for a high pod that of mid.
    Arguments: ``arithmetic`` (``real``, the default, or ``integer``: the score is cut to a whole number).
    Source: the resource view of Baidu's co-location, in the form of LeastAllocated.
    """

    name: ClassVar[str] = "ColocationScore"
    reads: ClassVar[frozenset[str]] = frozenset(
        {"qos_class", "cpu_claim", "memory_claim", "requests", "limits"}
    )
    parts_max = 4

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        self._kind = ROOM + (WHOLE if Arguments(args, path, ("arithmetic",)).whole_numbers() else 0)

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``: for each resource its capacity, and its room."""
        estimate, (cpu, memory) = resources.estimate(template), room_columns(QUALITY_OF[template.qos_class])
        parts = (
            TermPart(CPU_BEYOND, 1.0, 0),
            TermPart(cpu, 1.0, estimate.cpu_milli),
            TermPart(MEMORY_BEYOND, 1.0, 0),
            TermPart(memory, 1.0, estimate.memory_bytes),
        )
        return Term(self._kind, parts)
