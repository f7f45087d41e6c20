"""GpuDotProduct: prefer nodes that offer least of what the pod asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels.arrays import DEVICES
from domain.kernels.device_arrays import DOT_PRODUCT
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


class GpuDotProduct(ResourceScore):
    """Rate a node by the product of what is free and what the pod asks for: the smaller, the better.

    Formula: ``100 * (1 - (c * C + d * D) / 2)``, cut to 0..100, with ``c`` and ``C`` the cpu that is free and
    asked for, in parts of ``largestCpu``, and ``d`` and ``D`` the devices, in parts of ``largest``.

    Arguments: ``arithmetic`` (``integer``, the default: the score is cut to a whole number, as in the
    simulator of the paper; or ``real``), ``largest`` (how many devices; default 8), ``largestCpu`` (cores;
    default 128).
    Source: the alignment of Tetris (Grandl et al., SIGCOMM 2014), turned round, as Weng et al., USENIX ATC
    2023, compare it with FGD.
    """

    name: ClassVar[str] = "GpuDotProduct"
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
        return Term(DEVICES + DOT_PRODUCT, device_parts(template, resources), numbers)
