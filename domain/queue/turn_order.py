"""The lines with a pod that has a turn to come, by lane and namespace, each in its place by that pod.

There are two lanes, that of low pods and that of all others, and in each the lines of which pods are tried
stand apart from those of which pods are only told why they wait: neither waits behind the other.
"""

from __future__ import annotations

from collections import Counter

from sortedcontainers import SortedList

from domain.queue.groups import TOLD, Candidate, Line
from domain.queue.turns import Turns, Works, draw

Heads = dict[str, SortedList]
"""By namespace, the candidates by which lines stand in the queue, in order."""


class TurnOrder:
    """The first pods of lines.

    ``changed`` are lines that may have another first pod; it is written. ``placed`` are those that have come
    to their places since a cycle began.
    """

    def __init__(self) -> None:
        self.changed: dict[Line, None] = {}
        self.placed: dict[Line, None] = {}
        self._heads: tuple[Heads, ...] = {}, {}, {}, {}  # see ``Line.stands_in``

    def __bool__(self) -> bool:
        """Whether any line has a turn to come, as far as those that changed are in their places."""
        return any(self._heads)

    def __len__(self) -> int:
        """How many have one. Cost: O(namespaces)."""
        return sum(len(entries) for heads in self._heads for entries in heads.values())

    def place_changed(self) -> None:
        """Bring the lines that changed to their places."""
        came: dict[tuple[int, str], list[Candidate]] = {}
        for line in self.changed:
            first = line.first()
            where = line.stood_in if first is None else line.stands_in
            if first == line.entry and where == line.stood_in:
                continue
            if line.entry is not None:
                self._take_out(line)
            line.entry, line.stood_in = first, where
            if first is not None:
                came.setdefault((where, line.namespace), []).append(first)
        self.placed |= self.changed
        self.changed.clear()
        for (where, namespace), entries in came.items():
            self._heads[where].setdefault(namespace, SortedList()).update(entries)

    def _take_out(self, line: Line) -> None:
        heads = self._heads[line.stood_in]
        waiting = heads[line.namespace]
        waiting.remove(line.entry)
        if not waiting:
            del heads[line.namespace]

    def draw(
        self, works: Works, work_max: int, pods_max: int, *, is_low: bool = False, is_told: bool = False
    ) -> Turns:
        """Return what has its turn in a lane. The lines from which pods are drawn have changed then."""
        heads = self._heads[is_low + (TOLD if is_told else 0)]
        if not heads or work_max <= 0 or pods_max <= 0:
            return Turns()
        turns = draw(heads, works, work_max=work_max, pods_max=pods_max, is_told=is_told)
        for namespace, count in Counter(line.namespace for line in turns.opened).items():
            del heads[namespace][:count]
            if not heads[namespace]:
                del heads[namespace]
        for line in turns.opened:
            line.note_drawn()
            self.changed[line] = None
        return turns
