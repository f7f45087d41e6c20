"""The plain reading of every score: one node after another, in plain Python, from the documented formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from domain.kernels.device_arrays import BEST_FIT, DOT_PRODUCT, LEAST_FRAGMENTATION, LEAST_STRANDING, PACKING
from domain.model.nodes import NodeSpec
from domain.model.pods import NodeSelectorTerm, PodTemplate
from domain.model.profiles import PluginUse, Profile
from domain.model.usage import Measured
from tests.oracle.device_scores import by_devices
from tests.oracle.paper_scoring import bra, far_from_best, lra, search_score
from tests.oracle.rules import matches, tolerated

MIB = 1 << 20
ONE = 1 << 20
CPU_AND_MEMORY: Sequence[Mapping[str, Any]] = ({"name": "cpu"}, {"name": "memory"})
LEAST: Mapping[str, Any] = {"type": "LeastAllocated"}
Rated = dict[str, float]
"""Node -> score; a node that is missing is not rated at all, and gets 0."""


@dataclass
class Seen:
    """A node as a score may see it; ``recent`` are the pods that its latest measurement does not know.

    ``free`` are thousandths of each device.
    """

    spec: NodeSpec
    ordinal: int
    pods: list[PodTemplate] = field(default_factory=list)
    recent: list[PodTemplate] = field(default_factory=list)
    usage: Mapping[str, Measured] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)

    def offers(self, resource: str) -> int:
        return self.spec.allocatable.get(resource, 0)

    def has(self, resource: str) -> int:
        return (self.spec.capacity or self.spec.allocatable).get(resource, 0)

    def requested(self, resource: str) -> int:
        if resource == "pods":
            return len(self.pods)
        return sum(pod.requests.get(resource, 0) for pod in self.pods)

    def percent(self, resource: str) -> float | None:
        measured = self.usage.get(resource, Measured())
        return measured.latest if measured.avg is None else measured.avg

    def expected(self, resource: str, *more: PodTemplate) -> int:
        """Return what the pods that its measurement does not know are expected to use, and some more."""
        return sum(expected(pod, resource) for pod in (*self.recent, *more))


def expected(pod: PodTemplate, resource: str) -> int:
    """Return what a pod is expected to use by the default policy."""
    cpu = pod.cpu_claim
    if resource == "cpu":
        return cpu.fixed_milli + math.ceil(cpu.requested_milli * 1.5) + cpu.silent_count * 1000
    if pod.memory_claim is not None:
        claim = pod.memory_claim
        more = math.ceil(claim.requested_bytes * 1.25) + claim.silent_count * (1 << 30)
        return claim.fixed_bytes + more
    if pod.limits.get("memory") or pod.requests.get("memory"):
        return pod.limits.get("memory") or math.ceil(pod.requests["memory"] * 1.25)
    return max(cpu.silent_count, 1) << 30


def rate(
    profile: Profile,
    template: PodTemplate,
    every: Sequence[Seen],
    feasible: Sequence[Seen],
    between: Mapping[int, Mapping[str, float]],
) -> tuple[dict[str, Rated], Rated]:
    """Return the normalised scores by label and node, and their weighted sums by node.

    ``between`` holds what scores between pods gave, by their position in the profile. Each summand is
    rounded to a whole number of 2^-20.
    """
    parts: dict[str, Rated] = {}
    totals = dict.fromkeys((node.spec.name for node in feasible), 0)
    for i, use in enumerate(profile.scores):
        before = sum(label.partition("#")[0] == use.name for label in parts)
        label = f"{use.name}#{before + 1}" if before else use.name
        found = between[i] if i in between else _SCORES[_key(use)](use.args, template, every, feasible)
        parts[label] = {node.spec.name: float(found.get(node.spec.name, 0.0)) for node in feasible}
        for name in totals:
            totals[name] += round(parts[label][name] * use.weight * ONE)
    return parts, {name: total / ONE for name, total in totals.items()}


def _key(use: PluginUse) -> str:
    return use.args.get("scoringStrategy", LEAST)["type"] if use.name == "NodeResourcesFit" else use.name


def _each(of_node: Callable[[Mapping[str, Any], PodTemplate, Seen], float]) -> _Score:
    """Make a score of what says of one node how good it is."""

    def score(
        args: Mapping[str, Any], template: PodTemplate, every: Sequence[Seen], feasible: Sequence[Seen]
    ) -> Rated:
        return {node.spec.name: of_node(args, template, node) for node in feasible}

    return score


_Score = Callable[[Mapping[str, Any], PodTemplate, Sequence[Seen], Sequence[Seen]], Rated]


def is_whole(args: Mapping[str, Any]) -> bool:
    """Say whether a score counts as kube-scheduler does, in whole numbers that are cut off."""
    return bool(args.get("arithmetic") == "integer")


def by_highest(raw: Rated, *, reverse: bool, whole: bool) -> Rated:
    highest = max(raw.values(), default=0.0)
    if highest == 0:
        return dict.fromkeys(raw, 100.0 if reverse else 0.0)
    if whole:
        shares = {name: 100 * int(value) // int(highest) for name, value in raw.items()}
        return {name: float(100 - share if reverse else share) for name, share in shares.items()}
    return {name: 100 * (highest - value if reverse else value) / highest for name, value in raw.items()}


def by_range(raw: Rated, *, reverse: bool, equal: float) -> Rated:
    low, high = min(raw.values(), default=0.0), max(raw.values(), default=0.0)
    if low == high:
        return dict.fromkeys(raw, equal)
    return {n: 100 * ((high - v) if reverse else (v - low)) / (high - low) for n, v in raw.items()}


# -------------------------------------------------------------------------------------------- by the spec


def first_fit(args: Mapping[str, Any], template: PodTemplate, node: Seen) -> float:
    return 100.0 / node.ordinal


def taint_toleration(
    args: Mapping[str, Any], template: PodTemplate, every: Sequence[Seen], feasible: Sequence[Seen]
) -> Rated:
    able = tuple(each for each in template.tolerations if each.effect in ("", "PreferNoSchedule"))
    counts = {
        node.spec.name: float(
            sum(t.effect == "PreferNoSchedule" and not tolerated(t, able) for t in node.spec.taints)
        )
        for node in feasible
    }
    return by_highest(counts, reverse=True, whole=is_whole(args))


def node_affinity(
    args: Mapping[str, Any], template: PodTemplate, every: Sequence[Seen], feasible: Sequence[Seen]
) -> Rated:
    preferred = template.node_affinity.preferred if template.node_affinity else ()

    def holds(term: NodeSelectorTerm, node: Seen) -> bool:
        return matches(term, node.spec)

    sums = {n.spec.name: float(sum(p.weight for p in preferred if holds(p.term, n))) for n in feasible}
    return by_highest(sums, reverse=False, whole=is_whole(args))


def allocatable(
    args: Mapping[str, Any], template: PodTemplate, every: Sequence[Seen], feasible: Sequence[Seen]
) -> Rated:
    resources = args.get("resources") or [{"name": "cpu", "weight": 1 << 20}, {"name": "memory", "weight": 1}]
    sign = -1 if args.get("mode", "Least") == "Least" else 1
    weights = sum(each.get("weight", 1) for each in resources)
    raw = {
        n.spec.name: float(
            sign * int(sum(e.get("weight", 1) * n.offers(e["name"]) for e in resources) / weights)
        )
        for n in feasible
    }
    return by_range(raw, reverse=False, equal=0.0)


def image_locality(
    args: Mapping[str, Any], template: PodTemplate, every: Sequence[Seen], feasible: Sequence[Seen]
) -> Rated:
    images = [*template.images, *template.volume_images]
    if not images:
        return {}
    wanted = [image if ":" in image.rpartition("/")[2] else f"{image}:latest" for image in images]
    sizes = {n.spec.name: {x: i.size_bytes for i in n.spec.images for x in i.names} for n in every}
    rated, high = {}, 1000 * MIB * max(1, len(template.images))
    for node in feasible:
        own = sizes[node.spec.name]
        spread = {image: sum(image in other for other in sizes.values()) / len(every) for image in wanted}
        shares = [own[image] * spread[image] for image in wanted if image in own]
        if is_whole(args):
            size = min(max(sum(map(int, shares)), 23 * MIB), high)
            rated[node.spec.name] = float(100 * (size - 23 * MIB) // (high - 23 * MIB))
            continue
        total = sum(shares)
        rated[node.spec.name] = 100 * (min(max(total, 23 * MIB), high) - 23 * MIB) / (high - 23 * MIB)
    return rated


# ---------------------------------------------------------------------------------- by what is requested


def counted(template: PodTemplate, resource: str) -> int:
    """Return what a pod counts in a score: for cpu and memory the non-zero request."""
    match resource:
        case "cpu":
            return template.scoring_cpu_milli
        case "memory":
            return template.scoring_memory_bytes
        case _:
            return template.requests.get(resource, 0)


def left_out(resource: str, template: PodTemplate) -> bool:
    always = resource in ("cpu", "memory", "ephemeral-storage")
    return not always and not template.requests.get(resource)


def fit(args: Mapping[str, Any], template: PodTemplate, node: Seen) -> float:
    """LeastAllocated, MostAllocated and RequestedToCapacityRatio."""
    strategy, whole = args.get("scoringStrategy", LEAST), is_whole(args)
    total = weights = 0.0
    for resource in strategy.get("resources") or CPU_AND_MEMORY:
        name, weight = resource["name"], float(resource.get("weight", 1))
        capacity = node.offers(name)
        if left_out(name, template) or capacity == 0:
            continue
        used = counted(template, name) + sum(counted(pod, name) for pod in node.pods)
        match strategy["type"]:
            case "LeastAllocated":
                score = max(capacity - used, 0) * 100.0 / capacity
            case "MostAllocated":
                score = min(used, capacity) * 100.0 / capacity
            case _:
                points = strategy["requestedToCapacityRatio"]["shape"]
                percent = min(used, capacity) * 100.0 / capacity
                if whole_curve(points, math.floor(percent)) <= 0:
                    continue
                score = float(whole_curve(points, math.floor(percent))) if whole else curve(points, percent)
        total += weight * (math.floor(score) if whole else score)
        weights += weight
    if not weights:
        return 0.0
    if not whole:
        return total / weights
    return float(math.floor(total / weights + (strategy["type"] == "RequestedToCapacityRatio") / 2))


def whole_curve(points: Sequence[Mapping[str, float]], x: int) -> int:
    """The curve in whole numbers: what a line adds to its left point is cut towards 0."""
    before = points[0]
    for point in points:
        if x <= point["utilization"]:
            if point is before:
                break
            rise = 10 * (point["score"] - before["score"]) * (x - before["utilization"])
            return int(10 * before["score"]) + int(rise / (point["utilization"] - before["utilization"]))
        before = point
    return int(10 * before["score"])


def curve(points: Sequence[Mapping[str, float]], x: float) -> float:
    before = points[0]
    for point in points:
        if x <= point["utilization"]:
            if point is before:
                break
            share = (x - before["utilization"]) / (point["utilization"] - before["utilization"])
            return 10 * (before["score"] + share * (point["score"] - before["score"]))
        before = point
    return 10 * before["score"]


def balanced(args: Mapping[str, Any], template: PodTemplate, node: Seen) -> float:
    names = [each["name"] for each in args.get("resources") or CPU_AND_MEMORY]
    names = [name for name in names if not left_out(name, template)]
    if not any(template.requests.get(name) for name in names):
        return 0.0
    there = [name for name in names if node.offers(name)]

    def evenness(pods: int) -> float:
        used = [node.requested(name) + pods * template.requests.get(name, 0) for name in there]
        shares = [min(u / node.offers(name), 1.0) for u, name in zip(used, there, strict=True)]
        if not shares:
            return 100.0
        mean = sum(shares) / len(shares)
        deviation = math.sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))
        if len(shares) == 2:
            deviation = abs((shares[0] - shares[1]) / 2)
        return float(int((1 - deviation) * 100)) if is_whole(args) else 100 * (1 - deviation)

    if args.get("variant", "change") == "with-pod":
        return evenness(1)
    change = (50 + evenness(1) - evenness(0)) / 2
    return 50 + (math.floor(change) if is_whole(args) else change)


def global_variance(
    args: Mapping[str, Any], template: PodTemplate, every: Sequence[Seen], feasible: Sequence[Seen]
) -> Rated:
    """The variance with the pod on each node, by a full recount of all nodes for each of them."""
    names = args.get("resources") or [args.get("resource", "memory")]
    most = 4 * ONE if len(names) == 1 else 2 * ONE
    raw = variance_growth(args, names[0], most, template, every, feasible)
    for name in names[1:]:
        more = variance_growth(args, name, most, template, every, feasible)
        raw = {node: raw[node] + more[node] for node in raw.keys() & more.keys()}
    least = min(raw.values(), default=0)
    return by_range({name: float(v - least) for name, v in raw.items()}, reverse=True, equal=100.0)


def variance_growth(
    args: Mapping[str, Any],
    resource: str,
    most: int,
    template: PodTemplate,
    every: Sequence[Seen],
    feasible: Sequence[Seen],
) -> dict[str, int]:
    """Return by how much the variance of one resource grows, times the square of the number of nodes."""
    in_flight = args.get("inFlight")
    metrics: dict[str, int] = {}
    for node in every:
        has = node.has(resource) if in_flight else node.offers(resource)
        if has == 0:
            continue
        metric = 0
        if args.get("of") == "measured":
            percent = node.percent(resource)
            if percent is None:
                continue
            metric = math.floor(percent / 100.0 * ONE)
            if in_flight:
                metric += math.floor(node.expected(resource) * ONE / has)
        else:
            metric = math.floor(node.requested(resource) * ONE / has)
        metrics[node.spec.name] = min(metric, most)
    count, total = len(metrics), sum(metrics.values())
    squares = sum(m * m for m in metrics.values())
    raw = {}
    for node in feasible:
        if node.spec.name in metrics:
            m = metrics[node.spec.name]
            added = template.requests.get(resource, 0) * ONE / max(node.offers(resource), 1)
            if in_flight:
                added = expected(template, resource) * ONE / node.has(resource)
            after = m + min(math.floor(added), most)
            raw[node.spec.name] = count * (squares - m * m + after * after) - (total - m + after) ** 2
            raw[node.spec.name] -= count * squares - total**2
    return raw


def cwt(
    args: Mapping[str, Any], template: PodTemplate, every: Sequence[Seen], feasible: Sequence[Seen]
) -> Rated:
    far = far_from_best(args, template, feasible)
    low, high = min(far.values(), default=0.0), max(far.values(), default=0.0)
    if low == high:
        return dict.fromkeys(far, 100.0)
    return {name: (high - each) / (high - low) * 100.0 for name, each in far.items()}


# ------------------------------------------------------------------------------------- by what is measured


def target_load_packing(args: Mapping[str, Any], template: PodTemplate, node: Seen) -> float:
    target = args.get("targetUtilization", 40)
    resource = args.get("resource", "cpu")
    percent = node.percent(resource)
    if percent is None:
        return 0.0
    used = 0.0
    if resource == "memory":
        used = percent + 100 * node.expected("memory", template) / node.has("memory")
    elif node.has("cpu"):
        claimed = 0.0
        for pod in (template, *node.recent):
            claim = pod.cpu_claim
            claimed += claim.fixed_milli + claim.requested_milli * args.get("defaultRequestsMultiplier", 1.5)
            claimed += claim.silent_count * 1000
        used = percent + 100 * claimed / node.has("cpu")
    if used <= target:
        return float((100 - target) * used / target + target)
    return float(target * (100 - used) / (100 - target)) if used <= 100 else 0.0


def load(node: Seen, resource: str, request: int) -> tuple[float, float] | None:
    """Return mean and deviation as shares of the node, None where nothing was measured."""
    figures = node.usage.get(resource, Measured())
    if (figures.avg, figures.std, figures.latest) == (None, None, None):
        return None
    offered = node.offers(resource)
    if not offered:
        return 0.0, 0.0
    mean = min((node.percent(resource) or 0.0) / 100, 1.0) + request / offered
    return min(mean, 1.0), min((figures.std or 0.0) / 100, 1.0)


def load_variation(args: Mapping[str, Any], template: PodTemplate, node: Seen) -> float:
    margin, sensitivity = args.get("safeVarianceMargin", 1.0), args.get("safeVarianceSensitivity", 1.0)
    rates = []
    for resource in ("cpu", "memory"):
        found = load(node, resource, template.requests.get(resource, 0))
        if found is None:
            continue
        mean, deviation = found
        has = node.offers(resource)
        if args.get("inFlight"):
            has = node.has(resource)
            mean, deviation = load(node, resource, 0) or (0.0, 0.0)
            mean = min(mean + node.expected(resource, template) / has, 1.0) if has else 0.0
        spread = deviation ** (1 / sensitivity) if sensitivity else float(deviation >= 1)
        sigma = min(margin * spread, 1.0)
        risk = (mean + sigma) / 2 if args.get("formula") != "mu+sigma" else min(mean + sigma, 1.0)
        rates.append(100 * (1 - risk) if has else 0.0)
    return min(rates, default=0.0)


def low_risk(args: Mapping[str, Any], template: PodTemplate, node: Seen) -> float:
    names = ("cpu", "memory")
    loads = {name: load(node, name, 0) for name in names}
    asks = any(template.requests.get(name) or template.limits.get(name) for name in names)
    if not asks or not any(loads.values()):
        return 0.0
    worst = 0.0
    for name in names:
        weight, found = args.get("riskLimitWeights", {}).get(name, 0.5), loads[name]
        requests, limits = node.requested(name), sum(most(pod, name) for pod in node.pods)
        loaded = 0.0
        if found is not None:
            spread, mean = found[1] * math.sqrt(args.get("smoothingWindowSize", 5)), found[0]
            if args.get("inFlight") and node.has(name):
                mean = min(mean + node.expected(name) / node.has(name), 1.0)
            loaded = beyond_requests(mean, spread, requests, limits, node.offers(name))
        all_limits, offered = limits + most(template, name), node.offers(name)
        promised = 0.0
        if all_limits > offered:
            asked = min(requests + template.requests.get(name, 0), offered)
            promised = (all_limits - offered) / (all_limits - asked)
        worst = max(worst, weight * promised + (1 - weight) * loaded)
    return 100 * (1 - worst)


def most(template: PodTemplate, resource: str) -> int:
    return max(template.limits.get(resource, 0), template.requests.get(resource, 0))


def beyond_requests(mean: float, deviation: float, requests: int, limits: int, capacity: int) -> float:
    """Return how likely usage is above the requests, given that it is within the limits."""
    threshold = min(requests / capacity, 1.0) if capacity else 0.0
    deviation = min(deviation, math.sqrt(0.99 * mean * (1 - mean)))
    if mean == 0:
        within = 1.0
    elif deviation == 0:
        within = float(mean <= threshold)
    else:
        within = beta_below(mean, deviation, threshold)
    if limits < capacity and min(requests, capacity) <= limits:
        if limits == 0:
            within = 1.0
        elif 0 < mean < 1 and deviation > 0:
            bound = beta_below(mean, deviation, limits / capacity)
            within = min(within / bound, 1.0) if bound > 0 else within
    return 1 - within


def beta_below(mean: float, deviation: float, x: float) -> float:
    """The beta distribution by its power series, turned round where that converges slowly."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    size = mean * (1 - mean) / deviation**2 - 1
    a, b = mean * size, (1 - mean) * size
    if x > mean:
        return 1 - _series(b, a, 1 - x)
    return _series(a, b, x)


def _series(a: float, b: float, x: float) -> float:
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    term = total = 1.0
    n = 0
    while term > total * 1e-17:
        term *= (a + b + n) / (a + 1 + n) * x
        total += term
        n += 1
    return math.exp(log_front) / a * total


def peaks(
    args: Mapping[str, Any], template: PodTemplate, every: Sequence[Seen], feasible: Sequence[Seen]
) -> Rated:
    raw = {}
    for node in feasible:
        model, before = args["nodePowerModel"].get(node.spec.name), node.percent("cpu")
        raw[node.spec.name] = 0.0
        if model is None or before is None:
            continue
        after = 0.0
        if node.has("cpu") and args.get("inFlight"):
            after = before + 100 * node.expected("cpu", template) / node.has("cpu")
            before += 100 * node.expected("cpu") / node.has("cpu")
        elif node.has("cpu"):
            after = before + 100 * template.scoring_cpu_milli / node.has("cpu")
        if after <= 100:
            k1, k2 = model.get("k1", 0), model.get("k2", 0)
            grown = k1 * math.exp(k2 * after) - k1 * math.exp(k2 * before)
            raw[node.spec.name] = float(round(grown * 2**30)) if args.get("inFlight") else grown
    return by_range(raw, reverse=True, equal=100.0 if any(raw.values()) else 0.0)


_SCORES: dict[str, _Score] = {
    "FirstFit": _each(first_fit),
    "ImageLocality": image_locality,
    "LoadVariationRiskBalancing": _each(load_variation),
    "TaintToleration": taint_toleration,
    "NodeAffinity": node_affinity,
    "NodeResourcesAllocatable": allocatable,
    "Peaks": peaks,
    "LeastAllocated": _each(fit),
    "MostAllocated": _each(fit),
    "RequestedToCapacityRatio": _each(fit),
    "NodeResourcesBalancedAllocation": _each(balanced),
    "TargetLoadPacking": _each(target_load_packing),
    "LowRiskOverCommitment": _each(low_risk),
    "GlobalVariance": global_variance,
    "SearchScore": _each(search_score),
    "LRA": _each(lra),
    "BRA": _each(bra),
    "CWT": cwt,
    "FGD": _each(partial(by_devices, LEAST_FRAGMENTATION)),
    "GpuStranding": _each(partial(by_devices, LEAST_STRANDING)),
    "GpuBestFit": _each(partial(by_devices, BEST_FIT)),
    "GpuDotProduct": _each(partial(by_devices, DOT_PRODUCT)),
    "GpuPacking": _each(partial(by_devices, PACKING)),
}
