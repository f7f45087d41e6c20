"""START HERE: events are folded in, and a cycle places every pod that is worth an attempt.

``Scheduler.fold`` applies an event and keeps the queue in step. ``Scheduler.cycle`` takes the pods to try in
order of (priority, arrival) and places them one after another, each onto the best node of the whole cluster
as its predecessors left it; where other workers hold shards too, onto the best of its home nodes, and of the
whole cluster where none of those will do. The answer is a value: placements, pods that found no node, and one
attempt per group that explains both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from operator import attrgetter

from domain.counting.counted import PodsKnown
from domain.cycle.hosting import Hosting
from domain.cycle.lane import run_lane
from domain.cycle.preempt import may_preempt
from domain.cycle.preempt_gang import plan_gang
from domain.cycle.relieve import Relieving
from domain.cycle.reserve import Reserving
from domain.cycle.run import CycleRun, Preempting, Watch
from domain.engine.budgets import Budgets
from domain.engine.homes import Homes
from domain.engine.nominated_room import count_in_snapshot, left_for, nominated_on, run_out, to_try
from domain.engine.preemption import Planned, Preemptor
from domain.engine.profiles import Profiles
from domain.engine.slots import GroupSlots
from domain.engine.verdicts import CycleResult
from domain.kernels import arrays as kernel
from domain.model.events import BindFailed, Event, PodUpserted, ProfileDeleted, ProfileEvent
from domain.model.hosting import HostedChange, WorkloadKey
from domain.model.limits import (
    candidates_explained_max,
    cycle_pods_low_max,
    cycle_pods_max,
    cycle_work_low_max,
    cycle_work_max,
    dying_seconds_max,
    preemption_seconds,
    reasons_per_cycle_max,
    usage_window_seconds,
)
from domain.model.marks import MasterMark
from domain.model.pods import PodSpec, PodTemplate, is_master
from domain.model.priorities import PRIORITY_MAX
from domain.model.profiles import Profile
from domain.plugins.view import NodeView
from domain.queue.eviction_pauses import EvictionPauses
from domain.queue.excluded import Excluded
from domain.queue.queue import Queue
from domain.queue.turns import Budget
from domain.state.changes import (
    BindUndone,
    Change,
    ClaimRefused,
    MovesEnded,
    NominationEnded,
    PodAdopted,
    PodGiven,
    PodRegrouped,
    PodReleased,
    PodResolved,
    PodWaits,
)
from domain.state.cluster import ClusterState
from domain.state.nominations import Nomination
from domain.state.snapshot import Snapshot
from domain.state.steps import Cleared, Lent, PodsFollowed, Reclassify, ReliefsPassed, Step

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
    backoff_ms : tuple of int
        As of ``Queue``; a caller without log time has none.
    preempts : bool
        Whether pods may let others of lower priority go (``may_preempt``), and hot nodes pods (``relieve``).
    preemption_seconds : int
        How long a node is nominated for a pod, in log time.
    reservation_seconds : int
        As ``wait_ms`` of ``Reserving``.
    cycle_pods_max : int
        How many pods a cycle tries, or tells why they wait.
    """

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        *,
        seed: int,
        usage_window_seconds: int = usage_window_seconds,
        backoff_ms: tuple[int, int] = (0, 0),
        preempts: bool = False,
        preemption_seconds: int = preemption_seconds,
        reservation_seconds: int = 0,
        cycle_pods_max: int = cycle_pods_max,
    ) -> None:
        self.seed, self.cycle_pods_max = seed, cycle_pods_max
        self.state = ClusterState(seed=seed, usage_window_seconds=usage_window_seconds)
        self.profiles = Profiles(profiles)
        self._backoff_ms = backoff_ms
        self.excluded = Excluded()
        self.queue = Queue(self.state, self.profiles.plans, backoff_ms, self.excluded)
        self._snapshot = Snapshot(self.state.table)
        self._homes = Homes(self.state)
        self._slots = GroupSlots(self.state, self._snapshot, homes=self._homes)
        self._view = NodeView(self.state)
        self.hosting = Hosting(self.state, self.profiles.plans, self._view)
        self._pods = PodsKnown(self.state)
        self._preemptor = Preemptor(self.state, self._snapshot, self._slots)
        self._budgets: Budgets | None = None  # made when the first pod preempts
        self._preempts = preempts
        self._nomination_ms = preemption_seconds * 1_000
        self._pauses = EvictionPauses()
        self._reserving = Reserving(self.state, reservation_seconds * 1_000)
        self._relieving = Relieving()
        self._columns_revision = 0
        self._grown: set[str] = set()  # clusters that may now have more masters on one node
        self.work = 0  # of the last cycle, as it was estimated (``turns.py``)
        self.watch: Watch | None = None  # of cycles alone

    def fold(self, event: Event | ProfileEvent | Step, shard: int = 0) -> tuple[Change, ...]:
        """Apply one event, of a record of ``shard``, or one step, and keep the queue in step.

        A profile event holds for the cycles that follow. Try the pods folded before it first. The nodes of
        own shards (``Owned``) are home, and tried first from the next cycle on.
        """
        if isinstance(event, PodUpserted):  # as nearly all are: to ask for the others first costs more
            self._grow(event.pod.template)
        elif isinstance(event, BindFailed):
            self._grow(event.pod.pod.template)
        elif isinstance(event, ProfileEvent):
            return (self._fold_profile(event),)
        elif isinstance(event, PodsFollowed):
            for template in {pod.signature: pod.template for pod in event.pods}.values():
                self._grow(template)
        changes = self.state.apply(event, shard)
        self._follow(changes)
        return changes

    def _follow(self, changes: Iterable[Change]) -> None:
        """Keep the queue in step with the state."""
        for change in changes:
            match change:
                case PodWaits():
                    if change.previous is not None:  # else the pod is new
                        self._pauses.forget_pod(change.pod.key)
                        self.queue.remove_if_waiting(change.pod.key)
                    self.queue.add(change.pod, change.arrival, fresh=True)
                case BindUndone():
                    self.excluded.note(change.pod, change.node)
                    self.queue.add(change.pod, change.arrival, fresh=True)
                case PodResolved():
                    self.queue.regroup(change.pod, change.arrival)
                    self.queue.report_held(change.pod)
                case PodRegrouped(placed=False) if change.pod.key not in self.state.nominations.entries:
                    self.queue.regroup(change.pod, change.arrival)
                case ClaimRefused():
                    self.queue.add(change.pod, change.arrival, fresh=True, lost=change.placed)
                case PodAdopted(waited=PodSpec()) | PodReleased(node="") | PodGiven():
                    self._pauses.forget_pod(change.pod.key)
                    self.queue.remove_if_waiting(change.pod.key)
                case PodReleased() if self._pauses:
                    self._pauses.forget_pod(change.pod.key)
                case NominationEnded() if self._waits(change.pod):
                    self.queue.add(change.pod, change.arrival, fresh=False)

    def _waits(self, pod: PodSpec) -> bool:
        entry = self.state.pods.get(pod.key)
        return entry is not None and not entry.node and entry.spec is pod

    def settles_first(self, event: Event | ProfileEvent) -> bool:
        """Say whether waiting pods must be tried before an event is folded.

        A master lets more masters of its cluster share a node. The masters before it must not profit from
        that early, or the decision would depend on where a batch was cut.
        """
        if not isinstance(event, PodUpserted) or not self._lets_more_in(event.pod.template):
            return False
        mark, index = MasterMark(event.pod.template.cluster), self.state.index
        return self.has_work and index.pods_with(mark) > sum(index.nodes_with(mark).values())

    def _grow(self, template: PodTemplate) -> None:
        if is_master(template) and self._lets_more_in(template):
            self._grown.add(template.cluster)

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

    def restore_pod(self, pod: PodSpec, *, arrival: int = 0, shard: int = 0, fresh: bool = False) -> bool:
        """Restore a waiting pod from the ledger; ``fresh``: it had no attempt yet.

        False: its key is taken (``ClusterState.restore_pod``).
        """
        is_new = self.state.restore_pod(pod, node="", adopted=False, arrival=arrival, shard=shard)
        if is_new and pod.key not in self.state.nominations.entries:
            self.queue.add(pod, arrival, fresh=fresh)
        return is_new

    def renew_queue(self) -> set[tuple[bytes, int]]:
        """Forget what a restart forgets: why groups wait. All that waits is tried again.

        Returns the signatures of the pods that wait, each with a shard. Cost: O(pods), some 100 ns each.
        """
        before, pods = self.queue, self.state.pods
        self.excluded.clear()
        self.queue = Queue(self.state, self.profiles.plans, self._backoff_ms, self.excluded)
        self.queue.move_from(before)
        self._pauses = EvictionPauses()
        self._reserving = Reserving(self.state, self._reserving.wait_ms)
        self._relieving = Relieving()
        self._grown.clear()
        self.recheck_all_nodes()
        priorities = map(attrgetter("spec.template.priority"), pods.values())
        self.state.index.lowest_priority = min(priorities, default=PRIORITY_MAX)
        nominated = [key for key in self.state.nominations.entries if key in pods and not pods[key].node]
        return {(pods[key].spec.signature, pods[key].shard) for key in chain(self.queue.keys, nominated)}

    def recheck_all_nodes(self) -> None:
        """Wake with the next cycle what any node could cure, as if all of them had gained room."""
        self.state.improved_rows.update(range(self.state.table.count))

    @property
    def waiting(self) -> Set[bytes]:
        """The signatures of the pods that wait, for any node or for their nominated one."""
        known = self.state.nominations.entries
        return self.queue.signatures.keys() | {each.signature for each in known.values()}

    @property
    def has_work(self) -> bool:
        """Whether a cycle would try any pod, or look at hot nodes that it has left over."""
        return bool(
            self.queue.has_work
            or self.state.improved_rows
            or self._grown
            or self.state.lending.has_news
            or self.queue.may_wake(self._slots.counters)
            or self._relieving.is_cut
        )

    def due_ms(self, now_ms: int) -> int:
        """Return the log time after ``now_ms`` at which time alone changes what a cycle does."""
        nomination_ms = self.state.nominations.due_ms(now_ms, dying_seconds_max * 1_000)
        waits_ms = min(self._pauses.ends.next_ms, self.excluded.due_ms)
        waits_ms = min(waits_ms, self.state.lending.due_ms, self.state.moves.due_ms(self.state.own))
        waits_ms = min(waits_ms, self.hosting.due_ms(now_ms))
        return min(self.queue.due_ms, nomination_ms, waits_ms, self._reserving.due_ms(self.queue))

    def watched_cycle(self, now_ms: int, passed_ms: int, watch: Watch) -> CycleResult:
        """Run a cycle as ``cycle`` does, and let each group be looked at before its pods are placed."""
        self.watch = watch
        try:
            return self.cycle(now_ms, passed_ms)
        finally:
            self.watch = None

    def cycle(self, now_ms: int = 0, passed_ms: int | None = None) -> CycleResult:
        """Try the pods whose turn it is, nearly always all fresh ones; count what was placed.

        ``now_ms`` is log time; attempts are stamped with it. To what is timed it is ``passed_ms``.
        """
        passed_ms = now_ms if passed_ms is None else passed_ms
        if not self.state.index.is_settled:
            self._follow(self.state.apply(Reclassify()))
        ended = self._expire(passed_ms)
        spared = self.state.apply(ReliefsPassed(passed_ms))
        self.sync(passed_ms)
        self.queue.pass_to(passed_ms)
        for key in self.excluded.pass_to(passed_ms, now_ms):
            self.queue.readmit(key)
        changed = nominated_on(self.state, self.state.improved_rows)
        self._hold(changed, -1)  # the attempt refuses pods that may not use nominated room
        self.queue.wake(self._snapshot, self.state.improved_rows, self._slots.passing)
        if self.state.improved_rows:
            self.queue.gangs.wake_short()
        self._hold(changed, 1)
        for key in self._pauses.pass_to(passed_ms, self.state):
            self.queue.wake_pod(key)
        if self._preempts and self.state.improved_rows:
            lowest, rows = self.state.index.lowest_priority, self.state.improved_rows
            groups = [g for g in self.queue.groups.values() if g.parked and may_preempt(g.template, lowest)]
            self.queue.wake_preemptors(groups, self._snapshot, rows, self._slots.passing)
        self.state.improved_rows.clear()
        self.queue.wake_measured(self._snapshot)
        self.queue.wake_counted(self._slots.counters)
        self.queue.wake_masters(self._grown)
        self._grown.clear()
        run = self._begin(changed, now_ms, passed_ms)
        run.result.verdicts.extend(ended)
        run.result.moves.extend(each for each in spared if isinstance(each, MovesEnded))
        self.queue.begin_cycle()
        run_lane(run, Budget(cycle_work_max, self.cycle_pods_max), is_low=False)
        if run.preempting is not None and self._reserving.is_due(self.queue, passed_ms):
            self._reserving.look(self.queue, run, run.preempting, passed_ms)
            self.queue.note_nominated()
        self.work = cycle_work_max - run.work_left
        run_lane(run, Budget(cycle_work_low_max, cycle_pods_low_max), is_low=True)
        self.work += cycle_work_low_max - run.work_left
        if self._preempts and run.preempting is not None:
            self._relieving.look(run, run.preempting)
        return run.result

    def decide_replicas(self, now_ms: int, waits: Mapping[WorkloadKey, int]) -> HostedChange:
        """Say how many replicas of hosted workloads there should be: ``Hosting.decide``, behind a cycle."""
        return self.hosting.decide(self._run(now_ms), waits)

    def plan_gang(self, name: str) -> dict[str, Planned]:
        """Return nodes and victims, by pod, of a gang that waits, as if it preempted now."""
        gang = self.queue.gangs.known.get(name)
        if gang is None or gang.reason:
            return {}
        self.sync()
        preempting = self._preempting((), preempts=True)
        return plan_gang(self._run(0, preempting), preempting, gang)

    def dry_run(self, now_ms: int = 0) -> CycleRun:
        """Begin a cycle that decides nothing, on all nodes as they are now; it may plan evictions.

        Whatever it writes into the snapshot has to be taken back before the next one begins.
        """
        if not self.state.index.is_settled:
            self._follow(self.state.apply(Reclassify()))
        self.sync(now_ms)
        return self._run(now_ms, self._preempting((), preempts=True))

    def _expire(self, now_ms: int) -> list[NominationEnded]:
        """End the nominations of own pods whose time is over."""
        over = run_out(self.state, now_ms)
        for each in over:
            if each.victims or each.template.gang:  # of a gang others may have no node the next time
                node = each.node if left_for(self.state, each) else ""
                self._pauses.note_expired(each.key, node, now_ms, self._nomination_ms)
        changes = self.state.apply(Cleared([each.key for each in over], "expired")) if over else ()
        self._follow(changes)
        return [each for each in changes if isinstance(each, NominationEnded)]

    def _hold(self, nominations: Sequence[Nomination], sign: int) -> None:
        """Count in the snapshot what nominations ask for (1), or take it out (-1)."""
        if nominations and not self._snapshot.reserve(len(nominations)):
            self._slots.void()
        count_in_snapshot(self.state, self._snapshot, nominations, sign)

    def _begin(self, changed: Sequence[Nomination], now_ms: int, passed_ms: int) -> CycleRun:
        """Begin a cycle; ``changed`` are nominations on nodes that changed."""
        is_plain = not (self._preempts or self.state.nominations.entries)
        if is_plain and not self._reserving.is_due(self.queue, passed_ms):
            return self._run(now_ms)
        return self._run(now_ms, self._preempting(changed, preempts=self._preempts))

    def _run(self, now_ms: int, preempting: Preempting | None = None) -> CycleRun:
        of = (self.state, self.queue, self._snapshot, self._slots, self._view)
        return CycleRun(*of, seed=self.seed, at_ms=now_ms, preempting=preempting, watch=self.watch)

    def _preempting(self, changed: Sequence[Nomination], *, preempts: bool) -> Preempting:
        if self._budgets is None:
            self._budgets = Budgets(self.state, self.state.leaving)
        return Preempting(
            plans=self.profiles.plans,
            preemptor=self._preemptor,
            budgets=self._budgets,
            tries=to_try(self.state, changed),
            preempts=preempts,
            nomination_ms=self._nomination_ms,
            pauses=self._pauses,
            reserved=self._reserving.nomination,
        )

    def sync(self, now_ms: int = 0) -> None:
        """Bring what nodes lend (``Lent``) and the snapshot up to date with the state."""
        self.state.apply(Lent(now_ms))
        if self._homes.sync():
            self._slots.forget()
        if self._columns_revision != self.state.resources.revision:
            self._columns_revision = self.state.resources.revision
            self._slots.forget()
            self.queue.forget_columns()
        self._slots.reserve(self.profiles.plans.values())
        if not self._snapshot.sync():
            self._slots.void()
        self._slots.counters.sync(self._snapshot.rows_width)
