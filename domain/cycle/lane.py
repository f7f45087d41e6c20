"""A lane of the queue in one cycle: what has its turn is placed, and what only waits is told why.

Low pods, which take what is idle, have a lane and a budget of their own, so that they cost others no more
than that. In each lane what can be placed comes before what can only be told why it waits.
"""

from __future__ import annotations

from collections.abc import Iterable

from domain.cycle.place import place
from domain.cycle.place_gang import place_gang
from domain.cycle.record import refuse
from domain.cycle.run import CycleRun
from domain.queue.groups import WaitingGroup
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
        place(run, tried, above=None if gang is None else gang.priority, start=start)
        if gang is not None:
            place_gang(run, gang)
        start = len(verdicts)
    if not drawn.is_cut:
        return
    queue.lines.place_changed()
    if not drawn.goes_on:
        turns, drawn = queue.draw(run.work_left, budget.tried_max - (start - kept), is_low=is_low)
        run.work_left -= drawn.work
        place(run, turns[0][0], above=None, start=start)  # a gang, and what is behind it, comes next time
        queue.lines.place_changed()
    told_max = budget.pods_max - (len(verdicts) - kept)
    _tell(run, queue.draw_told(told_max, is_low=is_low, is_over=True))


def _tell(run: CycleRun, told: Iterable[tuple[WaitingGroup, list[str]]]) -> None:
    for group, keys in told:
        refuse(run, group, keys)
