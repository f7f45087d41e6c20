"""Resource terms that look at devices one by one: the scores of ``fragmentation.py`` on the columns."""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import PARTS_MAX
from domain.kernels.compiling import helper
from domain.kernels.device_arrays import GAINS_COUNT, LEAST_FRAGMENTATION, Mix, Rating
from domain.kernels.devices import DEVICES_MAX
from domain.kernels.fragmentation import gain_of, gradient_score, is_share, score_of, tightest

ASK_NUMBER, ASK_MILLI, IS_WHOLE, CPU_MAX, MILLI_MAX, CPU_PART, CPU_EACH, SHAPES, GAINS = range(9)
"""Places of ``number``: what the pod asks of devices, the fields of ``Rating``, how many shapes the mix has,
its gains, and behind these the other fields of ``Mix``, one after another."""

MIX = GAINS + GAINS_COUNT
MIX_COLUMNS = 6

assert 2 * DEVICES_MAX <= 5 + PARTS_MAX, (
    "what is free on each device has its place in the first column of work"
)


@helper
def mix_in(number):  # type: ignore[no-untyped-def]
    """Return the mix that ``number`` holds, without copies."""
    t = int(number[SHAPES])
    return Mix(
        number[MIX : MIX + t],
        number[MIX + t : MIX + 2 * t],
        number[MIX + 2 * t : MIX + 3 * t],
        number[MIX + 3 * t : MIX + 4 * t],
        number[MIX + 4 * t : MIX + 5 * t],
        number[MIX + 5 * t : MIX + 6 * t],
        number[GAINS:MIX],
    )


@helper
def read_devices(allocatable, requested, row, part_column, free):  # type: ignore[no-untyped-def]
    """Write what is free on each device of a row, from the third part on, and return how many it has."""
    devices = 0
    for p in range(2, len(part_column)):
        offered = allocatable[part_column[p], row]
        if offered > 0:
            free[devices] = max(offered - requested[part_column[p], row], 0)
            devices += 1
    return devices


@helper
def rate_by_devices(  # type: ignore[no-untyped-def]
    score, allocatable, requested, measured, fits, first, part_column, part_value, number, work, value
):
    """Write the scores of a block: ``score`` is one of ``device_arrays``.

    The parts are cpu, memory and the devices. The pod gets the devices that ``domain.model.devices.choose``
    says. Rows that are not feasible, or have no device for a share, get 0.
    """
    ask_number, ask_milli = int(number[ASK_NUMBER]), int(number[ASK_MILLI])
    free, after = work[:DEVICES_MAX, 0], work[DEVICES_MAX : 2 * DEVICES_MAX, 0]
    rating = Rating(number, number, number[CPU_MAX], number[MILLI_MAX], number[CPU_PART], number[CPU_EACH])
    for i in range(len(value)):
        value[i] = 0.0
        row = first + i
        devices = read_devices(allocatable, requested, row, part_column, free)
        device = tightest(free, devices, ask_milli)
        if fits[i] == 0 or (device < 0 and is_share(ask_number, ask_milli)):
            continue
        cpu = allocatable[part_column[0], row] - requested[part_column[0], row]
        memory = allocatable[part_column[1], row] - requested[part_column[1], row]
        if score == LEAST_FRAGMENTATION:
            mix = mix_in(number)
            gain = gain_of(
                mix, free, after, devices, int(measured[0, row]), cpu, memory, cpu - part_value[0],
                memory - part_value[1], ask_number, ask_milli, device,
            )  # fmt: skip
            value[i] = gradient_score(mix, gain, number[IS_WHOLE] != 0.0, number[MILLI_MAX])
        else:
            rated = score_of(score, rating, cpu, free, devices, part_value[0], ask_number, ask_milli, device)
            value[i] = np.floor(rated) if number[IS_WHOLE] != 0.0 else rated
