"""What the scores by devices hand to the kernel: cpu, memory and devices as parts, and the pod's own ask."""

from __future__ import annotations

import math
from collections.abc import Sequence

from domain.kernels.device_arrays import GAINS_COUNT
from domain.kernels.device_terms import MIX_COLUMNS, SHAPES
from domain.model.devices import DEVICE_NAMES, DEVICE_ONE, asked
from domain.model.pods import PodTemplate
from domain.plugins.base import TermPart
from domain.state.resources import CPU, MEMORY, ResourceIndex

PARTS_COUNT = 2 + len(DEVICE_NAMES)
DEVICES_LARGEST = 8.0
CPU_LARGEST = 128.0
CPU_EACH = 9.0
SHAPES_MAX = 128
OWN_NUMBERS = SHAPES
"""How many numbers ``device_numbers`` returns."""
ANY_MODEL = (1 << 48) - 1
OTHER_MODEL = 47
"""The bit of a model that no shape names."""


def device_parts(template: PodTemplate, resources: ResourceIndex) -> tuple[TermPart, ...]:
    """Return the parts: cpu, memory, and each device."""
    return (
        TermPart(CPU, 1.0, template.requests.get("cpu", 0)),
        TermPart(MEMORY, 1.0, template.requests.get("memory", 0)),
        *(TermPart(resources.column(name), 1.0, 0) for name in DEVICE_NAMES),
    )


def device_numbers(
    template: PodTemplate,
    *,
    whole: bool,
    cpu_max: float = CPU_LARGEST,
    devices_max: float = DEVICES_LARGEST,
    cpu_part: float = 0.5,
    cpu_each: float = CPU_EACH,
) -> tuple[float, ...]:
    """Return the first numbers of a term; cpu in cores."""
    ask = asked(template.requests)
    return (
        float(ask.number),
        float(ask.milli),
        float(whole),
        1000.0 * cpu_max,
        DEVICE_ONE * devices_max,
        cpu_part,
        1000.0 * cpu_each,
    )


def mix_numbers(shapes: Sequence[Sequence[int]]) -> tuple[float, ...]:
    """Return a mix as numbers: how many shapes, the gains, and the fields of ``Mix``.

    A shape is cpu in thousandths, memory in bytes, devices, thousandths of each, models as bits, and weight.
    """
    weights = sum(shape[-1] for shape in shapes)
    gains = [math.ceil(math.log(k / (GAINS_COUNT - k)) * DEVICE_ONE * weights) for k in range(1, GAINS_COUNT)]
    columns = [float(shape[i]) for i in range(MIX_COLUMNS) for shape in shapes]
    return (float(len(shapes)), *map(float, gains), math.inf, *columns)
