"""What nodes have by key (labels, taints): interned values over rows, in memory that follows their number.

A key that many rows have is a column. A key that few have is a dict, so that a hundred thousand keys of one
node each do not cost as many columns. Values and keys that no row has any more are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

K = TypeVar("K", bound=Hashable)

ABSENT = -1
"""Value id of a key that a node does not have."""

_ROWS_PER_ENTRY_DENSE = 16  # a column is made where every 16th row or more has the key
_ROWS_PER_ENTRY_SPARSE = 32  # and given up where fewer than every 32nd has it


class Values:
    """Texts by number, each for as long as it is in use.

    ``numbers`` int64[V] is a text as an integer where ``is_number`` bool[V] says that it is one. Both can be
    indexed with ``ABSENT``, which is no number.
    """

    def __init__(self, number_of: Callable[[str], int | None]) -> None:
        self._number_of = number_of
        self._ids: dict[str, int] = {}
        self._texts: list[str] = []
        self._uses: list[int] = []
        self._free: list[int] = []
        self.numbers = np.zeros(64, dtype=np.int64)
        self.is_number = np.zeros(64, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self._ids)

    def use(self, text: str) -> int:
        """Return the id of a text, which is in use once more."""
        value = self._ids.get(text)
        if value is None:
            value = self._ids[text] = self._new(text)
        self._uses[value] += 1
        return value

    def _new(self, text: str) -> int:
        if self._free:
            value = self._free.pop()
            self._texts[value] = text
        else:
            value = len(self._texts)
            self._texts.append(text)
            self._uses.append(0)
            if value + 1 == len(self.numbers):  # the last one stays free: ABSENT refers to it
                self.numbers = np.concatenate([self.numbers, np.zeros_like(self.numbers)])
                self.is_number = np.concatenate([self.is_number, np.zeros_like(self.is_number)])
        number = self._number_of(text)
        self.is_number[value] = number is not None
        self.numbers[value] = 0 if number is None else number
        return value

    def release(self, value: int) -> None:
        """Give back one use of an id."""
        self._uses[value] -= 1
        if not self._uses[value]:
            del self._ids[self._texts[value]]
            self._texts[value] = ""
            self.is_number[value] = False
            self._free.append(value)

    def id_of(self, text: str) -> int | None:
        """Return the id of a text, None if no node has it."""
        return self._ids.get(text)

    def text(self, value: int) -> str:
        """Return the text of an id."""
        return self._texts[value]

    def among(self, found: np.ndarray, texts: Sequence[str]) -> np.ndarray:
        """Return bool[len(found)]: the value id is that of one of the texts. Cost: O(ids + texts)."""
        wanted = [value for text in texts if (value := self._ids.get(text)) is not None]
        matched: np.ndarray
        if len(wanted) > 2:
            marks = np.zeros(len(self.numbers), dtype=np.bool_)
            marks[wanted] = True
            matched = marks[found]
        elif wanted:
            matched = found == wanted[0]
            if len(wanted) > 1:
                matched |= found == wanted[1]
        else:
            matched = np.zeros(len(found), dtype=np.bool_)
        return matched


class KeyedValues(Generic[K]):
    """Value ids by key and row.

    Parameters
    ----------
    rows : int
        For how many rows there is room; see ``reserve``.
    number_of : callable
        The rule by which a text is an integer.
    """

    def __init__(self, rows: int, number_of: Callable[[str], int | None]) -> None:
        self.values = Values(number_of)
        self._rows = rows
        self._many: dict[K, np.ndarray] = {}
        self._counts: dict[K, int] = {}  # of the keys in _many: how many rows have one
        self._few: dict[K, dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self._many) + len(self._few)

    def __contains__(self, key: K) -> bool:
        return key in self._many or key in self._few

    def column(self, key: K) -> np.ndarray | None:
        """Return int32[N] of value ids, to be read at once; None if no node has the key.

        Cost: O(1), or O(N) for a key that few nodes have.
        """
        column = self._many.get(key)
        if column is None:
            few = self._few.get(key)
            column = None if few is None else self._spread(few)
        return column

    def entries(self, key: K) -> tuple[np.ndarray | slice, np.ndarray] | None:
        """Return rows, and what they have of a key: int32, one value id each; None if no node has the key.

        Cost: O(rows that have it), or O(1) where many have.
        """
        column = self._many.get(key)
        if column is not None:
            return slice(None), column
        few = self._few.get(key)
        if few is None:
            return None
        rows = np.fromiter(few, dtype=np.int64, count=len(few))
        return rows, np.fromiter(few.values(), dtype=np.int32, count=len(few))

    def _spread(self, few: Mapping[int, int]) -> np.ndarray:
        column = np.full(self._rows, ABSENT, dtype=np.int32)
        column[list(few)] = list(few.values())
        return column

    def reserve(self, rows: int) -> None:
        """Make room for more rows."""
        for key, column in list(self._many.items()):
            wider = np.full(rows, ABSENT, dtype=np.int32)
            wider[: len(column)] = column
            self._many[key] = wider
            self._shrink(key)
        self._rows = rows

    def write(self, row: int, before: Mapping[K, str], after: Mapping[K, str]) -> None:
        """Replace what a row has. Cost: O(entries)."""
        for key, text in before.items():
            if after.get(key) != text:
                self.values.release(self._take_out(row, key))
        for key, text in after.items():
            if before.get(key) != text:
                self._put(row, key, self.values.use(text))

    def move(self, source: int, row: int, keys: Mapping[K, str]) -> None:
        """Move what a row has to a row that has nothing. Cost: O(entries)."""
        for key in keys:
            self._put(row, key, self._take_out(source, key))

    def _put(self, row: int, key: K, value: int) -> None:
        column = self._many.get(key)
        if column is not None:
            column[row] = value
            self._counts[key] += 1
            return
        few = self._few.setdefault(key, {})
        few[row] = value
        if len(few) * _ROWS_PER_ENTRY_DENSE > self._rows:
            self._many[key], self._counts[key] = self._spread(few), len(few)
            del self._few[key]

    def _take_out(self, row: int, key: K) -> int:
        column = self._many.get(key)
        if column is None:
            few = self._few[key]
            value = few.pop(row)
            if not few:
                del self._few[key]
            return value
        value = int(column[row])
        column[row] = ABSENT
        self._counts[key] -= 1
        self._shrink(key)
        return value

    def _shrink(self, key: K) -> None:
        """Make a dict of a column that few rows have."""
        column = self._many[key]
        if self._counts[key] * _ROWS_PER_ENTRY_SPARSE < len(column):
            rows = np.flatnonzero(column != ABSENT)
            few = dict(zip(rows.tolist(), column[rows].tolist(), strict=True))
            del self._many[key], self._counts[key]
            if few:
                self._few[key] = few
