"""Do profiles that look at measurements count the pods that no measurement covers yet?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from domain.cycle.schedule import Scheduler
from domain.model.decisions import Attempt
from domain.model.errors import FieldError
from domain.model.events import NodeUpserted, NodeUsed, PodDeleted, PodUpserted
from domain.model.pods import CpuClaim, MemoryClaim, PodTemplate
from domain.model.profiles import PluginUse, Profile
from domain.model.usage import Measured, NodeUsage
from domain.plugins.registry import ProfilePlan
from domain.state.steps import Written
from tests.values import GIB, node, pod, template

CORE = 1_000
MIB = 1 << 20
SMALL = template(
    500, GIB,
    cpu_claim=CpuClaim(requested_milli=500),
    memory_claim=MemoryClaim(requested_bytes=GIB),
)  # fmt: skip
"""A pod that is expected to use 0.75 cores and 1.25 GiB."""


class Cluster:
    """Two equal nodes of 40 cores and 100 GiB under one profile: a uses half of all, b two fifths.

    b takes 5 pods until both are expected to use as many cores, 8 until both use as much memory.
    """

    def __init__(self, *scores: PluginUse, filters: tuple[PluginUse, ...] = ()) -> None:
        profile = Profile(name="default-scheduler", filters=filters, scores=scores)
        self.scheduler = Scheduler({profile.name: profile}, seed=1)
        self.pods_count = self.now_ms = 0
        self.attempt: Attempt | None = None
        for name in ("a", "b"):
            self.scheduler.fold(NodeUpserted(node(name, cpu=40 * CORE, memory=100 * GIB)))
        self.measure(a=50.0, b=40.0)

    def measure(self, **percents: float) -> None:
        self.now_ms += 600_000
        for name, percent in percents.items():
            window = {resource: Measured(avg=percent) for resource in ("cpu", "memory")}
            self.scheduler.fold(NodeUsed(NodeUsage(node=name, at_ms=self.now_ms, window=window)))

    def place(self, count: int, shape: PodTemplate = SMALL) -> dict[str, int]:
        """Let equal pods come; return how many went where."""
        for _ in range(count):
            self.pods_count += 1
            self.scheduler.fold(PodUpserted(pod(f"p{self.pods_count}", shape)))
        result = self.scheduler.cycle()
        self.attempt = result.attempts[-1] if result.attempts else None
        placed = {v.pod.key: self.now_ms for v in result.verdicts if getattr(v, "node", "")}
        self.scheduler.fold(Written(placed))
        return dict(Counter(getattr(v, "node", "") or "none" for v in result.verdicts))


MODELS = {"nodePowerModel": {name: {"k0": 100, "k1": 10, "k2": 0.03} for name in "ab"}}
LOADS = {"availableWeights": {"balanced": [0.0, 0.0, 0.5, 0.5]}, "load": "measured"}
"""What is free of cpu and memory does not count."""

HERDING: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("GlobalVariance", {"of": "measured"}, 14),
    ("GlobalVariance", {"of": "measured", "resource": "cpu"}, 13),
    ("GlobalVariance", {"of": "measured", "resources": ["cpu", "memory"]}, 13),
    ("LoadVariationRiskBalancing", {}, 13),
    ("Peaks", MODELS, 13),
    ("SearchScore", LOADS, 13),
)


@pytest.mark.parametrize(("name", "args", "on_b"), HERDING, ids=str)
def test_equal_pods_between_two_measurements_herd_without_and_not_with_it(
    name: str, args: dict[str, Any], on_b: int
) -> None:
    herd = Cluster(PluginUse(name=name, args=args)).place(20)
    assert herd == {"b": 20}
    spread = Cluster(PluginUse(name=name, args={**args, "inFlight": True})).place(20)
    assert spread == {"a": 20 - on_b, "b": on_b}


def test_a_settled_measurement_takes_the_place_of_what_was_expected() -> None:
    use = PluginUse(name="GlobalVariance", args={"of": "measured", "resource": "cpu", "inFlight": True})
    cluster = Cluster(use)
    assert cluster.place(5) == {"b": 5}
    cluster.measure(a=50.0, b=40.0)
    assert cluster.place(5) == {"b": 5}, "the first five use nothing, as is known now"


def test_packing_of_memory_counts_what_pods_are_expected_to_use() -> None:
    use = PluginUse(name="TargetLoadPacking", args={"resource": "memory", "targetUtilization": 55})
    assert Cluster(use).place(5) == {"a": 4, "b": 1}, "four of 1.25 GiB fill a up to 55 %"


@pytest.mark.parametrize("in_flight", [False, True])
def test_risk_of_over_commitment_counts_pods_that_no_measurement_covers(in_flight: bool) -> None:
    """A pod is expected to use its limit of 10 cores, of which it requests one: beyond all requests."""
    weights = {"riskLimitWeights": {"cpu": 0.0, "memory": 1.0}}
    cluster = Cluster(PluginUse(name="LowRiskOverCommitment", args={**weights, "inFlight": in_flight}))
    for name in ("a", "b"):
        cluster.scheduler.fold(PodUpserted(pod(f"on-{name}", template(22 * CORE), on=name)))
    cluster.scheduler.fold(Written({"default/on-a": cluster.now_ms, "default/on-b": cluster.now_ms}))
    cluster.measure(a=50.0, b=50.0)
    greedy = template(CORE, cpu_claim=CpuClaim(fixed_milli=10 * CORE), limits={"cpu": 10 * CORE})
    assert sorted(cluster.place(2, greedy).values()) == ([1, 1] if in_flight else [2])
    cluster.place(1, greedy)
    assert cluster.attempt is not None
    scores = {each.node: each.score for each in cluster.attempt.candidates}
    assert set(scores.values()) == ({0.0} if in_flight else {100.0})


THRESHOLD = {"resources": [{"name": "cpu", "threshold": 55, "of": "measured"}]}


def filtered(**args: Any) -> Cluster:
    use = PluginUse(name="ResourceThreshold", args={**THRESHOLD, **args})
    return Cluster(filters=(use, PluginUse(name="NodeResourcesFit")))


def test_a_measured_threshold_holds_between_two_measurements() -> None:
    """Of 40 cores, a may be expected to use 2 more, and b 6."""
    assert sum(filtered().place(20).values()) == 20
    cluster = filtered(inFlight=True)
    assert cluster.place(20) == {"a": 2, "b": 8, "none": 10}
    assert cluster.attempt is not None
    assert cluster.attempt.reasons_at_failure == {"over-threshold-measured:cpu": 2}
    assert cluster.attempt.unresolvable, "no eviction lowers what was measured, or what is expected"
    cluster.measure(a=54.0, b=50.0)
    assert cluster.place(0) == {"b": 2}, "the pods that wait are tried again"


def test_a_threshold_of_what_has_no_estimate_stays_as_it_is() -> None:
    resources = [*THRESHOLD["resources"], {"name": "disk", "threshold": 0, "of": "measured"}]
    cluster = filtered(resources=resources, inFlight=True)
    window = {"cpu": Measured(avg=50.0), "disk": Measured(avg=1.0)}
    cluster.scheduler.fold(NodeUsed(NodeUsage(node="a", at_ms=cluster.now_ms + 1, window=window)))
    assert cluster.place(9) == {"b": 8, "none": 1}
    assert cluster.attempt is not None
    assert cluster.attempt.reasons_at_failure == {
        "over-threshold-measured:disk": 1,
        "over-threshold-measured:cpu": 1,
    }


def test_a_threshold_without_estimates_refuses_the_argument() -> None:
    resources = [{"name": "cpu", "threshold": 50}, {"name": "disk", "threshold": 50, "of": "measured"}]
    use = PluginUse(name="ResourceThreshold", args={"resources": resources, "inFlight": True})
    with pytest.raises(FieldError, match="cpu or memory") as error:
        ProfilePlan(Profile(name="p", filters=(use,)))
    assert error.value.path == "filters[0].args.inFlight"


def test_a_pod_that_leaves_makes_room_below_a_threshold() -> None:
    cluster = filtered(inFlight=True)
    cluster.place(11)
    cluster.scheduler.fold(PodDeleted("default", "p1"))
    assert cluster.place(0) == {"b": 1}
