"""The bill in memory: sums of the lines of a ``MemoryDatabase``."""

from __future__ import annotations

from collections.abc import Iterator

from domain.colocation.pricing import BillLine
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.pages import page
from services.ports.bills import BillBy, BillFilter, BillSums
from services.ports.store import Rows

_DAY_MS = 86_400_000


class MemoryBills:
    """The ``Bills`` port over a ``MemoryDatabase``."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    def _lines(self, which: BillFilter) -> Iterator[BillLine]:
        since_ms, until_ms, namespaces = which
        for line in self._database.measured.bill.values():
            is_late = until_ms is not None and line.hour_ms >= until_ms
            is_early = since_ms is not None and line.hour_ms < since_ms
            if not (is_early or is_late) and (namespaces is None or line.namespace in namespaces):
                yield line

    async def lines(self, which: BillFilter, by: BillBy, limit: int, after: str | None) -> Rows[BillSums]:
        """See ``Bills.lines``."""
        found: dict[str, BillSums] = {}
        for line in self._lines(which):
            key = _key(line, by)
            found[key] = found.get(key, BillSums(key)).plus(line)
        rows = [found[key] for key in sorted(found) if after is None or key > after]
        return page(rows, limit, lambda row: len(row.key))

    async def total(self, which: BillFilter) -> BillSums:
        """See ``Bills.total``."""
        total = BillSums("")
        for line in self._lines(which):
            total = total.plus(line)
        return total


def _key(line: BillLine, by: BillBy) -> str:
    if by is BillBy.DAY:
        return str(line.hour_ms - line.hour_ms % _DAY_MS)
    return line.namespace if by is BillBy.NAMESPACE else line.quality
