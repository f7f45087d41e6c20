"""What an agent does next, from what it measured: pure, so that a test can try any day of a node.

The boxes follow what is left (``domain.colocation.suppression``). Where that is not enough, a need says how
much must go, and ``choose`` names the pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from domain.colocation.eviction import (
    Candidate,
    Cause,
    LowCpu,
    Victim,
    all_low_leave,
    below_one_core_since,
    choose_victims,
    is_pausing,
    memory_is_short,
    memory_release_bytes,
    node_release_milli,
    starved_release_milli,
)
from domain.colocation.suppression import BoxSettings, Setting, Step, boxes_of, plan_suppression
from domain.colocation.view import Requests
from domain.model.actions import ActionKind
from domain.model.colocation import Amounts, CoLocationPolicy, Quality, SuppressionRule, UseByQuality
from services.agent.measured import sum_of
from services.ports.cgroups import Feature

_KIND_OF = {
    Setting.IDLE: ActionKind.IDLE,
    Setting.WEIGHT: ActionKind.WEIGHT,
    Setting.QUOTA: ActionKind.QUOTA,
}


class Act(NamedTuple):
    """One change of a box: a quota in µs of the policy's period, or bytes; None lifts what was set."""

    kind: ActionKind
    box: Quality
    value: int | None
    reason: str


class Need(NamedTuple):
    """Pods must end, for this cause, until so much is freed: thousandths of a core, or bytes."""

    cause: Cause
    release: int


class Seen(NamedTuple):
    """What is known at a moment: the use since the last one, how boxes are set, what pods request.

    ``asked_milli`` is the cpu that low pods ask for. ``is_known`` says whether the pods of the node are known
    at all: what is requested bounds how far the box of mid may shrink.
    """

    now_ms: int
    capacity: Amounts
    use: UseByQuality
    settings: BoxSettings
    features: frozenset[Feature]
    requests: Requests
    asked_milli: int
    is_known: bool = True


class Carried(NamedTuple):
    """What an agent remembers from one moment to the next.

    ``low_below_since_ms``: the low box has less than a core since then. ``starved_ms``: starved pods were
    ended then. ``short_since_ms``: memory is short since then. ``holds_memory``: whether the low box has a
    bound of memory; None: not known, as after a start. ``window`` is the cpu of low pods of late.
    """

    low_below_since_ms: int | None = None
    starved_ms: int | None = None
    short_since_ms: int | None = None
    holds_memory: bool | None = None
    window: tuple[LowCpu, ...] = ()


class Plan(NamedTuple):
    """What is done now, in this order, and what is remembered."""

    acts: tuple[Act, ...]
    needs: tuple[Need, ...]
    carried: Carried


def plan(seen: Seen, carried: Carried, policy: CoLocationPolicy) -> Plan:
    """Return what an agent does now.

    As long as the pods of the node are not known, low pods yield, and nothing else is done.
    """
    if not seen.is_known:
        idle = [] if seen.settings.low_yields else [_yield(seen)]
        return Plan(tuple(idle), (), carried)
    rule = policy.suppression
    boxes = boxes_of(policy.view, rule, seen.capacity, seen.use, seen.requests)
    next_settings, steps = plan_suppression(
        rule, seen.capacity.cpu_milli, boxes, seen.settings, seen.requests, Feature.IDLE in seen.features
    )
    acts = [_act(step) for step in steps if _can(step, seen.features)]
    since_ms = below_one_core_since(boxes.low_milli, carried.low_below_since_ms, seen.now_ms)
    cpu = LowCpu(_milli(rule, next_settings.low_quota_us), seen.use.low.cpu_milli, seen.asked_milli)
    window = (*carried.window, cpu)[-policy.eviction.pause_seconds - 1 :]
    carried = carried._replace(low_below_since_ms=since_ms, window=window)
    cpu_needs, carried = _cpu_needs(seen, carried, policy)
    memory_acts, memory_needs, carried = _memory(seen, carried, policy)
    return Plan((*acts, *memory_acts), (*cpu_needs, *memory_needs), carried)


def _yield(seen: Seen) -> Act:
    kind = ActionKind.IDLE if Feature.IDLE in seen.features else ActionKind.WEIGHT
    return Act(kind, Quality.LOW, 1, "low pods yield to all others")


def _act(step: Step) -> Act:
    return Act(_KIND_OF[step.setting], step.box, step.value, step.reason)


def _can(step: Step, features: frozenset[Feature]) -> bool:
    return step.setting is not Setting.QUOTA or Feature.QUOTA in features


def _milli(rule: SuppressionRule, quota_us: int) -> int:
    """Return a quota in thousandths of a core, 0 where there is none."""
    return max(0, quota_us) * 1000 // rule.period_us


def _cpu_needs(seen: Seen, carried: Carried, policy: CoLocationPolicy) -> tuple[list[Need], Carried]:
    rule, needs = policy.eviction, list[Need]()
    if all_low_leave(rule, carried.low_below_since_ms, seen.now_ms):
        needs.append(Need(Cause.NO_BOX, 0))
    elif not is_pausing(rule, carried.starved_ms, seen.now_ms):
        average = _average(carried.window) if len(carried.window) > rule.pause_seconds else None
        if release := starved_release_milli(rule, average, carried.window[-1]):
            needs.append(Need(Cause.STARVED, release))
            carried = carried._replace(starved_ms=seen.now_ms)
    used_milli = sum_of(seen.use).cpu_milli
    if release := node_release_milli(rule, seen.capacity.cpu_milli, used_milli):
        needs.append(Need(Cause.NODE_CPU, release))
    return needs, carried


def _average(window: Sequence[LowCpu]) -> LowCpu:
    return LowCpu(*(sum(each) // len(window) for each in zip(*window, strict=True)))


def _memory(seen: Seen, carried: Carried, policy: CoLocationPolicy) -> tuple[list[Act], list[Need], Carried]:
    """Return what is done where memory is short: the kernel takes it back, and a moment later pods end.

    Where the kernel cannot take it back, or low pods hold none, pods end at once.
    """
    rule, capacity = policy.eviction, seen.capacity.memory_bytes
    used = sum_of(seen.use).memory_bytes
    can_hold = Feature.MEMORY_HIGH in seen.features
    if not memory_is_short(rule, capacity, used, carried.short_since_ms is not None):
        lifts = can_hold and carried.holds_memory is not False
        reason = "enough of the node's memory is free"
        acts = [Act(ActionKind.MEMORY_HIGH, Quality.LOW, None, reason)] if lifts else []
        return acts, [], carried._replace(short_since_ms=None, holds_memory=False)
    release, low = memory_release_bytes(rule, capacity, used), seen.use.low.memory_bytes
    if carried.short_since_ms is None and low:
        taken, acts = min(release, low), list[Act]()
        reason = f"the node's memory is short: {used * 100 / capacity:.1f} % is used"
        if can_hold:
            acts.append(Act(ActionKind.MEMORY_HIGH, Quality.LOW, low - taken, reason))
        if Feature.RECLAIM in seen.features:
            acts.append(Act(ActionKind.RECLAIM, Quality.LOW, taken, reason))
        if acts:
            return acts, [], carried._replace(short_since_ms=seen.now_ms, holds_memory=can_hold)
    since_ms = seen.now_ms if carried.short_since_ms is None else carried.short_since_ms
    return [], [Need(Cause.MEMORY, release)], carried._replace(short_since_ms=since_ms)


def choose(
    needs: Sequence[Need], candidates: Sequence[Candidate], leaving: Sequence[Candidate]
) -> list[Victim]:
    """Return the pods that end for these needs, each for the first one that names it.

    What pods free that end already, for an earlier need or a moment ago, is not freed twice.
    """
    gone, victims = list(leaving), list[Victim]()
    for cause, release in needs:
        left = release - sum(_frees(cause, each) for each in gone)
        if cause is not Cause.NO_BOX and left <= 0:
            continue
        names = {each.name for each in gone}
        chosen = choose_victims(cause, [each for each in candidates if each.name not in names], max(0, left))
        victims += chosen
        taken = {each.name for each in chosen}
        gone += [each for each in candidates if each.name in taken]
    return victims


def _frees(cause: Cause, pod: Candidate) -> int:
    if cause is Cause.MEMORY:
        return pod.used.memory_bytes
    return pod.estimate.cpu_milli if cause is Cause.STARVED else pod.used.cpu_milli
