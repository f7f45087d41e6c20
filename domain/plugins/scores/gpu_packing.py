"""GpuPacking: prefer devices in use to free ones, and nodes in use to free ones."""

from __future__ import annotations

from typing import ClassVar

from domain.kernels.arrays import DEVICES
from domain.kernels.device_arrays import PACKING
from domain.model.pods import PodTemplate
from domain.plugins.base import ResourceScore, Term
from domain.plugins.device_terms import OWN_NUMBERS, PARTS_COUNT, device_numbers, device_parts
from domain.state.resources import ResourceIndex


class GpuPacking(ResourceScore):
    """Rate a node by whether the pod uses devices that are in use, then by whether others of the node are.

    Formula: a share on a device that is in use gets 100 less a tenth of what is free of that in percent;
    whole devices, or a share of a free one, on a node with others in use get 50 less their number, 33 at
    least; on a node whose devices are all free, 33 less their number, but that number at least. Pods that
    ask for no device: 0.

    Source: GPU packing (Weng et al., MLaaS in the wild, NSDI 2022), as their paper on FGD (USENIX ATC 2023)
    compares it.
    """

    name: ClassVar[str] = "GpuPacking"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})
    parts_max = PARTS_COUNT
    numbers_max = OWN_NUMBERS

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``."""
        return Term(
            DEVICES + PACKING, device_parts(template, resources), device_numbers(template, whole=True)
        )
