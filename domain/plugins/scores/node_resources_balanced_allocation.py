"""NodeResourcesBalancedAllocation: prefer nodes whose resources fill up evenly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.arguments import CPU_AND_MEMORY, Arguments
from domain.plugins.base import Score
from domain.plugins.scoring import skipped
from domain.plugins.view import NodeView

CHANGE = "change"
WITH_POD = "with-pod"


class Balanced(Score):
    """Rate how even the used shares of the resources are, or how much more even the pod makes them.

    Formula: ``s = 100 * (1 - std)``, where ``std`` is the population's standard deviation of
    ``min(used / capacity, 1)`` over the resources (for two, half their difference). ``with-pod`` gives ``s``
    with the pod on the node; ``change`` gives ``50 + (50 + s_with - s_without) / 2``: 75 where the pod
    changes nothing. ``used`` sums the requests as they are. A resource that the node does not have is left
    out, and so is an extended one that the pod does not request. A pod that requests none of the resources
    gets 0 everywhere. Computed in real numbers.

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

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        wanted = [resource.name for resource in self._resources if not skipped(resource.name, template)]
        if not any(template.requests.get(name) for name in wanted):
            return np.zeros(len(rows))
        own = np.array([template.requests.get(name, 0) for name in wanted], dtype=np.int64)[:, None]
        capacity = np.array([view.allocatable(name, rows) for name in wanted])
        used = np.array([view.requested(name, rows) for name in wanted])
        with_pod = _evenness(used + own, capacity)
        if self._variant == WITH_POD:
            return with_pod
        change: np.ndarray = with_pod - _evenness(used, capacity)
        return 50.0 + (50.0 + change) / 2.0


def _evenness(used: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Return float64[K] of int64[R, K]: 100 where all shares are equal."""
    there = capacity != 0
    share = np.where(there, np.minimum(used / np.maximum(capacity, 1), 1.0), 0.0)
    count = np.maximum(there.sum(axis=0), 1)
    mean = share.sum(axis=0) / count
    variance = np.where(there, (share - mean) ** 2, 0.0).sum(axis=0) / count
    evenness: np.ndarray = (1.0 - np.sqrt(variance)) * 100.0
    return evenness
