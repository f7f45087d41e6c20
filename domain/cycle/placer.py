"""The placing of one cycle: candidates go to the kernel, and its rows become verdicts that are counted.

Where this worker holds some of the shards only, candidates are tried twice: on its home nodes first, and
those that find none there on all nodes. Groups that prefer some nodes are tried on all nodes alone.
"""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Mapping, Sequence
from itertools import compress, zip_longest
from operator import attrgetter

import msgspec
import numpy as np

from domain.cycle.counter import Counter
from domain.cycle.explanation import (
    KernelOutput,
    explain,
    explain_held,
    scratch_for,
    store_versions,
)
from domain.cycle.groups import GroupKey, Tried, WaitingGroup, by_priority
from domain.cycle.homes import Domain
from domain.cycle.matchers import matchers_of
from domain.cycle.picked import part_of, room_for, with_devices
from domain.cycle.program import Program
from domain.cycle.queue import Queue
from domain.cycle.slots import GroupSlots
from domain.cycle.verdicts import CycleResult, Failure, Placement
from domain.kernels import arrays as kernel
from domain.kernels import placing
from domain.model.decisions import Attempt, GangSeen
from domain.model.limits import cycle_pods_max, cycle_work_max
from domain.plugins.view import NodeView
from domain.state.changes import Change, NominationEnded
from domain.state.cluster import ClusterState
from domain.state.snapshot import Snapshot
from domain.state.steps import Assumed


class Placer:
    """Tries the candidates of one cycle, with the caches of a scheduler. ``result`` is what it decided."""

    def __init__(
        self,
        state: ClusterState,
        queue: Queue,
        snapshot: Snapshot,
        slots: GroupSlots,
        view: NodeView,
        *,
        seed: int,
        at_ms: int,
    ) -> None:
        self.result = CycleResult([], [])
        self._state = state
        self._queue = queue
        self._snapshot = snapshot
        self._slots = slots
        self._view = view
        self._seed = seed
        self._at_ms = at_ms
        self._is_home = False  # whether home nodes alone are looked at
        self._preempts = False
        self._domain: Domain | None = None  # of which the nodes alone are looked at
        self._programs_max = cycle_pods_max  # of one call
        self._ordered_count = 0  # how many verdicts stand where they stay
        self._above: int | None = None
        self.work_left = cycle_work_max  # of the cycle, for what was not paid when pods were drawn

    def place(self, candidates: Sequence[Tried], *, above: int | None = None) -> None:
        """Place the candidates, one after another: on the best home node, else on the best of all nodes.

        Others of the priority ``above`` come behind them. Where there are home nodes, each priority is done
        with before the next: else a lower one would take a home node before a pod that looks at all nodes.
        """
        bands = by_priority(candidates) if self._slots.homes.divide else [candidates]
        for band, behind in zip_longest(bands, bands[1:]):
            self._place_band(band, above if behind is None else behind[0][1].template.priority)

    def _place_band(self, candidates: Sequence[Tried], above: int | None) -> None:
        verdicts, at_home = self.result.verdicts, list[Placement | Failure]()
        start, self._above = self._ordered_count, above
        promises, promises_before = self.result.promises, len(self.result.promises)
        if self._slots.homes.divide and candidates:
            refused_count = len(verdicts)
            self._is_home = True
            self._place_all(candidates)
            self._is_home = False
            at_home = _in_turn(verdicts[refused_count:])
            del verdicts[refused_count:]
            candidates = [each for each in candidates if not self._state.pods[each[0]].node]
        self._place_all(candidates)
        if len(promises) == promises_before:  # else they stand in the order in which they were made
            verdicts[start:] = _in_turn(verdicts[start:])
        verdicts[start:start] = at_home
        promises[promises_before:] = [(n + len(at_home), each) for n, each in promises[promises_before:]]
        self._ordered_count = len(verdicts)

    def _place_all(self, candidates: Sequence[Tried]) -> None:
        done = 0
        while done < len(candidates):
            done = self._place(candidates, done)

    def _place(self, candidates: Sequence[Tried], start: int) -> int:
        """Place as many candidates as fit the slots and the change log; return where to go on."""
        tried, programs, end = self._compile(candidates, start)
        placed = self._run(tried, programs)
        if self._is_home:
            # Who found no home node is tried on all: that attempt says why, and what the group waits for.
            placed.reason_code[:, 1, 0] = -1
            placed.exhausted[:] = 0
            found = (placed.row >= 0).nonzero()[0]
            tried = [tried[i] for i in found.tolist()]
            placed = part_of(placed, found)
            programs = {group.key: programs[group.key] for _, group in tried}
        if tried or not self._is_home:
            return self._end_call(candidates, end, tried, programs, placed)
        return end

    def _run(
        self, tried: Sequence[Tried], programs: Mapping[GroupKey, Program], changes: int = 1
    ) -> kernel.Placed:
        """Let the kernel place pods; the change log gets room for so many changes for each of them."""
        if not self._snapshot.reserve(changes * len(tried)):
            self._slots.void()
        sequence = np.array([programs[group.key].slot for _, group in tried], dtype=np.int32)
        variances = max((len(program.plan.variance_scores) for program in programs.values()), default=0)
        counted = max((len(program.plan.count_scores) for program in programs.values()), default=0)
        slots = len(self._slots.groups.salt)
        placed = room_for(len(tried), programs.values(), slots)
        if self._is_home:
            placed.reason_code[:, 1, 0] = 0  # the kernel takes this for explained, and looks no further
        else:
            self._let_stop(tried, programs, placed)
        placing.place(
            self._snapshot.columns,
            self._slots.groups,
            self._slots.bounds,
            self._snapshot.changes,
            self._slots.counters.arrays,
            self._slots.counters.effects.arrays([(p.slot, p.pod_class) for p in programs.values()], slots),
            sequence,
            placed,
            scratch_for(
                sequence,
                slots,
                blocks=self._slots.bounds.free_low.shape[1],
                width=self._snapshot.rows_width,
                variances=variances,
                counted=counted,
            ),
        )
        return placed

    def _let_stop(
        self, tried: Sequence[Tried], programs: Mapping[GroupKey, Program], placed: kernel.Placed
    ) -> None:
        """Say which groups end a call with their first pod that finds no node: none does here."""

    def _end_call(
        self,
        candidates: Sequence[Tried],
        end: int,
        tried: Sequence[Tried],
        programs: Mapping[GroupKey, Program],
        placed: kernel.Placed,
    ) -> int:
        """Take over what the kernel said of ``tried``; return which candidate comes next."""
        self._take_over(tried, programs, placed)
        return end

    def _compile(
        self, candidates: Sequence[Tried], start: int
    ) -> tuple[list[Tried], dict[GroupKey, Program], int]:
        """Return the candidates to try, the programs of their groups, and where to go on."""
        programs: dict[GroupKey, Program] = {}
        tried: list[Tried] = []
        end = start
        self._slots.start_call()
        for key, group in candidates[start:]:
            if group.parked:  # by an earlier call of this cycle
                self.refuse(group, [key] if self._queue.is_fresh(key) else [])
                self._queue.tried([key])
                end += 1
                continue
            if len(tried) == self._snapshot.changes_max:
                break
            if group.key not in programs:
                if len(programs) == self._programs_max:
                    break
                assert group.plan is not None
                program = self._slots.program(
                    group.key,
                    group.signature,
                    group.template,
                    group.plan,
                    group.pod_class,
                    is_home=self._is_home,
                    domain=self._domain,
                )
                if program is None:
                    break
                programs[group.key] = program
            tried.append((key, group))
            end += 1
        return (self._for_homes(tried, programs) if self._is_home else tried), programs, end

    def _for_homes(self, tried: Sequence[Tried], programs: Mapping[GroupKey, Program]) -> list[Tried]:
        """Leave out groups that prefer some nodes, and those for which no home node has room.

        To be refused by each home node takes far longer than to be left out here.
        """
        groups, fits = self._slots.groups, np.zeros(len(programs), dtype=np.uint8)
        slots = [program.slot for program in programs.values()]
        placing.could_fit(
            self._snapshot.columns,
            self._slots.homes.rows,
            groups.demand_count[slots],
            groups.demand_column[slots],
            groups.demand_value[slots],
            fits,
        )
        found = zip(programs.items(), fits.tolist(), strict=True)
        left = {
            key
            for (key, program), fits_one in found
            if fits_one and not program.static.refuses_all and not program.static.prefers
        }
        return [each for each in tried if each[1].key in left]

    def _take_over(
        self,
        candidates: Sequence[Tried],
        programs: Mapping[GroupKey, Program],
        placed: kernel.Placed,
        *,
        is_undone: bool = False,
    ) -> None:
        """Turn the kernel's rows into placements and failures, and count the placements in the state.

        ``is_undone``: what it placed was taken back, so that rows say of nobody where it goes.
        """
        result, state = self.result, self._state
        base = len(result.attempts)
        table, pods = state.table, state.pods
        seed, generation, at_ms = self._seed, self._snapshot.generation, self._at_ms
        output = KernelOutput(placed, programs.values(), self._view, self._slots.counters)
        nodes_home = len(self._slots.homes.rows) if self._is_home else msgspec.UNSET
        attempts = [
            explain(
                p,
                output,
                self._view,
                signature=key[0],
                seed=seed,
                generation=generation,
                at_ms=at_ms,
                nodes_home=nodes_home,
            )
            for key, p in programs.items()
        ]
        attempt_of = {key: base + i for i, key in enumerate(programs)}
        result.attempts.extend(attempts)
        for group, program in programs.items():
            self._note_rules(program, attempt_of[group])
        measured = {base + i: each for i, each in enumerate(attempts) if each.basis and each.basis.usage}
        keys: list[str] = []
        versions: dict[str, int] = {}
        specs = {}
        if placed.devices.any():
            specs = with_devices(pods, [key for key, _ in candidates], placed.row, placed.devices)
        scores = (placed.score / kernel.TOTAL_ONE).tolist()
        numbers = [attempt_of[group.key] for _, group in candidates]
        names, nodes, verdicts = table.names, state.nodes, result.verdicts
        of_each = zip(candidates, numbers, placed.row.tolist(), scores, strict=True)
        for (key, _), attempt, row, score in of_each:
            if measured and attempt in measured:
                store_versions(measured.pop(attempt), versions, nodes)
            entry = pods[key]
            pod = specs.get(key, entry.spec)
            if row >= 0:
                node = names[row]
                version = versions[node] = (versions[node] if node in versions else nodes[node].version) + 1
                verdicts.append(Placement(pod, entry.arrival, attempt, node, version, score))
                keys.append(key)
            elif self._queue.is_fresh(key):
                verdicts.append(Failure(pod, entry.arrival, attempt))
        found = placed.row >= 0
        _count(result.attempts, numbers, found)
        self._queue.tried(candidates[i][0] for i in (~found).nonzero()[0].tolist())  # the others leave it
        rows = placed.row[found]
        self._note_ended(state.apply(Assumed(keys, rows, specs)))
        self._snapshot.caught_up()
        self._queue.take_out(keys)
        if not self._is_home:
            self._park(programs, placed, attempts, is_undone=is_undone)
        self._queue.wake_counted(self._slots.counters)

    def _note_rules(self, program: Program, attempt: int) -> None:
        """Take note of what an attempt asks for beyond room."""
        if program.is_strict:
            self.result.strict.add(attempt)
        if program.counted.rules and self._slots.homes.shared:
            self.result.matchers[attempt] = matchers_of(program.counted)

    def _note_ended(self, changes: Sequence[Change]) -> None:
        """Take note of nominations that ended, and let the pods wait for any node that were not placed."""
        promises = self.result.promises
        for change in changes:
            if isinstance(change, NominationEnded):
                promises.append((len(self.result.verdicts), change))
                if change.reason != "bound":
                    self._queue.add(change.pod, change.arrival, fresh=False)

    def _park(
        self,
        programs: Mapping[GroupKey, Program],
        placed: kernel.Placed,
        attempts: Sequence[Attempt],
        *,
        is_undone: bool,
    ) -> None:
        """Park the groups whose last pod found no node. Others with pods left are tried again.

        Where all was undone, the groups wait of which any pod found none.
        """
        for (key, program), attempt in zip(programs.items(), attempts, strict=True):
            group, a = self._queue.groups.get(key), placed.attempt_of[program.slot]
            if group is not None and is_undone and attempt.reasons_at_failure:
                self._queue.park(group, attempt, self._reads(program, None, attempt))
            elif group is not None and placed.exhausted[a]:
                self._queue.park(group, attempt, self._reads(program, int(placed.version[a]), attempt))
            elif group is not None and attempt.reasons_at_failure:
                self._queue.wake_group(group)

    def _reads(
        self, program: Program, version: int | None, attempt: Attempt
    ) -> tuple[Sequence[Counter], int] | None:
        """Return the counters whose rules refused nodes, and the sum of their versions then; None: no rule.

        ``version`` is the part of those that a placement can cure; None: all are as of now. The others are as
        they were: placing only adds to them. Rules about a node by itself are left out: what cures them makes
        room on it.
        """
        sees_all = program.static.domain is None
        if sees_all and attempt.rules is msgspec.UNSET and not program.counted.is_cut:
            return None
        spanning = [
            (number, rule.kind)
            for number, (_, rule) in zip(program.counters, program.counted.rules, strict=False)
            if rule.counter.topology_key
        ]
        if not spanning:
            return None
        counters = self._slots.counters
        read = counters.having(number for number, _ in spanning)
        if version is None:
            return read, counters.version_of(read)
        at_most = counters.having(number for number, kind in spanning if kind == kernel.AT_MOST)
        return read, version + counters.version_of(at_most)

    def refuse(self, group: WaitingGroup, keys: Sequence[str]) -> None:
        """Let fresh pods of a parked or held group wait without an attempt of their own."""
        if group.held_by:
            seen = group.gang.seen() if group.gang is not None and not group.held_by_itself else msgspec.UNSET
            self._queue.park(group, self._explain_held(group, group.held_by, seen))
        assert group.attempt is not None
        result = self.result
        result.attempts.append(group.attempt.again(len(keys), self._snapshot.generation))
        for key in keys:
            entry = self._state.pods[key]
            result.verdicts.append(Failure(entry.spec, entry.arrival, len(result.attempts) - 1))

    def _explain_held(
        self, group: WaitingGroup, codes: Sequence[str], gang: GangSeen | msgspec.UnsetType
    ) -> Attempt:
        return explain_held(
            group,
            codes,
            gang,
            seed=self._seed,
            generation=self._snapshot.generation,
            at_ms=self._at_ms,
            nodes_count=self._state.table.count,
        )


def _count(attempts: Sequence[Attempt], numbers: Sequence[int], is_bound: np.ndarray) -> None:
    """Count the pods of attempts, given by their numbers, and those of them that have a node."""
    for number, count in Counted(numbers).items():
        attempts[number].pods_count += count
    for number, count in Counted(compress(numbers, is_bound.tolist())).items():
        attempts[number].bound_count += count


def _in_turn(verdicts: Sequence[Placement | Failure]) -> list[Placement | Failure]:
    """Return verdicts by priority, the highest first, then by arrival."""
    by_arrival = sorted(verdicts, key=attrgetter("arrival"))
    return sorted(by_arrival, key=attrgetter("pod.template.priority"), reverse=True)
