"""NodeResourcesBalancedAllocation: prefer nodes whose resources fill up evenly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.kernels.arrays import BALANCED, BALANCED_CHANGE
from domain.model.pods import PodTemplate
from domain.plugins.arguments import CPU_AND_MEMORY, Arguments
from domain.plugins.base import ResourceScore, Term, TermPart
from domain.plugins.scored_resources import skipped
from domain.plugins.view import NodeView
from domain.state.resources import ResourceIndex

CHANGE = "change"
WITH_POD = "with-pod"


class Balanced(ResourceScore):
    """Rate how even the used shares of the resources are, or how much more even the pod makes them.

    Formula: ``s = 100 * (1 - std)``, where ``std`` is the population's standard deviation of
    ``min(used / capacity, 1)`` over the resources (for two, half their difference). ``with-pod`` gives ``s``
    with the pod on the node; ``change`` gives ``50 + (50 + s_with - s_without) / 2``: 75 where the pod
    changes nothing. ``used`` sums the requests as they are. A resource that the node does not have is left
    out, and so is one other than cpu, memory and ephemeral storage that the pod does not request. A pod that
    requests none of the resources gets 0 everywhere. Computed in real numbers.

    Arguments: ``variant`` (``change``, the default, or ``with-pod``), ``resources`` (``name``, and ``weight``
    1, which has no effect; default cpu and memory), ``arithmetic`` (``real``, the only one).
    Source: kube-scheduler plugin NodeResourcesBalancedAllocation, ``change`` since 1.35.
    """

    name: ClassVar[str] = "NodeResourcesBalancedAllocation"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("variant", "resources", "arithmetic"))
        given.choice("arithmetic", ("real",))
        self._variant = given.choice("variant", (CHANGE, WITH_POD))
        self._resources = given.resources("resources", CPU_AND_MEMORY, weight_max=1)
        self.parts_max = len(self._resources)

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``."""
        wanted = [resource.name for resource in self._resources if not skipped(resource.name, template)]
        if not any(template.requests.get(name) for name in wanted):
            wanted = []
        parts = [TermPart(resources.column(name), 1.0, template.requests.get(name, 0)) for name in wanted]
        return Term(BALANCED if self._variant == WITH_POD else BALANCED_CHANGE, tuple(parts))

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        parts = self.term(template, view.resources).parts
        if not parts:
            return np.zeros(len(rows))
        capacity = [view.column(view.table.allocatable, part.column, rows) for part in parts]
        used = [view.column(view.table.requested, part.column, rows) for part in parts]
        own = [part.value for part in parts]
        with_pod = _evenness([a + b for a, b in zip(used, own, strict=True)], capacity)
        if self._variant == WITH_POD:
            return with_pod
        change: np.ndarray = with_pod - _evenness(used, capacity)
        return 50.0 + (50.0 + change) / 2.0


def _evenness(used: list[np.ndarray], capacity: list[np.ndarray]) -> np.ndarray:
    """Return float64[K] of int64[K] per resource: 100 where all shares are equal.

    Added up one after another, as the kernel does: ``np.sum`` may group its additions.
    """
    there = [each != 0 for each in capacity]
    shares = [np.minimum(u / np.maximum(c, 1), 1.0) for u, c in zip(used, capacity, strict=True)]
    total, squares = np.zeros(len(used[0])), np.zeros(len(used[0]))
    count = np.zeros(len(used[0]))
    for share, is_there in zip(shares, there, strict=True):
        total[is_there] += share[is_there]
        count += is_there
    mean = total / np.maximum(count, 1)
    for share, is_there in zip(shares, there, strict=True):
        squares[is_there] += ((share - mean) * (share - mean))[is_there]
    evenness: np.ndarray = (1.0 - np.sqrt(squares / np.maximum(count, 1))) * 100.0
    return evenness
