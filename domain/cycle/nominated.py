"""Pods with nominated nodes: what they ask for counts in the snapshot, and each is tried on its own node.

A pod is tried there, alone, once the node changed, and takes it as soon as every filter lets it. The pods of
a gang start together, or none of them does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

import numpy as np

from domain.cycle.kernel_call import call_nominated, undo
from domain.cycle.record import note_ended, note_rules
from domain.cycle.run import CycleRun, Preempting
from domain.engine.nominated_room import count_in_snapshot, mates_of, urgency, waits_for_any
from domain.engine.picked import Specs, with_devices
from domain.engine.program import Program
from domain.engine.verdicts import Placement
from domain.model.decisions import Attempt
from domain.queue.gangs import min_member_of
from domain.queue.groups import GroupKey
from domain.state.changes import Change, NominationEnded
from domain.state.cluster import ClusterState
from domain.state.nominations import Nomination
from domain.state.steps import Assumed, Cleared

# ------------------------------------------------------------------------------- counted in the snapshot


def count_nominations(run: CycleRun, of: Preempting, nominations: Sequence[Nomination], sign: int) -> None:
    """Count in the snapshot what nominations ask for (1), or take it out (-1)."""
    run.make_room_for_changes(len(nominations))
    count_in_snapshot(run.state, run.snapshot, nominations, sign)
    run.slots.counters.nominated.count(nominations, sign)
    for each in nominations:
        if sign < 0:
            of.uncounted[each.key] = each
        else:
            of.uncounted.pop(each.key, None)


def uncount_below(run: CycleRun, of: Preempting, priority: int) -> None:
    """Take out of the snapshot what is nominated to pods below a priority."""
    known = run.state.nominations.entries.values()
    below = [each for each in known if each.priority < priority and each.key not in of.uncounted]
    count_nominations(run, of, sorted(below, key=attrgetter("priority"), reverse=True), -1)


def count_again(run: CycleRun, of: Preempting, floor: int | None = None) -> None:
    """Count again what was taken out of no lower priority than ``floor``; None: all of it."""
    back = [each for each in of.uncounted.values() if floor is None or each.priority >= floor]
    count_nominations(run, of, back, 1)


def let_go(run: CycleRun, of: Preempting, ended: Sequence[Change]) -> None:
    """Count no more in the snapshot what is not nominated any more, and let the pods wait."""
    counted = []
    for change in ended:
        assert isinstance(change, NominationEnded)
        if of.uncounted.pop(change.pod.key, None) is None:
            counted.append(change.nomination)
    count_nominations(run, of, counted, -1)
    for each in counted:
        del of.uncounted[each.key]
    note_ended(run, ended)


# -------------------------------------------------------------------------------------- on their own nodes


def try_nominated(run: CycleRun, of: Preempting, tries: Sequence[Nomination]) -> None:
    """Try pods on the nodes that are nominated for them; those of a gang together."""
    singles: list[Nomination] = []
    for each in tries:
        if each.template.gang:
            _try_singles(run, of, singles)
            singles = []
            _start_gang(run, of, each)
        else:
            singles.append(each)
    _try_singles(run, of, singles)


def _try_singles(run: CycleRun, of: Preempting, tries: Sequence[Nomination]) -> None:
    """Try as many at a time as have slots."""
    known = run.state.nominations.entries
    tries = [each for each in tries if known.get(each.key) is each]  # not those outbid in this cycle
    done = 0
    while done < len(tries):
        programs: dict[GroupKey, Program] = {}
        run.slots.start_call()
        end, is_alone = done, False
        while end < len(tries) and not is_alone and compile_nominated(run, of, tries[end], programs):
            is_alone = _counts_nominated(run.state, tries[end], programs)
            if is_alone and end > done:
                break
            end += 1
        _try_together(run, of, tries[done:end], programs)
        done = max(end, done + 1)


def compile_nominated(
    run: CycleRun, of: Preempting, nomination: Nomination, programs: dict[GroupKey, Program]
) -> bool:
    """Compile the group of a pod with a nominated node; return whether there is a slot for it."""
    key = group_of(run.state, nomination)
    if key in programs:
        return True
    plan, entry = of.plans.get(nomination.template.profile), run.state.pods[nomination.key]
    if plan is None:
        return False
    program = run.slots.program(key, key[0], nomination.template, plan, entry.pod_class)
    if program is not None:
        programs[key] = program
    return program is not None


def group_of(state: ClusterState, nomination: Nomination) -> GroupKey:
    """Return the group in which a pod with a nominated node would wait."""
    pod_class = state.pods[nomination.key].pod_class
    return nomination.signature, 0 if pod_class is None else pod_class.number


def _counts_nominated(
    state: ClusterState, nomination: Nomination, programs: Mapping[GroupKey, Program]
) -> bool:
    """Return whether nominated pods count for a pod. It is tried alone: others are tried without theirs."""
    program = programs.get(group_of(state, nomination))
    return program is not None and program.counted.counts_nominated


def _try_together(
    run: CycleRun, of: Preempting, tries: Sequence[Nomination], programs: Mapping[GroupKey, Program]
) -> None:
    if not tries:
        return
    count_nominations(run, of, tries, -1)
    run.make_room_for_changes(len(tries))
    state = run.state
    placed, rows, devices = _place_nominated(run, tries, programs)
    specs = with_devices(state.pods, [each.key for each in tries], rows, devices)
    kept = [each for each, is_placed in zip(tries, placed.tolist(), strict=True) if is_placed]
    _note_placements(run, kept, programs, specs)
    for each in kept:
        del of.uncounted[each.key]
    note_ended(run, state.apply(Assumed([each.key for each in kept], rows[placed != 0], specs)))
    failed = [each for each, is_placed in zip(tries, placed.tolist(), strict=True) if not is_placed]
    failed = [each for each in failed if not _is_reserved(of, each)]
    refused = [each.key for each in failed if is_refused(run, each, programs)]
    let_go(run, of, state.apply(Cleared(refused, "not-held")))
    known = state.nominations.entries
    hopeless = [each.key for each in failed if each.key in known and not waits_for_any(state, each.node)]
    let_go(run, of, state.apply(Cleared(hopeless, "no-room")))
    count_nominations(run, of, [each for each in tries if each.key in of.uncounted], 1)
    run.snapshot.caught_up()


def _is_reserved(of: Preempting, nomination: Nomination) -> bool:
    """Return whether a node is kept free for a pod, though others have yet to leave it by themselves."""
    kept, gang = of.reserved, nomination.template.gang
    return kept is not None and (kept.key == nomination.key or kept.template.gang == gang != "")


def is_refused(run: CycleRun, nomination: Nomination, programs: Mapping[GroupKey, Program]) -> bool:
    """Return whether its node refuses a pod whatever leaves, as one that is cordoned does."""
    program, row = programs[group_of(run.state, nomination)], run.state.table.rows[nomination.node]
    groups = run.slots.groups
    code = int(groups.static_code[groups.static_part[program.slot], row])
    return code != 0 and program.reason(code).unresolvable


def _place_nominated(
    run: CycleRun, tries: Sequence[Nomination], programs: Mapping[GroupKey, Program]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Let the kernel place pods on their nodes; return ``placed``, rows int32[P], and ``devices``.

    See ``call_nominated``.
    """
    slots = [programs[group_of(run.state, each)].slot for each in tries]
    rows = [run.state.table.rows[each.node] for each in tries]
    placed, devices = call_nominated(run, slots, rows, programs)
    return placed, np.array(rows, dtype=np.int32), devices


def _note_placements(
    run: CycleRun, kept: Sequence[Nomination], programs: Mapping[GroupKey, Program], specs: Specs
) -> None:
    """Note the placements of pods that got their nominated nodes."""
    result, versions = run.result, dict[str, int]()
    attempts: dict[GroupKey, int] = {}
    for each in kept:
        key, node = group_of(run.state, each), each.node
        if key not in attempts:
            attempts[key] = len(result.attempts)
            _note_attempt(run, programs[key], key, attempts[key])
        attempt = result.attempts[attempts[key]]
        attempt.pods_count += 1
        attempt.bound_count += 1
        versions[node] = versions.get(node, run.state.nodes[node].version) + 1
        entry = run.state.pods[each.key]
        pod = specs.get(each.key) or entry.spec
        result.verdicts.append(
            Placement(pod, entry.arrival, attempts[key], node, versions[node], 0.0, is_nominated=True)
        )


def _note_attempt(run: CycleRun, program: Program, key: GroupKey, number: int) -> None:
    profile = program.plan.profile
    run.result.attempts.append(
        Attempt(
            signature=key[0],
            profile=profile.name,
            profile_revision=profile.revision,
            seed=run.seed,
            generation=run.snapshot.generation,
            looked_at_ms=run.at_ms,
            nodes_count=run.state.table.count,
            feasible_count=1,
            warnings=program.warnings,
        )
    )
    note_rules(run, program, number)


# ------------------------------------------------------------------------------------------------- gangs


def _start_gang(run: CycleRun, of: Preempting, nomination: Nomination) -> None:
    """Let the pods of a gang have their nominated nodes, if all of them can.

    Rules over other pods may ask for an order: a pod that does not fit is tried again behind those that do.
    """
    state, gang = run.state, nomination.template.gang
    if state.nominations.entries.get(nomination.key) is not nomination:  # outbid in this cycle
        return
    mates = sorted(mates_of(state, nomination), key=lambda each: urgency(state, each))
    placed, _ = state.index.gangs.placed(gang, state.pods, state.own)
    least = min_member_of(state, gang)
    if least is None or len(placed) + len(mates) < least:
        let_go(run, of, state.apply(Cleared([each.key for each in mates], "gang-changed")))
        run.snapshot.caught_up()
        return
    programs: dict[GroupKey, Program] = {}
    run.slots.start_call()
    if not all(compile_nominated(run, of, each, programs) for each in mates):
        return
    count_nominations(run, of, mates, -1)
    run.make_room_for_changes(2 * len(mates))
    versions = run.slots.counters.arrays.version.copy()
    started, rest, devices = _place_mates(run, mates, programs)
    if rest:
        rows_of, of_each = state.table.rows, zip(started, devices, strict=True)
        placed_on = ((group_of(state, each), rows_of[each.node], bits) for each, bits in of_each)
        undo(run, placed_on, programs, versions)
        _end_or_wait(run, of, mates, rest, programs)
    else:
        keys = [each.key for each in started]
        rows = np.array([state.table.rows[each.node] for each in started], dtype=np.int32)
        specs = with_devices(state.pods, keys, rows, np.array(devices, dtype=np.int32))
        _note_placements(run, started, programs, specs)
        for key in keys:
            del of.uncounted[key]
        note_ended(run, state.apply(Assumed(keys, rows, specs)))
        run.result.gangs[gang] = max(len(started), run.result.gangs.get(gang, 0))
    run.snapshot.caught_up()


def _place_mates(
    run: CycleRun, mates: Sequence[Nomination], programs: dict[GroupKey, Program]
) -> tuple[list[Nomination], list[Nomination], list[int]]:
    """Place the pods of a gang on their nodes in the snapshot.

    Returns them in order, those that do not fit, and the devices of the first, as bits.
    """
    started: list[Nomination] = []
    given: list[int] = []
    rest = list(mates)
    while rest:
        placed, _, devices = _place_nominated(run, rest, programs)
        if not placed.any():
            break
        started += [each for each, is_placed in zip(rest, placed.tolist(), strict=True) if is_placed]
        given += devices[placed != 0].tolist()
        rest = [each for each, is_placed in zip(rest, placed.tolist(), strict=True) if not is_placed]
    return started, rest, given


def _end_or_wait(
    run: CycleRun,
    of: Preempting,
    mates: Sequence[Nomination],
    rest: Sequence[Nomination],
    programs: Mapping[GroupKey, Program],
) -> None:
    """End the nominations of a gang that cannot start, unless it is worth waiting for the ``rest`` of it."""
    state, keys = run.state, [each.key for each in mates]
    if _is_reserved(of, mates[0]):
        count_nominations(run, of, mates, 1)
    elif any(is_refused(run, each, programs) for each in rest):
        let_go(run, of, state.apply(Cleared(keys, "not-held")))
    elif any(waits_for_any(state, each.node) for each in mates):
        count_nominations(run, of, mates, 1)
    else:
        for key in keys:  # others were faster, perhaps again and again
            of.pauses.note_expired(key, "", run.at_ms, of.nomination_ms)
        let_go(run, of, state.apply(Cleared(keys, "no-room")))
