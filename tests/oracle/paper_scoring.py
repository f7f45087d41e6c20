"""The plain reading of the scores of the paper on TBESK (2023): its own, and the baselines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from domain.model.pods import PodTemplate

if TYPE_CHECKING:
    from tests.oracle.scoring import Rated, Seen

ONE = 1 << 20
FOUR = ("cpu", "memory", "berth.io/bandwidth", "berth.io/disk")
EQUAL = (0.25, 0.25, 0.25, 0.25)
WEIGHTS = {"balanced": EQUAL, "compressible": (0.4, 0.1, 0.4, 0.1), "incompressible": (0.1, 0.4, 0.1, 0.4)}


def lra(args: Mapping[str, Any], template: PodTemplate, node: Seen) -> float:
    total, count = 0.0, 0
    for name in args.get("resources", ("cpu", "memory")):
        if node.offers(name):
            used = node.requested(name) + template.requests.get(name, 0)
            total += max(node.offers(name) - used, 0) * 100.0 / node.offers(name)
            count += 1
    return total / count if count else 0.0


def bra(args: Mapping[str, Any], template: PodTemplate, node: Seen) -> float:
    shares = []
    for name in args.get("resources", ("cpu", "memory")):
        used = node.requested(name) + template.requests.get(name, 0)
        shares.append(min(used / max(node.offers(name), 1), 1.0))
    return 100.0 - abs(shares[0] - shares[1]) * 100.0


def pod_type(asked: Sequence[int], offered: Sequence[int]) -> str:
    if 0 in asked or 0 in offered:
        return "balanced"
    cpu, memory, network, disk = (a / o for a, o in zip(asked, offered, strict=True))
    if cpu / memory > 1 and network / disk > 1:
        return "compressible"
    return "incompressible" if cpu / memory < 1 and network / disk < 1 else "balanced"


def available(
    asked: Sequence[int], used: Sequence[int], offered: Sequence[int], weights: Sequence[float]
) -> float:
    """R_N: the share of what is free that the pod leaves, over the resources that the node has."""
    total = 0.0
    for a, u, o, weight in zip(asked, used, offered, weights, strict=True):
        if o:
            total += weight * (1.0 if not a else 1.0 - a / (o - u) if o - u > a else 0.0)
    return total / divisor(offered, weights)


def load(
    asked: Sequence[int],
    used: Sequence[int],
    peaks: Sequence[float | None],
    offered: Sequence[int],
    critical: Sequence[float],
    weights: Sequence[float],
    beside: Sequence[float],
) -> float:
    """L_N: how far loads are below the critical ones; ``peaks`` in percent where they were measured.

    ``beside`` these shares are used.
    """
    total = 0.0
    for a, u, peak, o, t, weight, more in zip(
        asked, used, peaks, offered, critical, weights, beside, strict=True
    ):
        if o:
            loaded = (u + a) / o if peak is None else peak / 100.0 + more
            total += weight * (t - min(loaded, 1.0))
    return total / divisor(offered, weights)


def divisor(offered: Sequence[int], weights: Sequence[float]) -> float:
    there = 0.0
    for o, weight in zip(offered, weights, strict=True):
        there += weight if o else 0.0
    return there or 1.0


def search_score(args: Mapping[str, Any], template: PodTemplate, node: Seen) -> float:
    names = args.get("resources", FOUR)
    asked = [template.requests.get(name, 0) for name in names]
    used, offered = [node.requested(name) for name in names], [node.offers(name) for name in names]
    kind = pod_type(asked, offered)
    mu, v = ((WEIGHTS | args.get(key, {}))[kind] for key in ("availableWeights", "loadWeights"))
    peaks: list[float | None] = [None] * 4
    if args.get("load") == "measured":
        peaks = [peak_of(node, name) for name in names]
    critical = args.get("criticalLoads", (0.8,) * 4)
    beside = [a / o if o else 0.0 for a, o in zip(asked, offered, strict=True)]
    if args.get("inFlight"):
        for i, name in enumerate(names):
            if name in ("cpu", "memory"):
                beside[i] = node.expected(name, template) / max(node.has(name), 1)
    found = available(asked, used, offered, mu) + load(asked, used, peaks, offered, critical, v, beside)
    return 100.0 * (found + 1.0) / 3.0


def peak_of(node: Seen, resource: str) -> float | None:
    figures = node.usage.get(resource)
    if figures is None:
        return None
    return max(
        (each for each in (figures.avg, figures.latest, figures.peak) if each is not None), default=None
    )


def far_from_best(args: Mapping[str, Any], template: PodTemplate, feasible: Sequence[Seen]) -> Rated:
    """TOPSIS over the feasible nodes, by whole shares, with weights by AHP times weights by entropy."""
    names = args.get("resources", FOUR)
    by_ahp = eigenvector(args["comparisons"]) if "comparisons" in args else [1.0 / len(names)] * len(names)
    columns = []
    for name in names:
        asked, column = template.requests.get(name, 0), []
        for node in feasible:
            free = max(node.offers(name) - node.requested(name) - asked, 0)
            column.append(math.floor(free * float(ONE) / node.offers(name)) if node.offers(name) else 0)
        columns.append(column)
    weights = [w * diverging(column) for w, column in zip(by_ahp, columns, strict=True)]
    weights = [w / sum(weights) for w in weights] if any(weights) else by_ahp
    norms = [math.sqrt(sum(share * share for share in column)) for column in columns]
    scales = [w / norm if norm else 0.0 for w, norm in zip(weights, norms, strict=True)]
    far = {}
    for i, node in enumerate(feasible):
        best = worst = 0.0
        for scale, column in zip(scales, columns, strict=True):
            best += (scale * (max(column) - column[i])) ** 2
            worst += (scale * (column[i] - min(column))) ** 2
        best, worst = math.sqrt(best), math.sqrt(worst)
        closeness = worst / (best + worst) if best + worst else 1.0
        far[node.spec.name] = float(round((1.0 - closeness) * (1 << 30)))
    return far


def diverging(shares: Sequence[int]) -> float:
    """Return how far the entropy of some shares is below that of equal ones, 0 to 1."""
    if len(shares) < 2 or not sum(shares):
        return 0.0
    logarithms = sum(round(share * math.log(max(share, 1)) * ONE) for share in shares)
    entropy = (math.log(sum(shares)) - logarithms / ONE / sum(shares)) / math.log(len(shares))
    return 1.0 - entropy if 1.0 - entropy > 1e-12 else 0.0


def eigenvector(rows: Sequence[Sequence[float]]) -> list[float]:
    found = [1.0 / len(rows)] * len(rows)
    for _ in range(200):
        moved = [sum(a * w for a, w in zip(row, found, strict=True)) for row in rows]
        found = [each / sum(moved) for each in moved]
    return found
