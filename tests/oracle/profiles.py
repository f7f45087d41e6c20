"""Random profiles: any filters in any order, any scores with any arguments."""

from __future__ import annotations

from random import Random
from typing import Any

from domain.model.profiles import BUILT_IN_PROFILES, PluginUse, Profile

NODES_WITH_A_MODEL = tuple(f"n{i}" for i in range(0, 2_000, 2))
RESOURCES = (
    {"name": "cpu", "weight": 3},
    {"name": "memory", "weight": 7},
    {"name": "nvidia.com/gpu", "weight": 5},
    {"name": "ephemeral-storage"},
)
PAPER = ("cpu", "memory", "nvidia.com/gpu", "a.io/x", "ephemeral-storage")
"""Resources for the scores that take any names; no node may offer some of them."""

SHAPES = (
    ((0, 0), (100, 10)),
    ((30, 9), (60, 2), (61, 10)),
    ((50, 5),),
    ((0, 10), (25, 7), (80, 0)),
)

BY_DEVICES = ("FGD", "GpuStranding", "GpuBestFit", "GpuDotProduct", "GpuPacking")
MIX = (
    {"cpu": "2", "gpuMilli": 500, "weight": 3},
    {"cpu": "1", "memory": "1Gi", "gpuMilli": 300, "models": ["a", "b"]},
    {"cpu": "500m", "gpus": 1, "weight": 5},
    {"memory": "2Gi", "gpus": 2, "models": ["b"]},
    {"cpu": "1", "weight": 2},
)

UPSTREAM = (
    "NodeResourcesFit", "NodeResourcesBalancedAllocation", "TaintToleration", "NodeAffinity", "ImageLocality"
)  # fmt: skip
"""Scores that can also be computed in upstream's whole numbers."""


def any_profile(name: str, random: Random) -> Profile:
    """Return a profile of everything that there is."""
    filters = [*BUILT_IN_PROFILES["first-fit"].filters, *_thresholds(random)]
    random.shuffle(filters)
    del filters[random.choice((99, 99, 99, 5)) :]
    uses = [_score(random) for _ in range(random.choice((1, 1, 2, 3, 5)))]
    while sum(metrics_of(use) for use in uses) > 4:
        uses.remove(next(use for use in uses if metrics_of(use)))
    devices_max = 2 if len(uses) == 5 else 3
    for use in [use for use in uses if use.name in BY_DEVICES][devices_max:]:
        uses.remove(use)  # they have many parts
    return Profile(name=name, revision=7, filters=tuple(filters), scores=tuple(uses))


def metrics_of(use: PluginUse) -> int:
    """Return how many metrics of nodes a score needs, of which a profile may have four."""
    if use.name == "GlobalVariance":
        return len(use.args.get("resources", "1"))
    return int(use.name == "CWT" or (use.name == "Peaks" and bool(use.args.get("inFlight"))))


def _thresholds(random: Random) -> list[PluginUse]:
    measured = [{"name": n, "threshold": random.choice((60, 85, 95))} for n in ("cpu", "memory")]
    requested = [{"name": n, "threshold": random.choice((50, 80, 100))} for n in ("cpu", "pods", "a.io/x")]
    both = [{**each, "of": "measured"} for each in measured] + requested
    every = [
        PluginUse(name="MaxMemorySum", args={"share": random.choice((50, 100, 150))}),
        PluginUse(name="MasterShare", args={"share": random.choice((0, 34, 50, 100))}),
        PluginUse(name="PeakUsage", args={"resources": random.sample(measured, random.choice((1, 2)))}),
        PluginUse(name="ResourceThreshold", args=_resource_threshold(random, both)),
    ]
    return random.sample(every, random.choice((0, 0, 1, 1, 2, 4)))


def _resource_threshold(random: Random, both: list[dict[str, Any]]) -> dict[str, Any]:
    resources = random.sample(both, random.choice((1, 2, 4)))
    can = any(each.get("of") == "measured" for each in resources)
    return {"resources": resources, "inFlight": can and random.random() < 0.5}


def _score(random: Random) -> PluginUse:
    name = random.choice(
        (
            "FirstFit", "NodeResourcesFit", "NodeResourcesFit", "NodeResourcesBalancedAllocation", "Peaks",
            "TaintToleration", "NodeAffinity", "ImageLocality", "NodeResourcesAllocatable", "GlobalVariance",
            "TargetLoadPacking", "LoadVariationRiskBalancing", "LowRiskOverCommitment",
            "SearchScore", "LRA", "BRA", "CWT", *BY_DEVICES, *BY_DEVICES,
        )
    )  # fmt: skip
    args = _args(name, random)
    if name in ("Peaks", "LoadVariationRiskBalancing", "LowRiskOverCommitment") and random.random() < 0.5:
        args["inFlight"] = True
    if name in UPSTREAM and random.random() < 0.5:
        args["arithmetic"] = "integer"
    return PluginUse(name=name, weight=random.choice((0.5, 1.0, 1.0, 3.0)), args=args)


def _args(name: str, random: Random) -> dict[str, Any]:
    args: dict[str, Any] = {}
    match name:
        case "NodeResourcesFit":
            kind = random.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))
            strategy: dict[str, Any] = {
                "type": kind,
                "resources": random.sample(RESOURCES, random.choice((1, 2, 4))),
            }
            if kind == "RequestedToCapacityRatio":
                points = [{"utilization": u, "score": s} for u, s in random.choice(SHAPES)]
                strategy["requestedToCapacityRatio"] = {"shape": points}
            args = {"scoringStrategy": strategy}
        case "NodeResourcesBalancedAllocation":
            names = random.sample(["cpu", "memory", "a.io/x", "ephemeral-storage"], random.choice((1, 2, 3)))
            args = {
                "variant": random.choice(("change", "with-pod")),
                "resources": [{"name": n} for n in names],
            }
        case "NodeResourcesAllocatable":
            args = {"mode": random.choice(("Least", "Most"))}
        case "GlobalVariance":
            of = random.choice(("requested/allocatable", "measured"))
            args = {"resource": random.choice(("cpu", "memory", "a.io/x")), "of": of}
            if random.random() < 0.7:
                some = ("cpu", "memory", "a.io/x")[: random.choice((2, 2, 3))]
                args = {"resources": random.sample(some, random.choice((1, 2, 2))), "of": of}
            if of == "measured" and "a.io/x" not in (args.get("resource"), *args.get("resources", ())):
                args["inFlight"] = random.random() < 0.7
        case "TargetLoadPacking":
            args = {"targetUtilization": random.choice((10, 40, 75, 100))}
            args["resource"] = random.choice(("cpu", "memory"))
        case "LoadVariationRiskBalancing":
            args = {
                "safeVarianceMargin": random.choice((0.0, 1.0, 2.5)),
                "safeVarianceSensitivity": random.choice((0.0, 1.0, 2.0)),
                "formula": random.choice(("(mu+sigma)/2", "mu+sigma")),
            }
        case "LowRiskOverCommitment":
            weights = {"cpu": random.choice((0.0, 0.5, 1.0)), "memory": random.choice((0.0, 0.7))}
            args = {"smoothingWindowSize": random.choice((1, 5)), "riskLimitWeights": weights}
        case "SearchScore":
            args = {"resources": random.sample(PAPER, 4), "load": random.choice(("requested", "measured"))}
            args["criticalLoads"] = [random.choice((0.3, 0.8)) for _ in range(4)]
            args["inFlight"] = args["load"] == "measured" and random.random() < 0.5
        case "LRA":
            args = {"resources": random.sample(PAPER, random.choice((1, 2, 4)))}
        case "BRA":
            args = {"resources": random.sample(PAPER, 2)}
        case "CWT":
            args = {"resources": random.sample(PAPER, 3)}
            if random.random() < 0.5:
                args["comparisons"] = [[1, 2, 4], [0.5, 1, 2], [0.25, 0.5, 1]]
        case "FGD":
            args = {"mix": random.sample(MIX, random.choice((1, 3, 5))), "largest": random.choice((2, 8))}
            args["arithmetic"] = random.choice(("integer", "real"))
        case "GpuStranding":
            args = {"cpuPerGpu": random.choice((1, 4))}
        case "GpuBestFit" | "GpuDotProduct":
            args = {"largestCpu": random.choice((16, 128)), "largest": random.choice((2, 8))}
            args["arithmetic"] = random.choice(("integer", "real"))
        case "Peaks":
            models = {n: {"k0": 1, "k1": 1 + i % 3, "k2": 0.01} for i, n in enumerate(NODES_WITH_A_MODEL)}
            args = {"nodePowerModel": models}
    return args
