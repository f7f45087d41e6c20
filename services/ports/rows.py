"""Pages of rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Row = TypeVar("Row")


class Rows(list[Row]):
    """The rows of a page; ``more`` says whether others follow them.

    ``reached`` is where a search for rare rows stopped, "" where it looked at all: others may follow that.
    """

    def __init__(self, rows: Iterable[Row] = (), *, more: bool = False, reached: str = "") -> None:
        super().__init__(rows)
        self.more = more
        self.reached = reached
