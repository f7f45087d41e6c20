"""Rate rows by one resource score, for whoever tries placements outside the cycle."""

from __future__ import annotations

from domain.kernels.compiling import unit
from domain.kernels.tables import Amounts, Flags, Measured, PartColumns, Reals, Totals
from domain.kernels.terms import rate_term


@unit
def rate_rows(
    kind: int,
    allocatable: Amounts,
    requested: Amounts,
    part_column: PartColumns,
    part_weight: Reals,
    part_value: Totals,
    number: Reals,
    measured: Measured,
    fits: Flags,
    work: Measured,
    value: Reals,
) -> None:
    """Write the scores of rows by a term, with the pod on them.

    Parameters
    ----------
    kind : int
        The term's kind, a constant of ``domain.kernels.arrays``.
    allocatable, requested : int64[R, N]
    part_column, part_weight, part_value : int32[P], float64[P], int64[P]
    number : float64[M]
        The term's numbers.
    measured : float64[K, N]
        What it reads of measured usage.
    fits : uint8[N]
    work : float64[5 + P, >= N]
        Memory.
    value : float64[N]
        Written: the scores, 0..100.

    Cost: O(N) per part.
    """
    rate_term(
        kind, allocatable, requested, measured, fits, 0, part_column, part_weight, part_value, number, work,
        value,
    )  # fmt: skip
