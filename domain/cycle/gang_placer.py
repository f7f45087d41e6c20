"""The placing of gangs: the kernel places their pods on trial, and what is too little is taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from domain.cycle.gang_domains import domains_of
from domain.cycle.gangs import Gang, codes_of, lacking
from domain.cycle.groups import GroupKey, Tried
from domain.cycle.homes import Domain
from domain.cycle.picked import part_of
from domain.cycle.placer import Placer
from domain.cycle.program import Program
from domain.cycle.verdicts import Failure
from domain.kernels import arrays as kernel
from domain.model.devices import Ask
from domain.model.limits import gang_domains_per_cycle_max, gang_members_max


class _Trial(NamedTuple):
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
        members, key = gang.members(), gang.spec.topology_key
        domains: list[Domain | None] = [None]
        codes = codes_of(lacking(gang, self._state, self._snapshot))
        is_last = True
        if key and not codes:
            known = domains_of(gang, members, self._state, self._snapshot)
            fresh = [each for each in known if each not in gang.tried_in]
            is_last = gang.spec.is_preferred or len(fresh) <= gang_domains_per_cycle_max
            domains = [*fresh[:gang_domains_per_cycle_max], *domains[: gang.spec.is_preferred]]
            codes = [] if domains else [f"gang-topology:{key}"]
        if codes:
            self._refuse_gang(gang, members, codes)
            return
        best: Domain | None = None
        most = -1
        for domain in domains:
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
        if best != domains[-1]:  # once more the one that is to be explained
            trial = self._try_gang(members, best)
            assert trial is not None
            self._take_back(trial)
        assert trial is not None
        self._explain_undone(gang, trial)
        if is_last:
            self._queue.gangs.park(gang, self._at_ms, placed_any=False, is_short=bool(key))
        else:
            gang.tried_in.update(dict.fromkeys(domains))
            self._queue.gangs.activate(gang)

    def _try_gang(self, members: Sequence[Tried], domain: Domain | None) -> _Trial | None:
        """Let the kernel place members, in one domain alone if one is given. None: they differ too much."""
        self._domain = domain
        tried, programs, end = self._compile(members, 0)
        self._domain = None
        if end < len(members):
            return None
        versions = self._slots.counters.arrays.version.copy()
        return _Trial(tried, programs, self._run(tried, programs, changes=2), versions, domain)

    def _keep_gang(self, gang: Gang, trial: _Trial) -> None:
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

    def _explain_undone(self, gang: Gang, trial: _Trial) -> None:
        """Let the members of a gang wait, of which too few found a node: the first without one says why."""
        tried, programs, placed = trial[:3]
        first = len(self.result.attempts)
        nobody = placed._replace(row=np.full_like(placed.row, -1))
        self._take_over(tried, programs, nobody, is_undone=True)
        missing, group = tried[int((placed.row >= 0).argmin())]
        why = self.result.attempts[first + list(programs).index(group.key)]
        domain = "" if trial.domain is None else str(trial.domain)
        seen = gang.seen(trial.found_count, missing, domain=domain, at_ms=self._at_ms)
        for attempt in self.result.attempts[first:]:
            attempt.gang = seen
            if not attempt.reasons_at_failure:
                attempt.reasons_at_failure, attempt.rules = why.reasons_at_failure, why.rules

    def _take_back(self, trial: _Trial) -> None:
        """Take off the snapshot and the counters what the kernel placed. Cost: O(pods)."""
        tried, programs, placed, versions, _ = trial
        counters, groups = self._slots.counters, self._slots.groups
        rows: dict[GroupKey, list[int]] = {}
        devices: dict[GroupKey, list[int]] = {}
        for (_, group), row, bits in zip(tried, placed.row.tolist(), placed.devices.tolist(), strict=True):
            if row >= 0:
                rows.setdefault(group.key, []).append(row)
                devices.setdefault(group.key, []).append(bits)
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
        self._queue.gangs.park(gang, self._at_ms, placed_any=False, is_short=True)
