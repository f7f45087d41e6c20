"""The cases of the tables, and what it takes for verdicts to meet them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domain.cycle.evaluate import Verdict

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
CHECKED = {
    "any_of", "feasible", "infeasible", "node", "nodes", "scores", "unresolvable", "unschedulable",
}  # fmt: skip
RAW = {"raw_scores", "variance"}
ELSEWHERE = {"integer_scores", "unrounded"}  # other forms of ``scores``


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
        assert (last.feasible, last.node) == ([], None)
