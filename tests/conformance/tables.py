"""The cases of the tables, and what it takes for verdicts to meet them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domain.engine.evaluate import Verdict

CASES = Path(__file__).parent / "cases"
FILES = (
    "pod_topology_spread",
    "interpod_affinity",
    "fit",
    "node_affinity",
    "taint_toleration",
    "node_ports",
    "least_allocated",
    "most_allocated",
    "requested_to_capacity_ratio",
    "balanced_allocation",
    "trimaran",
    "seed_examples",
)
PREEMPTION = (
    "preemption_select_victims",
    "preemption_pick_node",
    "preemption_eligibility",
    "pdb_violation_grouping",
    "nodes_where_preemption_might_help",
)
CHECKED = {
    "any_of", "feasible", "infeasible", "node", "nodes", "scores", "unresolvable", "unschedulable",
    "eligible_to_preempt", "pdb_groups", "pdb_violations", "preemption_might_help", "victims",
    "victims_exhaustive", "victims_unordered",
}  # fmt: skip
RAW = {"raw_scores", "variance"}
ELSEWHERE = {"integer_scores", "unrounded"}  # other forms of ``scores``


STRUCTURES = {
    group["id"]: group["cases"] for group in json.loads((CASES / "structures.json").read_text())["groups"]
}
FIT_ONLY = {"filters": ["NodeResourcesFit"], "scores": []}


def structure_cases(group: str) -> list[Any]:
    return [pytest.param(case, id=f"{case['id']} {case['name']}") for case in STRUCTURES[group]]


def formula_cases() -> list[Any]:
    """Return what formulas of the study and of the paper on search give for some numbers."""
    found: list[Any] = json.loads((CASES / "formulas.json").read_text())["formula_cases"]
    return found


def cases(*files: str) -> list[Any]:
    return [
        pytest.param(case, id=f"{name}[{i}] {case['name']}")
        for name in files
        for i, case in enumerate(json.loads((CASES / f"{name}.json").read_text())["cases"])
    ]


def tolerance(case: dict[str, Any]) -> float:
    """Return how far a score may be off: upstream truncates once per plugin, the studies do not."""
    uses = [use for use in case["profile"]["scores"] if isinstance(use, dict)]
    real = {"arithmetic", "formula"}
    if any(real & set(use.get("args", {})) for use in uses):
        return 1e-9
    return sum(float(use.get("weight", 1)) for use in uses)


def check(case: dict[str, Any], verdicts: list[Verdict]) -> None:
    expect = dict(case["expect"])
    assert set(expect) <= CHECKED | RAW | ELSEWHERE, "a case expects what no check looks at"
    assert [verdict.pod for verdict in verdicts] == case["schedule"]
    last = verdicts[-1]
    if "feasible" in expect:
        assert sorted(last.feasible) == sorted(expect["feasible"])
    if "infeasible" in expect:
        assert last.infeasible == expect["infeasible"]
    if "unresolvable" in expect:
        assert sorted(last.unresolvable) == sorted(expect["unresolvable"])
    if "scores" in expect:
        assert last.scores == pytest.approx(expect["scores"], rel=0, abs=tolerance(case))
    if "node" in expect:
        assert last.node == expect["node"]
    if "any_of" in expect:
        assert last.node in expect["any_of"]
    if "nodes" in expect:
        assert {verdict.pod: verdict.node for verdict in verdicts} == expect["nodes"]
    if expect.get("unschedulable"):
        assert last.feasible == []
        assert (last.node is None) == (not last.victims)
    if "eligible_to_preempt" in expect:
        assert last.eligible_to_preempt is expect["eligible_to_preempt"]
    if "preemption_might_help" in expect:
        assert sorted(last.preemption_might_help) == sorted(expect["preemption_might_help"])
    check_victims(case, last)


def check_victims(case: dict[str, Any], last: Verdict) -> None:
    """Check who would have to go. Pods of equal priority and start have an order of berth's own."""
    expect = case["expect"]
    if "victims" in expect:
        pods = [each for each in case["objects"] if each["kind"] == "Pod"]
        named = [(each["metadata"].get("namespace", "default"), each["metadata"]["name"]) for each in pods]
        priorities = {
            f"{namespace}/{name}": each["spec"].get("priority", 0)
            for (namespace, name), each in zip(named, pods, strict=True)
        }
        if expect.get("victims_exhaustive", True):
            assert last.victims.keys() == expect["victims"].keys()
        for node, victims in expect["victims"].items():
            found = last.victims[node]
            if expect.get("victims_unordered"):
                assert sorted(found) == sorted(victims)
                assert [priorities[key] for key in found] == [priorities[key] for key in victims]
            else:
                assert found == victims
    if "pdb_violations" in expect:
        assert expect["pdb_violations"].items() <= last.pdb_violations.items()
    if "pdb_groups" in expect:
        groups = last.pdb_groups
        assert groups is not None
        assert sorted(groups.violating) == sorted(expect["pdb_groups"]["violating"])
        assert sorted(groups.non_violating) == sorted(expect["pdb_groups"]["non_violating"])
