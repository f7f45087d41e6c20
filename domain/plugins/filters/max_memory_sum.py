"""MaxMemorySum: a node must survive the moment when all of its pods use all the memory they may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import Limit, LimitFilter
from domain.state.resources import MEMORY, MEMORY_BEYOND, ResourceIndex

_SHARE_MAX = 1_000.0


class MaxMemorySum(LimitFilter):
    """Refuse a node whose pods, this one included, may use more memory together than the node has.

    A pod may use its memory limit, or its request where that is higher or there is no limit. A node has its
    capacity, or what it offers where no capacity is given.

    Formula: refused where `sum of max(limit, request) > share / 100 * capacity`.
    Arguments: ``share`` (percent, 0..1000; default 100, above it memory is overcommitted).
    Reason codes: ``max-memory-sum`` (evicting pods could help, unless the pod alone may use more).
    Source: the machine filter of operations platforms by the sum of ``maxmemory``.
    """

    name: ClassVar[str] = "MaxMemorySum"
    reads: ClassVar[frozenset[str]] = frozenset({"limits", "requests"})
    phrases: ClassVar[Mapping[str, str]] = {
        "max-memory-sum": "would promise more memory than the profile allows"
    }

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        self._percent = Arguments(args, path, ("share",)).number("share", 100.0, 0.0, _SHARE_MAX)

    def limits(self, template: PodTemplate, resources: ResourceIndex) -> list[Limit]:
        """See ``LimitFilter``."""
        most = max(template.limits.get("memory", 0), template.requests.get("memory", 0))
        return [Limit((MEMORY, MEMORY_BEYOND), most, MEMORY_BEYOND, self._percent, "max-memory-sum")]
