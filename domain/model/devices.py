"""Devices: the GPUs of a node one by one, what a pod asks of them, and which ones it gets.

A node that offers ``nvidia.com/gpu: d`` has the devices 0 .. d - 1, each of 1000 thousandths. A pod asks for
whole devices by ``nvidia.com/gpu: n``, or for a share of one by ``berth.dev/gpu-milli: m``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from domain.model.limits import devices_per_node_max

GPU = "nvidia.com/gpu"
GPU_MILLI = "berth.dev/gpu-milli"
DEVICES_KEY = "berth.dev/devices"
"""Annotation of a bound pod: the devices that it has, as ``0,3``."""

DEVICE_ONE = 1_000
"""What a whole device has: thousandths."""

BUSY = "~devices"
"""Hidden resource: a node offers its devices, and requested are those of which anything is taken."""

SHARED = "~device-share"
"""Hidden resource: requested is what is taken of the device of which the least is."""

DEVICE_NAMES = tuple(f"{GPU}#{index}" for index in range(devices_per_node_max))
"""The names of devices as resources of their own: thousandths."""


_NOT_SHOWN = frozenset((*DEVICE_NAMES, BUSY, SHARED))


class Ask(NamedTuple):
    """``milli`` thousandths on each of ``number`` devices; no device at all where ``number`` is 0."""

    number: int
    milli: int


NO_ASK = Ask(0, 0)


def asked(requests: Mapping[str, int]) -> Ask:
    """Return what a pod asks of devices. Whole devices come first: with them, thousandths say the same."""
    if whole := requests.get(GPU, 0):
        return Ask(whole, DEVICE_ONE)
    milli = requests.get(GPU_MILLI, 0)
    return Ask(1, milli) if 0 < milli < DEVICE_ONE else NO_ASK


def devices_of(allocatable: Mapping[str, int]) -> int:
    """Return how many devices a node has. More than ``devices_per_node_max`` are counted, not told apart."""
    count = allocatable.get(GPU, 0)
    return count if count <= devices_per_node_max else 0


def with_devices(allocatable: Mapping[str, int]) -> Mapping[str, int]:
    """Return what a node offers, with its devices as resources of their own."""
    if not (whole := allocatable.get(GPU, 0)):
        return allocatable
    offered = {GPU_MILLI: DEVICE_ONE * whole, **allocatable, BUSY: whole}
    if count := devices_of(allocatable):
        offered.update(dict.fromkeys(DEVICE_NAMES[:count], DEVICE_ONE), **{SHARED: DEVICE_ONE})
    return offered


def is_shown(name: str) -> bool:
    """Say whether a resource is one that manifests name: devices are shown by their indices."""
    return name not in _NOT_SHOWN


def choose(free: Sequence[int], ask: Ask) -> tuple[int, ...]:
    """Return the devices that a pod gets, in ascending order, given the thousandths free on each.

    A share goes to the fullest device that fits, the lowest index of equal ones. Whole devices are those with
    the most free, the lowest indices of equal ones: the lowest that is not used. Where the pod does not fit,
    as one that runs already may not, it gets those with the most free all the same.
    """
    fitting = [index for index, each in enumerate(free) if each >= ask.milli]
    if ask.milli < DEVICE_ONE and fitting:
        return (min(fitting, key=lambda index: (free[index], index)),)
    emptiest = sorted(range(len(free)), key=lambda index: (-free[index], index))
    return tuple(sorted(emptiest[: ask.number]))


def amounts(requests: Mapping[str, int], devices: Sequence[int]) -> dict[str, int]:
    """Return what a pod takes of its devices, by their names."""
    milli = asked(requests).milli
    return {DEVICE_NAMES[index]: milli for index in devices}
