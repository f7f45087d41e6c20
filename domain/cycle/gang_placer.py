"""The placing of gangs: the kernel places their pods on trial, and what is too little is taken back."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from domain.cycle.gang_domains import domains_of
from domain.cycle.gangs import Gang, codes_of, lacking
from domain.cycle.groups import GroupKey, Tried
from domain.cycle.homes import Domain
from domain.cycle.picked import part_of
from domain.cycle.placer import Placer
from domain.cycle.program import Program
from domain.cycle.turns import pairs_count, trial_work
from domain.cycle.verdicts import Failure
from domain.kernels import arrays as kernel
from domain.model.devices import Ask
from domain.model.limits import gang_domains_per_cycle_max, gang_members_max, gang_pairs_max


class Trial(NamedTuple):
    """Where the kernel placed members of a gang, in one domain or anywhere, and counters' versions before."""

    tried: Sequence[Tried]
    programs: Mapping[GroupKey, Program]
    placed: kernel.Placed
    versions: np.ndarray
    domain: Domain | None

    @property
    def found_count(self) -> int:
        """How many of them found a node."""
        return int((self.placed.row >= 0).sum())


class GangPlacer(Placer):
    """A placer that places gangs, too."""

    _owes_gang_plan = False  # whether the latest gang is to have a plan that this cycle had no time for

    def place_gang(self, gang: Gang) -> None:
        """Place the members of a gang that wait; none of them where too few find a node.

        They are looked at together: on all nodes, also where this worker has home nodes; or in one domain
        after another, where they are to be in one.
        """
        programs_max, self._programs_max = self._programs_max, gang_members_max
        self._place_gang(gang)
        self._programs_max = programs_max
        self._ordered_count = len(self.result.verdicts)

    def _place_gang(self, gang: Gang) -> None:
        assert gang.spec is not None
        self._owes_gang_plan = False
        members, key = gang.members(), gang.spec.topology_key
        codes = codes_of(lacking(gang, self._state, self._snapshot))
        domains, is_last = ([None], True) if codes else self._domains_to_try(gang, members)
        if not domains:
            codes = [f"gang-topology:{key}"]
        if codes:
            if not self._preempt_gang(gang, members):
                self._refuse_gang(gang, members, codes)
            return
        best: Domain | None = None
        most, work = -1, trial_work(gang, self._state)
        for n, domain in enumerate(domains):
            self.work_left -= work if n else 0  # the first was paid when the gang was drawn
            trial = self._try_gang(members, domain)
            if trial is None:
                self._refuse_gang(gang, members, ["gang-too-varied"])
                return
            if trial.found_count >= gang.lacking_count:
                self._keep_gang(gang, trial)
                return
            self._take_back(trial)
            if trial.found_count > most:
                best, most = domain, trial.found_count
        if is_last and self._preempt_gang(gang, members):
            return
        if best != domains[-1]:  # once more the one that is to be explained
            trial = self._try_gang(members, best)
            assert trial is not None
            self._take_back(trial)
        assert trial is not None
        self._explain_undone(gang, trial)
        if not is_last:
            gang.tried_in.update(dict.fromkeys(domains))
        self._let_rest(gang, is_last=is_last, is_short=bool(key))

    def _let_rest(self, gang: Gang, *, is_last: bool, is_short: bool) -> None:
        """Park a gang, or have it tried again with the next cycle, if that is to look on."""
        if is_last and not self._owes_gang_plan:
            self._queue.gangs.park(gang, self._at_ms, placed_any=False, is_short=is_short)
        else:
            self._queue.gangs.activate(gang)

    def _preempt_gang(self, gang: Gang, members: Sequence[Tried]) -> bool:
        """Promise nodes to a gang of which too few members find one; say whether. Here nobody is evicted."""
        return False

    def _domains_to_try(
        self, gang: Gang, members: Sequence[Tried], freed: np.ndarray | None = None
    ) -> tuple[list[Domain | None], bool]:
        """Return where to try a gang, in this order, and whether that is all that is left to try.

        ``freed``: what pods would leave to it that are to be evicted, as of ``domains_of``.
        """
        assert gang.spec is not None
        if not gang.spec.topology_key:
            return [None], True
        known = domains_of(gang, members, self._state, self._snapshot, freed)
        fresh = known if freed is not None else [each for each in known if each not in gang.tried_in]
        anywhere: list[Domain | None] = [None] if gang.spec.is_preferred else []
        first = fresh[:gang_domains_per_cycle_max]
        paid = 1 + max(0, self.work_left) // trial_work(gang, self._state)
        if freed is None and len(first) > paid:
            return [*first[:paid]], False
        is_last = gang.spec.is_preferred or len(fresh) <= gang_domains_per_cycle_max
        return [*first, *anywhere], is_last

    def _try_gang(self, members: Sequence[Tried], domain: Domain | None, changes: int = 2) -> Trial | None:
        """Let the kernel place members, in one domain alone if one is given. None: they differ too much.

        They do where they need more programs than there is room for, or so many comparisons with the terms
        and kinds of other pods that those would hold up everybody: a gang is tried whole, in one cycle.
        ``changes`` as of ``_run``.
        """
        groups = {group.key: group for _, group in members}.values()
        if pairs_count(groups, self._state.index, gang_pairs_max) > gang_pairs_max:
            return None
        self._domain = domain
        tried, programs, end = self._compile(members, 0)
        self._domain = None
        if end < len(members):
            return None
        versions = self._slots.counters.arrays.version.copy()
        return Trial(tried, programs, self._run(tried, programs, changes), versions, domain)

    def _keep_gang(self, gang: Gang, trial: Trial) -> None:
        """Let those who found a node have it. Who found none in a domain may be free to go anywhere."""
        assert gang.spec is not None
        tried, programs, placed = trial[:3]
        needed_count = max(gang.lacking_count, 0)
        self.result.gangs[gang.key] = max(gang.lacking_count, self.result.gangs.get(gang.key, 0))
        if gang.spec.is_preferred and trial.domain is not None and trial.found_count < len(tried):
            has_node = placed.row >= 0
            placed.reason_code[:, 1, 0] = -1  # another attempt says why
            placed.exhausted[:] = 0
            placed = part_of(placed, has_node)
            others = [tried[i] for i in np.flatnonzero(~has_node).tolist()]
            tried = [tried[i] for i in np.flatnonzero(has_node).tolist()]
            programs = {group.key: programs[group.key] for _, group in tried}
            if tried:
                self._take_over(tried, programs, placed)
            self._place_all(others)
        else:
            self._take_over(tried, programs, placed)
        if all(group.parked for group in gang.ready):
            placed_any = 0 < trial.found_count >= needed_count
            self._queue.gangs.park(gang, self._at_ms, placed_any=placed_any)

    def _explain_undone(self, gang: Gang, trial: Trial, but: Container[str] = ()) -> dict[GroupKey, int]:
        """Let the members of a gang wait, of which too few found a node: the first without one says why.

        Of members ``but`` these. Returns the attempts of the groups.
        """
        tried, programs, placed = trial[:3]
        first = len(self.result.attempts)
        waiting = [at for at, (key, _) in enumerate(tried) if key not in but]
        nobody = part_of(placed, np.array(waiting, dtype=np.int64))
        nobody = nobody.replace(row=np.full_like(nobody.row, -1))
        self._take_over([tried[at] for at in waiting], programs, nobody, is_undone=True)
        missing, group = tried[int((placed.row >= 0).argmin())]
        why = self.result.attempts[first + list(programs).index(group.key)]
        domain = "" if trial.domain is None else str(trial.domain)
        seen = gang.seen(trial.found_count, missing, domain=domain, at_ms=self._at_ms)
        for attempt in self.result.attempts[first:]:
            attempt.gang = seen
            if not attempt.reasons_at_failure:
                attempt.reasons_at_failure, attempt.rules = why.reasons_at_failure, why.rules
        return {key: first + i for i, key in enumerate(programs)}

    def _take_back(self, trial: Trial) -> None:
        """Take off the snapshot and the counters what the kernel placed. Cost: O(pods)."""
        rows: dict[GroupKey, list[int]] = {}
        devices: dict[GroupKey, list[int]] = {}
        placed = trial.placed
        for (_, group), row, bits in zip(
            trial.tried, placed.row.tolist(), placed.devices.tolist(), strict=True
        ):
            if row >= 0:
                rows.setdefault(group.key, []).append(row)
                devices.setdefault(group.key, []).append(bits)
        self._undo(rows, devices, trial.programs, trial.versions)

    def _undo(
        self,
        rows: Mapping[GroupKey, list[int]],
        devices: Mapping[GroupKey, list[int]],
        programs: Mapping[GroupKey, Program],
        versions: np.ndarray,
    ) -> None:
        """Take pods of some groups off these rows again, with their devices (bits).

        The counters had these versions before.
        """
        counters, groups = self._slots.counters, self._slots.groups
        for key, on in rows.items():
            program = programs[key]
            count = groups.add_count[program.slot]
            columns, values = groups.add_column[program.slot, :count], groups.add_value[program.slot, :count]
            self._snapshot.take_back(np.array(on), columns, values)
            ask = Ask(int(groups.ask_number[program.slot]), int(groups.ask_milli[program.slot]))
            self._snapshot.give_back(on, devices[key], ask)
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
        self._let_rest(gang, is_last=True, is_short=True)
