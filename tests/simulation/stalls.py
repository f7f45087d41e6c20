"""Counts the seconds of a day in which work waited and nobody decided anything."""

from __future__ import annotations

import asyncio

from tests.simulation.auditor import Auditor

CALM_SECONDS_MAX = 4
"""A day on which nothing goes wrong has no longer stall."""


class Stalls:
    """Looks once a second of virtual time.

    Attributes
    ----------
    seconds : int
        Seconds in which something was not worked off and nothing moved.
    longest : int
        The most of them in a row.
    """

    def __init__(self, auditor: Auditor) -> None:
        self._auditor = auditor
        self.seconds = self.longest = 0

    async def watch(self) -> None:
        """Look until cancelled."""
        before, stretch = self._auditor.activity(), 0
        while True:
            await asyncio.sleep(1.0)
            now = self._auditor.activity()
            stretch = stretch + 1 if now == before and self._auditor.behind() else 0
            before = now
            self.seconds += stretch > 0
            self.longest = max(self.longest, stretch)
