"""Fragmentation of devices, and the scores of nodes by devices that are compared with it.

A node's devices are *unusable* for a shape of pod as far as no such pod could use what is free of them. The
mean over the shapes that are expected is the node's fragmentation. Source of the measure and of all scores:
Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent", USENIX ATC 2023, and the whole numbers to which its simulator cuts them
(github.com/hkust-adsl/kubernetes-scheduler-simulator). Amounts are whole numbers, so that all sums are exact.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.compiling import helper
from domain.kernels.device_arrays import (
    BEST_FIT,
    DOT_PRODUCT,
    GAINS_COUNT,
    LEAST_STRANDING,
    PACKING,
    WHOLE_DEVICE,
)


@helper
def unusable(mix, cpu, memory, free, devices, model):  # type: ignore[no-untyped-def]
    """Return the sum over the mix of weight times the free thousandths that a pod of a shape cannot use.

    A pod that the node has no room for can use nothing, and so can one that asks for no device. Any other pod
    can use every device with enough thousandths free.
    """
    total = 0
    for d in range(devices):
        total += free[d]
    if total == 0:
        return 0
    result = 0
    for t in range(len(mix.weight)):
        lost = total
        has_room = mix.cpu[t] <= cpu and mix.memory[t] <= memory
        if has_room and mix.number[t] > 0 and (np.int64(mix.models[t]) >> model) & 1:
            enough, small = 0, 0
            for d in range(devices):
                if free[d] >= mix.milli[t]:
                    enough += 1
                else:
                    small += free[d]
            if enough >= mix.number[t]:
                lost = small
        result += mix.weight[t] * lost
    return result


@helper
def tightest(free, devices, milli):  # type: ignore[no-untyped-def]
    """Return the device with the least thousandths free that are enough, the first of them; -1: none."""
    best = -1
    for d in range(devices):
        if free[d] >= milli and (best < 0 or free[d] < free[best]):
            best = d
    return best


@helper
def is_share(count, milli):  # type: ignore[no-untyped-def]
    """Say whether a pod asks for a part of one device."""
    return count == 1 and milli < WHOLE_DEVICE


@helper
def take_devices(free, devices, count, milli, device):  # type: ignore[no-untyped-def]
    """Count a pod on the devices that it gets: a share on ``device``, whole ones on the first free ones."""
    if is_share(count, milli):
        free[device] -= milli
        return
    left = count
    for d in range(devices):
        if left > 0 and free[d] == WHOLE_DEVICE:
            free[d] = 0
            left -= 1


@helper
def gain_of(mix, free, after, devices, model, cpu, memory, cpu_left, memory_left, number, milli, device):  # type: ignore[no-untyped-def]
    """Return by how much ``unusable`` falls where a pod takes devices, and leaves so much cpu and memory.

    ``free`` is what is free on each device before; ``after`` is written. A share goes onto ``device``.
    """
    for d in range(devices):
        after[d] = free[d]
    take_devices(after, devices, number, milli, device)
    before = unusable(mix, cpu, memory, free, devices, model)
    return before - unusable(mix, cpu_left, memory_left, after, devices, model)


@helper
def gradient_score(mix, gain, is_whole, milli_max):  # type: ignore[no-untyped-def]
    """Return the score of a gain, 50 for none.

    Whole: the floor of 100 / (1 + exp(-gain)), with the gain in devices, as ``mix.gains`` has it. Real: it is
    linear in the gain, 100 where that is ``milli_max`` thousandths.
    """
    if is_whole:
        low, high = 0, GAINS_COUNT
        while low < high:
            middle = (low + high) // 2
            if mix.gains[middle] <= gain:
                low = middle + 1
            else:
                high = middle
        return float(low)
    weights = 0
    for t in range(len(mix.weight)):
        weights += mix.weight[t]
    return min(max(50.0 + 50.0 * gain / (weights * milli_max), 0.0), 100.0)


@helper
def stranded(cpu, left, cpu_each):  # type: ignore[no-untyped-def]
    """Return ``cpu_each`` times the free thousandths of a node for which its free cpu does not suffice."""
    return max(left * cpu_each - cpu * WHOLE_DEVICE, 0)


@helper
def packing_score(free, devices, count, milli, device):  # type: ignore[no-untyped-def]
    """Rate by GpuPacking: used devices first, then free devices of used nodes, then free nodes."""
    whole = 0
    for d in range(devices):
        whole += free[d] == WHOLE_DEVICE
    if whole == devices:
        return float(max(33 - whole, whole))
    if is_share(count, milli):
        if free[device] < WHOLE_DEVICE:
            return float(100 - free[device] * 100 // WHOLE_DEVICE // 10)
        return 49.0
    return float(max(50 - count, 33))


@helper
def score_of(kind, rating, cpu, free, devices, asked_cpu, number, milli, device):  # type: ignore[no-untyped-def]
    """Return a score of a node by what is free on it, of those that look at neither a mix nor other pods."""
    left = 0
    for d in range(devices):
        left += free[d]
    score = 0.0
    if kind == LEAST_STRANDING:
        after = stranded(cpu - asked_cpu, left - number * milli, rating.cpu_each)
        more = after - stranded(cpu, left, rating.cpu_each)
        score = 50.0 - 50.0 * more / (rating.milli_max * rating.cpu_each)
    elif kind == BEST_FIT:
        cpu_left = (cpu - asked_cpu) / rating.cpu_max
        milli_left = (left - number * milli) / rating.milli_max
        score = 100.0 * (1.0 - (rating.cpu_part * cpu_left + (1.0 - rating.cpu_part) * milli_left))
    elif kind == DOT_PRODUCT:
        by_cpu = (cpu / rating.cpu_max) * (asked_cpu / rating.cpu_max)
        by_devices = (left / rating.milli_max) * (number * milli / rating.milli_max)
        score = 100.0 * (1.0 - (by_cpu + by_devices) / 2.0)
    elif number > 0 and kind == PACKING:
        score = packing_score(free, devices, number, milli, device)
    return min(max(score, 0.0), 100.0)
