"""Says whether a worker may judge others by their leases: not when the ledger was away from it just before.

All leases run out while the ledger is away. A worker that comes back first would take the shards of healthy
ones, which had no chance to renew.
"""

from __future__ import annotations

import asyncio
import math

from domain.model.limits import returning_seconds


class LeaseJudge:
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
        self._is_writable = True

    def failed(self) -> None:
        """Note that the ledger did not answer. It counts as away until it takes a write again."""
        self._is_writable = False

    def answered(self, *, is_write: bool) -> bool:
        """Note an answer; return whether the ledger had been away before it.

        However short that was: a call of another worker that began meanwhile may still hang.
        """
        if not (self._is_writable or is_write):
            return False
        now, before = asyncio.get_running_loop().time(), self._last
        was_away = not self._is_writable or now - before > self._gap_seconds_max
        self._is_writable, self._last = True, now
        if was_away:
            self._since = now
        return was_away and before > -math.inf

    @property
    def is_clear(self) -> bool:
        """Whether every healthy worker has had the time to renew its leases since the ledger was away."""
        now = asyncio.get_running_loop().time()
        has_answers = self._is_writable and now - self._last <= self._gap_seconds_max
        return has_answers and now - self._since >= self._patience_seconds
