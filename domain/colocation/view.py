"""What a node lends: the boxes of mid and low pods, and the room that a further pod finds in them.

*Available* is a box, in which present use is counted. *Room* is what is left of it for a further pod: to
place by what is available would lend one idle core again and again.
"""

from __future__ import annotations

from typing import NamedTuple

from domain.model.colocation import Amounts, LendingForm, Portion, UseByQuality, ViewRule


class Requests(NamedTuple):
    """What the pods of a node request in sum, by quality; low pods request nothing."""

    high: Amounts = Amounts()
    mid: Amounts = Amounts()


NO_REQUESTS = Requests()


class Available(NamedTuple):
    """The boxes: what the pods of mid and of low may use in sum, never below 0."""

    mid: Amounts
    low: Amounts


class Room(NamedTuple):
    """What further pods of mid and of low may use, never below 0."""

    mid: Amounts
    low: Amounts


def available(
    rule: ViewRule, capacity: Amounts, use: UseByQuality, requests: Requests = NO_REQUESTS
) -> Available:
    """Return the boxes of mid and low pods on a node.

    With capacity C, margin K and S = max(use of the system, reserved), in the form ``usage``::

        mid = C - S - use(high) - K        low = C - S - use(high) - use(mid) - K

    The form ``request`` takes requests in the place of use. ``reclaimable``, for mid alone, is
    ``reclaimable_amount`` of what high pods request and do not use, of what is unused, and of what neither
    the system nor high pods claim. Mid pods are in none of these: their use is counted in their box.

    Parameters
    ----------
    rule : ViewRule
        Margin, reserve, forms and the cap, which bounds either box. ``low_form`` is not ``reclaimable``.
    capacity : Amounts
        What the node has, in thousandths of a core and bytes; so are all amounts.
    use : UseByQuality
        What was measured.
    requests : Requests
        What the pods on the node request; the form ``usage`` does not read it.

    Notes
    -----
    Source: the dynamic resource view of Baidu's co-location (high, mid, low); margin, reserve, cap and the
    forms are those of Koordinator's slo-controller (``batchresource``, ``midresource``).
    """
    cpu = _boxes(rule, rule.margin_cpu, _row(0, rule, capacity, use, requests))
    memory = _boxes(rule, rule.margin_memory, _row(1, rule, capacity, use, requests))
    return Available(Amounts(cpu[0], memory[0]), Amounts(cpu[1], memory[1]))


def reclaimable_amount(rule: ViewRule, capacity: int, idle: int, unused: int, unallocated: int) -> int:
    """Return what mid pods may use of one resource in the form ``reclaimable``.

    ``min(min(idle, unused) + unallocated x unallocated_percent, C x threshold_percent)``, never below 0.

    Parameters
    ----------
    rule : ViewRule
        ``unallocated_percent`` and ``threshold_percent``.
    capacity, idle, unused, unallocated : int
        Of the node, in one unit: what it has, what high pods request and do not use, what nothing uses, and
        what neither the system nor high pods claim.

    Notes
    -----
    Source: Koordinator's slo-controller (``midresource``).
    """
    lent = min(idle, unused) + Portion(percent=rule.unallocated_percent).of(unallocated)
    return max(0, min(lent, Portion(percent=rule.threshold_percent).of(capacity)))


def room_without_recent(boxes: Available, use: UseByQuality) -> Room:
    """Return what further pods may use: the boxes without what their pods use, never below 0.

    Pods that were bound since the measurement are not in ``use``; their estimates are subtracted by the
    caller.
    """
    return Room(_left(boxes.mid, use.mid), _left(boxes.low, use.low))


class _Row(NamedTuple):
    """One resource of a node, all in its unit."""

    capacity: int
    system: int
    high_use: int
    mid_use: int
    low_use: int
    high_requests: int
    mid_requests: int


def _row(index: int, rule: ViewRule, capacity: Amounts, use: UseByQuality, requests: Requests) -> _Row:
    """Return one resource by its place in ``Amounts``."""
    return _Row(
        capacity[index],
        max(use.system[index], rule.reserved[index]),
        use.high[index],
        use.mid[index],
        use.low[index],
        requests.high[index],
        requests.mid[index],
    )


def _boxes(rule: ViewRule, margin: Portion, row: _Row) -> tuple[int, int]:
    """Return the boxes of mid and low for one resource."""
    assert rule.low_form is not LendingForm.RECLAIMABLE, "low pods are lent what is unused or not requested"
    base = row.capacity - row.system - margin.of(row.capacity)
    match rule.mid_form:
        case LendingForm.USAGE:
            mid = base - row.high_use
        case LendingForm.REQUEST:
            mid = base - row.high_requests
        case LendingForm.RECLAIMABLE:
            mid = _reclaimable(rule, row)
    if rule.low_form is LendingForm.USAGE:
        low = base - row.high_use - row.mid_use
    else:
        low = base - row.high_requests - row.mid_requests
    if rule.cap_percent is not None:
        cap = Portion(percent=rule.cap_percent).of(row.capacity)
        mid, low = min(mid, cap), min(low, cap)
    return max(0, mid), max(0, low)


def _reclaimable(rule: ViewRule, row: _Row) -> int:
    """Return the box of mid pods in the form ``reclaimable``, by what is on the node."""
    used = row.system + row.high_use + row.mid_use + row.low_use
    return reclaimable_amount(
        rule,
        row.capacity,
        idle=max(0, row.high_requests - row.high_use),
        unused=max(0, row.capacity - used),
        unallocated=max(0, row.capacity - row.system - row.high_requests),
    )


def _left(box: Amounts, use: Amounts) -> Amounts:
    return Amounts(max(0, box.cpu_milli - use.cpu_milli), max(0, box.memory_bytes - use.memory_bytes))
