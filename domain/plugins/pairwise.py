"""The analytic hierarchy process: weights from how much more important each thing is than each other one."""

from __future__ import annotations

from collections.abc import Sequence

from domain.model.errors import FieldError

_STEPS = 200
_APART_MAX = 1e-6
_INCONSISTENCY_MAX = 0.1
_BY_CHANCE = (0.0, 0.0, 0.0, 0.58, 0.90, 1.12, 1.24, 1.32, 1.41, 1.45)
"""The consistency index of random comparisons of so many things (Saaty)."""


def weights_of(comparisons: Sequence[Sequence[float]], path: str) -> list[float]:
    """Return the main eigenvector of a matrix of comparisons, scaled to sum up to 1.

    Parameters
    ----------
    comparisons : n rows of n numbers, n at most 9
        How many times as important thing i is as thing j.
    path : str
        Where they stand, for errors.

    Raises
    ------
    FieldError
        Two entries contradict each other, or all of them by more than Saaty allows.

    Source: Saaty, "The Analytic Hierarchy Process" (1980).
    """
    count = len(comparisons)
    for i in range(count):
        for j in range(i + 1):
            if abs(comparisons[i][j] * comparisons[j][i] - 1.0) > _APART_MAX:
                message = f"{comparisons[i][j]:g} is not 1 / {comparisons[j][i]:g}, which row {j} has for it"
                raise FieldError(f"{path}[{i}][{j}]", message)
    weights, highest = [1.0 / count] * count, float(count)
    for _ in range(_STEPS):
        moved = [sum(a * w for a, w in zip(row, weights, strict=True)) for row in comparisons]
        highest = sum(moved)
        weights = [each / highest for each in moved]
    if count > 2:
        ratio = (highest - count) / (count - 1) / _BY_CHANCE[count]
        if ratio > _INCONSISTENCY_MAX:
            message = f"the comparisons contradict each other (consistency ratio {ratio:.2f}; at most 0.1)"
            raise FieldError(path, message)
    return weights
