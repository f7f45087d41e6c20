"""What is read on a node, and what it says between two moments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from domain.model.colocation import Amounts, Quality, UseByQuality
from services.ports.cgroups import Boxes, Cgroups, GroupUse, NodeUse, PodGroup

_NOTHING = GroupUse(0, 0)


class Reading(NamedTuple):
    """What the node and its boxes have used at a moment (``at_ms`` of a clock that never goes back)."""

    at_ms: int
    node: NodeUse
    all: GroupUse
    mid: GroupUse
    low: GroupUse


class PodReading(NamedTuple):
    """What the pods had used at a moment, by uid."""

    at_ms: int
    used: Mapping[str, GroupUse]


def read(cgroups: Cgroups, boxes: Boxes | None, at_ms: int) -> Reading:
    """Read the node and its boxes; a box that is not there has used nothing."""
    node = cgroups.node()
    used = [_NOTHING] * 3 if boxes is None else [cgroups.use(each) or _NOTHING for each in boxes]
    return Reading(at_ms, node, *used)


def read_pods(cgroups: Cgroups, pods: Iterable[PodGroup], at_ms: int) -> PodReading:
    """Read the pods; those that are gone meanwhile are left out."""
    used = {each.uid: cgroups.use(each.group) for each in pods}
    return PodReading(at_ms, {uid: use for uid, use in used.items() if use is not None})


def used_between(before: Reading, now: Reading) -> UseByQuality:
    """Return what was used by quality between two moments: cpu on average, memory as it is now.

    The box of all pods holds the two others; what is left of it is of high pods. What the node uses beyond
    the pods is the system's. The kernel counts node and groups by different clocks, so it may be a little
    less than nothing, which is 0.
    """
    elapsed_ms = now.at_ms - before.at_ms
    assert elapsed_ms > 0, "time passes between two readings"

    def milli(was: GroupUse | NodeUse, is_now: GroupUse | NodeUse) -> int:
        return max(0, is_now.cpu_us - was.cpu_us) // elapsed_ms  # µs in a ms are thousandths of a core

    of_all, mid, low = (
        Amounts(milli(was, is_now), is_now.memory_bytes or 0)
        for was, is_now in zip(before[2:], now[2:], strict=True)
    )
    node = Amounts(milli(before.node, now.node), now.node.memory_bytes)
    return UseByQuality(high=_less(_less(of_all, mid), low), mid=mid, low=low, system=_less(node, of_all))


def pods_used_between(before: PodReading, now: PodReading) -> dict[str, Amounts]:
    """Return what each pod used between two moments, or since it was made."""
    elapsed_ms = max(1, now.at_ms - before.at_ms)
    return {
        uid: Amounts(
            max(0, use.cpu_us - before.used.get(uid, _NOTHING).cpu_us) // elapsed_ms, use.memory_bytes or 0
        )
        for uid, use in now.used.items()
    }


def sum_of(use: UseByQuality) -> Amounts:
    """Return what all qualities used."""
    each = [getattr(use, quality) for quality in Quality]
    return Amounts(sum(x.cpu_milli for x in each), sum(x.memory_bytes for x in each))


def _less(amounts: Amounts, other: Amounts) -> Amounts:
    return Amounts(*(max(0, a - b) for a, b in zip(amounts, other, strict=True)))
