"""The rule for which resources a resource score reads, and what a pod adds to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from domain.kernels.arrays import WHOLE
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments, WeightedResource
from domain.plugins.base import TermPart
from domain.state.resources import CPU, MEMORY, SCORING_CPU, SCORING_MEMORY, ResourceIndex

_USED_BY_ALL = ("cpu", "memory", "ephemeral-storage")


def skipped(resource: str, template: PodTemplate) -> bool:
    """Say whether a score leaves a resource out: not all pods use it, and the pod does not request it."""
    return resource not in _USED_BY_ALL and not template.requests.get(resource)


def scoring_parts(
    resources: Iterable[WeightedResource], template: PodTemplate, index: ResourceIndex
) -> tuple[TermPart, ...]:
    """Return column, weight and what the pod adds, per resource; cpu and memory by non-zero requests."""
    parts = []
    for name, weight in resources:
        column, value = index.column(name), template.requests.get(name, 0)
        if column == CPU:
            column, value = SCORING_CPU, template.scoring_cpu_milli
        elif column == MEMORY:
            column, value = SCORING_MEMORY, template.scoring_memory_bytes
        elif skipped(name, template):
            continue
        parts.append(TermPart(column, weight, value))
    return tuple(parts)


def fit_strategy(args: Mapping[str, Any], path: str) -> tuple[Arguments, int]:
    """Return ``scoringStrategy`` of NodeResourcesFit, and ``WHOLE`` if it is scored in whole numbers.

    The filter's arguments may stand beside it.
    """
    allowed = ("scoringStrategy", "ignoredResources", "ignoredResourceGroups", "arithmetic")
    given = Arguments(args, path, allowed)
    whole = WHOLE if given.whole_numbers() else 0
    return given.section("scoringStrategy", ("type", "resources", "requestedToCapacityRatio")), whole
