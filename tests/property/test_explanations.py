"""Can an auditor work out every score again from the stored explanation alone, by the plugins' plain rules?

Alone means: the row of the cycle as the ledger keeps it, the pod's template and the profile's revision, both
of which the row names.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest

from domain.cycle.schedule import Scheduler
from domain.kernels.arrays import (
    BY_CLOSENESS,
    BY_POWER,
    METRIC_MAX,
    METRIC_ONE,
    METRICS_MAX,
    PARTS_MAX,
    POWER_ONE,
)
from domain.kernels.normalising import normal
from domain.kernels.terms import rate_term
from domain.model.events import NodeUpserted
from domain.model.nodes import NodeSpec
from domain.model.pods import PodTemplate
from domain.model.usage import Measured
from domain.plugins.base import RelativeScore, ResourceScore, Score, StaticFilter, StaticScore
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.state.cluster import ClusterState
from services.adapters.postgres.rows import json_text
from tests.depth import some
from tests.oracle.scenarios import Scenario, World

SEEDS = some(range(100))
_ROW = np.zeros(1, dtype=np.int64)
BY_SPEC = ("FirstFit", "TaintToleration", "NodeAffinity", "ImageLocality")
"""Scores by what else the node's spec says: the row names the spec's version, not its content.

An ideal score follows from what is free on all feasible nodes, of which the row keeps the best alone.
"""


def scenario(seed: int) -> Scenario:
    """Return a small world with profiles of all plugins and measured usage."""
    return Scenario(
        seed=seed, nodes=12, pods=40, groups=8, resources=6, cycles=3, changes=4, any_profiles=True
    )


class Record:
    """A stored cycle, as JSON, with the template and the profile that it names."""

    def __init__(self, doc: Any, template: PodTemplate, plan: ProfilePlan) -> None:
        self.doc, self.template, self.plan = doc, template, plan
        self.basis = doc["basis"]
        self.count = len(self.basis["allocatable"]) // max(len(self.basis["resources"]), 1)

    def _sums(self, what: str, i: int) -> dict[str, int]:
        names = self.basis["resources"]
        return dict(zip(names, self.basis[what][i * len(names) :], strict=False))

    def view(self, i: int) -> NodeView:
        """Return a cluster of one node, the i-th candidate, as it was."""
        name, offered = self.doc["candidates"][i]["node"], self._sums("allocatable", i)
        capacity = {r: offered[f"~{r}-beyond"] for r in ("cpu", "memory") if f"~{r}-beyond" in offered}
        allocatable = {resource: value for resource, value in offered.items() if resource[0] != "~"}
        for resource in ("cpu", "memory"):
            allocatable.setdefault(resource, offered.get(f"~{resource}", 0))
        state = ClusterState(seed=0)
        spec = NodeSpec(name=name, uid=name, resource_version=1, allocatable=allocatable, capacity=capacity)
        state.apply(NodeUpserted(spec))
        for resource, value in self._sums("requested", i).items():
            column = state.resources.column(resource)
            state.table.ensure_columns()
            state.table.requested[column, 0] = value
        usage = self.basis["usage"][i] if "usage" in self.basis else {}
        return NodeView(state, {name: {r: Measured(**figures) for r, figures in usage.items()}})

    def part(self, label: str, plugin: Score, i: int) -> float:
        """Work out a score of the i-th candidate."""
        view = self.view(i)
        if isinstance(plugin, RelativeScore):
            raw = self._power(plugin, view) if plugin.kind == BY_POWER else self._growth(label, plugin, view)
        else:
            raw = self._term(plugin, view) if isinstance(plugin, ResourceScore) else self._raw(plugin, view)
        if plugin.normaliser is None:
            return raw
        extremes = self.basis["extremes"][label]
        low, high = (np.nan if value is None else value for value in (extremes["low"], extremes["high"]))
        return float(normal(raw, low, high, plugin.normaliser.flags))

    def _raw(self, plugin: Score, view: NodeView) -> float:
        assert isinstance(plugin, StaticScore)
        return float(plugin.raw(self.template, view, _ROW)[0])

    def _term(self, plugin: ResourceScore, view: NodeView) -> float:
        term, score = plugin.term(self.template, view.resources), np.zeros(1)
        view.table.ensure_columns()
        rate_term(
            term.kind, view.table.allocatable, view.table.requested, plugin.measured(view, _ROW),
            np.ones(1, dtype=np.uint8), 0, np.array([part.column for part in term.parts], dtype=np.int32),
            np.array([part.weight for part in term.parts], dtype=np.float64),
            np.array([part.value for part in term.parts], dtype=np.int64), np.array(term.numbers),
            np.zeros((5 + PARTS_MAX, 1)), score,
        )  # fmt: skip
        return float(score[0])

    def _growth(self, label: str, plugin: RelativeScore, view: NodeView) -> float:
        """What the pod would add to variances times n^2, from how many count in each and their sum."""
        parts = plugin.parts(self.template, view.resources)
        view.table.ensure_columns()
        seen = self.basis["extremes"][label]
        sums = [(seen.get("nodes_count", 0), seen.get("metrics_sum", 0)), *seen.get("further", ())]
        most = METRIC_MAX if len(sums) == 1 else METRICS_MAX
        grown = 0.0
        for r, (n, total) in enumerate(sums):
            has, counted = parts[2 * r : 2 * r + 2]
            offered = view.table.allocatable[has.column, 0]
            held = view.table.requested[counted.column, 0]
            if not offered:
                return np.nan
            own = metric(held, offered, most)
            if plugin.measured_count:
                found = plugin.measured(view, _ROW)[r, 0]
                if np.isnan(found):
                    return np.nan
                own = min(int(found) + (own if counted.column != has.column else 0), most)
            added = metric(counted.value, offered, most)
            grown += added * (2 * (own * n - total) + added * (n - 1))
        return float(grown)

    def _power(self, plugin: RelativeScore, view: NodeView) -> float:
        """By how much the node would draw more, in units of 2^-30."""
        has, counted = plugin.parts(self.template, view.resources)
        view.table.ensure_columns()
        capacity, held = view.table.allocatable[has.column, 0], view.table.requested[counted.column, 0]
        before, k1, k2 = plugin.measured(view, _ROW)[:, 0].tolist()
        after = 0.0
        if capacity:
            after = before + 100.0 * (held + counted.value) / capacity
            before += 100.0 * held / capacity
        if np.isnan(before) or after > 100.0:
            return 0.0
        return float(np.rint((k1 * np.exp(k2 * after) - k1 * np.exp(k2 * before)) * POWER_ONE))


def metric(amount: int, offered: int, most: int) -> int:
    return int(min(np.floor(float(amount) * METRIC_ONE / float(offered)), most))


def records(world: World) -> list[Record]:
    """Play a scenario; return what is stored of its attempts that found candidates."""
    scheduler = Scheduler(world.profiles, seed=world.scenario.seed)
    found = []
    events = world.first_nodes() + world.measurements(0.8)
    for _ in range(world.scenario.cycles):
        events += world.new_pods(world.scenario.pods // world.scenario.cycles)
        events += world.changes(world.scenario.changes) + world.measurements(0.2)
        for each in events:
            scheduler.fold(each)
        templates = {pod.signature: pod.template for pod in world.pods.values()}
        for attempt in scheduler.cycle().attempts:
            doc = msgspec.json.decode(json_text(attempt))
            assert bool(doc["basis"]) is bool(doc["candidates"])
            if doc["candidates"]:
                plan = scheduler.profiles.plans[attempt.profile]
                found.append(Record(doc, templates[attempt.signature], plan))
        events = []
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_every_score_follows_from_what_is_stored(seed: int) -> None:
    for record in records(World(scenario(seed))):
        plan, candidates = record.plan, record.doc["candidates"]
        if record.basis["resources"]:
            assert record.count == (len(candidates) if plan.reads_usage else min(2, len(candidates)))
        for use in plan.scores:
            known = plan.reads_usage or isinstance(use.plugin, ResourceScore | RelativeScore)
            is_ideal = isinstance(use.plugin, RelativeScore) and use.plugin.kind == BY_CLOSENESS
            if use.plugin.name in BY_SPEC or not known or is_ideal:
                continue
            for i in range(record.count):
                assert record.part(use.label, use.plugin, i) == candidates[i]["parts"][use.label], use.label


@pytest.mark.parametrize("seed", SEEDS)
def test_candidates_pass_the_filters_by_what_was_measured(seed: int) -> None:
    for record in records(World(scenario(seed))):
        filters = [p for p in record.plan.filters if p.reads_usage and isinstance(p, StaticFilter)]
        for i in range(record.count):
            for plugin in filters:
                refused = plugin.refuse(record.template, record.view(i), np.zeros(1, dtype=np.int64))
                assert refused is None or not refused.any(), plugin.name


@pytest.mark.deep
def test_the_worlds_of_these_tests_hold_what_matters() -> None:
    """Or the tests above would show little."""
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        for record in records(World(scenario(seed))):
            seen.update(use.plugin.name for use in record.plan.scores)
            seen.update(plugin.name for plugin in record.plan.filters if plugin.reads_usage)
            seen["measured"] += any(record.basis.get("usage", ()))
            seen["occupied"] += any(record.basis["requested"])
            seen["not measured"] += not record.plan.reads_usage
            uses = record.plan.profile.scores
            seen["in flight"] += any(use.args.get("inFlight", False) for use in uses)
            extremes = record.basis.get("extremes", {}).values()
            seen["several"] += any("further" in each for each in extremes)
            seen["ranges"] += any(each["low"] != each["high"] for each in extremes)
    for name in (
        "TargetLoadPacking", "LoadVariationRiskBalancing", "LowRiskOverCommitment", "Peaks",
        "GlobalVariance", "SearchScore", "LRA", "BRA",
        "NodeResourcesFit", "ResourceThreshold", "PeakUsage", "measured", "occupied", "not measured",
        "ranges", "in flight", "several",
    ):  # fmt: skip
        assert seen[name] > len(SEEDS) // 10, name


def test_a_measurement_is_named_with_its_time_and_the_node_with_its_versions() -> None:
    for seed in SEEDS:
        world = World(scenario(seed))
        for record in records(world):
            basis = record.basis
            if not record.plan.reads_usage:
                assert basis.keys() <= {"resources", "allocatable", "requested", "extremes"}
                continue
            for i in range(record.count):
                assert (basis["usage_at_ms"][i] > 0) >= bool(basis["usage"][i])
                assert basis["node_versions"][i] >= 1
                assert basis["resource_versions"][i] >= 1
