"""The resources that the scores of the paper on TBESK (2023) look at, and how a pod's requests enter them."""

from __future__ import annotations

from collections.abc import Sequence

from domain.model.pods import PodTemplate
from domain.plugins.base import TermPart
from domain.state.resources import ResourceIndex

FOUR_RESOURCES = ("cpu", "memory", "berth.io/bandwidth", "berth.io/disk")
"""The default: cpu, memory, network and disk, in this order."""


def parts_of(
    names: Sequence[str], weights: Sequence[float], template: PodTemplate, resources: ResourceIndex
) -> tuple[TermPart, ...]:
    """Return column, weight and what the pod requests of each resource, also where that is nothing."""
    return tuple(
        TermPart(resources.column(name), weight, template.requests.get(name, 0))
        for name, weight in zip(names, weights, strict=True)
    )
