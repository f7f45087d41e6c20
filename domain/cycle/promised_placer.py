"""Pods with promised nodes: what they ask for counts in the snapshot, and each is tried on its own node.

A pod is tried there, alone, once the node changed, and takes it as soon as every filter lets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from domain.cycle.gang_placer import GangPlacer
from domain.cycle.groups import GroupKey
from domain.cycle.picked import Specs, with_devices
from domain.cycle.program import Program
from domain.cycle.promises import hold
from domain.cycle.verdicts import Placement
from domain.kernels.nominated import place_nominated
from domain.model.decisions import Attempt
from domain.plugins.registry import ProfilePlan
from domain.state.changes import Change, NominationEnded
from domain.state.nominations import Nomination
from domain.state.steps import Assumed, Cleared


class PromisedPlacer(GangPlacer):
    """A placer that knows what is promised.

    ``reserved`` is the promise that is a reservation, if any is; of a gang that of any member.
    """

    def __init__(
        self,
        *of: Any,
        seed: int,
        at_ms: int,
        plans: Mapping[str, ProfilePlan],
        reserved: Nomination | None,
    ) -> None:
        super().__init__(*of, seed=seed, at_ms=at_ms)
        self._plans, self._reserved = plans, reserved
        self._out: dict[str, Nomination] = {}  # what does not count in the snapshot now
        self._slots.counters.promised.out = self._out

    def _put_back(self, floor: int | None) -> None:
        """Count again what was taken out of no lower priority than ``floor``; None: all of it."""
        self._hold([e for e in self._out.values() if floor is None or e.priority >= floor], 1)

    def _hold(self, nominations: Sequence[Nomination], sign: int) -> None:
        """Count in the snapshot what nominations ask for (1), or take it out (-1)."""
        if not self._snapshot.reserve(len(nominations)):
            self._slots.void()
        hold(self._state, self._snapshot, nominations, sign)
        self._slots.counters.promised.hold(nominations, sign)
        for each in nominations:
            if sign < 0:
                self._out[each.key] = each
            else:
                self._out.pop(each.key, None)

    # -------------------------------------------------------------------------------------- own nodes

    def _try(self, tries: Sequence[Nomination]) -> None:
        """Try pods on the nodes that are promised to them, as many at a time as have slots."""
        known = self._state.nominations.entries
        tries = [each for each in tries if known.get(each.key) is each]  # not who was outbid in this cycle
        done = 0
        while done < len(tries):
            programs: dict[GroupKey, Program] = {}
            self._slots.start_call()
            end, is_alone = done, False
            while end < len(tries) and not is_alone and self._compile_one(tries[end], programs):
                is_alone = self._counts_promised(tries[end], programs)
                if is_alone and end > done:
                    break
                end += 1
            self._try_some(tries[done:end], programs)
            done = max(end, done + 1)

    def _counts_promised(self, nomination: Nomination, programs: Mapping[GroupKey, Program]) -> bool:
        """Say whether promised pods count for a pod. It is tried alone: others are tried without theirs."""
        program = programs.get(self._group_of(nomination))
        return program is not None and program.counted.counts_promised

    def _compile_one(self, nomination: Nomination, programs: dict[GroupKey, Program]) -> bool:
        key = self._group_of(nomination)
        if key in programs:
            return True
        plan, entry = self._plans.get(nomination.template.profile), self._state.pods[nomination.key]
        if plan is None:
            return False
        program = self._slots.program(key, key[0], nomination.template, plan, entry.pod_class)
        if program is not None:
            programs[key] = program
        return program is not None

    def _group_of(self, nomination: Nomination) -> GroupKey:
        pod_class = self._state.pods[nomination.key].pod_class
        return nomination.signature, 0 if pod_class is None else pod_class.number

    def _try_some(self, tries: Sequence[Nomination], programs: Mapping[GroupKey, Program]) -> None:
        if not tries:
            return
        self._hold(tries, -1)
        if not self._snapshot.reserve(len(tries)):
            self._slots.void()
        state = self._state
        placed, rows, devices = self._run_promised(tries, programs)
        specs = with_devices(state.pods, [each.key for each in tries], rows, devices)
        kept = [each for each, is_placed in zip(tries, placed.tolist(), strict=True) if is_placed]
        self._keep(kept, programs, specs)
        for each in kept:
            del self._out[each.key]
        self._note_ended(state.apply(Assumed([each.key for each in kept], rows[placed != 0], specs)))
        failed = [each for each, is_placed in zip(tries, placed.tolist(), strict=True) if not is_placed]
        failed = [each for each in failed if not self._is_reserved(each)]
        refused = [each.key for each in failed if self._is_refused(each, programs)]
        self._let_go(state.apply(Cleared(refused, "not-held")))
        waits, known = state.nominations.waits_for_any, state.nominations.entries
        hopeless = [each.key for each in failed if each.key in known and not waits(each.node)]
        self._let_go(state.apply(Cleared(hopeless, "no-room")))
        self._hold([each for each in tries if each.key in self._out], 1)
        self._snapshot.caught_up()

    def _is_reserved(self, nomination: Nomination) -> bool:
        """Say whether what is promised to a pod is kept free, whoever has to leave for it by himself yet."""
        kept, gang = self._reserved, nomination.template.gang
        return kept is not None and (kept.key == nomination.key or kept.template.gang == gang != "")

    def _is_refused(self, nomination: Nomination, programs: Mapping[GroupKey, Program]) -> bool:
        """Say whether its node refuses a pod whoever leaves, as one that is cordoned does."""
        program, row = programs[self._group_of(nomination)], self._state.table.rows[nomination.node]
        groups = self._slots.groups
        code = int(groups.static_code[groups.static_part[program.slot], row])
        return code != 0 and program.reason(code).unresolvable

    def _run_promised(
        self, tries: Sequence[Nomination], programs: Mapping[GroupKey, Program]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Let the kernel place pods on the nodes that are promised to them.

        Returns uint8[P], 1 for each that is placed, the rows int32[P] of the nodes, and the devices int32[P]
        that it gave, as bits.
        """
        slots = np.array([programs[self._group_of(each)].slot for each in tries], dtype=np.int32)
        rows = np.array([self._state.table.rows[each.node] for each in tries], dtype=np.int32)
        placed = np.zeros(len(tries), dtype=np.uint8)
        devices = np.zeros(len(tries), dtype=np.int32)
        effects = self._slots.counters.effects.arrays(
            [(p.slot, p.pod_class) for p in programs.values()], len(self._slots.groups.salt)
        )
        place_nominated(
            self._snapshot.columns,
            self._slots.groups,
            self._slots.bounds,
            self._snapshot.changes,
            self._slots.counters.arrays,
            effects,
            slots,
            rows,
            placed,
            devices,
        )
        return placed, rows, devices

    def _let_go(self, ended: Sequence[Change]) -> None:
        """Count no more in the snapshot what is promised no more, and let the pods wait."""
        counted = []
        for change in ended:
            assert isinstance(change, NominationEnded)
            if self._out.pop(change.pod.key, None) is None:
                counted.append(change.promise)
        self._hold(counted, -1)
        for each in counted:
            del self._out[each.key]
        self._note_ended(ended)

    def _keep(self, kept: Sequence[Nomination], programs: Mapping[GroupKey, Program], specs: Specs) -> None:
        """Note the placements of pods that got what was promised to them."""
        result, versions = self.result, dict[str, int]()
        attempts: dict[GroupKey, int] = {}
        for each in kept:
            key, node = self._group_of(each), each.node
            if key not in attempts:
                attempts[key] = len(result.attempts)
                self._note_attempt(programs[key], key, attempts[key])
            attempt = result.attempts[attempts[key]]
            attempt.pods_count += 1
            attempt.bound_count += 1
            versions[node] = versions.get(node, self._state.nodes[node].version) + 1
            entry = self._state.pods[each.key]
            pod = specs.get(each.key) or entry.spec
            result.verdicts.append(
                Placement(pod, entry.arrival, attempts[key], node, versions[node], 0.0, is_promised=True)
            )

    def _note_attempt(self, program: Program, key: GroupKey, number: int) -> None:
        profile = program.plan.profile
        self.result.attempts.append(
            Attempt(
                signature=key[0],
                profile=profile.name,
                profile_revision=profile.revision,
                seed=self._seed,
                generation=self._snapshot.generation,
                looked_at_ms=self._at_ms,
                nodes_count=self._state.table.count,
                feasible_count=1,
                warnings=program.warnings,
            )
        )
        self._note_rules(program, number)
