"""How many replicas of a hosted workload there should be, so that a flood does not become waiting pods."""

from __future__ import annotations

from typing import NamedTuple

from domain.model.colocation import Portion, ReplicasRule


class Observed(NamedTuple):
    """What is known of a workload and of the nodes that it may go to.

    ``wanted_before`` is what was said last. ``load_percent`` is use relative to the capacity of these nodes,
    None where nothing was measured. ``wait_seconds_max`` is how long the pod waits that has waited longest,
    None where none waits. ``more_fit_count`` further pods would find a node.
    """

    running: int
    wanted_before: int
    load_percent: float | None
    wait_seconds_max: float | None
    more_fit_count: int


class Replicas(NamedTuple):
    """How many there should be, and why."""

    wanted: int
    reason: str


def replicas_of(rule: ReplicasRule, least: int, most: int, seen: Observed) -> Replicas:
    """Return how many replicas there should be, within ``least..most``.

    Where a pod waits for more than ``wait_seconds``: as many as run. Else, where the load is above
    ``high_percent``: ``shrink_percent`` fewer than run, and at least one fewer. Where it is below
    ``low_percent``: as many as run and further fit. Otherwise, and where it is not known: as many as before.
    """
    count, reason = _unbounded(rule, seen)
    if count < least:
        return Replicas(least, f"{reason}; not fewer than {least}")
    if count > most:
        return Replicas(most, f"{reason}; not more than {most}")
    return Replicas(count, reason)


def _unbounded(rule: ReplicasRule, seen: Observed) -> tuple[int, str]:
    if seen.wait_seconds_max is not None and seen.wait_seconds_max > rule.wait_seconds:
        return seen.running, f"a pod has waited for {seen.wait_seconds_max:.0f} s: as many as run"
    if seen.load_percent is None:
        return seen.wanted_before, "the load is not known: as many as before"
    load = f"the load is {seen.load_percent:.1f} %"
    if seen.load_percent > rule.high_percent:
        kept = Portion(percent=100.0 - rule.shrink_percent).of(seen.running)
        return kept, f"{load}: {rule.shrink_percent:g} % fewer than run"
    if seen.load_percent < rule.low_percent:
        return seen.running + seen.more_fit_count, f"{load}: {seen.more_fit_count} more fit"
    return seen.wanted_before, f"{load}: as many as before"
