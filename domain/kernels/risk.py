"""The risk that pods want more than their node has, by what they were promised and by what they really use.

A beta distribution is fitted to the measured mean and deviation. It says how likely usage is below a
threshold.
"""

from __future__ import annotations

import math

from domain.kernels.compiling import helper

_STEPS_MAX = 5_000
_PRECISION = 1e-15
_TINY = 1e-300
_NARROW = 1e6
_VARIANCE_SHARE_MAX = 0.99


@helper
def _nonzero(value):  # type: ignore[no-untyped-def]
    return value if abs(value) > _TINY else _TINY


@helper
def _fraction(a, b, x):  # type: ignore[no-untyped-def]
    """Evaluate the continued fraction of the incomplete beta function by Lentz's method."""
    c, d = 1.0, 1.0 / _nonzero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _STEPS_MAX):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / _nonzero(1.0 + even * d)
        c = _nonzero(1.0 + even / c)
        value *= c * d
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1.0 / _nonzero(1.0 + odd * d)
        c = _nonzero(1.0 + odd / c)
        value *= c * d
        if abs(c * d - 1.0) < _PRECISION:
            break
    return value


@helper
def beta_cdf(a, b, x):  # type: ignore[no-untyped-def]
    """Return the cumulative distribution at ``x``: the regularised incomplete beta function.

    A distribution too narrow for the continued fraction is taken as normal. Cost: O(sqrt(a + b)) steps.
    """
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if a + b > _NARROW:
        mean = a / (a + b)
        deviation = math.sqrt(mean * (1.0 - mean) / (a + b + 1.0))
        return 0.5 * (1.0 + math.erf((x - mean) / (deviation * math.sqrt(2.0))))
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log_front += a * math.log(x) + b * math.log1p(-x)
    front = math.exp(log_front)
    if x < (a + 1.0) / (a + b + 2.0):
        return min(front * _fraction(a, b, x) / a, 1.0)
    return max(1.0 - front * _fraction(b, a, 1.0 - x) / b, 0.0)


@helper
def promised_risk(request, limit, capacity):  # type: ignore[no-untyped-def]
    """Return which share of what the limits promise beyond the requests the node does not have."""
    return (limit - capacity) / (limit - min(request, capacity)) if limit > capacity else 0.0


@helper
def fit_beta(mean, deviation):  # type: ignore[no-untyped-def]
    """Return the shape (a, b) of the beta distribution with this mean and deviation; zeros if none has it."""
    variance = deviation * deviation
    if not 0.0 < mean < 1.0 or not 0.0 < variance < mean * (1.0 - mean):
        return 0.0, 0.0
    size = mean * (1.0 - mean) / variance - 1.0
    if size * min(mean, 1.0 - mean) <= 0.0:
        return 0.0, 0.0
    return mean * size, (1.0 - mean) * size


@helper
def loaded_risk(mean, deviation, request, limit, capacity):  # type: ignore[no-untyped-def]
    """Return how likely the usage of a node exceeds its requests, without the new pod."""
    request = min(request, capacity)
    largest = mean * (1.0 - mean) if 0.0 < mean < 1.0 else 0.0
    deviation = min(deviation, math.sqrt(largest * _VARIANCE_SHARE_MAX))
    threshold = min(max(request / capacity, 0.0), 1.0) if capacity > 0 else 0.0
    within = 0.0
    a = b = 0.0
    if mean == 0.0 or (deviation == 0.0 and mean <= threshold):
        within = 1.0
    elif deviation > 0.0:
        a, b = fit_beta(mean, deviation)
        if a > 0.0:
            within = beta_cdf(a, b, threshold)
    if limit < capacity and request <= limit:
        if limit == 0:
            within = 1.0
        elif a > 0.0:
            within_limit = beta_cdf(a, b, limit / capacity)
            if within_limit > 0.0:
                within = min(max(within / within_limit, 0.0), 1.0)
    return 1.0 - within


@helper
def over_commitment(  # type: ignore[no-untyped-def]
    mean, deviation, window_root, weight, request, limit, capacity, own_request, own_limit
):
    """Return the risk of one resource, 0..1; ``mean`` is NaN where it was not measured."""
    promised = promised_risk(request + own_request, limit + own_limit, capacity)
    loaded = 0.0
    if mean == mean:
        loaded = loaded_risk(mean, deviation * window_root, request, limit, capacity)
    return min(max(weight * promised + (1.0 - weight) * loaded, 0.0), 1.0)
