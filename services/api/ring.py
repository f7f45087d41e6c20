"""The latest events, held once for all streams: a stream is a number in this ring, not a queue."""

from __future__ import annotations

from typing import NamedTuple

from services.api.stream_events import Events, Wanted
from services.api.stream_ids import Place


class Found(NamedTuple):
    """The next event of a batch that is wanted: its number and bytes; None: there is none, go to the next."""

    event: int
    frame: bytes | None


def find(events: Events, event: int, wanted: Wanted) -> Found:
    """Return the next event of a batch from a number on that is wanted."""
    for at in range(event, len(events.events)):
        told = events.events[at]
        if told.is_wanted(wanted):
            return Found(at, told.frame(sees_all=wanted.seen is None))
    return Found(len(events.events), None)


class Ring:
    """The latest batches, the oldest of which are dropped where they hold too many bytes.

    Attributes
    ----------
    end : Place
        Behind the last batch.
    first, next : int
        The numbers of the oldest batch, and of the next one that comes.
    floor : int
        All batches behind this position are here.
    held_bytes : int
        About how many bytes they hold.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._batches: dict[int, Events] = {}
        self.end = Place(b"", 0, 0)
        self.first = self.next = self.floor = self.held_bytes = 0

    def begin(self, end: Place) -> None:
        """Forget all, and go on behind a place."""
        self._batches.clear()
        self.end, self.floor, self.held_bytes = end, end.position, 0
        self.first = self.next

    def add(self, events: Events) -> None:
        """Add the next batch."""
        self._batches[self.next] = events
        self.next += 1
        self.end = events.end
        self.held_bytes += events.size_bytes
        while self.held_bytes > self._bytes_max and self.first < self.next - 1:
            dropped = self._batches.pop(self.first)
            self.first += 1
            self.floor = dropped.end.position
            self.held_bytes -= dropped.size_bytes

    def number_behind(self, position: int) -> int:
        """Return the number of the first batch behind a position that is not below ``floor``."""
        low, high = self.first, self.next
        while low < high:
            middle = (low + high) // 2
            if self._batches[middle].end.position > position:
                high = middle
            else:
                low = middle + 1
        return low

    def has(self, place: Place) -> bool:
        """Return whether this very batch is here, or was the last one."""
        if place.position == self.end.position:
            return place.check == self.end.check
        kept = self._batches.get(self.number_behind(place.position - 1))
        return kept is not None and (kept.end.position, kept.end.check) == (place.position, place.check)

    def end_of(self, number: int) -> Place:
        """Return the place behind a batch."""
        return self._batches[number].end

    def find(self, number: int, event: int, wanted: Wanted) -> Found | None:
        """Return the next event of a batch from a number on; None: the batch was dropped."""
        kept = self._batches.get(number)
        return None if kept is None else find(kept, event, wanted)
