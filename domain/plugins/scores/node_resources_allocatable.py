"""NodeResourcesAllocatable: prefer small or large nodes, whatever runs on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments, WeightedResource
from domain.plugins.base import StaticScore
from domain.plugins.normaliser import Normaliser
from domain.plugins.view import NodeView

_DEFAULT = (WeightedResource("cpu", float(1 << 20)), WeightedResource("memory", 1.0))
_WEIGHT_MAX = float(1 << 62)


class Allocatable(StaticScore):
    """Rate a node by the weighted mean of what it offers: the least or the most wins.

    Formula: ``sum(w * allocatable) / sum(w)`` (cpu in thousandths of a core, memory in bytes), cut to a whole
    number, negative for Least, and min-max normalised to 0..100 over the feasible nodes; 0 where all
    are equal. The default weights make a thousandth of a core worth as much as 1 MiB; nodes that differ by
    less are equal.

    Arguments: ``mode`` (Least, the default, or Most), ``resources`` (``name``, ``weight`` from 1; default cpu
    2^20 and memory 1).
    Source: scheduler-plugins, plugin NodeResourcesAllocatable.
    """

    name: ClassVar[str] = "NodeResourcesAllocatable"
    reads: ClassVar[frozenset[str]] = frozenset()
    normaliser = Normaliser()

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("mode", "resources"))
        self._sign = -1.0 if given.choice("mode", ("Least", "Most")) == "Least" else 1.0
        self._resources: list[WeightedResource] = given.resources(
            "resources", _DEFAULT, weight_max=_WEIGHT_MAX
        )

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        total = np.zeros(len(rows))
        for name, weight in self._resources:
            total += weight * view.allocatable(name, rows)
        rate: np.ndarray = np.trunc(total / sum(resource.weight for resource in self._resources))
        return self._sign * rate
