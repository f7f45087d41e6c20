"""What the use of a pod costs: parts by what was promised, each with a price of its own.

Amounts and prices are whole numbers (a price in millionths), so that sums are exact in any order.
"""

from __future__ import annotations

import enum
import math
from typing import NamedTuple

from domain.model.colocation import Amounts, PodCounters, Prices, Quality

_MILLI_SECONDS_PER_CORE_HOUR = 3_600_000
_BYTE_SECONDS_PER_GIB_HOUR = 3_600 << 30


class Part(enum.StrEnum):
    """What use was promised: nothing is promised beyond the request, and to low pods."""

    PLAIN = "plain"
    REQUEST = "request"
    BURST = "burst"
    LOW = "low"


class Used(NamedTuple):
    """Use over time: thousandths of a core times seconds, and bytes times seconds."""

    cpu_milli_seconds: int = 0
    memory_byte_seconds: int = 0


class Parts(NamedTuple):
    """What a pod used in an interval, by part; the parts sum to all that it used."""

    plain: Used = Used()
    request: Used = Used()
    burst: Used = Used()
    low: Used = Used()

    def of(self, part: Part) -> Used:
        """Return one part."""
        return self[_PARTS.index(part)]


_PARTS = tuple(Part)


def used_between(earlier: PodCounters, later: PodCounters) -> Used:
    """Return what a pod used between two reports, never below 0.

    Each counter is turned into a whole number by itself: the differences of all intervals sum to the
    difference of the ends, whichever reports were lost. A report that comes late or twice adds nothing.
    """
    return Used(
        max(0, _nearest(later.cpu_seconds * 1000) - _nearest(earlier.cpu_seconds * 1000)),
        max(0, _nearest(later.memory_byte_seconds) - _nearest(earlier.memory_byte_seconds)),
    )


def counted_from(earlier: PodCounters, later: PodCounters) -> PodCounters:
    """Return from where the use of a pod counts: from 0 what began anew, as when a runtime starts again.

    A counter that is lower than before did so, each by itself.
    """
    cpu, memory = earlier
    if later.cpu_seconds < cpu:
        cpu = 0.0
    if later.memory_byte_seconds < memory:
        memory = 0.0
    return PodCounters(cpu, memory)


def split(
    quality: Quality,
    is_lending: bool,
    requests: Amounts,
    earlier: PodCounters,
    later: PodCounters,
    seconds: float,
) -> Parts:
    """Return what a pod used in an interval, split by what was promised.

    Parameters
    ----------
    quality : Quality
        Of the pod: all use of a low pod is ``low``.
    is_lending : bool
        Whether co-location holds on the node: all use is ``plain`` where it does not.
    requests : Amounts
        What the pod requests, in thousandths of a core and bytes. Use up to ``requests x seconds`` is
        ``request``, the rest ``burst``: the mean over the interval decides.
    earlier, later : PodCounters
        Its counters at the ends of the interval.
    seconds : float
        How long the interval is.

    Notes
    -----
    Source: the study of Baidu's co-location.
    """
    used = used_between(earlier, later)
    if not is_lending:
        return Parts(plain=used)
    if quality is Quality.LOW:
        return Parts(low=used)
    length = max(0.0, seconds)
    within = Used(
        min(used.cpu_milli_seconds, int(requests.cpu_milli * length)),
        min(used.memory_byte_seconds, int(requests.memory_bytes * length)),
    )
    beyond = Used(
        used.cpu_milli_seconds - within.cpu_milli_seconds,
        used.memory_byte_seconds - within.memory_byte_seconds,
    )
    return Parts(request=within, burst=beyond)


def price_micro(prices: Prices, part: Part, used: Used) -> int:
    """Return the price of a part, in millionths: use x price of the resource x weight of the part.

    cpu and memory are made whole numbers each by itself, so that they may also be billed apart.

    Notes
    -----
    Source: the study of Baidu's co-location (bill = use x quality).
    """
    weight = {
        Part.PLAIN: prices.plain,
        Part.REQUEST: prices.request,
        Part.BURST: prices.burst,
        Part.LOW: prices.low,
    }[part]
    cpu = used.cpu_milli_seconds / _MILLI_SECONDS_PER_CORE_HOUR * prices.core_hour
    memory = used.memory_byte_seconds / _BYTE_SECONDS_PER_GIB_HOUR * prices.gib_hour
    return _nearest(cpu * weight * 1e6) + _nearest(memory * weight * 1e6)


def saved_micro(prices: Prices, part: Part, used: Used) -> int:
    """Return what a part costs less than it would on a node without co-location, in millionths."""
    return price_micro(prices, Part.PLAIN, used) - price_micro(prices, part, used)


class BillLine(NamedTuple):
    """What the pods of a namespace used in an hour: of one quality, part and resource.

    Attributes
    ----------
    hour_ms : int
        When the hour begins.
    amount : int
        Thousandths of a core times seconds, or bytes times seconds.
    price_micro, saved_micro : int
        What it costs, and how much less that is than on a node without co-location, in millionths.
    """

    hour_ms: int
    namespace: str
    quality: str
    part: str
    resource: str
    amount: int
    price_micro: int
    saved_micro: int


def added(line: BillLine, more: BillLine) -> BillLine:
    """Return the sum of two lines of one hour, namespace, quality, part and resource."""
    return BillLine(*line[:5], *(x + y for x, y in zip(line[5:], more[5:], strict=True)))


def _nearest(value: float) -> int:
    return math.floor(value + 0.5)
