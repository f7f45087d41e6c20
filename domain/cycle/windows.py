"""Groups in threads: the pods of a call in windows, lists made side by side, pods placed strictly in order.

The groups of a window that need a look at all rows get a list of their best rows each, all as of the
window's begin. One thread places the window's pods one after another from these lists, with what changed
since looked at again; where a pod's list is not there yet, it makes lists, too. The others make lists all
the time. Threads and windows decide how long it takes, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from domain.kernels import arrays as kernel
from domain.kernels import placing

PODS_MIN = 16
"""For fewer pods, and by one thread alone, no lists are made: a scan is cheaper than a list."""

WINDOW = kernel.LISTED - kernel.TOP
"""So many pods are looked ahead for that no list is used up, as each pod changes one row."""

Work = Callable[[], None]


def _at_once(work: Sequence[Work]) -> Work:
    for each in work:
        each()
    return lambda: None


@dataclass(frozen=True, kw_only=True)
class Threads:
    """How many threads there are, the caller's own among them.

    ``start`` begins work in the others, one each, and returns what waits until all of it is done.
    """

    count: int = 1
    start: Callable[[Sequence[Work]], Work] = _at_once


IN_LINE = Threads()
"""No threads."""


class Call(NamedTuple):
    """What the kernel works on in one call."""

    columns: kernel.Columns
    groups: kernel.Groups
    bounds: kernel.Bounds
    lists: kernel.Lists
    changes: kernel.ChangeLog
    exclusions: kernel.Exclusions
    sequence: np.ndarray
    placed: kernel.Placed


def place_all(call: Call, threads: Threads, make_scratch: Callable[[], kernel.Scratch]) -> None:
    """Place all pods of a call."""
    pods_count = len(call.sequence)
    scratch, before, others = make_scratch(), call.columns, []
    np.add.at(scratch.uses, call.sequence, 1)
    looks_ahead = threads.count > 1 and pods_count >= PODS_MIN
    if looks_ahead:
        before = before._replace(requested=np.empty_like(before.requested))
        others = [make_scratch() for _ in range(threads.count - 1)]
    window = WINDOW if looks_ahead else max(pods_count, 1)
    for begin in range(0, pods_count, window):
        end = min(begin + window, pods_count)
        call.lists.made[:] = -1
        ahead = _look_ahead(call, begin, end if looks_ahead else begin, before, scratch.uses)
        wait = _start_lists(call, ahead, threads, scratch, others)
        placing.place(*call[:-1], begin, end, ahead, call.placed, scratch)
        wait()


def _look_ahead(call: Call, begin: int, end: int, before: kernel.Columns, uses: np.ndarray) -> kernel.Ahead:
    """Find out which lists are needed, and keep the columns as they are now."""
    slots = np.empty(end - begin, dtype=np.int32)
    found = 0
    if len(slots):
        found = placing.to_list(
            call.columns, call.groups, call.lists, call.changes, call.sequence, begin, end, uses, slots
        )
    if found:
        count = int(before.rows_count[0])
        before.requested[:, :count] = call.columns.requested[:, :count]
    return kernel.Ahead(before, slots[:found], call.changes.length.copy(), np.zeros(1, dtype=np.int64))


def _start_lists(
    call: Call,
    ahead: kernel.Ahead,
    threads: Threads,
    scratch: kernel.Scratch,
    others: Sequence[kernel.Scratch],
) -> Work:
    """Let other threads make lists; return what waits for them."""
    make = partial(placing.make_lists, call.groups, call.lists, ahead)
    wait = threads.start([partial(make, each) for each in others[: max(len(ahead.slots) - 1, 0)]])
    if len(call.exclusions.slots):
        # Placing writes what a group's lists are made from: all of them first.
        make(scratch)
        wait()
    return wait
