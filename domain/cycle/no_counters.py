"""Counters of which there are none: what the kernel takes while nothing is counted."""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import Counters, Effects

_TYPES: dict[str, type] = {
    "domain": np.int32,
    "eligible": np.uint8,
    "topology": np.int32,
    "mask": np.int32,
    "first": np.int64,
    "length": np.int32,
    "sums": np.int32,
    "has_nodes": np.uint8,
    "total": np.int64,
    "version": np.int64,
}


def no_counters() -> Counters:
    """Return counters of which there are none."""
    empty: dict[str, np.ndarray] = {
        name: np.zeros((0,) * (2 if name in ("domain", "eligible") else 1), dtype=kind)
        for name, kind in _TYPES.items()
    }
    return Counters(**empty)


def no_effects(slots: int) -> Effects:
    """Return the effects of slots whose pods count nowhere."""
    return Effects(*(np.zeros(length, dtype=np.int32) for length in (slots + 1, 0, 0)))
