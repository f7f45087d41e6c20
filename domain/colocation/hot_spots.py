"""When a node is hot, and which pods would have to move so that it is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from domain.model.colocation import Amounts, Heat, HotSpotRule, Quality

_ORDER = (Quality.LOW, Quality.MID, Quality.HIGH)


class Sample(NamedTuple):
    """What was seen of a node at one moment.

    ``pressure_percent`` is how long something waited for cpu (``some avg60``); ``latency_factor`` the worst
    latency of a pod that tells it, relative to its bound. None: not known.
    """

    used: Amounts
    pressure_percent: float | None = None
    latency_factor: float | None = None


class Movable(NamedTuple):
    """A pod that may be moved, its name as ``namespace/name``; ``workload`` "" where it has none."""

    name: str
    quality: Quality
    estimate: Amounts
    workload: str = ""


def next_heat(rule: HotSpotRule, heat: Heat, signs: tuple[str, ...]) -> Heat:
    """Return whether a node is hot after one more sample, and the samples in a row.

    The sample is bad where it has ``signs`` (``bad_signs``).

    ``bad_count`` bad samples in a row make it hot, ``good_count`` good ones in a row make it calm. Nothing
    is counted beyond that, so that the state of a node rests where its samples do.
    """
    if signs:
        bad = min(heat.bad_count + 1, rule.bad_count)
        is_hot = heat.is_hot or bad >= rule.bad_count
        return Heat(is_hot=is_hot, bad_count=bad, signs=signs if is_hot else ())
    good = min(heat.good_count + 1, rule.good_count)
    is_hot = heat.is_hot and good < rule.good_count
    return Heat(is_hot=is_hot, good_count=good, signs=heat.signs if is_hot else ())


def bad_signs(rule: HotSpotRule, capacity: Amounts, sample: Sample) -> tuple[str, ...]:
    """Return what is bad about a sample, in plain words; a good one has nothing.

    A sample is bad where cpu or memory is used to ``use_percent``, pressure is ``pressure_percent``, or a
    latency is ``latency_factor`` of its bound.
    """
    signs = []
    for name, used, whole in zip(("cpu", "memory"), sample.used, capacity, strict=True):
        if whole > 0 and used * 100 >= whole * rule.use_percent:
            signs.append(f"{name} is used to {used * 100 / whole:.1f} %")
    if sample.pressure_percent is not None and sample.pressure_percent >= rule.pressure_percent:
        signs.append(f"pods wait for cpu {sample.pressure_percent:.1f} % of the time")
    if sample.latency_factor is not None and sample.latency_factor >= rule.latency_factor:
        signs.append(f"a pod's latency is {sample.latency_factor:.2f} of its bound")
    return tuple(signs)


def relief(
    rule: HotSpotRule, capacity: Amounts, used: Amounts, pods: Sequence[Movable]
) -> tuple[Movable, ...]:
    """Return the fewest pods whose estimates bring a hot node below ``target_percent``, low ones first.

    As few high pods as possible move, then as few mid pods, then as few low pods: mid pods only where all
    low pods do not suffice. At least one pod is returned, as pressure or latency can make a node hot that is
    used less; and at most one per workload. Nothing is returned where all pods together do not suffice.

    Parameters
    ----------
    rule : HotSpotRule
        ``target_percent``.
    capacity, used : Amounts
        Of the node: thousandths of a core, and bytes.
    pods : sequence of Movable
        The pods on the node that may be moved.

    Notes
    -----
    Of one quality the largest pod comes first, and what turns out to be superfluous is left out. With one
    resource above the target these are the fewest pods; with two it is the greedy algorithm for covering.
    Cost: the number of pods times the number of those that move.
    """
    chosen: list[Movable] = []
    excess = _excess(rule, capacity, used, chosen)
    for quality in _ORDER:
        waiting = [pod for pod in pods if pod.quality is quality and not _has_workload_of(chosen, pod)]
        while waiting and (any(excess) or not chosen):
            largest = min(waiting, key=lambda pod: (*_place(capacity, excess, pod), pod.name))
            chosen.append(largest)
            waiting = [pod for pod in waiting if pod is not largest and not _has_workload_of([largest], pod)]
            excess = _excess(rule, capacity, used, chosen)
    if any(excess):
        return ()
    for pod in tuple(reversed(chosen)):  # the strongest quality, and then the smallest pods, first
        others = [each for each in chosen if each is not pod]
        if others and not any(_excess(rule, capacity, used, others)):
            chosen = others
    return tuple(chosen)


def _excess(rule: HotSpotRule, capacity: Amounts, used: Amounts, moved: Sequence[Movable]) -> Amounts:
    """Return how much must go yet, so that each resource is used to less than the target."""
    cpu_milli = used.cpu_milli - sum(pod.estimate.cpu_milli for pod in moved)
    memory_bytes = used.memory_bytes - sum(pod.estimate.memory_bytes for pod in moved)
    return Amounts(
        _above(rule, capacity.cpu_milli, cpu_milli), _above(rule, capacity.memory_bytes, memory_bytes)
    )


def _above(rule: HotSpotRule, whole: int, used: int) -> int:
    if whole <= 0:
        return 0
    return max(0, used - math.ceil(whole * rule.target_percent / 100.0) + 1)


def _place(capacity: Amounts, excess: Amounts, pod: Movable) -> tuple[float, float]:
    """Return what puts a pod first: how much of the excess it takes with it, and of equals the larger.

    Both are in shares of the node, and of what is in excess alone; where nothing is, of cpu.
    """
    bounds = excess if any(excess) else Amounts(capacity.cpu_milli)
    counted = [
        (estimate, bound, whole)
        for estimate, bound, whole in zip(pod.estimate, bounds, capacity, strict=True)
        if bound > 0
    ]
    covered = sum(min(estimate, bound) / whole for estimate, bound, whole in counted)
    return -covered, -sum(estimate / whole for estimate, _, whole in counted)


def _has_workload_of(pods: Sequence[Movable], other: Movable) -> bool:
    return other.workload != "" and any(pod.workload == other.workload for pod in pods)
