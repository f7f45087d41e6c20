"""GpuStranding: prefer nodes where the pod leaves fewest devices without cpu for their pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels.arrays import DEVICES
from domain.kernels.device_arrays import LEAST_STRANDING
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import ResourceScore, Term
from domain.plugins.device_terms import (
    CPU_EACH,
    DEVICES_LARGEST,
    OWN_NUMBERS,
    PARTS_COUNT,
    device_numbers,
    device_parts,
)
from domain.state.resources import ResourceIndex


class GpuStranding(ResourceScore):
    """Rate a node by how many more of its free devices lack cpu, with the pod on it.

    Formula: ``50 - 50 * (after - before) / largest``, where stranded are ``max(0, free devices - free cpu /
    cpuPerGpu)``, with shares of devices in parts of one.

    Arguments: ``cpuPerGpu`` (cores that a device needs beside it; default 9), ``largest`` (how many devices;
    default 8).
    Source: berth; benchmarks/quality.md has what it gains.
    """

    name: ClassVar[str] = "GpuStranding"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})
    parts_max = PARTS_COUNT
    numbers_max = OWN_NUMBERS

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("cpuPerGpu", "largest"))
        self._cpu_each = given.number("cpuPerGpu", CPU_EACH, 0.001, 1024.0)
        self._largest = given.number("largest", DEVICES_LARGEST, 1.0, 1024.0)

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``."""
        numbers = device_numbers(template, whole=False, devices_max=self._largest, cpu_each=self._cpu_each)
        return Term(DEVICES + LEAST_STRANDING, device_parts(template, resources), numbers)
