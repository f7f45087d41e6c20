"""Places the pods of one cycle: candidates go to the kernel, and its rows become verdicts.

Pods come by priority. Where this worker holds some of the shards only, candidates are tried twice: on its
home nodes first, and those that find none there on all nodes; groups that prefer some nodes are tried on all
nodes alone. Nominations of pods of no lower priority count in the snapshot; others are taken out of it, and
count again as the priority sinks. A pod with a nominated node is tried there before all others of its
priority.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from operator import attrgetter

from domain.cycle.kernel_call import call_kernel, compile_groups
from domain.cycle.nominated import count_again, try_nominated, uncount_below
from domain.cycle.preempt import end_call, willing_groups
from domain.cycle.record import take_over
from domain.cycle.run import CycleRun, Preempting
from domain.engine.picked import part_of
from domain.engine.program import Program
from domain.engine.verdicts import AnyVerdict, Failure, Placement
from domain.queue.groups import GroupKey, Tried, by_priority

_ARRIVAL, _PRIORITY = attrgetter("arrival"), attrgetter("pod.template.priority")


def place(run: CycleRun, candidates: Sequence[Tried], *, above: int | None, start: int) -> None:
    """Place candidates, one after another: on the best home node, else on the best of all nodes.

    Others of the priority ``above`` come behind them; None: none do. Verdicts from ``start`` on are brought
    into the order of priority and arrival. Where there are home nodes, each priority is done with before the
    next: else a lower one would take a home node before a pod that looks at all nodes.
    """
    if run.watch is not None:
        run.watch(candidates)
    bands = by_priority(candidates) if run.slots.homes.divide else [candidates]
    for band, behind in zip_longest(bands, bands[1:]):
        _place_band(run, band, above if behind is None else behind[0][1].template.priority, start)
        start = len(run.result.verdicts)


def _place_band(run: CycleRun, candidates: Sequence[Tried], above: int | None, start: int) -> None:
    verdicts, at_home = run.result.verdicts, list[AnyVerdict]()
    if run.slots.homes.divide and candidates:
        before = len(verdicts)
        place_all(run, candidates, above, is_home=True)
        at_home = _in_turn(verdicts[before:])
        del verdicts[before:]
        candidates = [each for each in candidates if not run.state.pods[each[0]].node]
    place_all(run, candidates, above)
    verdicts[start:] = [*at_home, *_in_turn(verdicts[start:])]


def _in_turn(verdicts: list[AnyVerdict]) -> list[AnyVerdict]:
    """Return verdicts by priority, the highest first, then by arrival.

    Where nominations began or ended, they stay in the order in which they were made.
    """
    if not set(map(type, verdicts)) <= {Placement, Failure}:
        return verdicts
    return sorted(sorted(verdicts, key=_ARRIVAL), key=_PRIORITY, reverse=True)


def place_all(
    run: CycleRun, candidates: Sequence[Tried], above: int | None, *, is_home: bool = False
) -> None:
    """Place candidates, and try the nominations of no lower priority than ``above`` with them."""
    if run.preempting is None:
        _place_each(run, candidates, is_home=is_home)
    else:
        _place_beside_nominations(run, run.preempting, candidates, above, is_home=is_home)


def _place_beside_nominations(
    run: CycleRun, of: Preempting, candidates: Sequence[Tried], above: int | None, *, is_home: bool
) -> None:
    """Place candidates; those that compete with the same nominations together, from the top down."""
    count = 0 if is_home else sum(above is None or each.priority >= above for each in of.tries)
    tries = of.tries[:count]
    del of.tries[:count]
    firsts = [group.template.priority for _, group in candidates[:1]]
    firsts += [nomination.priority for nomination in tries[:1]]
    if not firsts:
        return
    if not is_home:
        owing = {group for _, group in candidates if group.owes_plan}
        of.paid.clear()
        of.paid.update(group.key for group in owing)
        for group in owing:
            group.owes_plan = False
    uncount_below(run, of, max(firsts))
    done = tried = 0
    while done < len(candidates) or tried < len(tries):
        floor = max((each.priority for each in of.uncounted.values()), default=None)
        end = done
        while end < len(candidates) and (floor is None or candidates[end][1].template.priority > floor):
            end += 1
        last = tried
        while last < len(tries) and (floor is None or tries[last].priority > floor):
            last += 1
        try_nominated(run, of, tries[tried:last])
        _place_each(run, candidates[done:end], is_home=is_home)
        done, tried = end, last
        count_again(run, of, floor)
    count_again(run, of)


def _place_each(run: CycleRun, candidates: Sequence[Tried], *, is_home: bool) -> None:
    done = 0
    while done < len(candidates):
        done = _place_some(run, candidates, done, is_home=is_home)


def _place_some(run: CycleRun, candidates: Sequence[Tried], start: int, *, is_home: bool) -> int:
    """Place as many candidates as fit the slots and the change log; return where to go on."""
    tried, programs, end = compile_groups(
        run, candidates, start, programs_max=run.programs_max, is_home=is_home
    )
    if is_home:
        _place_at_home(run, tried, programs)
    elif (of := run.preempting) is None:
        take_over(run, tried, programs, call_kernel(run, tried, programs))
    else:
        willing = willing_groups(run, of, tried, programs)
        stopping = willing if run.work_left > 0 else willing & of.paid
        placed = call_kernel(run, tried, programs, stopping=stopping)
        return end_call(run, of, candidates, end, tried, programs, placed, willing)
    return end


def _place_at_home(run: CycleRun, tried: Sequence[Tried], programs: Mapping[GroupKey, Program]) -> None:
    """Place pods on home nodes.

    A pod that finds none is tried on all: that attempt says why, and what the group waits for.
    """
    placed = call_kernel(run, tried, programs, is_explained=False)
    placed.reason_code[:, 1, 0] = -1
    placed.exhausted[:] = 0
    found = (placed.row >= 0).nonzero()[0]
    if not len(found):
        return
    tried = [tried[i] for i in found.tolist()]
    programs = {group.key: programs[group.key] for _, group in tried}
    take_over(run, tried, programs, part_of(placed, found), is_home=True)
    run.programs_max *= 2
