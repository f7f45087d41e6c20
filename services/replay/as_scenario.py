"""Writes the state just before a past attempt as a scenario that `berth plan` answers alike.

Of the cluster behind a cycle, what the cycle did from the attempt on is taken back. What an attempt cannot
see is left out: pods that only wait, pods on nodes that are not there, what is remembered of the gone, and
configuration that nothing of the attempt reads. Each scenario is planned before it is given away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import AnyVerdict, CycleResult, Failure, Placement, Preemption
from domain.manifests.profile import profile_to_spec
from domain.model.config import (
    CO_LOCATION_POLICY,
    DISRUPTION_BUDGET,
    HOSTED_REPLICAS,
    POD_GROUP,
    PRIORITY_CLASS,
    WORKLOAD,
    gang_object,
)
from domain.model.decisions import Outcome
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec, PodTemplate
from domain.model.timestamps import format_ms
from domain.state.changes import NominationEnded
from domain.state.cluster import ClusterState
from domain.state.nominations import Nomination
from domain.state.pods import PodEntry
from services.plan.kept import config_object, node_object, pod_object, template_value
from services.plan.scenario import placed_scenario

Json = dict[str, Any]

PLANNED = (
    Outcome.BOUND,
    Outcome.UNSCHEDULABLE,
    Outcome.UNRESOLVABLE,
    Outcome.NOMINATED,
    Outcome.GANG_WAITING,
)
"""What a scheduling attempt ends with; every other outcome is something that happened to a pod."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt decided for a pod: the node, and nodes per reason.

    ``reasons`` are those of the attempt: as its first pod saw the nodes where the pod was placed, else as its
    first pod without a node did.
    """

    pod: str
    outcome: Outcome
    node: str | None
    reasons: Mapping[str, int]


class Turn(NamedTuple):
    """Where a scenario begins: before the verdict ``start`` of a cycle, with these pods waiting, in order."""

    start: int
    waiting: Sequence[PodSpec]


def find(result: CycleResult, key: str) -> int | None:
    """Return the index of the verdict of a pod that an attempt ended with, None if there is none."""
    for i, verdict in enumerate(result.verdicts):
        if verdict.pod.key == key and not isinstance(verdict, NominationEnded):
            return i
    return None


def expected_of(result: CycleResult, at: int) -> Expected:
    """Return what was decided for the pod of a verdict."""
    verdict = result.verdicts[at]
    assert not isinstance(verdict, NominationEnded)
    attempt = result.attempts[verdict.attempt]
    found: tuple[Outcome, str | None, Mapping[str, int]]
    if isinstance(verdict, Placement):
        found = Outcome.BOUND, verdict.node, attempt.reasons
    elif isinstance(verdict, Preemption):
        found = Outcome.NOMINATED, verdict.node, attempt.reasons_at_failure
    else:
        found = attempt.outcome_at_failure, None, attempt.reasons_at_failure
    return Expected(pod=verdict.pod.key, outcome=found[0], node=found[1], reasons=found[2])


def turns(scheduler: Scheduler, result: CycleResult, at: int) -> Iterator[Turn]:
    """Yield where the scenario of a verdict may begin, the likeliest first."""
    verdicts, target = result.verdicts, result.verdicts[at]
    assert not isinstance(target, NominationEnded)
    if gang := target.pod.template.gang:
        first = next(i for i, each in enumerate(verdicts) if each.pod.template.gang == gang)
        mates = _mates(scheduler.state, verdicts, first, gang)
        yield from (Turn(start, mates) for start in dict.fromkeys((first, _turn_of(verdicts, mates[0]), 0)))
        return
    first = next(i for i, each in enumerate(verdicts) if _attempt(each) == target.attempt)
    between = [each for each in verdicts[first : at + 1] if _matters(each, target.attempt)]
    among = Turn(first, _pods_of(between))
    if isinstance(target, Placement):
        yield among
        yield Turn(at, [_waiting(target.pod)])
        return
    yield from failing_turns(scheduler, result, target.attempt, target.pod)
    yield Turn(at, [_waiting(target.pod)])
    yield among


def failing_turns(scheduler: Scheduler, result: CycleResult, attempt: int, pod: PodSpec) -> Iterator[Turn]:
    """Yield where the scenario of a pod may begin that was told by an attempt why it waits.

    A pod that is not new leaves no verdict where it finds no node, so the attempt may have failed in an
    earlier turn than the verdicts say: in that of the first pod that is equal.
    """
    verdicts, starts = result.verdicts, list[int]()
    failed = (i for i, e in enumerate(verdicts) if _attempt(e) == attempt and not isinstance(e, Placement))
    starts += [next(failed, 0)]
    equal = [
        entry
        for entry in scheduler.state.pods.values()
        if not entry.node and entry.spec.signature == pod.signature
    ]
    if equal:
        starts.append(_turn_of(verdicts, pod, min(entry.arrival for entry in equal)))
    yield from (Turn(start, [_waiting(pod)]) for start in dict.fromkeys((*starts, 0)))


def _attempt(verdict: AnyVerdict) -> int:
    return -1 if isinstance(verdict, NominationEnded) else verdict.attempt


def _matters(verdict: AnyVerdict, attempt: int) -> bool:
    """Say whether later pods see a verdict; one of another attempt that found no node leaves no trace."""
    return _attempt(verdict) == attempt or not isinstance(verdict, Failure)


def _turn_of(verdicts: Sequence[AnyVerdict], pod: PodSpec, arrival: int = 0) -> int:
    """Return the index of the first verdict of a pod that comes behind this one."""
    turn = (-pod.template.priority, arrival)
    behind = (i for i, e in enumerate(verdicts) if (-e.pod.template.priority, e.arrival) >= turn)
    return next(behind, len(verdicts))


def _mates(state: ClusterState, verdicts: Sequence[AnyVerdict], start: int, gang: str) -> Sequence[PodSpec]:
    """Return the pods of a gang that waited at a verdict, by arrival."""
    undone = {each.pod.key: each for each in verdicts[start:] if isinstance(each, Placement)}
    found = [(each.arrival, each.pod) for each in undone.values() if each.pod.template.gang == gang]
    found += [
        (entry.arrival, entry.spec)
        for entry in state.pods.values()
        if not entry.node and entry.spec.template.gang == gang
    ]
    return [_waiting(pod) for _, pod in sorted(found, key=lambda each: each[0])]


def _pods_of(verdicts: Iterable[AnyVerdict]) -> Sequence[PodSpec]:
    return list({each.pod.key: _waiting(each.pod) for each in verdicts}.values())


def _waiting(pod: PodSpec) -> PodSpec:
    return msgspec.structs.replace(pod, devices=(), node_name="")


def scenario_of(
    scheduler: Scheduler, result: CycleResult, turn: Turn, expected: Expected, about: str
) -> Json:
    """Return the scenario that begins there."""
    state, behind = scheduler.state, result.verdicts[turn.start :]
    undone = {each.pod.key for each in behind if isinstance(each, Placement)}
    placed = [
        entry
        for entry in state.pods.values()
        if entry.node in state.table.rows and entry.spec.key not in undone
    ]
    nominations = _nominations(state, behind)
    nominated = [
        _waiting(state.pods[each.key].spec)
        for each in nominations
        if each.key in state.pods and each.key not in {pod.key for pod in turn.waiting}
    ]
    templates = _Templates()

    def ordinal(spec: NodeSpec) -> int:
        return state.nodes[spec.name].ordinal

    names = dict.fromkeys(pod.template.profile for pod in (*turn.waiting, *nominated))
    plans = scheduler.profiles.plans
    profiles = [plans[name].profile for name in names if name in plans]
    document: Json = {
        "about": about,
        "seed": scheduler.seed,
        "expect": {key: each for key, each in msgspec.to_builtins(expected).items() if each is not None},
        "profiles": [{"name": e.name, "revision": e.revision, **profile_to_spec(e)} for e in profiles],
        "objects": [
            *(node_object(spec) for spec in sorted(state.table.specs, key=ordinal)),
            *_config(state, turn.waiting, expected),
            *(pod_object(_started(entry), templates.of(entry.spec), entry.node) for entry in placed),
            *(
                pod_object(pod, templates.of(pod), excluded=scheduler.excluded.of(pod))
                for pod in (*nominated, *turn.waiting)
            ),
        ],
    }
    more: Json = {
        "nominations": [_nominated(each, state, placed, templates) for each in nominations],
        "home": _home(state),
        **_measured(state, placed),
        "templates": templates.values,
    }
    return {**document, **{key: each for key, each in more.items() if each}}


def _started(entry: PodEntry) -> PodSpec:
    """Return a placed pod that says when it started: without a status, that is when it was placed."""
    if entry.spec.start_time or not entry.placed_ms:
        return entry.spec
    return msgspec.structs.replace(entry.spec, start_time=format_ms(entry.placed_ms))


class _Templates:
    """Templates by a short name each."""

    def __init__(self) -> None:
        self.values: dict[str, Json] = {}
        self._names: dict[bytes, str] = {}

    def name(self, signature: bytes, template: PodTemplate) -> str:
        name = self._names.setdefault(signature, f"t{len(self._names) + 1}")
        if name not in self.values:
            self.values[name] = template_value(template)
        return name

    def of(self, pod: PodSpec) -> str:
        return self.name(pod.signature, pod.template)


def _home(state: ClusterState) -> list[str]:
    """Return the nodes that the worker tries first; none where it has no home nodes, or no others."""
    names = [n for n in state.table.rows if state.nodes[n].ordinal % state.shards_count in state.own]
    return names if len(names) < state.table.count else []


def _nominations(state: ClusterState, behind: Sequence[AnyVerdict]) -> list[Nomination]:
    """Return the nominations in force before some verdicts."""
    made = {each.pod.key for each in behind if isinstance(each, Preemption)}
    found = {key: each for key, each in state.nominations.entries.items() if key not in made}
    for each in behind:
        if isinstance(each, NominationEnded) and each.pod.key not in made:
            found.setdefault(each.pod.key, each.nomination)
    return [each for each in found.values() if each.node in state.table.rows]


def _nominated(
    nomination: Nomination, state: ClusterState, placed: Sequence[PodEntry], templates: _Templates
) -> Json:
    """Return a nomination; of a pod of another worker nothing else is known."""
    on_node = {entry.spec.key for entry in placed if entry.node == nomination.node}
    victims = [each.key for each in nomination.victims if each.key in on_node]
    found = {"pod": nomination.key, "node": nomination.node, **({"victims": victims} if victims else {})}
    if nomination.key not in state.pods:
        found["template"] = templates.name(nomination.signature, nomination.template)
    return found


def _config(state: ClusterState, waiting: Sequence[PodSpec], expected: Expected) -> Iterator[Json]:
    """Yield the configuration in force that an attempt for these pods may read."""
    gangs, may_evict = set(), expected.outcome is not Outcome.BOUND
    for pod in waiting:
        if gang := pod.template.gang:
            namespace, _, name = gang.partition("/")
            kind, of = gang_object(name)
            gangs.add((kind, namespace, of))
    for key, thing in state.config.known.items():
        if thing.content is None or thing.kind in (PRIORITY_CLASS, HOSTED_REPLICAS):
            continue  # pods have their priority
        if thing.kind in (POD_GROUP, WORKLOAD) and key not in gangs and not may_evict:
            continue
        if thing.kind == DISRUPTION_BUDGET and not may_evict:
            continue
        if thing.kind == CO_LOCATION_POLICY and not state.usage.windows:
            continue
        yield config_object(thing)


def _measured(state: ClusterState, placed: Sequence[PodEntry]) -> Json:
    """Return what was measured of nodes, and which pods that does not cover."""
    if not state.usage.windows:
        return {}
    usage: Json = {}
    for name, window in state.usage.windows.items():
        if name in state.table.rows and (figures := window.measured()):
            usage[name] = {
                resource: {key: each for key, each in msgspec.to_builtins(found).items() if each is not None}
                for resource, found in figures.items()
            }
    quality = {
        name: msgspec.to_builtins(record.use)
        for name, record in state.usage.qualities.items()
        if name in state.table.rows and state.lending.is_fresh(name)
    }
    recents = (
        (entry, state.nodes[entry.node].recent) for entry in placed if entry.node in state.usage.windows
    )
    recent = [entry.spec.key for entry, keys in recents if keys is not None and entry.spec.key in keys]
    return {"usage": usage, "quality": quality, "recent": recent}


def why_other(document: Json, expected: Expected) -> str:
    """Plan a scenario; return how its answer is another than what was decided, "" where it is the same."""
    plan, planned = placed_scenario(document)
    answer = next((each for each in planned if each.pod.key == expected.pod), None)
    if answer is None:
        return "it is not tried"
    node, outcome, attempt = answer.node, answer.outcome, answer.attempt
    if expected.outcome is Outcome.NOMINATED and node is None:
        verdict = next(each for each in plan.verdicts() if each.pod == expected.pod)
        node = next(iter(verdict.victims), None)
        outcome = Outcome.NOMINATED if node else outcome
    if (outcome, node) != (expected.outcome, expected.node):
        wanted = f"{expected.outcome} {expected.node or ''}".strip()
        return f"{f'{outcome} {node or str()}'.strip()} instead of {wanted}"
    reasons = attempt.reasons if answer.node else attempt.reasons_at_failure
    return "" if reasons == expected.reasons else f"reasons {reasons} instead of {dict(expected.reasons)}"
