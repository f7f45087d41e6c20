"""NodeResourcesFit (score): rate nodes by how full they would be, LeastAllocated or MostAllocated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels.placing import LEAST_ALLOCATED, MOST_ALLOCATED
from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.plugins.base import ResourceScore, Term, TermPart
from domain.state.resources import CPU, MEMORY, SCORING_CPU, SCORING_MEMORY, ResourceIndex

_KINDS = {"LeastAllocated": LEAST_ALLOCATED, "MostAllocated": MOST_ALLOCATED}
_DEFAULT_RESOURCES = ({"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1})


class Allocated(ResourceScore):
    """Weighted mean over resources of the free (LeastAllocated) or used (MostAllocated) share, times 100.

    LeastAllocated: ``sum(w * (capacity - used) * 100 / capacity) / sum(w)``; MostAllocated the same with
    ``used``. ``used`` counts the pod itself; for cpu and memory it sums the non-zero requests (a container
    that asks for nothing counts as 100m and 200 MiB). A resource that the node does not have is left out,
    and so is an extended resource that the pod does not request. Computed in real numbers.
    Source: kube-scheduler plugin NodeResourcesFit, scoringStrategy.
    """

    name: ClassVar[str] = "NodeResourcesFit"
    reads: ClassVar[frozenset[str]] = frozenset({"requests", "scoring_cpu_milli", "scoring_memory_bytes"})

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        strategy = args.get("scoringStrategy", {})
        kind = strategy.get("type", "LeastAllocated")
        if kind not in _KINDS:
            raise FieldError(f"{path}.scoringStrategy.type", f"{kind!r}; allowed: {', '.join(_KINDS)}")
        self._kind = _KINDS[kind]
        self._resources: list[tuple[str, float]] = []
        for i, resource in enumerate(strategy.get("resources") or _DEFAULT_RESOURCES):
            weight = float(resource.get("weight", 1))
            if not 1 <= weight <= 100:
                where = f"{path}.scoringStrategy.resources[{i}].weight"
                raise FieldError(where, f"{weight:g} is not within 1..100")
            self._resources.append((resource["name"], weight))

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``."""
        parts = []
        for name, weight in self._resources:
            column = resources.column(name)
            value = template.requests.get(name, 0)
            if column == CPU:
                column, value = SCORING_CPU, template.scoring_cpu_milli
            elif column == MEMORY:
                column, value = SCORING_MEMORY, template.scoring_memory_bytes
            elif value == 0 and "/" in name:
                continue
            parts.append(TermPart(column, weight, value))
        return Term(self._kind, tuple(parts))
