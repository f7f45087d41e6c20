"""The ways to the best node: clusters of few nodes are scanned alone, which tests of bounds must not be."""

from __future__ import annotations

from domain.engine import bounds

_SCANNED_MAX = bounds.SCANNED_MAX


def choose_way(number: int) -> None:
    """Scan clusters of few nodes in one of four cases, as a worker does; else look as in large ones."""
    bounds.SCANNED_MAX = 0 if number % 4 else _SCANNED_MAX
