"""Does the plain oracle, which the scheduler is compared with, give the verdicts of the tables by itself?"""

from __future__ import annotations

from typing import Any

import pytest

from domain.engine.evaluate import Verdict
from domain.manifests.objects import node_from_manifest, pod_from_manifest
from domain.manifests.profile import profile_from_manifest
from domain.model.config import Namespace
from domain.model.decisions import Outcome
from domain.model.events import ConfigUpserted, NodeUpserted, PodUpserted
from tests.conformance.tables import FILES, cases, check
from tests.oracle.placing import Look, Oracle

BETWEEN_PODS = ("pod_topology_spread", "interpod_affinity")
OTHERS = tuple(name for name in FILES if name not in (*BETWEEN_PODS, "trimaran", "seed_examples"))


def verdicts(case: dict[str, Any]) -> list[Verdict]:
    """Let the oracle place the pods of a case, one after another."""
    profile = profile_from_manifest(case["profile"])
    waiting = {}
    pods = [pod_from_manifest(each, strict=False) for each in case["objects"] if each["kind"] == "Pod"]
    oracle = Oracle({pod.template.profile: profile for pod in pods}, seed=0)
    for manifest in case["objects"]:
        if manifest["kind"] == "Node":
            oracle.take(NodeUpserted(node_from_manifest(manifest, strict=False)))
        elif manifest["kind"] == "Namespace":
            meta = manifest["metadata"]
            content = Namespace(labels=meta.get("labels", {}))
            oracle.take(ConfigUpserted("Namespace", "", meta["name"], content))
        else:
            assert manifest["kind"] == "Pod"
    for pod in pods:
        if pod.node_name or pod.finished:
            oracle.take(PodUpserted(pod))
        else:
            waiting[pod.key] = pod
    found = []
    for key in case["schedule"]:
        oracle.take(PodUpserted(waiting[key]))
        (look,) = (each for each in oracle.cycle() if each.pod.key == key)
        found.append(verdict(look))
    return found


def verdict(look: Look) -> Verdict:
    return Verdict(
        pod=look.pod.key,
        outcome=Outcome.BOUND if look.node else Outcome.UNSCHEDULABLE,
        node=look.node or None,
        feasible=list(look.totals),
        infeasible={name: refusal.code for name, refusal in look.infeasible.items()},
        unresolvable=[name for name, refusal in look.infeasible.items() if refusal.unresolvable],
        held_by=[],
        scores=look.totals,
        score_parts={},
        weights={},
    )


@pytest.mark.parametrize("case", cases(*BETWEEN_PODS))
def test_verdict_between_pods(case: dict[str, Any]) -> None:
    """Their scores are kube-scheduler's own, to the last digit."""
    found = verdicts(case)
    check(case, found)
    assert found[-1].scores == case["expect"].get("scores", found[-1].scores)


@pytest.mark.parametrize("case", cases(*OTHERS))
def test_verdict(case: dict[str, Any]) -> None:
    uses = [*case["profile"]["filters"], *case["profile"]["scores"]]
    if not any("addedAffinity" in use.get("args", {}) for use in uses if isinstance(use, dict)):
        check(case, verdicts(case))
