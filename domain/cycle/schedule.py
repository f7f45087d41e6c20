"""START HERE: events are folded in, and a cycle places every pod that is worth an attempt.

``Scheduler.fold`` applies an event and keeps the queue in step. ``Scheduler.cycle`` takes the pods to try in
order of (priority, arrival) and places them one after another, each onto the best node of the whole cluster
as its predecessors left it. The answer is a value: placements, pods that found no node, and one attempt
per group that explains both.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping, Sequence
from operator import itemgetter

import msgspec
import numpy as np

from domain.cycle.counted import PodsKnown
from domain.cycle.counters import Counter
from domain.cycle.explanation import (
    KernelOutput,
    explain,
    explain_held,
    room_for,
    scratch_for,
    store_versions,
)
from domain.cycle.profiles import Profiles
from domain.cycle.program import Program
from domain.cycle.queue import GroupKey, Queue, WaitingGroup
from domain.cycle.slots import GroupSlots
from domain.cycle.verdicts import CycleResult, Failure, Placement
from domain.kernels import arrays as kernel
from domain.kernels import placing
from domain.model.decisions import Attempt
from domain.model.events import Event, PodUpserted, ProfileDeleted, ProfileEvent
from domain.model.limits import (
    candidates_explained_max,
    fresh_work_max,
    reasons_per_cycle_max,
    usage_window_seconds,
    woken_work_max,
)
from domain.model.marks import MasterMark
from domain.model.pods import PodSpec, PodTemplate, is_master
from domain.model.profiles import Profile
from domain.plugins.view import NodeView
from domain.state.changes import Change, PodAdopted, PodRegrouped, PodReleased, PodResolved, PodWaits
from domain.state.cluster import ClusterState
from domain.state.snapshot import Snapshot
from domain.state.steps import Assumed, Settle

assert candidates_explained_max == kernel.TOP
assert reasons_per_cycle_max == kernel.REASONS


class Scheduler:
    """The fold, the queue and the placing of one worker, without any input or output.

    Parameters
    ----------
    profiles : mapping of str to Profile
        What pods may name in ``spec.schedulerName`` without any event about profiles.
    seed : int
        Decides between nodes of equal score. The same calls and the same seed give the same decisions.
    usage_window_seconds : int
        Length of the usage window of a node that does not say another length itself.
    """

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        *,
        seed: int,
        usage_window_seconds: int = usage_window_seconds,
    ) -> None:
        self.seed = seed
        self.state = ClusterState(seed=seed, usage_window_seconds=usage_window_seconds)
        self.profiles = Profiles(profiles)
        self.queue = Queue(self.state, self.profiles.plans)
        self._snapshot = Snapshot(self.state.table)
        self._slots = GroupSlots(self.state, self._snapshot)
        self._view = NodeView(self.state)
        self._pods = PodsKnown(self.state)
        self._now_ms = 0
        self._columns_revision = 0
        self._grown: set[str] = set()  # clusters that may now have more masters on one node

    def fold(self, event: Event | ProfileEvent, shard: int = 0) -> tuple[Change, ...]:
        """Apply one event, of a record of ``shard``, and keep the queue in step.

        A profile event holds for the cycles that follow. Try the pods folded before it first.
        """
        if isinstance(event, ProfileEvent):
            return (self._fold_profile(event),)
        if isinstance(event, PodUpserted) and self._lets_more_in(event.pod.template):
            self._grown.add(event.pod.template.cluster)
        changes = self.state.apply(event, shard)
        self._follow(changes)
        return changes

    def _follow(self, changes: Iterable[Change]) -> None:
        """Keep the queue in step with the state."""
        for change in changes:
            match change:
                case PodWaits():
                    if change.previous is not None:
                        self.queue.remove(change.pod.key)
                    self.queue.add(change.pod, change.arrival, fresh=True)
                case PodResolved():
                    self.queue.regroup(change.pod, change.arrival)
                    self.queue.report_held(change.pod)
                case PodRegrouped(placed=False):
                    self.queue.regroup(change.pod, change.arrival)
                case PodAdopted(waited=PodSpec()) | PodReleased(node=""):
                    self.queue.remove(change.pod.key)
                case _:
                    pass

    def settles_first(self, event: Event | ProfileEvent) -> bool:
        """Say whether waiting pods must be tried before an event is folded.

        A master lets more masters of its cluster share a node. The masters before it must not profit from
        that early, or the decision would depend on where a batch was cut.
        """
        if not isinstance(event, PodUpserted) or not self._lets_more_in(event.pod.template):
            return False
        mark, index = MasterMark(event.pod.template.cluster), self.state.index
        return self.has_work and index.pods_with(mark) > sum(index.nodes_with(mark).values())

    def _lets_more_in(self, template: PodTemplate) -> bool:
        return is_master(template) and any(
            plugin.grows(template, self._pods)
            for plan in self.profiles.plans.values()
            for _, plugin in plan.count_filters
        )

    def _fold_profile(self, event: ProfileEvent) -> Change:
        name = event.name if isinstance(event, ProfileDeleted) else event.profile.name
        before = self.profiles.plans.get(name)
        change = self.profiles.apply(event)
        if self.profiles.plans.get(name) is not before:
            self.queue.replan(name)
        return change

    def restore_pod(
        self,
        pod: PodSpec,
        *,
        node: str = "",
        adopted: bool = False,
        arrival: int = 0,
        shard: int = 0,
        fresh: bool = False,
    ) -> None:
        """Restore a pod from the ledger: placed, or waiting; ``fresh``: it had no attempt yet."""
        self.state.restore_pod(pod, node=node, adopted=adopted, arrival=arrival, shard=shard)
        if not node:
            self.queue.add(pod, arrival, fresh=fresh)

    def renew(self) -> list[PodSpec]:
        """Forget what a restart forgets, why groups wait, and return the waiting pods: all are tried again.

        Cost: O(pods), as of a restart's queue.
        """
        before = self.queue
        waiting = sorted(
            ((entry.arrival, entry.spec) for entry in self.state.pods.values() if not entry.node),
            key=itemgetter(0),
        )
        self.queue = Queue(self.state, self.profiles.plans)
        for arrival, pod in waiting:
            self.queue.add(pod, arrival, fresh=before.is_fresh(pod.key))
        self._grown.clear()
        self.state.improved_rows.update(range(self.state.table.count))
        return [pod for _, pod in waiting]

    @property
    def waiting(self) -> KeysView[bytes]:
        """The signatures of the groups that wait."""
        return self.queue.signatures.keys()

    @property
    def has_work(self) -> bool:
        """Whether a cycle would try any pod."""
        return bool(
            self.queue.has_work
            or self.state.improved_rows
            or self._grown
            or self.queue.has_measured
            or self.queue.waits_for_rules(self._slots.counters)
        )

    def cycle(self, now_ms: int = 0) -> CycleResult:
        """Try the pods whose turn it is, nearly always all fresh ones; count what was placed.

        ``now_ms`` is log time; attempts are stamped with it.
        """
        self._now_ms = now_ms
        result = CycleResult([], [])
        if not self.state.index.is_settled:
            self._follow(self.state.apply(Settle()))
        self.sync()
        self.queue.wake(self._snapshot, self.state.improved_rows)
        self.state.improved_rows.clear()
        self.queue.wake_measured(self._snapshot)
        self.queue.wake_counted(self._slots.counters)
        self.queue.wake_masters(self._grown)
        self._grown.clear()
        turn = self.queue.in_turn(fresh_work_max)
        for group, keys in self.queue.refused(turn):
            self._refuse(group, keys, result)
        candidates = self.queue.candidates(turn, woken_work_max)
        done = 0
        while done < len(candidates):
            done = self._place(candidates, done, result)
        result.verdicts.sort(key=lambda v: (-v.pod.template.priority, v.arrival))
        return result

    def sync(self) -> None:
        """Bring the snapshot up to date with the state."""
        if self._columns_revision != self.state.resources.revision:
            self._columns_revision = self.state.resources.revision
            self._slots.forget()
            self.queue.forget_columns()
        self._slots.reserve(self.profiles.plans.values())
        if not self._snapshot.sync():
            self._slots.void()
        self._slots.counters.sync(self._snapshot.rows_width)

    # ----------------------------------------------------------------------------------------- placing

    def _place(self, candidates: Sequence[tuple[str, WaitingGroup]], start: int, result: CycleResult) -> int:
        """Place as many candidates as fit the slots and the change log; return where to go on."""
        tried, programs, end = self._compile(candidates, start, result)
        if not self._snapshot.reserve(len(tried)):
            self._slots.void()
        sequence = np.array([programs[group.key].slot for _, group in tried], dtype=np.int32)
        variances = max((len(program.plan.variance_scores) for program in programs.values()), default=0)
        counted = max((len(program.plan.count_scores) for program in programs.values()), default=0)
        slots = len(self._slots.groups.salt)
        placed = room_for(len(tried), programs.values(), slots)
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
        self._take_over(tried, programs, placed, result)
        return end

    def _compile(
        self, candidates: Sequence[tuple[str, WaitingGroup]], start: int, result: CycleResult
    ) -> tuple[list[tuple[str, WaitingGroup]], dict[GroupKey, Program], int]:
        """Return the candidates to try, the programs of their groups, and where to go on."""
        programs: dict[GroupKey, Program] = {}
        tried: list[tuple[str, WaitingGroup]] = []
        end = start
        self._slots.start_call()
        for key, group in candidates[start:]:
            if group.parked:  # by an earlier call of this cycle
                self._refuse(group, [key] if self.queue.is_fresh(key) else [], result)
                self.queue.tried([key])
                end += 1
                continue
            if len(tried) == self._snapshot.changes_max:
                break
            if group.key not in programs:
                assert group.plan is not None
                program = self._slots.program(
                    group.key, group.signature, group.template, group.plan, group.pod_class
                )
                if program is None:
                    break
                programs[group.key] = program
            tried.append((key, group))
            end += 1
        return tried, programs, end

    def _take_over(
        self,
        candidates: Sequence[tuple[str, WaitingGroup]],
        programs: Mapping[GroupKey, Program],
        placed: kernel.Placed,
        result: CycleResult,
    ) -> None:
        """Turn the kernel's rows into placements and failures, and count the placements in the state."""
        base = len(result.attempts)
        table, pods = self.state.table, self.state.pods
        looked = {"seed": self.seed, "generation": self._snapshot.generation, "at_ms": self._now_ms}
        output = KernelOutput(placed, programs.values(), self._view, self._slots.counters)
        attempts = [explain(p, output, self._view, signature=key[0], **looked) for key, p in programs.items()]
        attempt_of = {key: base + i for i, key in enumerate(programs)}
        result.attempts.extend(attempts)
        measured = {base + i: each for i, each in enumerate(attempts) if each.basis and each.basis.usage}
        keys: list[str] = []
        versions: dict[str, int] = {}
        scores = (placed.score / kernel.TOTAL_ONE).tolist()
        for (key, group), row, score in zip(candidates, placed.row.tolist(), scores, strict=True):
            attempt = attempt_of[group.key]
            if attempt in measured:
                store_versions(measured.pop(attempt), versions, self.state.nodes)
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
            self.queue.remove(key)
        self._park(programs, placed, attempts)

    def _park(
        self, programs: Mapping[GroupKey, Program], placed: kernel.Placed, attempts: Sequence[Attempt]
    ) -> None:
        """Park the groups whose last pod found no node. Others with pods left are tried again."""
        for (key, program), attempt in zip(programs.items(), attempts, strict=True):
            group, a = self.queue.groups.get(key), placed.attempt_of[program.slot]
            if group is not None and placed.exhausted[a]:
                self.queue.park(group, attempt, self._reads(program, int(placed.version[a]), attempt))
            elif group is not None and attempt.reasons_at_failure:
                self.queue.wake_group(group)
        self.queue.wake_counted(self._slots.counters)

    def _reads(
        self, program: Program, version: int, attempt: Attempt
    ) -> tuple[Sequence[Counter], int] | None:
        """Return the counters whose rules refused nodes, and the sum of their versions then; None: no rule.

        ``version`` is the part of those that a placement can cure. The others are as they were: placing
        only adds to them. Rules about a node by itself are left out: what cures them makes room on it.
        """
        if attempt.rules is msgspec.UNSET and not program.counted.is_cut:
            return None
        spanning = [
            (number, rule.kind)
            for number, (_, rule) in zip(program.counters, program.counted.rules, strict=False)
            if rule.counter.topology_key
        ]
        if not spanning:
            return None
        counters = self._slots.counters
        at_most = counters.having(number for number, kind in spanning if kind == kernel.AT_MOST)
        return counters.having(number for number, _ in spanning), version + counters.version_of(at_most)

    def _refuse(self, group: WaitingGroup, keys: Sequence[str], result: CycleResult) -> None:
        """Let fresh pods of a parked or held group wait without an attempt of their own."""
        if group.held_by:
            held = explain_held(
                group,
                seed=self.seed,
                generation=self._snapshot.generation,
                at_ms=self._now_ms,
                nodes_count=self.state.table.count,
            )
            self.queue.park(group, held)
        assert group.attempt is not None
        result.attempts.append(group.attempt.again(len(keys), self._snapshot.generation))
        for key in keys:
            entry = self.state.pods[key]
            result.verdicts.append(Failure(entry.spec, entry.arrival, len(result.attempts) - 1))
