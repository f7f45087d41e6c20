"""Preemption within a cycle: a pod without a node has one nominated, and the pods in its way are evicted.

The kernel stops at the first pod without a node whose group may preempt. For it and its like that follow,
victims are planned (``Preemptor``) and nodes nominated.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence, Set

import numpy as np

from domain.cycle.nominated import let_go
from domain.cycle.record import take_over
from domain.cycle.run import CycleRun, Preempting
from domain.engine.evaluate import Alone, look_at_rows
from domain.engine.picked import part_of
from domain.engine.preemption import NEVER, Decided, Planned, has_leaving
from domain.engine.preemption import Nominated as Counted
from domain.engine.program import Program
from domain.engine.verdicts import Preemption
from domain.kernels import arrays as kernel
from domain.model.colocation import QUALITY_OF, Quality
from domain.model.pods import COLOCATION_PROFILE, PREEMPTING_PROFILES, PodTemplate
from domain.queue.groups import GroupKey, Tried
from domain.queue.turns import plan_work
from domain.state.nominations import Nomination
from domain.state.steps import Nominated

_PROGRAMS_MIN = 16
"""A call that begins where one stopped compiles so many groups, and each further one twice as many."""


def may_preempt(template: PodTemplate, lowest_priority: int) -> bool:
    """Return whether pods of a template may evict others, where the lowest priority of any pod is this.

    Those of a gang do so together (``preempt_gang``). A pod that could not be bound to a node waits until it
    may be tried there again. A low pod under co-location takes what is idle: no eviction makes that more.
    """
    is_low = template.profile == COLOCATION_PROFILE and QUALITY_OF[template.qos_class] is Quality.LOW
    return (
        template.profile in PREEMPTING_PROFILES
        and not is_low
        and template.preemption_policy != NEVER
        and template.priority > lowest_priority
        and not template.excluded
    )


def willing_groups(
    run: CycleRun, of: Preempting, tried: Sequence[Tried], programs: Mapping[GroupKey, Program]
) -> set[GroupKey]:
    """Return the groups of a call of which pods may have others evicted now, each for itself."""
    willing: Set[GroupKey] = programs.keys()
    if of.pauses:
        willing = {group.key for key, group in tried if of.pauses.may_evict(key)}
        for _, group in tried:
            group.is_patient = group.key not in willing
    lowest = run.state.index.lowest_priority
    return {
        key
        for key in willing
        if of.preempts and may_preempt(programs[key].template, lowest) and not programs[key].template.gang
    }


def end_call(
    run: CycleRun,
    of: Preempting,
    candidates: Sequence[Tried],
    end: int,
    tried: Sequence[Tried],
    programs: Mapping[GroupKey, Program],
    placed: kernel.Placed,
    willing: Set[GroupKey],
) -> int:
    """Take over what the kernel said up to the pod that stopped it, and preempt for that one.

    Returns which candidate comes next.
    """
    done = int(placed.done[0])
    last = programs[tried[done - 1][1].key] if done else None
    if last is None or placed.row[done - 1] >= 0 or not placed.stops[last.slot]:
        run.programs_max *= 2
        take_over(run, *_without_owing(run, tried, programs, placed, willing))
        return end
    run.programs_max = _PROGRAMS_MIN
    key, group = tried[done - 1]
    if group.key in of.paid:
        of.paid.remove(group.key)
    else:
        run.work_left -= plan_work(group.template, run.state)
    seen: Mapping[GroupKey, Program]
    seen = {which: p for which, p in programs.items() if placed.attempt_of[p.slot] >= 0}
    before = part_of(placed, slice(done - 1))
    kept, seen, before = _without_owing(run, tried[: done - 1], seen, before, willing)
    at = len(run.result.attempts) + list(seen).index(group.key)
    take_over(run, kept, seen, before)
    first = candidates.index((key, group))
    if run.result.attempts[at].unresolvable:
        return first  # its group is parked: it is refused like those behind it
    following = first
    while following < len(candidates) and candidates[following][1] is group:
        following += 1
    return first + _preempt(run, of, candidates[first:following], last, at)


def _without_owing(
    run: CycleRun,
    tried: Sequence[Tried],
    programs: Mapping[GroupKey, Program],
    placed: kernel.Placed,
    willing: Set[GroupKey],
) -> tuple[Sequence[Tried], Mapping[GroupKey, Program], kernel.Placed]:
    """Return what of a call to take over: all but the pods that would preempt if there were work left.

    They wait, as if they had not been tried. Their namespaces pay for a plan when they are drawn again.
    """
    owing = {
        group.key
        for (_, group), row in zip(tried, placed.row.tolist(), strict=True)
        if row < 0 and group.key in willing and not placed.stops[programs[group.key].slot]
    }
    if not owing:
        return tried, programs, placed
    for key in owing:
        run.queue.put_off(key)
        placed.exhausted[placed.attempt_of[programs[key].slot]] = 0
    found = [i for i, (_, group) in enumerate(tried) if placed.row[i] >= 0 or group.key not in owing]
    tried = [tried[i] for i in found]
    gone = owing.difference(group.key for _, group in tried)
    programs = {key: program for key, program in programs.items() if key not in gone}
    return tried, programs, part_of(placed, np.array(found, dtype=np.int64))


def _preempt(run: CycleRun, of: Preempting, pods: Sequence[Tried], program: Program, attempt: int) -> int:
    """Nominate nodes for equal pods; return how many were dealt with.

    The others are refused: their group is parked. So is a pod that has to wait, as no victim left for it
    before; the nodes where none left are weighed last.
    """
    group, pauses = pods[0][1], of.pauses
    group.reads_pods = bool(program.counted.rules) or program.counted.is_cut
    willing = [(at, key) for at, (key, _) in enumerate(pods) if pauses.may_evict(key)]
    waiting = _waiting_for_leaving(run, of, [key for _, key in willing], program)
    willing = [each for each in willing if each[1] not in waiting]
    group.is_patient = not willing
    if not willing:
        return 0  # they are refused like those behind a pod that nothing helps
    shunned = {pauses.node_of(key) for _, key in willing} - {""} if pauses else set[str]()
    done = 0
    for without in (shunned, set[str]()) if shunned else (shunned,):
        left = willing[done:]
        plans = _planned(run, of, program, len(left), without) if left else ()
        for (_, key), plan in zip(left, plans, strict=False):
            nominate(run, of, key, plan, attempt)
            done += 1
    if done < len(willing):
        return willing[done][0]
    if group.lines:
        if len(willing) == len(pods):  # nothing failed
            group.failures = group.due_ms = 0
        run.queue.wake_group(group)
    return len(pods)


def _waiting_for_leaving(run: CycleRun, of: Preempting, keys: Sequence[str], program: Program) -> set[str]:
    """Return the pods of a group for which others leave a node already, named by another scheduler.

    But for nodes that refuse the pods whatever leaves.
    """
    state = run.state
    named = {key: state.pods[key].spec for key in keys if state.pods[key].spec.nominated_node}
    found = {key: pod.nominated_node for key, pod in named.items() if has_leaving(pod, state.nodes)}
    if not found:
        return set()
    run.work_left -= plan_work(program.template, state)
    _, hopeless, _, _ = look_at_rows(program.plan, Alone(run.snapshot, run.slots, program))
    found = {key: node for key, node in found.items() if not hopeless[state.table.rows[node]]}
    for key, node in found.items():
        of.pauses.note_leaving(key, node)
    return set(found)


def _planned(
    run: CycleRun, of: Preempting, program: Program, count: int, without: Collection[str]
) -> list[Planned]:
    """Plan for equal pods, as far as they may have what is planned."""
    decided, outbid = decided_for(run, of, program.template.priority)
    planned = of.preemptor.plan(program, count, decided, without).planned
    foreign = {victim for victim, by in outbid.items() if not run.state.is_own_nomination(by)}
    return list(itertools.takewhile(lambda plan: foreign.isdisjoint(plan.victims), planned))


def decided_for(
    run: CycleRun, of: Preempting, priority: int, but: str = ""
) -> tuple[Decided, dict[str, Nomination]]:
    """Return what is decided already for pods of a priority, but for one nomination.

    And the victims of pods that are outbid, each with the nomination for which it leaves.
    """
    state = run.state
    known = state.nominations.entries
    of.budgets.sync()
    nominated = [
        Counted(state.pods[each.key].pod_class if each.key in state.pods else None, each.node)
        for each in known.values()
        if each.priority >= priority and each.key != but
    ]
    # A victim of a less urgent pod leaves for this one instead: that nomination ends with this one.
    evicted = state.nominations.evicted
    outbid = {victim: known[by] for victim, by in evicted.items() if known[by].priority < priority}
    leaving = state.leaving.keys() - outbid.keys()
    return Decided(of.budgets, leaving, nominated), outbid


def nominate(
    run: CycleRun,
    of: Preempting,
    key: str,
    plan: Planned,
    attempt: int,
    *,
    lasts_ms: int = 0,
    below: int | None = None,
) -> None:
    """Nominate the node of a plan for a pod, and evict the victims. ``lasts_ms`` 0: as long as of all."""
    state, nominations = run.state, run.state.nominations
    entry = state.pods[key]
    victims = tuple(state.pods[victim].spec for victim in plan.victims)
    expires_ms = run.at_ms + (lasts_ms or of.nomination_ms)
    let_go(run, of, state.apply(Nominated(key, plan.node, plan.victims, run.at_ms, expires_ms, below)))
    run.make_room_for_changes(1)
    run.snapshot.count_nomination(plan.row, *nominations.amounts(nominations.entries[key]), 1)
    run.slots.counters.nominated.count([nominations.entries[key]], 1)
    run.snapshot.caught_up()
    run.result.attempts[attempt].pods_count += 1
    run.result.verdicts.append(
        Preemption(
            entry.spec,
            entry.arrival,
            attempt,
            plan.node,
            state.nodes[plan.node].version,
            victims,
            plan.weight.violations,
            expires_ms,
            of.budgets.names_of(state.pods[victim] for victim in plan.victims),
        )
    )
    run.queue.note_tried([key])
    run.queue.remove_pods((key,))
