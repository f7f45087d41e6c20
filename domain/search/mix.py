"""The shapes of pods that are expected on devices, and how often: what a search calls fragmentation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from domain.kernels.device_arrays import GAINS_COUNT, WHOLE_DEVICE, Mix

ANY_MODEL = (1 << 62) - 1


class Shape(NamedTuple):
    """What a pod asks for: cpu in thousandths, memory in any unit, devices, thousandths of each, models."""

    cpu: int
    memory: int
    number: int
    milli: int
    models: int = ANY_MODEL


def typical(shapes: Iterable[Shape], share: float = 0.95) -> dict[Shape, int]:
    """Return how often the most frequent shapes come that make up a share of all pods.

    Of shapes that are equally frequent, the smaller comes first. Source: the typical pods of FGD's simulator.
    """
    counts = Counter(shapes)
    kept: dict[Shape, int] = {}
    for shape, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        if sum(kept.values()) >= share * counts.total():
            break
        kept[shape] = count
    return kept


def mix_of(weights: Mapping[Shape, int]) -> Mix:
    """Return a mix as arrays for the kernel."""
    rows = np.array([[*shape, weight] for shape, weight in weights.items()], np.int64).reshape(-1, 6)
    cpu, memory, number, milli, models, weight = rows.T.copy()
    return Mix(cpu, memory, number, milli, models, weight, gains_of(sum(weights.values())))


def gains_of(weights: int) -> np.ndarray:
    """Return the least gain of each whole score from 1: the floor of 100 / (1 + exp(-gain in devices)).

    The score is k or more where the gain is ln(k / (100 - k)) devices or more, and 100 is never reached.
    """
    gains = [
        math.ceil(math.log(k / (GAINS_COUNT - k)) * WHOLE_DEVICE * weights) for k in range(1, GAINS_COUNT)
    ]
    return np.array([*gains, np.iinfo(np.int64).max], np.int64)
