"""The one rule of which resources a resource score looks at, and what a pod adds to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments, WeightedResource
from domain.plugins.base import TermPart
from domain.state.resources import CPU, MEMORY, SCORING_CPU, SCORING_MEMORY, ResourceIndex

_USED_BY_ALL = ("cpu", "memory", "ephemeral-storage")


def skipped(resource: str, template: PodTemplate) -> bool:
    """Say whether a score leaves a resource out: neither one that all pods use, nor requested by the pod."""
    return resource not in _USED_BY_ALL and not template.requests.get(resource)


def scoring_parts(
    resources: Iterable[WeightedResource], template: PodTemplate, index: ResourceIndex
) -> tuple[TermPart, ...]:
    """Return column, weight and the pod's own share per resource; cpu and memory by non-zero requests."""
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


def fit_strategy(args: Mapping[str, Any], path: str) -> Arguments:
    """Return ``scoringStrategy`` of NodeResourcesFit, beside which the filter's arguments may stand."""
    allowed = ("scoringStrategy", "ignoredResources", "ignoredResourceGroups", "arithmetic")
    given = Arguments(args, path, allowed)
    given.choice("arithmetic", ("real",))
    return given.section("scoringStrategy", ("type", "resources", "requestedToCapacityRatio"))
