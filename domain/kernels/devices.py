"""Devices: which ones a pod gets on a row, by the rule of ``domain.model.devices.choose``."""

from __future__ import annotations

from domain.kernels.arrays import Columns
from domain.kernels.compiling import helper, unit
from domain.model.devices import DEVICE_ONE
from domain.model.limits import devices_per_node_max

DEVICES_MAX = devices_per_node_max

BUSY_AT, SHARED_AT = DEVICES_MAX, DEVICES_MAX + 1
"""``Columns.devices`` has the columns of the devices, then those of ``BUSY`` and ``SHARED``
(``domain.model.devices``). The column of what no node offers stands for those that there are not."""


@helper
def emptiest(columns, row):  # type: ignore[no-untyped-def]
    """Return the thousandths free on the emptiest device of a row."""
    most = -(1 << 62)
    for d in range(DEVICES_MAX):
        column = columns.devices[d]
        offered = columns.allocatable[column, row]
        if offered > 0:
            most = max(most, offered - columns.requested[column, row])
    return most


@helper
def busy_count(columns, row):  # type: ignore[no-untyped-def]
    """Return how many devices of a row anything is taken of."""
    busy = 0
    for d in range(DEVICES_MAX):
        column = columns.devices[d]
        if columns.allocatable[column, row] > 0 and columns.requested[column, row] > 0:
            busy += 1
    return busy


@helper
def pick(columns, milli, row, taken):  # type: ignore[no-untyped-def]
    """Return the next device for a pod, but for those in ``taken`` (bits); -1: there is none."""
    fullest = -1
    fullest_free = 0
    roomiest = -1
    roomiest_free = 0
    for d in range(DEVICES_MAX):
        column = columns.devices[d]
        offered = columns.allocatable[column, row]
        if offered > 0 and (taken >> d) & 1 == 0:
            free = offered - columns.requested[column, row]
            if free >= milli and (fullest < 0 or free < fullest_free):
                fullest = d
                fullest_free = free
            if roomiest < 0 or free > roomiest_free:
                roomiest = d
                roomiest_free = free
    return fullest if milli < DEVICE_ONE and fullest >= 0 else roomiest


@helper
def take_devices(columns, groups, g, row):  # type: ignore[no-untyped-def]
    """Give a pod of a group devices of a row, and return them as bits.

    What the pod adds to ``BUSY`` where devices are not told apart was added before.
    """
    number = groups.ask_number[g]
    milli = groups.ask_milli[g]
    taken = 0
    if number > 0 and columns.allocatable[columns.devices[0], row] > 0:
        busy_before = busy_count(columns, row)
        most_before = emptiest(columns, row)
        for _ in range(number):
            d = pick(columns, milli, row, taken)
            if d < 0:
                break
            taken |= 1 << d
            columns.requested[columns.devices[d], row] += milli
        counted = number if milli == DEVICE_ONE else 0
        columns.requested[columns.devices[BUSY_AT], row] += busy_count(columns, row) - busy_before - counted
        columns.requested[columns.devices[SHARED_AT], row] += most_before - emptiest(columns, row)
    return taken


@unit
def free_devices(columns: Columns, row: int, taken: int, number: int, milli: int) -> None:
    """Undo ``take_devices`` on a row for one pod, after what it adds to ``BUSY`` was taken back.

    Parameters
    ----------
    columns : Columns
        The snapshot.
    row : int
    taken : int
        The pod's devices, as bits.
    number, milli : int
        What it asks for: so many devices, and so many thousandths of each.
    """
    busy_before = busy_count(columns, row)
    most_before = emptiest(columns, row)
    counted = number if milli == DEVICE_ONE else 0
    for d in range(DEVICES_MAX):
        if (taken >> d) & 1 == 1:
            columns.requested[columns.devices[d], row] -= milli
    columns.requested[columns.devices[BUSY_AT], row] += busy_count(columns, row) - busy_before + counted
    columns.requested[columns.devices[SHARED_AT], row] += most_before - emptiest(columns, row)
