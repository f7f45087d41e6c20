"""What could cure a parked group: what refused it is kept, and what happens is compared with that.

A change that cannot cure what refused a group does not wake it. Where it is cheap to be precise, a change
that might is looked at, too: has one of the rows that changed room, and do the static filters let it pass? A
row that was cured of one reason and is refused for another wakes no group; the other counts from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from domain.counting.counter import Counter as PodCounter
from domain.counting.counters import CounterTable
from domain.kernels import arrays as kernel
from domain.kernels import placing
from domain.model.decisions import Attempt
from domain.plugins.base import Cure
from domain.state.cluster import ClusterState
from domain.state.devices import derive
from domain.state.snapshot import Snapshot

if TYPE_CHECKING:
    from domain.queue.groups import WaitingGroup

_PLACES_FIRST = 64


class Waking:
    """The parked groups that nothing has woken yet, each with what could cure it.

    What they ask of a row stands in arrays, so that one call of a kernel asks for all of them.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._places: dict[WaitingGroup, int] = {}
        self._group_at: list[WaitingGroup | None] = []
        self._free: list[int] = []
        self._cures = np.zeros(0, dtype=np.uint8)  # by place; 0 where there is no group
        self._counts = np.zeros(0, dtype=np.int32)
        self._columns = np.zeros((0, kernel.DEMANDS_MAX), dtype=np.int32)
        self._values = np.zeros((0, kernel.DEMANDS_MAX), dtype=np.int64)
        self._counted: dict[WaitingGroup, tuple[Sequence[PodCounter], int, int]] = {}  # see ``add``
        self._seen = (0, 0)  # what ``by_counters`` looked at last
        self._specs_seen = 0  # the table's generations, when rows and measurements were last looked at
        self._usage_seen = 0
        self.is_widened = False  # whether a group can be cured by more than refused it, since that was asked

    @property
    def groups(self) -> list[WaitingGroup]:
        """The groups."""
        return list(self._places)

    def add(
        self,
        group: WaitingGroup,
        attempt: Attempt,
        counted: tuple[Sequence[PodCounter], int] | None,
        *,
        widely: bool = False,
    ) -> None:
        """Let a group wait for what could cure it: see ``Queue.park``. ``widely``: for any room, too."""
        assert group.plan is not None
        place = self._places.get(group)
        if place is None:
            place = self._places[group] = self._new_place()
            self._group_at[place] = group
        cures = group.plan.cures(attempt.reasons_at_failure)
        self._cures[place] = cures | Cure.ROOM | Cure.USAGE if widely else cures
        self._write_demands(place, group)
        self._counted.pop(group, None)
        if counted is not None:
            self._counted[group] = (*counted, self._selects_of(group))

    def remove(self, group: WaitingGroup) -> None:
        """Forget a group, if it is here."""
        self._counted.pop(group, None)
        place = self._places.pop(group, None)
        if place is not None:
            self._cures[place] = 0
            self._group_at[place] = None
            self._free.append(place)

    def _new_place(self) -> int:
        if not self._free:
            before = len(self._cures)
            count = max(_PLACES_FIRST, before)
            self._cures = np.concatenate([self._cures, np.zeros(count, dtype=np.uint8)])
            self._counts = np.concatenate([self._counts, np.zeros(count, dtype=np.int32)])
            wide = (count, kernel.DEMANDS_MAX)
            self._columns = np.concatenate([self._columns, np.zeros(wide, dtype=np.int32)])
            self._values = np.concatenate([self._values, np.zeros(wide, dtype=np.int64)])
            self._group_at += [None] * count
            self._free = list(range(before + count - 1, before - 1, -1))
        return self._free.pop()

    def _write_demands(self, place: int, group: WaitingGroup) -> None:
        assert group.plan is not None
        demands, _ = group.plan.demands(group.template, self._state.resources)
        self._counts[place] = len(demands)
        self._columns[place, : len(demands)] = [demand.column for demand in demands]
        self._values[place, : len(demands)] = [demand.value for demand in demands]

    def forget_columns(self) -> None:
        """Record that resources have other columns now."""
        for group, place in self._places.items():
            self._write_demands(place, group)

    def by_rows(
        self,
        snapshot: Snapshot,
        rows: np.ndarray,
        passing: Callable[[WaitingGroup, np.ndarray], np.ndarray],
    ) -> list[WaitingGroup]:
        """Return the groups that one of these rows may cure: they gained room, or changed their spec.

        ``passing`` says of a group and rows which of them its static filters are not known to refuse.
        """
        table = self._state.table
        rows = rows[rows < snapshot.columns.rows_count[0]]
        has_other_spec = table.respec_generation[rows] > self._specs_seen
        self._specs_seen = table.last_spec_generation
        if has_other_spec.any():
            self._widen(Cure.NODE, Cure.ROOM | Cure.USAGE)
        found: list[WaitingGroup] = []
        for cure, where in ((Cure.ROOM, rows[~has_other_spec]), (Cure.NODE, rows[has_other_spec])):
            for group in self._with_room(snapshot, cure, where):
                passed = passing(group, where)
                if len(passed) == len(where) or self._has_room(snapshot, group, passed):
                    found.append(group)
                else:
                    self._widen_at(np.array([self._places[group]]), Cure.USAGE)
        return found

    def by_evicting(
        self,
        snapshot: Snapshot,
        rows: np.ndarray,
        groups: Iterable[WaitingGroup],
        passing: Callable[[WaitingGroup, np.ndarray], np.ndarray],
    ) -> list[WaitingGroup]:
        """Return those of some groups for which one of these rows has room once all lower pods have left it.

        A pod of lower priority that left changes nothing of that. Rules over other pods may be cured by what
        happens elsewhere: groups that have any are among them whatever the rows say.

        Cost: O(pods on the rows) for each priority, O(rows) for each group.
        """
        rows = rows[rows < snapshot.columns.rows_count[0]]
        found: list[WaitingGroup] = []
        asking: dict[int, list[WaitingGroup]] = {}
        for group in groups:
            if group in self._places:
                (found if group.reads_pods else asking.setdefault(group.template.priority, [])).append(group)
        for priority, equals in asking.items() if len(rows) else ():
            room = np.column_stack([self._cleared(row, priority) for row in rows.tolist()])
            columns = snapshot.columns.replace(
                allocatable=np.ascontiguousarray(room), requested=np.zeros(room.shape, dtype=np.int64)
            )
            places = np.array([self._places[group] for group in equals])
            for at in np.flatnonzero(self._fits(columns, places, np.arange(len(rows)))).tolist():
                kept = np.isin(rows, passing(equals[at], rows)).nonzero()[0]
                if len(kept) == len(rows) or self._fits(columns, places[at : at + 1], kept)[0]:
                    found.append(equals[at])
        return found

    def _cleared(self, row: int, priority: int) -> np.ndarray:
        """Return what a row has left beside the pods, there or nominated, of no lower priority."""
        table, nominations = self._state.table, self._state.nominations
        name, resources = table.names[row], self._state.resources
        taken = np.zeros((len(table.allocatable), 1), dtype=np.int64)
        for key, pod in self._state.nodes[name].pods.items():
            if pod.spec.template.priority >= priority and key not in self._state.leaving:
                vector = self._state.sums.vector(pod.spec)
                lasting = vector.lasting_count
                taken[vector.columns[:lasting], 0] += vector.values[:lasting]
        offered = table.allocatable[:, row : row + 1]
        derive(offered, taken, resources, np.zeros(1, dtype=np.int64))
        for each in nominations.on(name):
            if each.priority >= priority:
                columns, values = nominations.amounts(each)
                taken[columns, 0] += values
        room: np.ndarray = (offered - taken)[:, 0]
        return room

    def _widen(self, cure: Cure, by: Cure) -> None:
        """Let groups that something could cure be cured by more: a row may be refused for the next reason."""
        self._widen_at(np.flatnonzero(self._cures & int(cure)), by)

    def _widen_at(self, places: np.ndarray, by: Cure) -> None:
        before = self._cures[places]
        self._cures[places] = before | int(by)
        self.is_widened |= bool((before != self._cures[places]).any())

    @property
    def has_measured(self) -> bool:
        """Whether measurements have come, since the last look, that could cure a group."""
        is_new = self._state.table.last_usage_generation > self._usage_seen
        return is_new and bool((self._cures & int(Cure.USAGE)).any())

    def by_usage(self, snapshot: Snapshot) -> list[WaitingGroup]:
        """Return the groups that a filter refused by usage which was measured since on a row with room."""
        table, found = self._state.table, []
        if self.has_measured:
            rows = np.flatnonzero(table.usage_generation[: table.count] > self._usage_seen)
            rows = rows[rows < snapshot.columns.rows_count[0]]
            found = list(self._with_room(snapshot, Cure.USAGE, rows))
            self._widen(Cure.USAGE, Cure.ROOM)
        self._usage_seen = table.last_usage_generation
        return found

    def _with_room(self, snapshot: Snapshot, cure: Cure, rows: np.ndarray) -> Iterator[WaitingGroup]:
        """Yield the groups that may be cured so, and that fit one of the rows."""
        places = np.flatnonzero(self._cures & int(cure))
        if len(places) and len(rows):
            for place in places[self._fits(snapshot.columns, places, rows)].tolist():
                group = self._group_at[place]
                assert group is not None
                yield group

    def _has_room(self, snapshot: Snapshot, group: WaitingGroup, rows: np.ndarray) -> bool:
        return len(rows) > 0 and bool(self._fits(snapshot.columns, np.array([self._places[group]]), rows)[0])

    def _fits(self, columns: kernel.Columns, places: np.ndarray, rows: np.ndarray) -> np.ndarray:
        fits = np.zeros(len(places), dtype=np.uint8)
        demands = (self._counts[places], self._columns[places], self._values[places])
        placing.could_fit(columns, rows, *demands, fits)
        return fits.astype(bool)

    def is_refused_by_counts(self, group: WaitingGroup) -> bool:
        """Whether rules over counters refused nodes to a group: pods that come may cure it, too."""
        return group in self._counted

    def has_moved(self, counters: CounterTable) -> bool:
        """Whether something happened by which a group may wake that rules refused."""
        return bool(self._counted) and (counters.is_behind or self._seen != self._look(counters))

    def by_counters(self, counters: CounterTable) -> Iterable[WaitingGroup]:
        """Return the groups that rules refused by counters that moved since, or that may have other rules."""
        before, self._seen = self._seen, self._look(counters)
        if self._seen == before:
            return ()
        return [
            group
            for group, (read, version, selects) in self._counted.items()
            if self._selects_of(group) != selects or counters.version_of(read) != version
        ]

    def _look(self, counters: CounterTable) -> tuple[int, int]:
        return self._state.index.selects_version, counters.moves

    def _selects_of(self, group: WaitingGroup) -> int:
        return 0 if group.pod_class is None else self._state.index.selects_of(group.pod_class.namespace)
