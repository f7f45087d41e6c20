"""Filter: one row with the reason, or a block of rows with a yes or no each."""

from __future__ import annotations

from domain.kernels.arrays import CODES, FIT, GONE, LIMIT, NEVER
from domain.kernels.compiling import helper


@helper
def limit_bound(columns, groups, g, m, row):  # type: ignore[no-untyped-def]
    """Return what the sum of limit ``m`` must not exceed on a row, times 100."""
    measured = groups.limit_measured[g, m]
    if measured >= 0:
        return groups.static_raw[groups.static_part[g], measured, row]
    return groups.limit_percent[g, m] * columns.allocatable[groups.limit_capacity[g, m], row]


@helper
def limit_sum(columns, groups, g, m, row):  # type: ignore[no-untyped-def]
    """Return what limit ``m`` counts on a row with the pod on it."""
    used = groups.limit_value[g, m]
    for c in range(groups.limit_width[g, m]):
        used += columns.requested[groups.limit_column[g, m, c], row]
    return used


@helper
def filter_row(columns, groups, g, row):  # type: ignore[no-untyped-def]
    """Return the code of the first filter, in the profile's order, that refuses a row; 0 if none does."""
    if row >= columns.rows_count[0]:
        return GONE
    code = 0
    position = NEVER
    part = groups.static_part[g]
    static = groups.static_code[part, row]
    if static != 0:
        code = static
        position = groups.static_position[part, static]
    for m in range(groups.limit_count[g]):
        if groups.limit_position[g, m] < position:
            bound = limit_bound(columns, groups, g, m, row)
            if limit_sum(columns, groups, g, m, row) * 100.0 > bound:
                hopeless = groups.limit_measured[g, m] >= 0 or groups.limit_value[g, m] * 100.0 > bound
                code = LIMIT + 2 * m + (1 if hopeless else 0)
                position = groups.limit_position[g, m]
    if groups.fit_position[g] < position:
        bits = 0
        hopeless = 0
        firm = groups.demand_count[g] - groups.firm_count[g]
        for d in range(groups.demand_count[g]):
            column = groups.demand_column[g, d]
            value = groups.demand_value[g, d]
            capacity = columns.allocatable[column, row]
            if value > capacity - columns.requested[column, row]:
                bits |= 1 << d
                # Demand 0 is the pod itself, see ``ResourceFilter``.
                if (d > 0 and value > capacity) or d >= firm:
                    hopeless = 1
        if bits != 0:
            code = FIT + 2 * bits + hopeless
    return code


@helper
def clear_histogram(groups, g, histogram):  # type: ignore[no-untyped-def]
    """Set to 0, of int32[CODES], what any code of a group counts in."""
    end = min(FIT + (2 << groups.demand_count[g]), CODES)
    for code in range(end):
        histogram[code] = 0


@helper
def is_hopeless(columns, groups, g, row):  # type: ignore[no-untyped-def]
    """Say whether any filter refuses a row whatever pods leave it.

    It need not be the first one that refuses the row: that may change with the pods on it, this does not.
    """
    hopeless = groups.static_code[groups.static_part[g], row] != 0
    for m in range(groups.limit_count[g]):
        stays = groups.limit_value[g, m]
        if groups.limit_measured[g, m] >= 0:
            stays = limit_sum(columns, groups, g, m, row)
        hopeless = hopeless or stays * 100.0 > limit_bound(columns, groups, g, m, row)
    for d in range(1, groups.demand_count[g]):  # demand 0 is the pod itself, see ``ResourceFilter``
        capacity = columns.allocatable[groups.demand_column[g, d], row]
        if d >= groups.demand_count[g] - groups.firm_count[g]:
            capacity -= columns.requested[groups.demand_column[g, d], row]
        hopeless = hopeless or groups.demand_value[g, d] > capacity
    return hopeless


@helper
def fit_block(columns, groups, g, first, n, scratch):  # type: ignore[no-untyped-def]
    """Write into ``scratch.fits``, uint8[n], whether rows ``first .. first + n - 1`` pass every filter.

    Every array is cut to the block first: the compiler makes vector instructions of an index that counts up
    from 0.
    """
    end = first + n
    fits = scratch.fits[:n]
    static_code = groups.static_code[groups.static_part[g], first:end]
    for i in range(n):
        fits[i] = static_code[i] == 0
    for d in range(groups.demand_count[g]):
        value = groups.demand_value[g, d]
        allocatable = columns.allocatable[groups.demand_column[g, d], first:end]
        requested = columns.requested[groups.demand_column[g, d], first:end]
        for i in range(n):
            fits[i] &= value <= allocatable[i] - requested[i]
    for m in range(groups.limit_count[g]):
        for i in range(n):
            bound = limit_bound(columns, groups, g, m, first + i)
            fits[i] &= limit_sum(columns, groups, g, m, first + i) * 100.0 <= bound
