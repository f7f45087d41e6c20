"""Devices in plain Python: what is free on a node's GPUs one by one, and which ones a pod gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from domain.model.nodes import NodeSpec
from domain.model.pods import PodTemplate

GPU, MILLI = "nvidia.com/gpu", "berth.dev/gpu-milli"
Held = Iterable[tuple[PodTemplate, tuple[int, ...]]]


def count_of(offered: Mapping[str, int]) -> int:
    """Return how many devices a node has that are told apart: at most 16."""
    count = offered.get(GPU, 0)
    return count if count <= 16 else 0


def wants(template: PodTemplate) -> tuple[int, int]:
    """Return how many devices a pod asks for, and thousandths of each."""
    whole, milli = template.requests.get(GPU, 0), template.requests.get(MILLI, 0)
    if whole:
        return whole, 1000
    return (1, milli) if 0 < milli < 1000 else (0, 0)


def free_on(node: NodeSpec, held: Held) -> list[int]:
    """Return the thousandths free on each device of a node, given its pods and their devices."""
    free = [1000] * count_of(node.allocatable)
    for template, devices in held:
        for each in devices:
            if each < len(free):
                free[each] -= wants(template)[1]
    return free


def pick(free: list[int], template: PodTemplate) -> tuple[int, ...]:
    """Return the devices that a pod gets: of a share the fullest that fits, of whole ones the emptiest."""
    number, milli = wants(template)
    if not number or not free:
        return ()
    if milli < 1000 and max(free) >= milli:
        least = min(each for each in free if each >= milli)
        return (free.index(least),)
    found: list[int] = []
    while len(found) < min(number, len(free)):
        left = [index for index in range(len(free)) if index not in found]
        most = max(free[index] for index in left)
        found.append(next(index for index in left if free[index] == most))
    return tuple(sorted(found))


def shortage(name: str, node: NodeSpec, template: PodTemplate, held: Held) -> tuple[bool, bool] | None:
    """Return whether a node lacks devices for a pod, and whether it does for good; None: not of devices.

    Who holds none of the devices that it asks for has the node promised: a share one device, and so much of
    the emptiest; whole devices keep all shares away.
    """
    number, milli = wants(template)
    if name not in (GPU, MILLI) or not number:
        return None
    free, offered = free_on(node, held), node.allocatable.get(GPU, 0)
    promised = [wants(pod) for pod, given in held if not given]
    if milli < 1000:
        return not free or max(free) - sum(each for _, each in promised) < milli, not free
    if offered > len(free):  # not told apart
        return number > offered - sum(pod.requests.get(GPU, 0) for pod, _ in held), number > offered
    return number > free.count(1000) - sum(each for each, _ in promised), number > len(free)
