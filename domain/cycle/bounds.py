"""Empty upper bounds: memory for what the kernel knows of rows, and of blocks of rows."""

from __future__ import annotations

import numpy as np

from domain.kernels import arrays as kernel
from domain.kernels.arrays import EQUAL_ROWS_FROM, RECENT_MAX, SPAN
from domain.model.limits import row_bounds_bytes_max


def empty_bounds(resources: int, width: int, statics: int) -> kernel.Bounds:
    """Return bounds of nothing yet, for so many resource columns, rows and static parts."""
    blocks = width // SPAN
    return kernel.Bounds(
        free_low=np.zeros((resources, blocks), dtype=np.int64),
        free_high=np.zeros((resources, blocks), dtype=np.int64),
        free=np.zeros((resources, width), dtype=np.float32),
        loss=np.zeros((resources, width), dtype=np.float32),
        loss_low=np.zeros((resources, blocks), dtype=np.float32),
        base=np.zeros((statics, width), dtype=np.float32),
        even=np.zeros((statics, width), dtype=np.float32),
        best=np.zeros((statics, blocks), dtype=np.float32),
        refused=np.zeros((statics, blocks), dtype=np.int32),
        recent_free=np.zeros((resources, RECENT_MAX), dtype=np.float32),
        recent_loss=np.zeros((resources, RECENT_MAX), dtype=np.float32),
        recent=np.full(2, -1, dtype=np.int64),
        blocks_synced=np.full(1, -1, dtype=np.int64),
        synced=np.full(statics, -1, dtype=np.int64),
        equal_rows=kernel.EqualRows(
            row=np.zeros(width, dtype=np.int32),
            tie=np.zeros(width, dtype=np.uint64),
            at=np.full(width, -1, dtype=np.int32),
            kept=np.zeros(1, dtype=np.int64),
            part=np.zeros(1, dtype=np.int64),
            free_low=np.zeros(resources, dtype=np.int64),
            free_high=np.zeros(resources, dtype=np.int64),
            least=np.full(1, EQUAL_ROWS_FROM, dtype=np.int64),
            rest=np.zeros(1, dtype=np.int64),
        ),
    )


def empty_row_bounds(width: int, slots: int) -> kernel.RowBounds:
    """Return room for the bounds by the row of as many groups as the memory bound allows, of ``slots``."""
    count = min(slots, max(1, row_bounds_bytes_max // (2 * width)))
    return kernel.RowBounds(
        owner=np.full(count, -1, dtype=np.int32),
        synced=np.full(count, -1, dtype=np.int64),
        bound=np.zeros((count, width), dtype=np.int16),
    )
