"""The arrays of ``filling.py``: nodes with devices, the shapes of pods, and what is known of both."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class DeviceNodes(NamedTuple):
    """What is free on N nodes with at most D devices each.

    Attributes
    ----------
    cpu, memory : int64[N], int64[N]
    free : int64[N, D]
        Thousandths of each device, 0 where the node has fewer.
    devices : int64[N]
        How many devices the node has.
    model : int64[N]
        Its model, as the number of a bit.
    holds : int64[N]
        Bit 0: holds pods that share a device; bit n: pods with n devices.
    """

    cpu: np.ndarray
    memory: np.ndarray
    free: np.ndarray
    devices: np.ndarray
    model: np.ndarray
    holds: np.ndarray


class Asked(NamedTuple):
    """The shapes of the pods that are placed, S of them, as in ``Mix``."""

    cpu: np.ndarray
    memory: np.ndarray
    number: np.ndarray
    milli: np.ndarray
    models: np.ndarray


class Kept(NamedTuple):
    """What is known of each shape on each node, and which version of the node that was.

    Attributes
    ----------
    version : int64[N]
        Counts the pods that a node got.
    seen : int64[S, N]
        The version that was rated, -1: none.
    score : float64[S, N]
        -1 where the pod does not fit.
    device : int64[S, N]
        The device that a share would get.
    after : int64[D]
        Room for one node's devices.
    """

    version: np.ndarray
    seen: np.ndarray
    score: np.ndarray
    device: np.ndarray
    after: np.ndarray
