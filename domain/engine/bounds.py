"""Empty upper bounds and trees: memory for what the kernel knows of rows, and of blocks of rows."""

from __future__ import annotations

import numpy as np

from domain.kernels import arrays as kernel
from domain.kernels.arrays import EQUAL_ROWS_FROM, SPAN
from domain.model.limits import row_bounds_bytes_max

SCANNED_MAX = 128
"""To look at so few nodes takes a microsecond or less, in any way."""


def empty_bounds(resources: int, width: int, statics: int) -> kernel.Bounds:
    """Return bounds of nothing yet, for so many resource columns, rows and static parts."""
    lengths = {"R": resources, "B": width // SPAN, "N": width, "S": statics}
    return kernel.Bounds.allocate(
        np.zeros,
        lengths,
        scanned_max=np.full(1, SCANNED_MAX, dtype=np.int64),
        recent=np.full(2, -1, dtype=np.int64),
        blocks_synced=np.full(1, -1, dtype=np.int64),
        synced=np.full(statics, -1, dtype=np.int64),
        equal_rows=kernel.EqualRows.allocate(
            np.zeros,
            lengths,
            at=np.full(width, -1, dtype=np.int32),
            least=np.full(1, EQUAL_ROWS_FROM, dtype=np.int64),
        ),
    )


def empty_trees(width: int, count: int) -> kernel.Trees:
    """Return so many trees that no group has yet."""
    return kernel.Trees.allocate(
        np.zeros,
        {"T": count, "N": width, "2P": 2 * width},
        owner=np.full(count, -1, dtype=np.int32),
        synced=np.full(count, -1, dtype=np.int64),
    )


def empty_row_bounds(width: int, slots: int) -> kernel.RowBounds:
    """Return room for the bounds by the row of as many groups as the memory bound allows, of ``slots``."""
    count = min(slots, max(1, row_bounds_bytes_max // (2 * width)))
    return kernel.RowBounds.allocate(
        np.zeros,
        {"K": count, "N": width},
        owner=np.full(count, -1, dtype=np.int32),
        synced=np.full(count, -1, dtype=np.int64),
    )
