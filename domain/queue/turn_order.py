"""The lines with a pod that has a turn to come, by namespace, each in its place by that pod."""

from __future__ import annotations

from collections import Counter

from sortedcontainers import SortedList

from domain.queue.groups import Candidate, Line
from domain.queue.turns import Works, draw


class TurnOrder:
    """The first pods of lines. ``changed`` are lines that may have another first pod; it is written."""

    def __init__(self) -> None:
        self.changed: dict[Line, None] = {}
        self._waiting: dict[str, SortedList] = {}  # namespace -> the first pods of its lines, in order

    def __bool__(self) -> bool:
        """Whether any line has a turn to come, as far as those that changed are in their places."""
        return bool(self._waiting)

    def __len__(self) -> int:
        """How many have one. Cost: O(namespaces)."""
        return sum(map(len, self._waiting.values()))

    def place_changed(self) -> None:
        """Bring the lines that changed to their places."""
        came: dict[str, list[Candidate]] = {}
        for line in self.changed:
            first = line.first()
            if first == line.entry:
                continue
            if line.entry is not None:
                self._take_out(line.namespace, line.entry)
            line.entry = first
            if first is not None:
                came.setdefault(line.namespace, []).append(first)
        self.changed.clear()
        for namespace, entries in came.items():
            self._waiting.setdefault(namespace, SortedList()).update(entries)

    def _take_out(self, namespace: str, entry: Candidate) -> None:
        waiting = self._waiting[namespace]
        waiting.remove(entry)
        if not waiting:
            del self._waiting[namespace]

    def draw(self, works: Works, work_max: int, pods_max: int) -> tuple[list[Candidate], int]:
        """Return the pods that have their turn, and the work of it.

        The lines from which they are drawn have changed then.
        """
        drawn, opened, spent = draw(self._waiting, works, work_max=work_max, pods_max=pods_max)
        for namespace, count in Counter(line.namespace for line in opened).items():
            del self._waiting[namespace][:count]
            if not self._waiting[namespace]:
                del self._waiting[namespace]
        for line in opened:
            line.note_drawn()
            self.changed[line] = None
        return drawn, spent
