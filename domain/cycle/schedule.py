"""START HERE: events are folded in, and a cycle places every pod that is worth an attempt.

``Scheduler.fold`` applies an event and keeps the queue in step. ``Scheduler.cycle`` takes the pods to try in
order of (priority, arrival) and places them one after another, each onto the best node of the whole cluster
as its predecessors left it. The answer is a value: placements, pods that found no node, and per group an
attempt that explains both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from domain.cycle.explanation import Attempt, explain
from domain.cycle.queue import Queue, WaitingGroup
from domain.cycle.slots import GroupSlots, Program
from domain.kernels import placing as kernel
from domain.model.events import Event
from domain.model.limits import candidates_explained_max, reasons_per_cycle_max, woken_pods_per_batch_max
from domain.model.pods import PodSpec
from domain.model.profiles import Profile
from domain.plugins.registry import ProfilePlan
from domain.state.changes import Change, PodAdopted, PodReleased, PodWaits
from domain.state.cluster import Assumed, ClusterState
from domain.state.pods import PodEntry
from domain.state.snapshot import Snapshot

assert candidates_explained_max == kernel.TOP
assert reasons_per_cycle_max == kernel.REASONS


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A pod and the node that was the best for it; ``node_version`` is the node's with the pod on it."""

    pod: PodSpec
    arrival: int
    attempt: int
    node: str
    node_version: int
    score: float


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A pod that found no node at its first attempt, and from now on waits."""

    pod: PodSpec
    arrival: int
    attempt: int


class CycleResult(msgspec.Struct, frozen=True):
    """What a cycle decided, in the order (priority, arrival) of the pods."""

    attempts: list[Attempt]
    verdicts: list[Placement | Failure]


class Scheduler:
    """The fold, the queue and the placing of one worker, without any input or output.

    Parameters
    ----------
    profiles : mapping of str to Profile
        What pods may name in ``spec.schedulerName``.
    seed : int
        Decides between nodes of equal score. The same events and seed give the same decisions.
    """

    def __init__(self, profiles: Mapping[str, Profile], *, seed: int) -> None:
        self.seed = seed
        self.state = ClusterState(seed=seed)
        self._plans = {name: ProfilePlan(profile) for name, profile in profiles.items()}
        self.queue = Queue(self.state, self._plans)
        self._snapshot = Snapshot(self.state.table)
        self._slots = GroupSlots(self.state, self._snapshot)

    def fold(self, event: Event) -> tuple[Change, ...]:
        """Apply one event and keep the queue in step."""
        changes = self.state.apply(event)
        for change in changes:
            match change:
                case PodWaits():
                    if change.previous is not None:
                        self.queue.remove(change.previous)
                    self.queue.add(change.pod, self.state.pods[change.pod.key].arrival, fresh=True)
                case PodAdopted(waited=PodSpec() as waited):
                    self.queue.remove(waited)
                case PodReleased(node=""):
                    self.queue.remove(change.pod)
                case _:
                    pass
        return changes

    def restore_pod(
        self, pod: PodSpec, *, node: str = "", adopted: bool = False, arrival: int = 0
    ) -> PodEntry:
        """Put a pod of the ledger back: placed, or waiting after an attempt."""
        entry = self.state.restore_pod(pod, node=node, adopted=adopted, arrival=arrival)
        if not node:
            self.queue.add(pod, entry.arrival, fresh=False)
        return entry

    @property
    def has_work(self) -> bool:
        """Whether a cycle would try any pod."""
        return bool(self.queue.has_work or self.state.improved_rows)

    def cycle(self) -> CycleResult:
        """Try every fresh pod, and the woken ones up to a bound; count what was placed."""
        result = CycleResult([], [])
        self.sync()
        self.queue.wake(self._snapshot, self.state.improved_rows)
        self.state.improved_rows.clear()
        for group, keys in self.queue.refused():
            self._refuse(group, keys, result)
        candidates = self.queue.candidates(woken_pods_per_batch_max)
        start, slots_max = 0, self._slots.slots_max
        while start < len(candidates):
            start = self._place(candidates, start, slots_max, result)
        result.verdicts.sort(key=lambda v: (-v.pod.template.priority, v.arrival))
        return result

    def sync(self) -> None:
        """Bring the snapshot up to the state."""
        if not self._snapshot.sync():
            self._slots.void()

    # ----------------------------------------------------------------------------------------- placing

    def _place(
        self, candidates: Sequence[tuple[str, WaitingGroup]], start: int, slots_max: int, result: CycleResult
    ) -> int:
        """Place candidates from ``start`` on, as many as slots and change log hold; return where to go on."""
        programs: dict[bytes, Program] = {}
        sequence: list[int] = []
        end = start
        tried: list[tuple[str, WaitingGroup]] = []
        for key, group in candidates[start:]:
            if group.parked:  # by a cut before this one
                self._refuse(group, [key] if self.queue.is_fresh(key) else [], result)
                self.queue.tried([key])
                end += 1
                continue
            if len(sequence) == self._snapshot.changes_max:
                break
            program = programs.get(group.signature)
            if program is None:
                if len(programs) == slots_max:
                    break
                assert group.plan is not None
                program = self._slots.program(group.signature, group.template, group.plan)
                programs[group.signature] = program
            sequence.append(program.slot)
            tried.append((key, group))
            end += 1
        self._reserve_columns()
        if not self._snapshot.reserve(len(sequence)):
            self._slots.void()
        placed = _room_for(len(sequence), len(programs), len(self._slots.groups.synced))
        kernel.place(
            self._snapshot.columns,
            self._slots.groups,
            self._snapshot.changes,
            _exclusions(list(programs.values()), len(self._slots.groups.synced)),
            np.array(sequence, dtype=np.int32),
            placed,
        )
        self._take_over(tried, programs, placed, result)
        return end

    def _reserve_columns(self) -> None:
        """A template may name a resource that no node has; its column must exist all the same."""
        if len(self.state.resources) > self._snapshot.columns.allocatable.shape[0]:
            self.state.table.ensure_columns()
            self.sync()

    def _take_over(
        self,
        candidates: Sequence[tuple[str, WaitingGroup]],
        programs: Mapping[bytes, Program],
        placed: kernel.Placed,
        result: CycleResult,
    ) -> None:
        """Turn the kernel's rows into placements and failures, and let the state count them."""
        base = len(result.attempts)
        table, pods = self.state.table, self.state.pods
        generation = self._snapshot.generation
        attempts = [
            explain(p, placed, table, signature=s, generation=generation) for s, p in programs.items()
        ]
        attempt_of = {signature: base + i for i, signature in enumerate(programs)}
        result.attempts.extend(attempts)
        keys: list[str] = []
        versions: dict[str, int] = {}
        for (key, group), row, score in zip(
            candidates, placed.row.tolist(), placed.score.tolist(), strict=True
        ):
            attempt = attempt_of[group.signature]
            result.attempts[attempt].pods_count += 1
            pod, arrival = pods[key].spec, pods[key].arrival
            if row >= 0:
                result.attempts[attempt].bound_count += 1
                node = table.names[row]
                version = versions[node] = versions.get(node, self.state.nodes[node].version) + 1
                result.verdicts.append(Placement(pod, arrival, attempt, node, version, score))
                keys.append(key)
            elif self.queue.is_fresh(key):
                result.verdicts.append(Failure(pod, arrival, attempt))
        self.queue.tried(key for key, _ in candidates)
        rows = placed.row[placed.row >= 0]
        self.state.apply(Assumed(keys, rows))
        self._snapshot.caught_up()
        for key in keys:
            self.queue.remove(pods[key].spec)
        for signature, program in programs.items():
            if signature in self.queue.groups and placed.exhausted[placed.attempt_of[program.slot]]:
                self.queue.park(signature, result.attempts[attempt_of[signature]])

    def _refuse(self, group: WaitingGroup, keys: Sequence[str], result: CycleResult) -> None:
        """Let fresh pods wait without an attempt of their own."""
        if group.held_by:
            nodes_count = self.state.table.count
            held = Attempt.held(group.signature, group.template.profile, group.held_by, nodes_count)
            held.generation = self._snapshot.generation
            self.queue.park(group.signature, held)
        assert group.attempt is not None
        result.attempts.append(group.attempt.again(len(keys)))
        for key in keys:
            entry = self.state.pods[key]
            result.verdicts.append(Failure(entry.spec, entry.arrival, len(result.attempts) - 1))


def _room_for(pods: int, attempts: int, slots: int) -> kernel.Placed:
    return kernel.Placed(
        row=np.empty(pods, dtype=np.int32),
        score=np.zeros(pods, dtype=np.float64),
        attempt_of=np.full(slots, -1, dtype=np.int32),
        top_row=np.full((attempts, kernel.TOP), -1, dtype=np.int32),
        top_score=np.zeros((attempts, kernel.TOP), dtype=np.float64),
        top_terms=np.zeros((attempts, kernel.TOP, kernel.TERMS_MAX), dtype=np.float64),
        reason_code=np.full((attempts, 2, kernel.REASONS), -1, dtype=np.int32),
        reason_count=np.zeros((attempts, 2, kernel.REASONS), dtype=np.int32),
        exhausted=np.zeros(attempts, dtype=np.uint8),
    )


def _exclusions(programs: Sequence[Program], slots: int) -> kernel.Exclusions:
    """Tell the kernel which of these groups cannot share a node because of what they hold."""
    holding = [
        p for p in programs if p.plan.occupancy is not None and p.plan.occupancy[1].concerns(p.template)
    ]
    # Also a group whose own profile does not ask may hold what another group's profile asks for.
    excluded: dict[int, list[int]] = {}
    for one in programs if holding else ():
        others = [o.slot for o in holding if _refuses(o, one)]
        if others:
            excluded[one.slot] = others
    lengths = np.zeros(slots + 1, dtype=np.int32)
    for slot, others in excluded.items():
        lengths[slot + 1] = len(others)
    flat = [other for slot in sorted(excluded) for other in excluded[slot]]
    return kernel.Exclusions(np.cumsum(lengths).astype(np.int32), np.array(flat, dtype=np.int32))


def _refuses(program: Program, holder: Program) -> bool:
    assert program.plan.occupancy is not None
    return program.plan.occupancy[1].excludes(holder.template, program.template)
