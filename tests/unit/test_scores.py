"""Do the scores follow their formulas, and do they refuse wrong arguments?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.evaluate import Verdict, evaluate
from domain.kernels.risk import beta_cdf, fit_beta, loaded_risk, promised_risk
from domain.manifests.objects import pod_from_manifest
from domain.model.errors import FieldError
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.nodes import NodeImage, NodeSpec
from domain.model.pods import CpuClaim, PodSpec, PodTemplate
from domain.model.profiles import PluginUse, Profile
from domain.model.usage import Measured
from domain.plugins.measured_usage import load
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.state.cluster import ClusterState
from domain.state.resources import RECENT_FIXED, RECENT_SILENT
from tests.values import GIB, node, pod, template

MIB = 1 << 20
CASES = Path(__file__).parent.parent / "conformance" / "cases" / "trimaran.json"
UNIT_CASES = {case["function"]: case for case in json.loads(CASES.read_text())["unit_cases"]}


def rows_of(start: str) -> list[dict[str, Any]]:
    (rows,) = (case["rows"] for name, case in UNIT_CASES.items() if name.startswith(start))
    return list(rows)


def asked(
    use: PluginUse,
    nodes: list[NodeSpec],
    wanted: PodTemplate,
    *others: PodSpec,
    usage: dict[str, dict[str, Measured]] | None = None,
    recent: tuple[PodSpec, ...] = (),
) -> Verdict:
    """Return the verdict for a pod under one score; ``recent`` pods came after the measurement."""
    state = ClusterState(seed=1)
    for spec in nodes:
        state.apply(NodeUpserted(spec))
    for each in others:
        state.apply(PodUpserted(each))
    state.table.requested[RECENT_FIXED : RECENT_SILENT + 1] = 0
    for each in recent:
        state.apply(PodUpserted(each))
    plan = ProfilePlan(Profile(name="p", scores=(use,)))
    return evaluate(state, plan, pod("asked", wanted), NodeView(state, usage))


def rated(use: PluginUse, nodes: list[NodeSpec], wanted: PodTemplate, *others: PodSpec, **more: Any) -> Any:
    return asked(use, nodes, wanted, *others, **more).scores


# --------------------------------------------------------------------------------- risk and distribution


@pytest.mark.parametrize("row", rows_of("LowRiskOverCommitment risk"), ids=str)
def test_risk_of_over_commitment(row: dict[str, Any]) -> None:
    given = UNIT_CASES["LowRiskOverCommitment risk of one resource"]["given"]
    at, resource = row["in"], row["in"]["resource"]
    capacity = given["node"]["cpu_milli" if resource == "cpu" else "memory"]
    mean = given["usage"][resource]["avg"] / 100
    promised = promised_risk(at["request"], at["limit"], capacity)
    loaded = loaded_risk(mean, 0.0, at["request_without_pod"], at["limit_without_pod"], capacity)
    assert (promised + loaded) / 2 == pytest.approx(row["out"])


@pytest.mark.parametrize(
    ("alpha", "beta", "x", "probability"),
    [
        (2.0, 2.0, 0.5, 0.5),
        (2.0, 2.0, 0.0, 0.0),
        (2.0, 2.0, 1.0, 1.0),
        (1.0, 1.0, 0.3, 0.3),
        (1.0, 3.0, 0.2, 1 - 0.8**3),
        (5.0, 1.0, 0.9, 0.9**5),
        (2.0, 3.0, 0.4, 0.5248),
        (0.5, 0.5, 0.25, 1 / 3),
        (4e6, 6e6, 0.4, 0.5),
    ],
)
def test_probability_below_a_threshold(alpha: float, beta: float, x: float, probability: float) -> None:
    assert beta_cdf(alpha, beta, x) == pytest.approx(probability, abs=1e-4 if alpha > 1e6 else 1e-12)


def test_a_wide_and_a_narrow_distribution_meet_where_the_method_changes() -> None:
    exact, normal = beta_cdf(399_600.0, 599_400.0, 0.4002), beta_cdf(400_400.0, 600_600.0, 0.4002)
    assert exact == pytest.approx(normal, abs=2e-2)


def test_a_distribution_is_fitted_to_mean_and_deviation() -> None:
    assert fit_beta(0.75, 0.0375**0.5) == pytest.approx((3.0, 1.0))
    assert {fit_beta(0.0, 0.1), fit_beta(1.0, 0.1), fit_beta(0.5, 0.0), fit_beta(0.5, 0.5)} == {(0.0, 0.0)}


@pytest.mark.parametrize("row", rows_of("mean and deviation as fractions"), ids=str)
def test_mean_and_deviation(row: dict[str, Any]) -> None:
    capacity, request, average, deviation = row["in"]
    state = ClusterState(seed=1)
    state.apply(NodeUpserted(node("n", cpu=capacity)))
    percent = 100 / max(capacity, 1)
    usage = {"n": {"cpu": Measured(avg=average * percent, std=deviation * percent)}}
    found = load(NodeView(state, usage), "cpu", np.array([0]), request)
    assert [float(found.mean[0]), float(found.deviation[0])] == pytest.approx(row["out"])


@pytest.mark.parametrize("row", rows_of("effective pod limit"), ids=str)
def test_effective_limits(row: dict[str, Any]) -> None:
    def container(amounts: dict[str, int]) -> dict[str, Any]:
        return {"resources": {"limits": {"cpu": f"{amounts['cpu']}m", "memory": amounts["memory"]}}}

    at = row["in"]
    spec = {
        "containers": [container(each) for each in at["containers"]],
        "initContainers": [container(at["init"])],
        "overhead": {"cpu": f"{at['overhead_cpu']}m"},
    }
    found = pod_from_manifest({"metadata": {"name": "p"}, "spec": spec}).template
    assert found.limits == row["out"]


def test_what_containers_say_of_their_cpu() -> None:
    resources: list[dict[str, Any]] = [
        {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}},
        {"limits": {"cpu": "0"}},
        {"requests": {"cpu": "300m"}},
        {"requests": {"memory": "1Gi"}},
    ]
    spec = {
        "containers": [{"resources": each} for each in resources],
        "initContainers": [{"resources": {"limits": {"cpu": "9"}}}],
        "overhead": {"cpu": "50m"},
    }
    found = pod_from_manifest({"metadata": {"name": "p"}, "spec": spec}).template
    assert found.cpu_claim == CpuClaim(fixed_milli=2050, requested_milli=300, silent_count=1)


# ---------------------------------------------------------------------------------------------- formulas


def test_a_pod_placed_since_the_measurement_counts_as_used() -> None:
    use = PluginUse(name="TargetLoadPacking", args={"targetUtilization": 50})
    usage = {name: {"cpu": Measured(latest=10.0)} for name in ("a", "b")}
    claims = template(cpu_claim=CpuClaim(fixed_milli=400))
    found = rated(
        use, [node("a"), node("b"), node("unknown")], claims, usage=usage, recent=(pod("r", claims, on="b"),)
    )
    assert found == pytest.approx({"a": 70.0, "b": 80.0, "unknown": 0.0})


def test_an_average_wins_over_the_latest_value() -> None:
    use = PluginUse(name="LoadVariationRiskBalancing")
    usage = {"n": {"cpu": Measured(avg=20.0, latest=90.0)}}
    assert rated(use, [node("n")], template(), usage=usage) == pytest.approx({"n": 90.0})


def test_images_count_by_size_and_spread() -> None:
    def having(name: str, *images: NodeImage) -> NodeSpec:
        spec = node(name)
        return NodeSpec(name=name, uid=name, resource_version=1, allocatable=spec.allocatable, images=images)

    big, small = NodeImage(("web:latest",), 500 * MIB), NodeImage(("db:2",), 100 * MIB)
    nodes = [having("both", big, small), having("big", big), having("none"), having("other")]
    found = rated(PluginUse(name="ImageLocality"), nodes, template(images=("db:2", "web")))
    span = 2000 - 23
    expected = {
        "both": (500 * 2 / 4 + 100 / 4 - 23) * 100 / span,
        "big": (250 - 23) * 100 / span,
        "none": 0,
        "other": 0,
    }
    assert found == pytest.approx(expected)
    assert set(rated(PluginUse(name="ImageLocality"), nodes, template()).values()) == {0.0}
    mounted = template(images=("db:2",), volume_images=("web",))  # a volume counts, but as no container
    found = rated(PluginUse(name="ImageLocality"), nodes, mounted)
    assert found == pytest.approx({name: score * span / (1000 - 23) for name, score in expected.items()})


def test_variance_is_that_of_a_full_recount() -> None:
    random = np.random.default_rng(5)
    memory = random.integers(2, 64, 40)
    used = [int(random.integers(1, m + 1)) for m in memory.tolist()]
    nodes = [node(f"n{i}", memory=m * GIB) for i, m in enumerate(memory.tolist())]
    others = [pod(f"p{i}", template(1, u * GIB), on=f"n{i}") for i, u in enumerate(used)]
    share = np.array(used) / memory
    variances = []
    for i in range(len(nodes)):
        after = share.copy()
        after[i] += 3 / memory[i]
        variances.append(after.var())
    low, high = min(variances), max(variances)
    expected = [100 * (high - each) / (high - low) for each in variances]
    found = rated(PluginUse(name="GlobalVariance"), nodes, template(1, 3 * GIB), *others)
    assert list(found.values()) == pytest.approx(expected, abs=1e-3)  # of metrics cut to 2^-20
    sample = PluginUse(name="GlobalVariance", args={"variance": "sample"})
    assert rated(sample, nodes, template(1, 3 * GIB), *others) == found


def test_growth_of_variance_is_exact() -> None:
    """The score places the variance of whole-number metrics times n^2 between its extremes."""
    used = [3, 7, 0, 11, 5]
    nodes = [node(f"n{i}", memory=(13 + i) * GIB) for i in range(len(used))]
    others = [pod(f"p{i}", template(1, amount * GIB), on=f"n{i}") for i, amount in enumerate(used)]
    metrics = [amount * 2**20 // (13 + i) for i, amount in enumerate(used)]

    def spread(values: list[int]) -> int:
        return len(values) * sum(v * v for v in values) - sum(values) ** 2

    growth = []
    for i in range(len(used)):
        after = list(metrics)
        after[i] += 2 * 2**20 // (13 + i)
        growth.append(spread(after) - spread(metrics))
    low, high = min(growth), max(growth)
    found = rated(PluginUse(name="GlobalVariance"), nodes, template(1, 2 * GIB), *others)
    assert list(found.values()) == [float(high - each) / float(high - low) * 100.0 for each in growth]


def test_variances_of_several_resources_are_summed_up_before_they_are_normalised() -> None:
    """cpu is nearly even, so memory alone decides; as two scores both would have the same say."""
    nodes = [node("a", cpu=100_000, memory=100 * GIB), node("b", cpu=100_000, memory=100 * GIB)]
    others = [pod("p", template(1_000, 50 * GIB), on="a"), pod("q", template(2_000, 10 * GIB), on="b")]
    wanted = template(1_000, GIB)
    apart = [
        rated(PluginUse(name="GlobalVariance", args={"resource": r}), nodes, wanted, *others)
        for r in ("cpu", "memory")
    ]
    assert apart == [{"a": 100.0, "b": 0.0}, {"a": 0.0, "b": 100.0}]
    together = PluginUse(name="GlobalVariance", args={"resources": ["cpu", "memory"]})
    assert rated(together, nodes, wanted, *others) == {"a": 0.0, "b": 100.0}
    lacking = [*nodes, node("c", cpu=100_000, memory=0)]
    assert rated(together, lacking, wanted, *others) == {"a": 0.0, "b": 100.0, "c": 0.0}


def test_a_node_without_the_resource_is_left_out_of_the_variance() -> None:
    use = PluginUse(name="GlobalVariance", args={"resource": "x.io/a"})
    nodes = [node("full", extended={"x.io/a": 4}), node("empty", extended={"x.io/a": 4}), node("none")]
    shape = template(requests={"x.io/a": 1})
    found = rated(use, nodes, shape, pod("q", template(requests={"x.io/a": 2}), on="full"))
    assert found == {"full": 0.0, "empty": 100.0, "none": 0.0}


def test_measured_variance_reads_usage() -> None:
    use = PluginUse(name="GlobalVariance", args={"of": "measured"})
    usage = {"hot": {"memory": Measured(avg=80.0)}, "cold": {"memory": Measured(avg=10.0)}}
    found = rated(use, [node("hot"), node("cold"), node("unknown")], template(1, GIB), usage=usage)
    assert found == {"hot": 0.0, "cold": 100.0, "unknown": 0.0}


def test_normalised_scores_look_at_feasible_nodes_only() -> None:
    state = ClusterState(seed=1)
    for spec in (node("small", cpu=100), node("middle", cpu=2_000), node("large", cpu=4_000)):
        state.apply(NodeUpserted(spec))
    score = PluginUse(name="NodeResourcesAllocatable", args={"mode": "Most"})
    fit_first = Profile(name="p", filters=(PluginUse(name="NodeResourcesFit"),), scores=(score,))
    found = evaluate(state, ProfilePlan(fit_first), pod("p", template(1_000)))
    assert found.infeasible == {"small": "insufficient:cpu"}
    assert found.scores == {"middle": 0.0, "large": 100.0}


# --------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "name", ["TargetLoadPacking", "LoadVariationRiskBalancing", "LowRiskOverCommitment", "Peaks"]
)
def test_where_upstream_fetches_its_measurements_is_taken_without_effect(name: str) -> None:
    args: dict[str, Any] = {"nodePowerModel": {"n": {"k1": 1}}} if name == "Peaks" else {}
    provider = {"metricProvider": {"type": "Prometheus", "address": "x"}, "watcherAddress": "y"}
    usage = {"n": {"cpu": Measured(avg=30.0)}}
    shape = template(500, GIB)
    plain = rated(PluginUse(name=name, args=args), [node("n")], shape, usage=usage)
    assert rated(PluginUse(name=name, args={**args, **provider}), [node("n")], shape, usage=usage) == plain


SHAPE = "scoringStrategy.requestedToCapacityRatio.shape"


def curve(*points: tuple[Any, Any]) -> dict[str, Any]:
    shape = [{"utilization": u, "score": s} for u, s in points]
    return {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}}


@pytest.mark.parametrize(
    ("name", "args", "path"),
    [
        ("NodeResourcesFit", {"scoringStrategy": 1}, "scoringStrategy"),
        ("NodeResourcesFit", {"scoringStrategy": {"resources": 1}}, "scoringStrategy.resources"),
        ("NodeResourcesFit", {"scoringStrategy": curve()}, SHAPE),
        ("NodeResourcesFit", {"scoringStrategy": curve((0, 11))}, f"{SHAPE}[0].score"),
        ("NodeResourcesFit", {"scoringStrategy": curve((101, 1))}, f"{SHAPE}[0].utilization"),
        ("NodeResourcesFit", {"scoringStrategy": curve((50, 1), (50, 2))}, f"{SHAPE}[1].utilization"),
        ("NodeResourcesFit", {"arithmetic": "whole"}, "arithmetic"),
        ("NodeResourcesBalancedAllocation", {"variant": "old"}, "variant"),
        (
            "NodeResourcesBalancedAllocation",
            {"resources": [{"name": "cpu", "weight": 2}]},
            "resources[0].weight",
        ),
        (
            "NodeResourcesBalancedAllocation",
            {"resources": [{"name": "cpu"}, {"name": "cpu"}]},
            "resources[1].name",
        ),
        ("NodeResourcesBalancedAllocation", {"resources": [{}]}, "resources[0].name"),
        ("NodeAffinity", {"addedAffinity": 1}, "addedAffinity"),
        ("TaintToleration", {"x": 1}, "x"),
        ("NodeResourcesAllocatable", {"mode": "Some"}, "mode"),
        ("NodeResourcesAllocatable", {"resources": [{"name": "cpu", "weight": 0}]}, "resources[0].weight"),
        ("TargetLoadPacking", {"targetUtilization": 101}, "targetUtilization"),
        ("TargetLoadPacking", {"defaultRequestsMultiplier": "x"}, "defaultRequestsMultiplier"),
        ("TargetLoadPacking", {"defaultRequests": {"cpu": "x"}}, "defaultRequests.cpu"),
        ("TargetLoadPacking", {"defaultRequests": {"cpu": "-1"}}, "defaultRequests.cpu"),
        ("LoadVariationRiskBalancing", {"formula": "mu"}, "formula"),
        ("LoadVariationRiskBalancing", {"safeVarianceMargin": True}, "safeVarianceMargin"),
        ("LowRiskOverCommitment", {"riskLimitWeights": {"cpu": "x"}}, "riskLimitWeights.cpu"),
        ("LowRiskOverCommitment", {"riskLimitWeights": {"disk": 1}}, "riskLimitWeights.disk"),
        ("Peaks", {}, "nodePowerModel"),
        ("Peaks", {"nodePowerModel": {"n": {"k3": 1}}}, "nodePowerModel.n.k3"),
        ("GlobalVariance", {"resource": 1}, "resource"),
        ("GlobalVariance", {"of": "x"}, "of"),
        ("GlobalVariance", {"resources": "cpu"}, "resources"),
        ("GlobalVariance", {"resources": ["cpu", "cpu"]}, "resources[1]"),
        ("GlobalVariance", {"resources": ["a", "b", "c", "d", "e"]}, "resources"),
        ("GlobalVariance", {"resource": "cpu", "resources": ["memory"]}, "resources"),
        ("GlobalVariance", {"inFlight": True}, "inFlight"),
        ("GlobalVariance", {"of": "measured", "inFlight": "yes"}, "inFlight"),
        ("GlobalVariance", {"of": "measured", "inFlight": True, "resource": "disk"}, "inFlight"),
        ("SearchScore", {"inFlight": True}, "inFlight"),
        ("LoadVariationRiskBalancing", {"inFlight": 1}, "inFlight"),
        ("LoadVariationRiskBalancing", {"inFlight": True, "formula": "mu"}, "formula"),
        ("LowRiskOverCommitment", {"inFlight": "true"}, "inFlight"),
        ("Peaks", {"inFlight": True}, "nodePowerModel"),
        ("Peaks", {"inFlight": 0, "nodePowerModel": {"n": {}}}, "inFlight"),
        ("TargetLoadPacking", {"resource": "disk"}, "resource"),
        (
            "TargetLoadPacking",
            {"resource": "memory", "defaultRequestsMultiplier": 1},
            "defaultRequestsMultiplier",
        ),
        ("TargetLoadPacking", {"resource": "memory", "defaultRequests": {"cpu": 1}}, "defaultRequests"),
        ("NodeResourcesFit", {"inFlight": True}, "inFlight"),
        ("SearchScore", {"resources": ["cpu", "memory", "x.io/a"]}, "resources"),
        ("SearchScore", {"resources": ["cpu", "cpu", "x.io/a", "x.io/b"]}, "resources[1]"),
        ("SearchScore", {"resources": ["cpu", 1, "x.io/a", "x.io/b"]}, "resources[1]"),
        ("SearchScore", {"criticalLoads": [0.5, 0.5, 1, 0.5]}, "criticalLoads[2]"),
        ("SearchScore", {"criticalLoads": [0.5]}, "criticalLoads"),
        ("SearchScore", {"availableWeights": {"balanced": [1, 1, 0, 0]}}, "availableWeights.balanced"),
        ("SearchScore", {"loadWeights": {"small": [1, 0, 0, 0]}}, "loadWeights.small"),
        ("SearchScore", {"load": "x"}, "load"),
        ("LRA", {"resources": "cpu"}, "resources"),
        ("BRA", {"resources": ["cpu"]}, "resources"),
        ("CWT", {"comparisons": [[1]]}, "comparisons[0]"),
        ("FGD", {"mix": [{"gpus": 1, "gpuMilli": 500}]}, "mix[0].gpuMilli"),
        ("FGD", {"mix": [{"gpuMilli": 1000}]}, "mix[0].gpuMilli"),
        ("FGD", {"mix": [{"gpus": 1.5}]}, "mix[0].gpus"),
        ("FGD", {"mix": [{"cpu": "x"}]}, "mix[0].cpu"),
        ("FGD", {"mix": [{"memory": "-1"}]}, "mix[0].memory"),
        ("FGD", {"mix": [{"gpus": 1}] * 129}, "mix"),
        ("FGD", {"mix": [{"models": [1]}]}, "mix[0].models[0]"),
        ("FGD", {"mix": [{"weight": 0}]}, "mix[0].weight"),
        ("FGD", {"arithmetic": "x"}, "arithmetic"),
        ("GpuStranding", {"cpuPerGpu": 0}, "cpuPerGpu"),
        ("GpuBestFit", {"largest": 0}, "largest"),
        ("GpuDotProduct", {"largestCpu": "x"}, "largestCpu"),
        ("GpuPacking", {"largest": 8}, "largest"),
        ("CWT", {"resources": ["cpu", "memory"], "comparisons": [[1, 2], [2, 1]]}, "comparisons[1][0]"),
        ("CWT", {"resources": ["cpu", "memory"], "comparisons": [[1, 2]]}, "comparisons"),
        (
            "CWT",
            {
                "resources": ["cpu", "memory", "a"],
                "comparisons": [[1, 9, 1 / 9], [1 / 9, 1, 9], [9, 1 / 9, 1]],
            },
            "comparisons",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_its_path(name: str, args: dict[str, Any], path: str) -> None:
    profile = Profile(name="p", scores=(PluginUse(name=name, args=args),))
    with pytest.raises(FieldError) as error:
        ProfilePlan(profile)
    assert error.value.path == f"scores[0].args.{path}"


def scored(name: str, count: int, **args: Any) -> Profile:
    return Profile(name="p", scores=tuple(PluginUse(name=name, args=args) for _ in range(count)))


MANY_POINTS = curve(*((i / 2, 1) for i in range(200)))
NAMES = [{"name": f"x.io/{i}"} for i in range(65)]


def threshold(name: str, count: int) -> Profile:
    resources = [{"name": f"x.io/{i}", "threshold": 50} for i in range(count)]
    return Profile(name="p", filters=(PluginUse(name=name, args={"resources": resources}),))


@pytest.mark.parametrize(
    ("profile", "path", "bound"),
    [
        (scored("TaintToleration", 9), "scores[8]", "normalised_scores_max"),
        (scored("NodeResourcesFit", 9), "scores[8]", "resource_scores_max"),
        (
            scored("NodeResourcesFit", 1, scoringStrategy={"resources": NAMES}),
            "scores[0]",
            "scored_resources_max",
        ),
        (scored("NodeResourcesFit", 3, scoringStrategy=MANY_POINTS), "scores[2]", "score_numbers_max"),
        (scored("GlobalVariance", 5), "scores[4]", "variance_scores_max"),
        (scored("GlobalVariance", 3, resources=["cpu", "memory"]), "scores[2]", "variance_scores_max"),
        (threshold("ResourceThreshold", 9), "filters[0]", "limits_per_profile_max"),
        (threshold("PeakUsage", 41), "filters[0]", "static_reasons_max"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_profile_beyond_a_bound_is_refused_when_it_is_made(profile: Profile, path: str, bound: str) -> None:
    """And not when a pod meets the kernel's arrays."""
    with pytest.raises(FieldError, match=bound) as error:
        ProfilePlan(profile)
    assert error.value.path == path


def test_a_profile_at_its_bounds_places_pods() -> None:
    most = (
        *scored("TaintToleration", 8).scores,
        *scored("NodeResourcesFit", 1, scoringStrategy={"resources": NAMES[:28]}).scores,
        *scored("TargetLoadPacking", 1).scores,
        *scored("GlobalVariance", 4).scores,
    )
    scheduler = Scheduler({"default-scheduler": Profile(name="default-scheduler", scores=most)}, seed=1)
    scheduler.fold(NodeUpserted(node("n", extended={each["name"]: 2 for each in NAMES})))
    requests = {each["name"]: 1 for each in NAMES[:10]}
    scheduler.fold(PodUpserted(pod("p", template(requests=requests))))
    (attempt,) = scheduler.cycle().attempts
    assert attempt.bound_count == 1
    assert len(attempt.candidates[0].parts) == 14
