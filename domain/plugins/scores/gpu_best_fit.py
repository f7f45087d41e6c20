"""GpuBestFit: prefer nodes where the pod leaves least cpu and devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels.arrays import DEVICES
from domain.kernels.device_arrays import BEST_FIT
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import ResourceScore, Term
from domain.plugins.device_terms import (
    CPU_LARGEST,
    DEVICES_LARGEST,
    OWN_NUMBERS,
    PARTS_COUNT,
    device_numbers,
    device_parts,
)
from domain.state.resources import ResourceIndex


class GpuBestFit(ResourceScore):
    """Rate a node by what the pod leaves free of its cpu and of its devices.

    Formula: ``100 * (1 - (cpu left / largestCpu + devices left / largest) / 2)``, with shares of devices in
    parts of one, cut to 0..100.

    Arguments: ``arithmetic`` (``integer``, the default: the score is cut to a whole number, as in the
    simulator of the paper; or ``real``), ``largest`` (how many devices; default 8), ``largestCpu`` (cores;
    default 128).
    Source: best fit, as Weng et al., USENIX ATC 2023, compare it with FGD.
    """

    name: ClassVar[str] = "GpuBestFit"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})
    parts_max = PARTS_COUNT
    numbers_max = OWN_NUMBERS

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("arithmetic", "largest", "largestCpu"))
        self._whole = given.choice("arithmetic", ("integer", "real")) == "integer"
        self._largest = given.number("largest", DEVICES_LARGEST, 1.0, 1024.0)
        self._cpu = given.number("largestCpu", CPU_LARGEST, 0.001, 65536.0)

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``."""
        numbers = device_numbers(template, whole=self._whole, cpu_max=self._cpu, devices_max=self._largest)
        return Term(DEVICES + BEST_FIT, device_parts(template, resources), numbers)
