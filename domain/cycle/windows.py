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


class Governor:
    """How many pods are looked ahead for: half as many where a quarter of the lists was of no use."""

    def __init__(self) -> None:
        self.window = WINDOW

    def note(self, lists_count: int, wasted_count: int) -> None:
        """Take the outcome of a window into account."""
        if wasted_count * 4 > lists_count:
            self.window = max(1, self.window // 2)
        else:
            self.window = min(WINDOW, self.window * 2)


class Windows:
    """The pods of one call, window by window."""

    def __init__(self, call: Call, threads: Threads, make_scratch: Callable[[], kernel.Scratch]) -> None:
        self._call = call
        self._threads = threads
        self._scratch = make_scratch()
        np.add.at(self._scratch.uses, call.sequence, 1)
        self._done = 0
        self._looks_ahead = threads.count > 1 and len(call.sequence) >= PODS_MIN
        self._others = [make_scratch() for _ in range(threads.count - 1 if self._looks_ahead else 0)]
        self._before = call.columns  # as of the window's begin
        if self._looks_ahead:
            self._before = call.columns._replace(requested=np.empty_like(call.columns.requested))
        self._finish_first: Work | None = None
        self._governor, self._lists_count = Governor(), 0
        call.lists.wasted[0] = 0

    def start(self) -> None:
        """Begin with the first window in other threads, if there are any."""
        if self._looks_ahead and not len(self._call.exclusions.slots):
            ahead, end = self._look_ahead()
            make = partial(placing.make_lists, self._call.groups, self._call.lists, ahead)
            lists = [partial(make, scratch) for scratch in self._others[1 : len(ahead.slots)]]
            wait = self._threads.start([partial(self._place, ahead, end), *lists])

            def finish() -> None:
                make(self._others[0])
                wait()
                self._place(ahead, end)

            self._finish_first = finish

    def finish(self) -> None:
        """Place all pods that are left."""
        if self._finish_first is not None:
            self._finish_first()
        while self._done < len(self._call.sequence):
            ahead, end = self._look_ahead()
            wait = self._start_lists(ahead)
            self._place(ahead, end)
            wait()
            self._place(ahead, end)

    def _place(self, ahead: kernel.Ahead, end: int) -> None:
        """Place the window's pods; those are left, if any, whose lists other threads are still making."""
        if self._done < end:
            done = placing.place(*self._call[:-1], self._done, end, ahead, self._call.placed, self._scratch)
            self._done = done

    def _look_ahead(self) -> tuple[kernel.Ahead, int]:
        """Find out which lists the next window needs, and where it ends; keep the columns as they are now."""
        call, found, end = self._call, 0, len(self._call.sequence)
        self._governor.note(self._lists_count, int(call.lists.wasted[0]))
        call.lists.wasted[0] = 0
        call.lists.made[:] = -1
        slots = np.empty(WINDOW, dtype=np.int32)
        if self._looks_ahead:
            found, end = placing.to_list(
                call.columns, call.groups, call.lists, call.changes, call.sequence, self._done,
                self._governor.window, self._scratch.uses, slots,
            )  # fmt: skip
        if found:
            count = int(call.columns.rows_count[0])
            self._before.requested[:, :count] = call.columns.requested[:, :count]
        self._lists_count = found
        taken = np.zeros(1, dtype=np.int64)
        return kernel.Ahead(self._before, slots[:found], call.changes.length.copy(), taken), end

    def _start_lists(self, ahead: kernel.Ahead) -> Work:
        """Let other threads make lists; return what waits for them."""
        make = partial(placing.make_lists, self._call.groups, self._call.lists, ahead)
        others = self._others[: max(len(ahead.slots) - 1, 0)]
        wait = self._threads.start([partial(make, scratch) for scratch in others])
        if len(self._call.exclusions.slots):
            # Placing writes what a group's lists are made from: all of them first.
            make(self._scratch)
            wait()
        return wait
