"""Groups in threads: the pods of a call in windows, lists made side by side, pods placed strictly in order.

Before a window, the groups in it that need a look at all rows get a list of their best rows each, in as many
threads as there are, all on the same columns. Then the window's pods are placed one after another from these
lists, with what changed since looked at again. A pod whose list is used up goes back, and those behind it
with it: the next window begins there. Threads and windows decide how long it takes, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from domain.kernels import arrays as kernel
from domain.kernels import placing

PODS_MIN = 16
"""For fewer pods, and by one thread alone, no lists are made: a scan is cheaper than a list."""

_WINDOW_FIRST = 64
_WINDOW_MIN = 8
_WINDOW_MAX = 256
_WINDOW_WITHOUT_LISTS = 1_024


def _one_after_another(work: Sequence[Callable[[], None]]) -> None:
    for each in work:
        each()


@dataclass(frozen=True, kw_only=True)
class Threads:
    """How many shares of work may be done at the same time; ``run`` does all of them before it returns."""

    count: int = 1
    run: Callable[[Sequence[Callable[[], None]]], None] = _one_after_another


IN_LINE = Threads()
"""No threads."""


class Governor:
    """How many pods are looked ahead for: half as many where a quarter finds its row taken, else more.

    At most one for 32 rows: looking again at what the window's own pods changed must cost less than a scan.
    """

    def __init__(self, rows_count: int) -> None:
        self._most = max(_WINDOW_MIN, min(_WINDOW_MAX, rows_count // 32))
        self.window = min(_WINDOW_FIRST, self._most)

    def note(self, pods_count: int, conflict_count: int) -> None:
        """Take the outcome of a window into account."""
        if conflict_count * 4 > pods_count:
            self.window = max(_WINDOW_MIN, self.window // 2)
        elif conflict_count * 16 <= pods_count:
            self.window = min(self._most, self.window * 2)


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
    scratch, governor = make_scratch(), Governor(int(call.columns.rows_count[0]))
    scratches = [make_scratch() for _ in range(threads.count)]
    pods_count = len(call.sequence)
    np.add.at(scratch.uses, call.sequence, 1)
    call.lists.made[:] = -1
    done = 0
    while done < pods_count:
        end = min(done + governor.window, pods_count)
        ahead = threads.count > 1 and pods_count >= PODS_MIN
        if not ahead or not _make_lists(call, done, end, scratch.uses, threads, scratches):
            end = min(done + _WINDOW_WITHOUT_LISTS, pods_count)
        conflicts = int(call.placed.conflicts.sum())
        before, done = done, _place(call, done, end, scratch)
        governor.note(done - before, int(call.placed.conflicts.sum()) - conflicts)


def _place(call: Call, begin: int, end: int, scratch: kernel.Scratch) -> int:
    next_pod: int = placing.place(*call[:-1], begin, end, call.placed, scratch)
    return next_pod


def _make_lists(
    call: Call, begin: int, end: int, uses: np.ndarray, threads: Threads, scratches: Sequence[kernel.Scratch]
) -> bool:
    """Make the lists that are needed; say whether any is."""
    slots = np.empty(end - begin, dtype=np.int32)
    found = placing.to_list(
        call.columns, call.groups, call.lists, call.changes, call.sequence, begin, end, uses, slots
    )
    threads.run(list(_shares(call, slots[:found], scratches)))
    return bool(found)


def _shares(
    call: Call, slots: np.ndarray, scratches: Sequence[kernel.Scratch]
) -> Iterator[Callable[[], None]]:
    """Deal the slots out."""
    length = int(call.changes.length[0])
    for t, scratch in enumerate(scratches):
        share = slots[t :: len(scratches)].copy()
        if len(share):
            yield partial(placing.make_lists, call.columns, call.groups, call.lists, share, length, scratch)
