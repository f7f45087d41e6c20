"""Pods placed on devices by scores alone, and the fragmentation of what is free: arrays in, arrays out.

It has no queue, no explanation and no filters but room and models: a loop for studies that need many
placements. The kernel is ``filling.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from domain.kernels.device_arrays import SCORES_COUNT, WHOLE_DEVICE, Rating
from domain.search.mix import Shape, mix_of
from research.devices.arrays import Asked, DeviceNodes, Kept
from research.devices.filling import fill, measure


class DeviceNode(NamedTuple):
    """A node that is empty: cpu in thousandths, memory, how many devices, and the bit of their model."""

    cpu: int
    memory: int
    devices: int
    model: int


class Weighted(NamedTuple):
    """A score with its weight. ``whole``: it is cut to a whole number."""

    score: int
    weight: float
    whole: bool = True


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How nodes are rated: by the sum of weight times score, and the first node wins between equals.

    Parameters
    ----------
    scores : sequence of Weighted
        Without any, the first node with room wins.
    mix : mapping of Shape to int
        The shapes that are expected, and how often; only ``LEAST_FRAGMENTATION`` asks.
    cpu_max, milli_max : int
        What counts as 1 of a node's cpu and of its devices. The paper has the largest node of its cluster.
    cpu_part : float
        The weight of cpu in ``BEST_FIT``.
    cpu_each : int
        The cpu that a device needs beside it, for ``LEAST_STRANDING``.
    """

    scores: Sequence[Weighted] = ()
    mix: Mapping[Shape, int] = field(default_factory=dict)
    cpu_max: int = 128_000
    milli_max: int = 8 * WHOLE_DEVICE
    cpu_part: float = 0.5
    cpu_each: int = 9_000


class Placed(NamedTuple):
    """Where pods went: node and device of each (int64[P], -1: none), and what is free afterwards."""

    node: np.ndarray
    device: np.ndarray
    nodes: DeviceNodes


def nodes_of(nodes: Sequence[DeviceNode]) -> DeviceNodes:
    """Return empty nodes as arrays for the kernel."""
    cpu, memory, devices, model = np.array(nodes, np.int64).reshape(-1, 4).T.copy()
    free = np.where(np.arange(max(devices, default=0)) < devices[:, None], WHOLE_DEVICE, 0)
    return DeviceNodes(cpu, memory, free.astype(np.int64), devices, model, np.zeros(len(nodes), np.int64))


def place_on_devices(nodes: DeviceNodes, pods: Sequence[Shape], profile: Profile) -> Placed:
    """Place pods one after another, and never again one that fits nowhere.

    A share goes onto the device that ``LEAST_FRAGMENTATION`` prefers; without that score, onto the fullest
    one with room. Whole devices are the first that are free.
    """
    numbers = {shape: number for number, shape in enumerate(dict.fromkeys(pods))}
    asked = Asked(*np.array(list(numbers), np.int64).reshape(-1, 5).T.copy())
    weight, whole = np.zeros(SCORES_COUNT), np.ones(SCORES_COUNT, np.uint8)
    for each in profile.scores:
        weight[each.score], whole[each.score] = each.weight, each.whole
    rating = Rating(weight, whole, profile.cpu_max, profile.milli_max, profile.cpu_part, profile.cpu_each)
    used = DeviceNodes(*(each.copy() for each in nodes))
    table = (len(numbers), len(used.cpu))
    kept = Kept(
        np.zeros(len(used.cpu), np.int64),
        np.full(table, -1, np.int64),
        np.zeros(table),
        np.zeros(table, np.int64),
        np.zeros(used.free.shape[1], np.int64),
    )
    shape = np.array([numbers[each] for each in pods], np.int64)
    node, device = np.empty_like(shape), np.empty_like(shape)
    fill(mix_of(profile.mix), rating, used, asked, kept, shape, node, device)
    return Placed(node, device, used)


def fragmentation(nodes: DeviceNodes, weights: Mapping[Shape, int]) -> np.ndarray:
    """Return the free thousandths of each node, float64[N], that a pod of the mix cannot use, on average."""
    lost = np.zeros(len(nodes.cpu), np.int64)
    measure(mix_of(weights), nodes, lost)
    return lost / max(sum(weights.values()), 1)
