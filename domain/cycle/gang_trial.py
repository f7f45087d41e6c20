"""Tries a gang: the kernel places its members on the snapshot, and what it placed is kept or taken back."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from domain.cycle.gang_domains import domains_of
from domain.cycle.kernel_call import call_kernel, compile_groups, undo
from domain.cycle.preempt import willing_groups
from domain.cycle.record import take_over
from domain.cycle.run import CycleRun
from domain.engine.homes import Domain
from domain.engine.picked import part_of
from domain.engine.program import Program
from domain.kernels import arrays as kernel
from domain.model.limits import gang_domains_per_cycle_max, gang_members_max, gang_pairs_max
from domain.queue.groups import Gang, GroupKey, Tried
from domain.queue.turns import pairs_count, trial_work

CHANGES = 2
"""How often a row is written for each pod on trial: placed, and taken back."""


class Trial(NamedTuple):
    """What the kernel placed of a gang. ``versions`` int64[counters] are those of the counters before."""

    tried: Sequence[Tried]
    programs: Mapping[GroupKey, Program]
    placed: kernel.Placed
    versions: np.ndarray
    domain: Domain | None

    @property
    def found_count(self) -> int:
        """How many of them found a node."""
        return int((self.placed.row >= 0).sum())


def domains_to_try(
    run: CycleRun, gang: Gang, members: Sequence[Tried], freed: np.ndarray | None = None
) -> tuple[list[Domain | None], bool]:
    """Return where to try a gang, in this order, and whether that is all that is left to try.

    ``freed``: what the pods to be evicted would leave to it, as of ``domains_of``.
    """
    assert gang.spec is not None
    if not gang.spec.topology_key:
        return [None], True
    known = domains_of(gang, members, run.state, run.snapshot, freed)
    fresh = known if freed is not None else [each for each in known if each not in gang.tried_in]
    anywhere: list[Domain | None] = [None] if gang.spec.is_preferred else []
    first = fresh[:gang_domains_per_cycle_max]
    paid = 1 + max(0, run.work_left) // trial_work(gang, run.state)
    if freed is None and len(first) > paid:
        return [*first[:paid]], False
    is_last = gang.spec.is_preferred or len(fresh) <= gang_domains_per_cycle_max
    return [*first, *anywhere], is_last


def try_gang(
    run: CycleRun, members: Sequence[Tried], domain: Domain | None, *, changes: int = CHANGES
) -> Trial | None:
    """Let the kernel place members, in one domain alone if one is given. None: they differ too much.

    They do where they need more programs than there is room for, or so many comparisons with the terms and
    kinds of other pods that those would hold up all others: a gang is tried whole, in one cycle. ``changes``
    as of ``call_kernel``.
    """
    groups = {group.key: group for _, group in members}.values()
    if pairs_count(groups, run.state.index, gang_pairs_max) > gang_pairs_max:
        return None
    tried, programs, end = compile_groups(run, members, 0, programs_max=gang_members_max, domain=domain)
    if end < len(members):
        return None
    if run.preempting is not None:
        willing_groups(run, run.preempting, tried, programs)
    versions = run.slots.counters.arrays.version.copy()
    return Trial(tried, programs, call_kernel(run, tried, programs, changes=changes), versions, domain)


def take_back(run: CycleRun, trial: Trial) -> None:
    """Take off the snapshot and the counters what the kernel placed. Cost: O(pods)."""
    of_each = zip(trial.tried, trial.placed.row.tolist(), trial.placed.devices.tolist(), strict=True)
    placed = ((group.key, row, bits) for (_, group), row, bits in of_each if row >= 0)
    undo(run, placed, trial.programs, trial.versions)


def explain_undone(run: CycleRun, gang: Gang, trial: Trial, but: Container[str] = ()) -> dict[GroupKey, int]:
    """Let the members of a gang wait, of which too few found a node: the first without one says why.

    Of members ``but`` these. Returns the attempts of the groups.
    """
    tried, programs, placed = trial[:3]
    result, first = run.result, len(run.result.attempts)
    waiting = [at for at, (key, _) in enumerate(tried) if key not in but]
    undone = part_of(placed, np.array(waiting, dtype=np.int64))
    undone = undone.replace(row=np.full_like(undone.row, -1))
    take_over(run, [tried[at] for at in waiting], programs, undone, is_undone=True)
    missing, group = tried[int((placed.row >= 0).argmin())]
    why = result.attempts[first + list(programs).index(group.key)]
    domain = "" if trial.domain is None else str(trial.domain)
    seen = gang.seen(trial.found_count, missing, domain=domain, at_ms=run.at_ms)
    for attempt in result.attempts[first:]:
        attempt.gang = seen
        if not attempt.reasons_at_failure:
            attempt.reasons_at_failure, attempt.rules = why.reasons_at_failure, why.rules
    return {key: first + i for i, key in enumerate(programs)}
