"""The beta distribution, fitted to a mean and a deviation: how likely usage is below a threshold."""

from __future__ import annotations

import math
from typing import NamedTuple

_STEPS_MAX = 5_000
_PRECISION = 1e-15
_TINY = 1e-300
_NARROW = 1e6


class Beta(NamedTuple):
    """A beta distribution on 0..1; both shape parameters are above 0."""

    alpha: float
    beta: float

    def below(self, x: float) -> float:
        """Return the probability of a value up to ``x``: the regularised incomplete beta function.

        Cost: O(sqrt(alpha + beta)) steps of a continued fraction. A distribution too narrow for that is
        taken as normal.
        """
        a, b = self.alpha, self.beta
        if x <= 0.0 or x >= 1.0:
            return 0.0 if x <= 0.0 else 1.0
        if a + b > _NARROW:
            mean = a / (a + b)
            deviation = math.sqrt(mean * (1.0 - mean) / (a + b + 1.0))
            return 0.5 * (1.0 + math.erf((x - mean) / (deviation * math.sqrt(2.0))))
        log_front = (
            math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
        )
        front = math.exp(log_front)
        if x < (a + 1.0) / (a + b + 2.0):
            return min(front * _fraction(a, b, x) / a, 1.0)
        return max(1.0 - front * _fraction(b, a, 1.0 - x) / b, 0.0)


def fit(mean: float, deviation: float) -> Beta | None:
    """Return the beta distribution with that mean and deviation, None if there is none."""
    variance = deviation * deviation
    if not 0.0 < mean < 1.0 or not 0.0 < variance < mean * (1.0 - mean):
        return None
    size = mean * (1.0 - mean) / variance - 1.0
    if size * min(mean, 1.0 - mean) <= 0.0:
        return None
    return Beta(mean * size, (1.0 - mean) * size)


def variance_max(mean: float) -> float:
    """Return the variance below which there is a beta distribution of that mean."""
    return mean * (1.0 - mean) if 0.0 < mean < 1.0 else 0.0


def _fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function by Lentz's method."""
    c, d = 1.0, 1.0 / _nonzero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _STEPS_MAX):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _nonzero(1.0 + term * d)
            c = _nonzero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < _PRECISION:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
