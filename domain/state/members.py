"""Members by key: a key that has no member any more is forgotten."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
M = TypeVar("M", bound=Hashable)
V = TypeVar("V")


def discard(index: dict[K, dict[M, V]], key: K, member: M) -> None:
    """Remove a member, which is there."""
    members = index[key]
    del members[member]
    if not members:
        del index[key]
