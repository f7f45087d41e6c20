"""Pods in flight: what those are expected to use that came to a node since it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from domain.model.pods import PodTemplate
from domain.plugins.base import TermPart
from domain.state.resources import (
    CPU_BEYOND,
    MEMORY_BEYOND,
    ROOM_LOW_CPU,
    ROOM_LOW_MEMORY,
    ResourceIndex,
)

ARGUMENT = "inFlight"

READS = frozenset({"cpu_claim", "memory_claim", "requests", "limits"})
"""The fields from which the estimate of a pod follows."""

_COLUMNS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"cpu": (CPU_BEYOND, ROOM_LOW_CPU), "memory": (MEMORY_BEYOND, ROOM_LOW_MEMORY)}
)

ESTIMATED = tuple(_COLUMNS)
"""The resources of which the policy says what a pod is expected to use."""


def in_flight(resource: str, template: PodTemplate, resources: ResourceIndex) -> tuple[TermPart, TermPart]:
    """Return two parts: the capacity of a node, and the estimates of pods in flight with that of a pod.

    Source: the columns of room for low pods, of which the requested side sums the estimates of all pods that
    no measurement covers yet (``domain.state.resources``).
    """
    capacity, estimates = _COLUMNS[resource]
    estimate = resources.estimate_cpu_milli if resource == "cpu" else resources.estimate_memory_bytes
    return TermPart(capacity, 1.0, 0), TermPart(estimates, 1.0, estimate(template))
