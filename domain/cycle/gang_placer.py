"""The placing of gangs: the kernel places their pods on trial, and what is too little is taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from domain.cycle.gangs import Gang, codes_of, lacking
from domain.cycle.groups import GroupKey, Tried
from domain.cycle.placer import Placer
from domain.cycle.program import Program
from domain.cycle.verdicts import Failure
from domain.kernels import arrays as kernel
from domain.model.limits import gang_members_max


class GangPlacer(Placer):
    """A placer that places gangs, too."""

    def place_gang(self, gang: Gang) -> None:
        """Place the members of a gang that wait; none of them where too few find a node.

        They are looked at together: on all nodes, also where this worker has home nodes.
        """
        programs_max, self._programs_max = self._programs_max, gang_members_max
        self._place_gang(gang)
        self._programs_max = programs_max
        self._ordered_count = len(self.result.verdicts)

    def _place_gang(self, gang: Gang) -> None:
        short = lacking(gang, self._state, self._snapshot)
        members = gang.members()
        tried, programs, end = self._compile(members, 0) if not short else ([], {}, 0)
        if end < len(members):
            self._refuse_gang(gang, members, codes_of(short) or ["gang-too-varied"])
            return
        versions = self._slots.counters.arrays.version.copy()
        placed = self._run(tried, programs, changes=2)
        has_node = placed.row >= 0
        found_count, needed_count = int(has_node.sum()), gang.lacking_count
        if found_count >= needed_count:
            self.result.gangs[gang.key] = max(needed_count, self.result.gangs.get(gang.key, 0))
            self._take_over(tried, programs, placed)
            is_over = all(group.parked for group in gang.ready)
        else:
            self._take_back(tried, programs, placed, versions)
            first = len(self.result.attempts)
            nobody = placed._replace(row=np.full_like(placed.row, -1))
            self._take_over(tried, programs, nobody, is_undone=True)
            missing, group = tried[int(has_node.argmin())]
            why = self.result.attempts[first + list(programs).index(group.key)]
            seen = gang.seen(found_count, missing, at_ms=self._at_ms)
            for attempt in self.result.attempts[first:]:
                attempt.gang = seen
                if not attempt.reasons_at_failure:
                    attempt.reasons_at_failure, attempt.rules = why.reasons_at_failure, why.rules
            is_over = True
        if is_over:
            placed_any = 0 < found_count >= needed_count
            self._queue.gangs.park(gang, self._at_ms, placed_any=placed_any)

    def _take_back(
        self,
        tried: Sequence[Tried],
        programs: Mapping[GroupKey, Program],
        placed: kernel.Placed,
        versions: np.ndarray,
    ) -> None:
        """Take off the snapshot and the counters what the kernel placed. Cost: O(pods)."""
        counters, groups = self._slots.counters, self._slots.groups
        rows: dict[GroupKey, list[int]] = {}
        for (_, group), row in zip(tried, placed.row.tolist(), strict=True):
            if row >= 0:
                rows.setdefault(group.key, []).append(row)
        for key, on in rows.items():
            program = programs[key]
            count = groups.add_count[program.slot]
            columns, values = groups.add_column[program.slot, :count], groups.add_value[program.slot, :count]
            self._snapshot.take_back(np.array(on), columns, values)
            effects = counters.effects.of(program.pod_class) if program.pod_class is not None else {}
            counters.add([(number, row, -weight) for row in on for number, weight in effects.items()])
        counters.arrays.version[:] = versions

    def _refuse_gang(self, gang: Gang, members: Sequence[Tried], codes: Sequence[str]) -> None:
        """Let the members of a gang wait that was not tried on any node."""
        result, attempts = self.result, dict[GroupKey, int]()
        seen = gang.seen(at_ms=self._at_ms)
        for key, group in members:
            if group.key not in attempts:
                attempts[group.key] = len(result.attempts)
                result.attempts.append(self._explain_held(group, codes, seen))
            result.attempts[attempts[group.key]].pods_count += 1
            if self._queue.is_fresh(key):
                entry = self._state.pods[key]
                result.verdicts.append(Failure(entry.spec, entry.arrival, attempts[group.key]))
        self._queue.tried(key for key, _ in members)
        self._queue.gangs.park(gang, self._at_ms, placed_any=False, is_short=True)
