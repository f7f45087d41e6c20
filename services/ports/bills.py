"""What the API asks of the bill: what pods used hour by hour, what it cost, and what was saved."""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import NamedTuple

from domain.colocation.pricing import BillLine, Part
from domain.model.resources import CPU


class BillBy(enum.StrEnum):
    """What the lines of a bill are of."""

    NAMESPACE = "namespace"
    QUALITY = "quality"
    DAY = "day"


class BillFilter(NamedTuple):
    """Which hours to bill, by when they begin, and of which namespaces; None means any."""

    since_ms: int | None = None
    until_ms: int | None = None
    namespaces: Collection[str] | None = None


LENT = (Part.BURST, Part.LOW)
"""The parts that are lent: what no request claims."""


class BillSums(NamedTuple):
    """What pods used, in thousandths of a core times seconds, and in bytes times seconds.

    ``key`` is a namespace, a quality, or the log time at which a day (UTC) begins. Of ``lent`` are the parts
    in ``LENT``. ``saved`` is what all of it costs less than on nodes without co-location. Prices are in
    millionths.
    """

    key: str
    cpu_milli_seconds: int = 0
    memory_byte_seconds: int = 0
    lent_cpu_milli_seconds: int = 0
    lent_memory_byte_seconds: int = 0
    price_micro: int = 0
    saved_micro: int = 0

    def plus(self, line: BillLine) -> BillSums:
        """Return the sums with one line more."""
        cpu, memory = (line.amount, 0) if line.resource == CPU else (0, line.amount)
        lent = int(line.part in LENT)
        more = (cpu, memory, lent * cpu, lent * memory, line.price_micro, line.saved_micro)
        return BillSums(self.key, *(x + y for x, y in zip(self[1:], more, strict=True)))
