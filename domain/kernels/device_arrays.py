"""The arrays of the scores by devices (``fragmentation.py``), and the names of the scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

WHOLE_DEVICE = 1000
"""Thousandths of a device."""

LEAST_FRAGMENTATION, LEAST_STRANDING, BEST_FIT, DOT_PRODUCT, PACKING, CLUSTERING = range(6)
"""The scores. All are 0 for a pod that they do not tell apart, so that the first node wins."""

SCORES_COUNT = 6
GAINS_COUNT = 100
"""How many whole scores above 0 there are."""


class Mix(NamedTuple):
    """The shapes of pods that are expected, T of them; all amounts are whole.

    Attributes
    ----------
    cpu, memory : int64[T], int64[T]
        What one pod asks for, in the units of the nodes.
    number, milli : int64[T], int64[T]
        How many devices it asks for, and how many thousandths of each; 1000 is a whole one.
    models : int64[T]
        Bit m: may have devices of model m.
    weight : int64[T]
        How often the shape is expected, in any unit.
    gains : int64[GAINS_COUNT]
        ``gains[k - 1]`` is the least decrease of ``unusable`` whose whole score is k.
    """

    cpu: np.ndarray
    memory: np.ndarray
    number: np.ndarray
    milli: np.ndarray
    models: np.ndarray
    weight: np.ndarray
    gains: np.ndarray


class Rating(NamedTuple):
    """How a node is rated: by the sum of weight times score.

    Attributes
    ----------
    weight : float64[SCORES_COUNT]
    whole : uint8[SCORES_COUNT]
        1 where the score is cut to a whole number.
    cpu_max, milli_max : int
        What counts as 1 of a node's cpu and of its devices' thousandths.
    cpu_part : float
        The weight of cpu in ``BEST_FIT``; that of devices is the rest to 1.
    cpu_each : int
        What cpu a device needs beside it, for ``LEAST_STRANDING``.
    """

    weight: np.ndarray
    whole: np.ndarray
    cpu_max: int
    milli_max: int
    cpu_part: float
    cpu_each: int
