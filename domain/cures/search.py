"""The search for the smallest changes that cure a waiting pod: single ones first, then two at a time.

Each kind of change proposes candidates by what the engine says of each node, and nothing counts as a cure
that no dry run has placed. Pairs are looked for where no single change cures but one more node, which nearly
always does. A search ends where its budget does, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from domain.cures.changes import ANY, Change, Cure, Findings, MoreNodes, MoreRoom, Tolerate
from domain.cures.growing import more_nodes, smaller_gang
from domain.cures.leaving import higher_priority, leaves, leaves_for_gang
from domain.cures.pod_side import relaxations, sharpened
from domain.cures.room import more_room, repaired_room
from domain.cures.taints import repairs, tolerations
from domain.cures.trials import Bounds, BudgetSpent, Trials
from domain.cycle.schedule import Scheduler
from domain.model.pods import PodSpec
from domain.queue.groups import WaitingGroup

CURES_MAX = 12
_RELAXATIONS_MAX = 16
_INCOMPLETE = "gang-incomplete"
"""The one reason for which a gang is not tried that a smaller gang may cure."""


def find_cures(scheduler: Scheduler, pod: PodSpec, waiting_count: int, bounds: Bounds) -> Findings:
    """Return why a pod waits, and what would cure it.

    Parameters
    ----------
    scheduler : Scheduler
        What a worker of all shards knows; it is as before in the end.
    pod : PodSpec
        A pod that waits in it.
    waiting_count : int
        How many pods are like it: for so many, up to a bound, each cure is counted.
    bounds : Bounds
        What the search may cost.

    Cost: per dry run O(nodes), and O(pods tried) placements; no more for a group of 100,000 pods.
    """
    nominated = scheduler.state.nominations.entries.get(pod.key)
    if nominated is not None:
        return Findings(reasons={}, nominated_on=nominated.node)
    plan = scheduler.profiles.plans.get(pod.template.profile)
    held_by = WaitingGroup(pod.signature, pod.template, plan).held_by
    if plan is None or (held_by and not pod.template.gates):
        return Findings(reasons={}, held_by=held_by, unresolvable=True)
    trials = Trials(scheduler, pod, plan, waiting_count, bounds)
    if trials.gang is not None and trials.gang.reason not in ("", _INCOMPLETE):
        return Findings(reasons={}, held_by=(trials.gang.reason,), unresolvable=True)
    found: list[Cure] = []
    reasons: dict[str, int] = {}
    hopeless = False
    try:
        reasons, hopeless = _reasons(trials)
        fits_on = trials.placed(())
        if fits_on and not held_by:
            return Findings(reasons=reasons, fits_on=fits_on[0], dry_runs_count=trials.dry_runs_count)
        _take(found, _singles(trials))
        if not any(not isinstance(cure.changes[0], MoreNodes) for cure in found):
            _take(found, _pairs(trials))
        reached = True
    except BudgetSpent:
        reached = False
    if trials.gang is not None and trials.gang.reason:
        held_by = held_by or (trials.gang.reason,)
    return Findings(
        reasons=reasons,
        unresolvable=hopeless,
        held_by=held_by,
        cures=sorted(_distinct(found), key=lambda cure: cure.order)[:CURES_MAX],
        dry_runs_count=trials.dry_runs_count,
        reached=reached,
    )


def _take(found: list[Cure], cures: Iterable[Cure]) -> None:
    """Keep cures as they are found, so that those stand that a budget let be found."""
    for each in cures:
        found.append(each)  # noqa: PERF402  # the source may raise on the way


def _distinct(cures: Sequence[Cure]) -> list[Cure]:
    known: dict[frozenset[object], Cure] = {}
    for each in cures:
        known.setdefault(frozenset(map(_hashable, each.changes)), each)
    return [*known.values()]


def _hashable(change: Change) -> object:
    if isinstance(change, MoreRoom):
        return change.node, tuple(sorted(change.amounts.items()))
    return change


def _reasons(trials: Trials) -> tuple[dict[str, int], bool]:
    seen = trials.look(trials.pod.template)
    counts: dict[str, int] = {}
    for code, count in zip(*np.unique(seen.codes[seen.codes != 0], return_counts=True), strict=True):
        name = seen.reasons[int(code)].code
        counts[name] = counts.get(name, 0) + int(count)
    return dict(sorted(counts.items())), bool(len(seen.hopeless)) and bool(seen.hopeless.all())


def _checked(trials: Trials, changes: Iterable[Change], before: tuple[Change, ...] = ()) -> Iterator[Cure]:
    """Yield the changes that cure, behind those that were made before."""
    for each in changes:
        cure = trials.cure(*before, each)
        if cure is not None:
            yield sharpened(trials, cure)


def _singles(trials: Trials) -> Iterator[Cure]:
    template = trials.pod.template
    yield from _checked(trials, repairs(trials, template))
    yield from _checked(trials, [*relaxations(trials, template)][:_RELAXATIONS_MAX])
    yield from _checked(trials, tolerations(trials, template))
    yield from smaller_gang(trials)
    yield from more_room(trials)
    yield from leaves(trials) if trials.gang is None else leaves_for_gang(trials)
    yield from higher_priority(trials)
    yield from more_nodes(trials)


def _pairs(trials: Trials) -> Iterator[Cure]:
    """Yield pairs: a demand of the pod that goes, with a second one, or with what happens to a node."""
    template = trials.pod.template
    first = [*relaxations(trials, template)][:_RELAXATIONS_MAX]
    first += tolerations(trials, template, is_first=True)
    for each in first:
        before, relaxed = (each,), each.of_template(template)
        yield from more_room(trials, before)
        if trials.gang is None:
            yield from leaves(trials, before)
        yield from _checked(trials, repairs(trials, relaxed), before)
    yield from repaired_room(trials)
    for each in first:
        relaxed = each.of_template(template)
        kind = ANY.index(type(each))
        others = [other for other in relaxations(trials, relaxed) if ANY.index(type(other)) >= kind]
        yield from _checked(trials, others[:_RELAXATIONS_MAX], (each,))
        if not isinstance(each, Tolerate):
            yield from _checked(trials, tolerations(trials, relaxed), (each,))
