"""Says whether a worker may judge others by their leases: not when the ledger was away from it just before.

All leases run out while the ledger is away. A worker that comes back first would take the shards of healthy
ones, which had no chance to renew.
"""

from __future__ import annotations

import asyncio
import math

from domain.model.limits import returning_seconds


class Sight:
    """Since when a worker has had the ledger's answers without a gap in which others' leases could run out.

    Parameters
    ----------
    lease_seconds, renewal_seconds : float
        For how long leases hold, and how often they are renewed.
    """

    def __init__(self, lease_seconds: float, renewal_seconds: float) -> None:
        self._gap_seconds_max = lease_seconds - renewal_seconds
        self._patience_seconds = lease_seconds + returning_seconds
        self._since = self._last = -math.inf
        self._answers_from = self._away_from = -math.inf  # of the answers since an outage; of that outage
        self._is_writable = True

    def failed(self) -> None:
        """Note that the ledger did not answer. It counts as away until it takes a write again."""
        if self._is_writable and self._last - self._answers_from >= returning_seconds:
            self._away_from = self._last  # else the outage before this one was not over for all
        self._is_writable = False

    def answered(self, *, is_write: bool) -> bool:
        """Note an answer; return whether the ledger had been away before it."""
        now, before, answers_from = asyncio.get_running_loop().time(), self._last, self._last
        if not self._is_writable:
            if not is_write:
                return False
            self._is_writable, self._answers_from = True, now
            answers_from = self._away_from
        self._last = now
        if now - answers_from <= self._gap_seconds_max:
            return False
        self._since = now
        return before > -math.inf

    @property
    def is_clear(self) -> bool:
        """Whether every healthy worker has had the time to renew its leases since the ledger was away."""
        now = asyncio.get_running_loop().time()
        has_answers = self._is_writable and now - self._last <= self._gap_seconds_max
        return has_answers and now - self._since >= self._patience_seconds
