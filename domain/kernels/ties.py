"""Ties: of two rows the higher score wins, and of equal scores the smaller salted tie value."""

from __future__ import annotations

import numpy as np

from domain.kernels.compiling import helper


@helper
def mix(value):  # type: ignore[no-untyped-def]
    """Scatter a tie value, uint64, by the finaliser of splitmix64: a bijection.

    The same text serves whole columns outside of the kernel (``salted``).
    """
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def salted(tie: np.ndarray, salt: int) -> np.ndarray:
    """Return the tie values that a group with this salt compares, uint64[N]: ``mix`` in numpy, uncompiled."""
    mixed: np.ndarray = mix.py_func(tie ^ np.uint64(salt))
    return mixed


@helper
def better(columns, score, salt, a, b):  # type: ignore[no-untyped-def]
    """Return the better of two rows by their scores, and by the salted tie values of a group."""
    score_a = score[a]
    score_b = score[b]
    if score_a != score_b:
        return a if score_a > score_b else b
    tie_a = mix(columns.tie[a] ^ salt)
    tie_b = mix(columns.tie[b] ^ salt)
    return a if tie_a <= tie_b else b
