"""Places gangs: the kernel places their pods on trial, and what is too little is taken back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from domain.cycle.gang_trial import Trial, domains_to_try, explain_undone, take_back, try_gang
from domain.cycle.nominated import count_again, uncount_below
from domain.cycle.place import place_all
from domain.cycle.preempt_gang import Preempted, preempt_gang
from domain.cycle.record import explain_held_now, take_over
from domain.cycle.run import CycleRun
from domain.engine.homes import Domain
from domain.engine.picked import part_of
from domain.engine.verdicts import Failure
from domain.model.limits import gang_members_max
from domain.queue.gangs import codes_of, lacking
from domain.queue.groups import Gang, GroupKey, Tried
from domain.queue.turns import trial_work


def place_gang(run: CycleRun, gang: Gang) -> None:
    """Place the members of a gang that wait; none of them where too few find a node.

    They are looked at together: on all nodes, also where this worker has home nodes; or in one domain after
    another, where they are to be in one. Nominations of pods of lower priority than all of its pods do not
    count meanwhile.
    """
    if (of := run.preempting) is None:
        _place_gang(run, gang)
        return
    uncount_below(run, of, gang.lowest_priority)
    _place_gang(run, gang)
    count_again(run, of)


def _place_gang(run: CycleRun, gang: Gang) -> None:
    assert gang.spec is not None
    members, key = gang.members(), gang.spec.topology_key
    codes = codes_of(lacking(gang, run.state, run.snapshot))
    domains, is_last = ([None], True) if codes else domains_to_try(run, gang, members)
    if not domains:
        codes = [f"gang-topology:{key}"]
    if codes:
        preempted = preempt_gang(run, gang, members)
        if preempted is not Preempted.NOMINATED:
            _refuse_gang(run, gang, members, codes, preempted)
        return
    best: Domain | None = None
    most, work = -1, trial_work(gang, run.state)
    for n, domain in enumerate(domains):
        run.work_left -= work if n else 0  # the first was paid when the gang was drawn
        trial = try_gang(run, members, domain)
        if trial is None:
            _refuse_gang(run, gang, members, ["gang-too-varied"], Preempted.HELPLESS)
            return
        if trial.found_count >= gang.lacking_count:
            _keep_gang(run, gang, trial)
            return
        take_back(run, trial)
        if trial.found_count > most:
            best, most = domain, trial.found_count
    preempted = preempt_gang(run, gang, members) if is_last else Preempted.HELPLESS
    if preempted is Preempted.NOMINATED:
        return
    if best != domains[-1]:  # once more the one that is to be explained
        trial = try_gang(run, members, best)
        assert trial is not None
        take_back(run, trial)
    assert trial is not None
    explain_undone(run, gang, trial)
    if not is_last:
        gang.tried_in.update(dict.fromkeys(domains))
    _let_rest(run, gang, is_last=is_last and preempted is not Preempted.PUT_OFF, is_short=bool(key))


def _let_rest(run: CycleRun, gang: Gang, *, is_last: bool, is_short: bool) -> None:
    """Park a gang, or have it tried again with the next cycle, if that is to look on."""
    if is_last:
        run.queue.gangs.park(gang, run.at_ms, placed_any=False, is_short=is_short)
    else:
        run.queue.gangs.activate(gang)


def _keep_gang(run: CycleRun, gang: Gang, trial: Trial) -> None:
    """Let members have the nodes they found. One that found none in a domain may be free to go anywhere."""
    assert gang.spec is not None
    tried, programs, placed = trial[:3]
    run.result.gangs[gang.key] = max(gang.lacking_count, run.result.gangs.get(gang.key, 0))
    needed_count = max(gang.lacking_count, 0)
    if gang.spec.is_preferred and trial.domain is not None and trial.found_count < len(tried):
        has_node = placed.row >= 0
        placed.reason_code[:, 1, 0] = -1  # another attempt says why
        placed.exhausted[:] = 0
        placed = part_of(placed, has_node)
        others = [tried[i] for i in np.flatnonzero(~has_node).tolist()]
        tried = [tried[i] for i in np.flatnonzero(has_node).tolist()]
        programs = {group.key: programs[group.key] for _, group in tried}
        if tried:
            take_over(run, tried, programs, placed)
        programs_max, run.programs_max = run.programs_max, gang_members_max
        place_all(run, others, gang.priority)
        run.programs_max = programs_max
    else:
        take_over(run, tried, programs, placed)
    if all(group.parked for group in gang.ready):
        placed_any = 0 < trial.found_count >= needed_count
        run.queue.gangs.park(gang, run.at_ms, placed_any=placed_any)


def _refuse_gang(
    run: CycleRun, gang: Gang, members: Sequence[Tried], codes: Sequence[str], preempted: Preempted
) -> None:
    """Let the members of a gang wait that was not tried on any node."""
    result, attempts = run.result, dict[GroupKey, int]()
    seen = gang.seen(at_ms=run.at_ms)
    for key, group in members:
        if group.key not in attempts:
            attempts[group.key] = len(result.attempts)
            result.attempts.append(explain_held_now(run, group, codes, seen))
        result.attempts[attempts[group.key]].pods_count += 1
        if run.queue.is_fresh(key):
            entry = run.state.pods[key]
            result.verdicts.append(Failure(entry.spec, entry.arrival, attempts[group.key]))
    run.queue.note_tried(key for key, _ in members)
    _let_rest(run, gang, is_last=preempted is not Preempted.PUT_OFF, is_short=True)
