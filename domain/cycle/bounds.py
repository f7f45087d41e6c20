"""Empty upper bounds: memory for what the kernel knows of rows, and of blocks of rows."""

from __future__ import annotations

import numpy as np

from domain.kernels import arrays as kernel
from domain.kernels.arrays import EQUAL_ROWS_FROM, SPAN


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
