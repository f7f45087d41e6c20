"""Adds to the roll-up beside all else, in small steps, so that placing does not wait for it."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from domain.model.limits import rollup_pause_seconds
from services.ports.rollups import ROWS_MAX, Rollups

STEP_PAUSE_SECONDS = 0.2
"""Between two slices, so that commits have the disk most of the time."""


async def roll_up(
    rollups: Rollups,
    pause_seconds: float = rollup_pause_seconds,
    step_pause_seconds: float = STEP_PAUSE_SECONDS,
) -> NoReturn:
    """Count what is decided and take each step's sample, until cancelled."""
    while True:
        while await rollups.count() >= ROWS_MAX:
            await asyncio.sleep(step_pause_seconds)
        await rollups.sample()
        await asyncio.sleep(pause_seconds)
