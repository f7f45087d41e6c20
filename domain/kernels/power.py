"""How much the power draw of each row would grow with a pod, beside those that no measurement covers yet."""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import POWER_MAX, POWER_ONE, UNCOUNTED
from domain.kernels.compiling import helper


@helper
def grow_power(capacity, estimates, added, measured, growth):  # type: ignore[no-untyped-def]
    """Write by how much the power draw ``k0 + k1 * exp(k2 * u)`` grows on each row.

    Parameters
    ----------
    capacity, estimates : int64[N]
        What a row has, and what the pods are expected to use that no measurement covers yet.
    added : int64
        What the pod is expected to use.
    measured : float64[3, N]
        The used percentage, NaN where it is not known, and ``k1`` and ``k2`` of the row.
    growth : int64[N]
        Written, in units of 2^-30: 0 where usage is not known, or would be above 100 %; ``UNCOUNTED`` where
        it is no number, or too large.

    Cost: O(N), two exponentials each. Source: scheduler-plugins, plugin Peaks.
    """
    for i in range(len(growth)):
        before = measured[0, i]
        after = 0.0
        if capacity[i] > 0:
            after = before + 100.0 * (estimates[i] + added) / capacity[i]
            before += 100.0 * estimates[i] / capacity[i]
        growth[i] = 0
        if before == before and after <= 100.0:
            k1 = measured[1, i]
            k2 = measured[2, i]
            grown = (k1 * np.exp(k2 * after) - k1 * np.exp(k2 * before)) * POWER_ONE
            growth[i] = int(np.rint(grown)) if abs(grown) <= POWER_MAX else UNCOUNTED
