"""Answers "where would these go, and why" from objects alone: the scheduler of a worker, without any server.

``Plan.place`` folds the objects and lets ``domain.cycle.schedule.Scheduler`` decide; so a plan and a worker
that reads the same objects say the same. ``Plan.verdicts`` shows every node for each pod: it goes through the
decisions again and evaluates each pod against the cluster as the pods before it left it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from domain.cycle.schedule import Scheduler
from domain.engine.dry_run import with_gang_preemption, with_preemption
from domain.engine.evaluate import Verdict, evaluate
from domain.engine.preemption import Planned as Preempted
from domain.engine.verdicts import Failure, Placement
from domain.model.colocation import UseByQuality
from domain.model.decisions import Attempt, Outcome
from domain.model.errors import FieldError
from domain.model.events import (
    ConfigUpserted,
    Event,
    NodeDeleted,
    NodeUpserted,
    NodeUsed,
    PodDeleted,
    PodUpserted,
    ProfileEvent,
)
from domain.model.pods import PodSpec
from domain.model.profiles import BUILT_IN_PROFILES, Profile, ProfileRevision
from domain.model.usage import Measured, QualityRecord, SeriesRecord, UsageRecord
from domain.model.validation import shown
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.state.changes import Refused
from domain.state.cluster import ClusterState
from domain.state.steps import Assumed, Nominated, NominationsFollowed, Owned, Written
from services.plan.notices import Notices
from services.plan.objects import MEASURED_MS, Given, event_of

HOME_SHARD, OTHER_SHARD = 0, 1
"""The nodes of the first are home, where some are."""


class Planned(NamedTuple):
    """The outcome for one pod; the attempt of its group says why."""

    pod: PodSpec
    outcome: Outcome
    node: str | None
    score: float | None
    attempt: Attempt


class Moment(NamedTuple):
    """What of a past moment no object says.

    Attributes
    ----------
    profiles : sequence of Profile
        Profiles in force, with their revisions, in place of the built-in ones of their names.
    home : frozenset of str or None
        The nodes that the worker tried first; None: it had no home nodes.
    nominations : sequence of Nominated or NominationsFollowed
        Nodes that are set aside for waiting pods, of this worker or of others.
    recent : frozenset of str
        Keys of bound pods that came too late for the measurement of their node to cover them.
    """

    profiles: Sequence[Profile] = ()
    home: frozenset[str] | None = None
    nominations: Sequence[Nominated | NominationsFollowed] = ()
    recent: frozenset[str] = frozenset()


NOW = Moment()


class _Given(NamedTuple):
    """An object as the event that it stands for."""

    event: Event | ProfileEvent
    given: Given


_Step = (
    Event
    | ProfileEvent
    | UsageRecord
    | Written
    | Nominated
    | NominationsFollowed
    | Sequence[Placement | Failure]
)


class Plan:
    """A made-up cluster and the pods to place on it.

    Parameters
    ----------
    seed : int
        Decides between nodes of equal score.
    profile : Profile, optional
        The profile of all pods. Without it each pod names a built-in profile or one of the objects.
        A pod that names a profile which does not exist waits, as with a worker.
    lenient : bool
        Take objects exactly as they are written (see ``event_of``).
    moment : Moment
        What of a past moment no object says.

    Raises
    ------
    FieldError
        The profile makes no sense.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        profile: Profile | None = None,
        lenient: bool = False,
        moment: Moment = NOW,
    ) -> None:
        self._seed = seed
        self._moment = moment
        self._profile = profile
        self._lenient = lenient
        if profile is not None:
            ProfilePlan(profile)
        self._scheduler = self._new_scheduler()
        self._usage: list[_Given | UsageRecord] = []  # not folded yet
        self._objects: list[_Given] = []
        self._notices = Notices()
        self._pods: list[_Given] = []
        self._steps: list[_Step] = []
        self._gang_plans: dict[str, Mapping[str, Preempted]] = {}
        self._answers: dict[str, tuple[Placement | Failure, Planned]] = {}

    @classmethod
    def of(cls, scheduler: Scheduler) -> Plan:
        """Return a plan for the cluster and the pods that a scheduler knows."""
        made = cls()
        made._scheduler = scheduler
        return made

    @property
    def state(self) -> ClusterState:
        """The cluster, with the pods that were placed."""
        return self._scheduler.state

    @property
    def decided(self) -> frozenset[str]:
        """Keys of the pods that the plan decided about."""
        return frozenset(self._answers)

    def profile_of(self, pod: PodSpec) -> ProfilePlan | None:
        """Return the profile that places a pod; None: the pod names one that does not exist."""
        return self._scheduler.profiles.plans.get(pod.template.profile)

    def add(self, given: Given) -> None:
        """Take one object of a kind that the log takes; nothing is folded yet.

        Raises
        ------
        FieldError
            With the path of the field, what is wrong and what is allowed.
        """
        try:
            event = event_of(given, lenient=self._lenient)
        except FieldError as error:
            raise given.error(error.path, error.message) from None
        self.add_event(event, given)

    def add_event(self, event: Event | ProfileEvent | None, given: Given) -> None:
        """Take the event that an object stands for; nothing is folded yet."""
        match event:
            case None:
                pass
            case PodUpserted() | PodDeleted():
                self._pods.append(_Given(event, given))
            case NodeUsed():
                self._usage.append(_Given(event, given))
            case _:
                if isinstance(event, ConfigUpserted):
                    self._notices.note_event(event)
                self._objects.append(_Given(event, given))

    def measure(
        self, usage: Mapping[str, Mapping[str, Measured]], quality: Mapping[str, UseByQuality] = {}
    ) -> None:
        """Take measured usage of nodes, with its peaks of the day before, and what was used by quality."""
        for node in dict.fromkeys((*usage, *quality)):
            figures = usage.get(node, {})
            used = None if node not in quality else QualityRecord(at_ms=MEASURED_MS, use=quality[node])
            series = {
                name: SeriesRecord(
                    given=Measured(avg=each.avg, std=each.std, latest=each.latest),
                    peaks={} if each.peak is None else {0: each.peak},
                )
                for name, each in figures.items()
            }
            self._usage.append(UsageRecord(node=node, at_ms=MEASURED_MS, series=series, quality=used))

    def place(self) -> list[Planned]:
        """Place all waiting pods at once, by (priority, arrival); return each in the order of decision.

        Raises
        ------
        FieldError
            An object that the cluster cannot hold.
        """
        self._fold_cluster()
        for each in self._pods:
            self._fold(each)
        self._nominate()
        self._settle()
        return self._planned()

    def place_one_by_one(self, schedule: Sequence[str], path: str = "schedule") -> list[Planned]:
        """Let the named pods arrive one after the other, each one placed before the next comes.

        Raises
        ------
        FieldError
            A name that is no waiting pod, or an object that the cluster cannot hold.
        """
        waiting = self._fold_bound()
        self._nominate()
        for i, name in enumerate(schedule):
            key = name if "/" in name else f"default/{name}"
            asked = waiting.pop(key, None)
            if asked is None:
                entry = self.state.pods.get(key)
                problem = "is not among the objects"
                if entry is not None:
                    problem = f"is on node {entry.node} already" if entry.node else "is scheduled already"
                raise FieldError(f"{path}[{i}]", f"pod {shown(key)} {problem}")
            self._fold(asked)
            self._settle()
        return self._planned()

    def fold_bound(self) -> list[PodSpec]:
        """Fold everything but the waiting pods; return those."""
        return [each.event.pod for each in self._fold_bound().values() if isinstance(each.event, PodUpserted)]

    def place_further(self, pods: Sequence[PodSpec]) -> list[Planned]:
        """Let further pods arrive, all at once; return what became of each, in the order of decision."""
        for pod in pods:
            self._fold(_Given(PodUpserted(pod), Given("ADDED", None)))
        self._settle()
        keys = {pod.key for pod in pods}
        return [planned for key, (_, planned) in self._answers.items() if key in keys]

    def take_back(self, keys: Sequence[str]) -> None:
        """Delete further pods, as if they had not come."""
        for key in keys:
            namespace, _, name = key.partition("/")
            self._fold(_Given(PodDeleted(namespace, name), Given("DELETED", None)))
            self._answers.pop(key, None)

    def verdicts(self) -> Iterator[Verdict]:
        """Show every node for each pod that was planned, one pod at a time, in the order of decision.

        Cost: a cluster of its own, and O(nodes) per plugin and pod.
        """
        scheduler = self._new_scheduler()
        view = NodeView(scheduler.state)
        for step in self._steps:
            if not isinstance(step, list):
                self._apply(scheduler, step)
                continue
            for decided in step:
                answer = self._answers.get(decided.pod.key)
                if answer is None or answer[0] is not decided:  # it found a node later, or is gone
                    if isinstance(decided, Placement):
                        _count(scheduler.state, decided.pod, decided.node)
                    continue
                planned = answer[1]
                plan = scheduler.profiles.plans.get(decided.pod.template.profile)
                verdict = evaluate(scheduler.state, plan, decided.pod, view)
                if planned.outcome is Outcome.GANG_WAITING:
                    verdict = _with_gang(verdict, planned.attempt)
                if self._moment.home is not None and planned.node is not None:
                    verdict = msgspec.structs.replace(verdict, node=planned.node)  # the best at home
                assert verdict.node == planned.node, f"{decided.pod.key}: {verdict.node}, {planned.node}"
                devices = list(planned.pod.devices)
                verdict = msgspec.structs.replace(verdict, outcome=planned.outcome, devices=devices)
                if verdict.gang:
                    yield with_gang_preemption(verdict, self._gang_plan(verdict.gang.name))
                else:
                    yield with_preemption(verdict, scheduler.state, plan, decided.pod, view)
                if planned.node is not None:
                    _count(scheduler.state, decided.pod, planned.node)

    def _gang_plan(self, name: str) -> Mapping[str, Preempted]:
        """Return what would be nominated for a gang that waits, on the cluster as it is in the end."""
        if name not in self._gang_plans:
            self._gang_plans[name] = self._scheduler.plan_gang(name)
        return self._gang_plans[name]

    def notices(self, planned: Sequence[Planned]) -> list[str]:
        """Return what the plan does not look at in the objects, a line per code."""
        for each in planned:
            self._notices.note_attempt(each.pod.key, each.attempt)
        named = {each.pod.template.profile for each in planned}
        plans = [plan for name, plan in self._scheduler.profiles.plans.items() if name in named]
        for node in self.state.table.specs:
            self._notices.note_node(node, plans)
        return self._notices.lines()

    # ------------------------------------------------------------------------------------------ folding

    def _new_scheduler(self) -> Scheduler:
        scheduler = Scheduler({} if self._profile else BUILT_IN_PROFILES, seed=self._seed)
        if self._moment.home is not None:
            scheduler.fold(Owned(frozenset((HOME_SHARD,)), OTHER_SHARD + 1))
        for profile in () if self._profile else self._moment.profiles:
            revised = ProfileRevision(name=profile.name, revision=profile.revision, profile=profile)
            scheduler.profiles.restore(revised)
        return scheduler

    def _nominate(self) -> None:
        """Set nodes aside for waiting pods, which are tried there alone."""
        for given in self._moment.nominations:
            step = given if isinstance(given, Nominated) else _with_uids(given, self.state)
            self._apply(self._scheduler, step)
            self._steps.append(step)

    def _fold_cluster(self) -> None:
        """Fold all but pods: a pod may be written before its node, its profile or its priority."""
        for each in sorted(
            self._objects, key=lambda each: isinstance(each.event, NodeUpserted | NodeDeleted)
        ):
            self._fold(each)

    def _fold_bound(self) -> dict[str, _Given]:
        self._fold_cluster()
        waiting: dict[str, _Given] = {}
        for each in self._pods:
            match each.event:
                case PodUpserted(pod=pod) if not pod.node_name and not pod.finished:
                    waiting[pod.key] = each
                    continue
                case PodUpserted(pod=pod):
                    waiting.pop(pod.key, None)
                case PodDeleted():
                    waiting.pop(f"{each.event.namespace}/{each.event.name}", None)
            self._fold(each)
        return waiting

    def _fold(self, each: _Given) -> None:
        if self._scheduler.settles_first(each.event):
            self._settle()
        for change in self._apply(self._scheduler, each.event):
            if isinstance(change, Refused):
                path = f"{each.given.path}.{change.path.removeprefix('object.')}"
                raise each.given.error(path, change.message)
        self._steps.append(each.event)

    def _apply(self, scheduler: Scheduler, step: _Step) -> tuple[object, ...]:
        if isinstance(step, UsageRecord):
            scheduler.state.restore_usage(step)
            return ()
        assert not isinstance(step, Sequence)
        if self._profile is not None:
            if isinstance(step, ProfileEvent):
                return ()
            if isinstance(step, PodUpserted):
                self._put_profile(scheduler, step.pod.template.profile)
        if isinstance(step, NodeUpserted) and self._moment.home is not None:
            return scheduler.fold(step, HOME_SHARD if step.node.name in self._moment.home else OTHER_SHARD)
        changes = scheduler.fold(step)
        if isinstance(step, Nominated):
            scheduler.queue.remove_if_waiting(step.key)
        return changes

    def _put_profile(self, scheduler: Scheduler, name: str) -> None:
        """Put the profile for all pods in force under the name that a pod gives."""
        assert self._profile is not None
        if name not in scheduler.profiles.plans:
            revision = self._profile.revision
            scheduler.profiles.restore(ProfileRevision(name=name, revision=revision, profile=self._profile))

    def _settle(self) -> None:
        """Place waiting pods until none is worth an attempt; usage covers the pods placed before it."""
        if self._usage:
            recent, pods = self._moment.recent, self.state.pods
            settled = Written({key: 1 for key, e in pods.items() if e.node and key not in recent})
            self._apply(self._scheduler, settled)
            self._steps.append(settled)
        for each in self._usage:
            if isinstance(each, UsageRecord):
                self._apply(self._scheduler, each)
                self._steps.append(each)
            else:
                self._fold(each)
        self._usage.clear()
        while self._scheduler.has_work:
            result = self._scheduler.cycle()
            self._steps.append(tried := result.tried)
            for decided in tried:
                self._answers.pop(decided.pod.key, None)
                planned = _planned(decided, result.attempts[decided.attempt])
                self._answers[decided.pod.key] = (decided, planned)

    def _planned(self) -> list[Planned]:
        self._answers = {key: each for key, each in self._answers.items() if key in self.state.pods}
        return [planned for _, planned in self._answers.values()]


def _planned(decided: Placement | Failure, attempt: Attempt) -> Planned:
    if isinstance(decided, Placement):
        return Planned(decided.pod, Outcome.BOUND, decided.node, decided.score, attempt)
    return Planned(decided.pod, attempt.outcome_at_failure, None, None, attempt)


def _with_gang(verdict: Verdict, attempt: Attempt) -> Verdict:
    """Return the verdict of a pod alone as that of one which waits for the others of its gang."""
    assert attempt.gang is not msgspec.UNSET
    held_by = [] if attempt.gang.missing else list(attempt.reasons_at_failure)
    return msgspec.structs.replace(verdict, node=None, gang=attempt.gang, held_by=held_by)


def _with_uids(step: NominationsFollowed, state: ClusterState) -> NominationsFollowed:
    """Return nominations with the uids of their victims, which a scenario names by their keys."""
    pods = state.pods
    return NominationsFollowed(
        [
            msgspec.structs.replace(
                each,
                victims=tuple(v._replace(uid=pods[v.key].spec.uid) for v in each.victims if v.key in pods),
            )
            for each in step.nominations
        ],
        step.ended,
    )


def _count(state: ClusterState, pod: PodSpec, node: str) -> None:
    """Count a pod, with the devices that it got, on the node where it was placed."""
    state.apply(Assumed([pod.key], np.array([state.table.rows[node]]), {pod.key: pod}))
