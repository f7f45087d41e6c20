"""A lane of the queue in one cycle: what has its turn is placed, and what only waits is told why.

Low pods, which take what is idle, have a lane and a budget of their own, so that they cost others no more
than that. In each lane what can be placed comes before what can only be told why it waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from domain.cycle.place import place
from domain.cycle.place_gang import place_gang
from domain.cycle.record import refuse
from domain.cycle.run import CycleRun
from domain.kernels import arrays as kernel
from domain.kernels import placing
from domain.plugins.base import Demand
from domain.queue.groups import Tried, WaitingGroup
from domain.queue.turns import Budget


def run_lane(run: CycleRun, budget: Budget, *, is_low: bool) -> None:
    """Try the pods of a lane whose turn it is; tell fresh pods of parked and held groups why they wait.

    Where not all were drawn that have a turn, and those that were drawn leave none of their like to try, more
    are drawn for what is left of the budget: pods behind a flood that finds no node do not wait for it. What
    the cycle does not decide then, it tells.
    """
    queue, verdicts = run.queue, run.result.verdicts
    start, kept = len(verdicts), len(verdicts)
    turns, drawn = queue.draw(budget.work_max, budget.first_max, is_low=is_low)
    run.work_left = budget.work_max - drawn.work
    _tell(run, queue.draw_told(budget.pods_max - drawn.pods_count, is_low=is_low))
    for tried, gang in turns:
        place(
            run,
            _left_by_room(run, tried) if is_low else tried,
            above=None if gang is None else gang.priority,
            start=start,
        )
        if gang is not None:
            place_gang(run, gang)
        start = len(verdicts)
    if not drawn.is_cut:
        return
    queue.lines.place_changed()
    if not drawn.goes_on:
        turns, drawn = queue.draw(run.work_left, budget.tried_max - (start - kept), is_low=is_low)
        run.work_left -= drawn.work
        behind = _left_by_room(run, turns[0][0]) if is_low else turns[0][0]
        place(run, behind, above=None, start=start)  # a gang, and what is behind it, comes next time
        queue.lines.place_changed()
    told_max = budget.pods_max - (len(verdicts) - kept)
    _tell(run, queue.draw_told(told_max, is_low=is_low, is_over=True))


def _left_by_room(run: CycleRun, candidates: Sequence[Tried]) -> Sequence[Tried]:
    """Return candidates without those for which others leave no room, of groups that were told why they wait.

    A measurement that finds room for one pod wakes all groups that ask for no more, and the first of them
    takes it. To find that out by an attempt takes the others ten times as long. Where no node has any room
    for a group, it is parked again; the others keep their turn.
    """
    told = dict.fromkeys(group for _, group in candidates if group.may_be_parked_again)
    if not told or run.state.nominations.entries:
        return candidates
    resources = run.state.resources
    asked = {
        group: tuple(group.plan.demands(group.template, resources)[0])
        for group in told
        if group.plan is not None
    }
    counts = Counter(asked[group] for _, group in candidates if group in asked)
    left = {demands: _fits_count(run.snapshot.columns, demands, count) for demands, count in counts.items()}
    for group, demands in asked.items():
        if not left[demands]:
            run.queue.park_again(group)
    kept = []
    for key, group in candidates:
        if group in asked:
            left[asked[group]] -= 1
        if group not in asked or left[asked[group]] >= 0:
            kept.append((key, group))
    return kept


def _fits_count(columns: kernel.Columns, demands: Sequence[Demand], most: int) -> int:
    """Return for how many pods of such demands rows have room, at most ``most``. Cost: O(rows)."""
    count = int(columns.rows_count[0])
    which = np.array([each.column for each in demands], dtype=np.int32)
    values = np.array([each.value for each in demands], dtype=np.int64)
    fits = np.zeros(1, dtype=np.uint8)
    asked = np.array([len(demands)], dtype=np.int32), which[None], values[None]
    placing.could_fit(columns, np.arange(count), *asked, fits)
    if most == 1 or not fits[0]:
        return int(fits[0])
    free = columns.allocatable[which, :count] - columns.requested[which, :count]
    free, values = free[values > 0], values[values > 0, None]
    return min(most, int((free // values).min(axis=0, initial=most).clip(0).sum()))


def _tell(run: CycleRun, told: Iterable[tuple[WaitingGroup, list[str]]]) -> None:
    for group, keys in told:
        refuse(run, group, keys)
