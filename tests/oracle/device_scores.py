"""The plain reading of the scores by devices: every node is rated again for every pod."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from domain.kernels.device_arrays import (
    BEST_FIT,
    CLUSTERING,
    DOT_PRODUCT,
    LEAST_FRAGMENTATION,
    LEAST_STRANDING,
    PACKING,
)
from domain.model.pods import PodTemplate
from domain.model.quantities import to_milli, to_units
from domain.search.mix import ANY_MODEL, Shape
from research.devices.placing import DeviceNode, Profile, Weighted
from tests.oracle import devices

if TYPE_CHECKING:
    from tests.oracle import scoring as plain


@dataclass
class Seen:
    """A node with what is free on it, and the kinds of pods that it holds."""

    cpu: int
    memory: int
    free: list[int]
    model: int
    kinds: set[str] = field(default_factory=set)

    def fits(self, pod: Shape) -> bool:
        """Say whether a pod has its place here."""
        if pod.cpu > self.cpu or pod.memory > self.memory:
            return False
        enough = [each for each in self.free if each >= pod.milli]
        return pod.number == 0 or (bool(pod.models & 1 << self.model) and len(enough) >= pod.number)

    def ways(self, pod: Shape) -> list[tuple[int, ...]]:
        """Return the devices that a pod could get, in order; whole devices are the first free ones."""
        if pod.number == 1 and pod.milli < 1000:
            return [(d,) for d, each in enumerate(self.free) if each >= pod.milli]
        return [tuple([d for d, each in enumerate(self.free) if each == 1000][: pod.number])]

    def tightest(self, pod: Shape) -> tuple[int, ...]:
        """Return the devices that a pod gets where no score says otherwise."""
        return min(self.ways(pod), key=lambda way: [self.free[d] for d in way])

    def with_pod(self, pod: Shape, way: Sequence[int]) -> Seen:
        """Return the node with a pod on it."""
        free = [each - (pod.milli if d in way else 0) for d, each in enumerate(self.free)]
        return Seen(self.cpu - pod.cpu, self.memory - pod.memory, free, self.model, self.kinds | {kind(pod)})


def kind(pod: Shape) -> str:
    """Return what GpuClustering tells apart."""
    return "none" if not pod.number else "share" if pod.milli < 1000 else f"{pod.number} devices"


def unusable(node: Seen, mix: Mapping[Shape, int]) -> int:
    """Return the weighted sum of thousandths that pods of the mix cannot use."""
    total = 0
    for shape, weight in mix.items():
        useless = [
            each for each in node.free if each < shape.milli or not shape.number or not node.fits(shape)
        ]
        total += weight * sum(useless)
    return total


def gradient(node: Seen, after: Seen, profile: Profile, whole: bool) -> float:
    """Return the score of FGD."""
    gain, weights = unusable(node, profile.mix) - unusable(after, profile.mix), sum(profile.mix.values())
    if whole:
        return math.floor(100 / (1 + math.exp(-gain / weights / 1000)))
    return min(max(50.0 + 50.0 * gain / (weights * profile.milli_max), 0.0), 100.0)


def packing(node: Seen, pod: Shape, way: Sequence[int]) -> float:
    """Return the score of GpuPacking."""
    unused = node.free.count(1000)
    if unused == len(node.free):
        return max(33 - unused, unused)
    taken = [node.free[d] for d in way]
    if pod.number > 1 or pod.milli == 1000 or 1000 in taken:
        return max(50 - pod.number, 33)
    return 100 - sum(each * 100 // 1000 for each in taken) // 10


def clustering(node: Seen, pod: Shape, profile: Profile) -> float:
    """Return the score of GpuClustering."""
    kinds = node.kinds - {"none"}
    base = 75 if kinds == {kind(pod)} else 50 if kind(pod) in kinds else 0 if kinds else 25
    return base + 25 * (profile.milli_max - sum(node.free)) // profile.milli_max


def stranded(node: Seen, profile: Profile) -> int:
    """Return the thousandths for which the node's cpu does not suffice, times ``cpu_each``."""
    return max(sum(node.free) * profile.cpu_each - node.cpu * 1000, 0)


def score(each: Weighted, profile: Profile, node: Seen, pod: Shape, way: Sequence[int]) -> float:
    """Return one score of a node."""
    after, value = node.with_pod(pod, way), 0.0
    asked, left = pod.number * pod.milli, sum(node.free)
    match each.score:
        case s if s == LEAST_FRAGMENTATION:
            return gradient(node, after, profile, each.whole)
        case s if s == LEAST_STRANDING:
            more = stranded(after, profile) - stranded(node, profile)
            value = 50.0 - 50.0 * more / (profile.milli_max * profile.cpu_each)
        case s if s == BEST_FIT:
            cpu, milli = after.cpu / profile.cpu_max, (left - asked) / profile.milli_max
            value = 100.0 * (1.0 - (profile.cpu_part * cpu + (1.0 - profile.cpu_part) * milli))
        case s if s == DOT_PRODUCT:
            cpu = (node.cpu / profile.cpu_max) * (pod.cpu / profile.cpu_max)
            milli = (left / profile.milli_max) * (asked / profile.milli_max)
            value = 100.0 * (1.0 - (cpu + milli) / 2.0)
        case s if s == PACKING and pod.number:
            value = packing(node, pod, way)
        case s if s == CLUSTERING and pod.number:
            value = clustering(node, pod, profile)
    value = min(max(value, 0.0), 100.0)
    return math.floor(value) if each.whole else value


def rate(node: Seen, pod: Shape, profile: Profile) -> tuple[float, tuple[int, ...]]:
    """Return the score of a node and the devices that the pod would get there."""
    way = node.tightest(pod)
    if any(each.score == LEAST_FRAGMENTATION for each in profile.scores):
        way = min(node.ways(pod), key=lambda way: unusable(node.with_pod(pod, way), profile.mix))
    total = 0.0
    for each in sorted(profile.scores, key=lambda each: each.score):
        total += each.weight * score(each, profile, node, pod, way)
    return total, way


def place(nodes: Sequence[DeviceNode], pods: Sequence[Shape], profile: Profile) -> list[tuple[int, int]]:
    """Return the node and the device of a share of each pod, -1 for none."""
    seen = [Seen(each.cpu, each.memory, [1000] * each.devices, each.model) for each in nodes]
    placed = []
    for pod in pods:
        rated = [(rate(node, pod, profile), n) for n, node in enumerate(seen) if node.fits(pod)]
        if not rated:
            placed.append((-1, -1))
            continue
        (_, way), best = max(rated, key=lambda each: (each[0][0], -each[1]))
        is_share = pod.number == 1 and pod.milli < 1000
        placed.append((best, way[0] if is_share else -1))
        seen[best] = seen[best].with_pod(pod, way)
    return placed


def mix_of(shapes: Sequence[Mapping[str, Any]]) -> tuple[dict[Shape, int], dict[str, int]]:
    """Return the mix of a profile's arguments, and the bit of each model that it names."""
    bits: dict[str, int] = {}
    mix: Counter[Shape] = Counter()
    for each in shapes:
        models = [bits.setdefault(name, len(bits)) for name in sorted(each.get("models", ()))]
        number, milli = (1, each["gpuMilli"]) if "gpuMilli" in each else (each.get("gpus", 0), 1000)
        cpu, memory = to_milli(each.get("cpu", "0")), to_units(each.get("memory", "0"))
        allowed = sum(1 << bit for bit in models) if models else ANY_MODEL
        mix[Shape(cpu, memory, number, milli, allowed)] += each.get("weight", 1)
    return dict(mix), bits


def by_devices(which: int, args: Mapping[str, Any], template: PodTemplate, node: plain.Seen) -> float:
    """Return a score of a profile."""
    mix, bits = mix_of(args.get("mix", ()))
    model = bits.get(node.spec.labels.get("nvidia.com/gpu.product", ""), 61)
    cpu, memory = (node.offers(name) - node.requested(name) for name in ("cpu", "memory"))
    seen = Seen(cpu, memory, [max(each, 0) for each in node.free], model)
    requests, (number, milli) = template.requests, devices.wants(template)
    pod = Shape(requests.get("cpu", 0), requests.get("memory", 0), number, milli)
    if not seen.ways(pod):
        return 0.0
    profile = Profile(
        mix=mix,
        cpu_max=1000 * args.get("largestCpu", 128),
        milli_max=1000 * args.get("largest", 8),
        cpu_each=1000 * args.get("cpuPerGpu", 9),
    )
    whole = which != LEAST_STRANDING and args.get("arithmetic") != "real"
    return float(score(Weighted(which, 1.0, whole), profile, seen, pod, seen.tightest(pod)))
