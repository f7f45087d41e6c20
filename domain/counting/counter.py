"""One counter over placed pods, as ``counters.py`` keeps it."""

from __future__ import annotations

from domain.plugins.counting import CounterSpec

_COUNTER_CELLS, _ANCHOR_CELLS = 300, 60  # what a counter takes beside its domains, as cells


class Counter:
    """A counter: its number in the kernel's arrays, and how many programs use it now.

    ``called`` is the last call of the kernel that asked for it. ``ended``, once it is dropped, is its version
    then, less the changes of all counters until then: see ``CounterTable.version_of``.
    """

    __slots__ = ("called", "cells", "ended", "number", "spec", "users_count")

    def __init__(self, spec: CounterSpec, number: int, anchors_count: int) -> None:
        self.cells = _COUNTER_CELLS + _ANCHOR_CELLS * anchors_count
        self.spec = spec
        self.number = number
        self.users_count = 0
        self.called = 0
        self.ended: int | None = None
