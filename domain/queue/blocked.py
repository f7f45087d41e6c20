"""The groups and gangs that find no node at all, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from domain.model.timestamps import NEVER_MS
from domain.queue.groups import GroupKey

Failing = GroupKey | str
"""A group, or a gang by its name."""


class Blocked:
    """Groups and gangs with the log time of the first attempt since which all failed, the earliest first."""

    def __init__(self) -> None:
        self._since: dict[Failing, int] = {}

    def __contains__(self, key: Failing) -> bool:
        return key in self._since

    def note(self, key: Failing, at_ms: int) -> None:
        """Take note that a group or a gang fails since then."""
        self._since.pop(key, None)
        self._since[key] = at_ms

    def forget(self, key: Failing) -> None:
        """Forget a group or a gang."""
        self._since.pop(key, None)

    def has_any(self, until_ms: int) -> bool:
        """Say whether any has failed since then, or for longer."""
        return next(iter(self._since.values()), until_ms + 1) <= until_ms

    def since(self, until_ms: int) -> Sequence[Failing]:
        """Return these."""
        return [key for key, _ in takewhile(lambda each: each[1] <= until_ms, self._since.items())]

    def next_ms(self, after_ms: int) -> int:
        """Return since when the first one fails that has failed since a moment after this one."""
        return next((since for since in self._since.values() if since > after_ms), NEVER_MS)
