"""Blocks of rows: the extremes of what is free in each, shared by all groups.

Where even the fullest row of a block has room for a pod, no row of the block needs to be asked.
"""

from __future__ import annotations

import numpy as np

from domain.kernels.compiling import helper
from domain.kernels.devices import BUSY_AT, SHARED_AT
from domain.kernels.filtering import fit_block


@helper
def span_of(columns, bounds):  # type: ignore[no-untyped-def]
    """Return the number of rows per block. It is a power of two, and so is the number of blocks."""
    return len(columns.tie) // bounds.free_low.shape[1]


@helper
def blocks_of(columns, bounds):  # type: ignore[no-untyped-def]
    """Return the number of blocks with rows in use."""
    span = span_of(columns, bounds)
    return (columns.rows_count[0] + span - 1) // span


@helper
def summarise(allocatable, requested, first, end, free_low, free_high, loss, loss_low, b):  # type: ignore[no-untyped-def]
    """Write the extremes of what is free of one resource in a block, and each row's loss."""
    low = np.int64(1 << 62)
    high = np.int64(-(1 << 62))
    largest = np.int64(0)
    for row in range(first, end):
        low = min(low, allocatable[row] - requested[row])
        high = max(high, allocatable[row] - requested[row])
        largest = max(largest, allocatable[row])
    for row in range(first, end):
        loss[row] = 100.0 / allocatable[row] if allocatable[row] > 0 else 0.0
    free_low[b] = low
    free_high[b] = high
    loss_low[b] = 100.0 / largest if largest > 0 else 0.0


@helper
def sync_blocks(columns, bounds, changes, marks):  # type: ignore[no-untyped-def]
    """Bring all blocks up to date with the change log.

    Cost: O(SPAN) per block with a changed row, or O(N) when more than a quarter of the rows changed.
    """
    span = span_of(columns, bounds)
    length = changes.length[0]
    known = bounds.blocks_synced[0]
    count = columns.rows_count[0]
    if known < length or known < 0:
        everything = known < 0 or (length - known) * 4 > count
        blocks = bounds.free_low.shape[1]
        for i in range(blocks if everything else length - known):
            b = i if everything else changes.rows[known + i] // span
            if marks[b] == 0:
                marks[b] = 1
                end = min((b + 1) * span, count)
                for c in range(len(columns.allocatable)):
                    summarise(
                        columns.allocatable[c], columns.requested[c], b * span, end,
                        bounds.free_low[c], bounds.free_high[c], bounds.loss[c], bounds.loss_low[c], b,
                    )  # fmt: skip
        for i in range(blocks if everything else length - known):
            marks[i if everything else changes.rows[known + i] // span] = 0
        bounds.blocks_synced[0] = length


@helper
def record_placement(columns, groups, bounds, changes, g, row):  # type: ignore[no-untyped-def]
    """Correct the lowest free amounts of a block after a pod was placed on one of its rows and logged.

    ``free_high`` may stay too high. At worst that costs one visit in vain, which corrects it.
    """
    if bounds.blocks_synced[0] == changes.length[0] - 1:
        b = row // span_of(columns, bounds)
        for a in range(groups.add_count[g]):
            c = groups.add_column[g, a]
            free = columns.allocatable[c, row] - columns.requested[c, row]
            bounds.free_low[c, b] = min(bounds.free_low[c, b], free)
        if groups.ask_number[g] > 0:
            for at in (BUSY_AT, SHARED_AT):
                c = columns.devices[at]
                free = columns.allocatable[c, row] - columns.requested[c, row]
                bounds.free_low[c, b] = min(bounds.free_low[c, b], free)
        bounds.blocks_synced[0] = changes.length[0]


@helper
def has_room(groups, bounds, g, b):  # type: ignore[no-untyped-def]
    """Say whether every demand fits on a block's fullest row, and no other filter depends on its pods."""
    room = groups.limit_count[g] == 0
    for d in range(groups.demand_count[g]):
        room = room and groups.demand_value[g, d] <= bounds.free_low[groups.demand_column[g, d], b]
    return room


@helper
def fit_rows(columns, groups, bounds, g, first, n, scratch):  # type: ignore[no-untyped-def]
    """Filter rows as ``fit_block`` does, without a look at any demand where all their blocks have room."""
    span = span_of(columns, bounds)
    roomy = True
    for b in range(first // span, (first + n + span - 1) // span):
        roomy = roomy and has_room(groups, bounds, g, b)
    if roomy:
        _fit_static(groups.static_code[groups.static_part[g], first : first + n], scratch.fits[:n])
    else:
        fit_block(columns, groups, g, first, n, scratch)


@helper
def _fit_static(static_code, fits):  # type: ignore[no-untyped-def]
    for i in range(len(fits)):
        fits[i] = static_code[i] == 0
