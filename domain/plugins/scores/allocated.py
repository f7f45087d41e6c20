"""NodeResourcesFit (score): rate nodes by how full they would be, LeastAllocated or MostAllocated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels.arrays import LEAST_ALLOCATED, MOST_ALLOCATED
from domain.model.pods import PodTemplate
from domain.plugins.arguments import CPU_AND_MEMORY
from domain.plugins.base import ResourceScore, Term
from domain.plugins.scored_resources import fit_strategy, scoring_parts
from domain.state.resources import ResourceIndex

_KINDS = {"LeastAllocated": LEAST_ALLOCATED, "MostAllocated": MOST_ALLOCATED}
_STRATEGIES = (*_KINDS, "RequestedToCapacityRatio")  # the last one is a plugin file of its own


class Allocated(ResourceScore):
    """Weighted mean over resources of the free (LeastAllocated) or used (MostAllocated) share, times 100.

    Formula: ``sum(w * (capacity - used) * 100 / capacity) / sum(w)`` for LeastAllocated, the same with
    ``used`` for MostAllocated. ``used`` counts the pod itself; for cpu and memory it sums the non-zero
    requests (a container that asks for nothing counts as 100m and 200 MiB). A node over its capacity counts
    as full. A resource that the node does not have is left out, and so is one other than cpu, memory and
    ephemeral storage that the pod does not request.

    Arguments: ``scoringStrategy.type`` (LeastAllocated, the default, or MostAllocated),
    ``scoringStrategy.resources`` (list of ``name`` and ``weight`` 1..100; default cpu and memory, 1 each);
    ``arithmetic`` (``real``, the default, or ``integer``: each share and the mean are cut to whole numbers,
    as upstream does). The filter's arguments may stand beside them.
    Source: kube-scheduler plugin NodeResourcesFit, scoringStrategy.
    """

    name: ClassVar[str] = "NodeResourcesFit"
    reads: ClassVar[frozenset[str]] = frozenset({"requests", "scoring_cpu_milli", "scoring_memory_bytes"})

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        strategy, whole = fit_strategy(args, path)
        self._kind = _KINDS[strategy.choice("type", _STRATEGIES)] + whole
        self._resources = strategy.resources("resources", CPU_AND_MEMORY, weight_max=100)
        self.parts_max = len(self._resources)

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``."""
        return Term(self._kind, scoring_parts(self._resources, template, resources))
