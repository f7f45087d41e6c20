"""Does the exhaustive evaluation of one pod choose what the placing kernel chooses, for the same reasons?"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from domain.cycle.schedule import Scheduler
from domain.engine.evaluate import evaluate
from domain.engine.verdicts import Failure, Placement
from domain.kernels.arrays import TOTAL_ONE
from domain.model.decisions import Attempt, Outcome
from domain.plugins.registry import ProfilePlan
from domain.state.cluster import ClusterState
from domain.state.steps import Assumed
from tests.depth import examples
from tests.oracle.scenarios import Scenario, World, scenarios

NEAR = 8 / TOTAL_ONE
"""A total is rounded to a whole number per score; what ``evaluate`` tells is not."""


class Pair:
    """A scheduler, and a state of its own on which every verdict is worked out from scratch."""

    def __init__(self, scenario: Scenario) -> None:
        self.world = World(scenario)
        self.scheduler = Scheduler(self.world.profiles, seed=scenario.seed)
        self.state = ClusterState(seed=scenario.seed)
        self.plans = {name: ProfilePlan(profile) for name, profile in self.world.profiles.items()}
        self.placed_count = 0

    def run(self) -> None:
        world, scenario = self.world, self.world.scenario
        events = world.first_nodes()
        for _ in range(scenario.cycles):
            events += world.new_pods(scenario.pods // scenario.cycles + 1)
            for event in events:
                self.scheduler.fold(event)
                self.state.apply(event)
            self.cycle()
            events = world.changes(scenario.changes)

    def cycle(self) -> None:
        result = self.scheduler.cycle()
        explained: set[int] = set()
        for verdict in result.tried:
            attempt = result.attempts[verdict.attempt]
            first = verdict.attempt not in explained
            explained.add(verdict.attempt)
            self.same(verdict, attempt if first and not attempt.reasons_at_failure else None)

    def same(self, verdict: Placement | Failure, attempt: Attempt | None) -> None:
        """Compare one verdict; ``attempt`` is what the pod saw, if it was the first of a group that fits."""
        pod = verdict.pod
        plan = self.plans.get(pod.template.profile)
        if plan is None:
            assert isinstance(verdict, Failure)
            return
        found = evaluate(self.state, plan, pod)
        if isinstance(verdict, Failure):
            assert found.node is None
            assert found.feasible == []
            assert found.outcome in (Outcome.UNSCHEDULABLE, Outcome.UNRESOLVABLE)
            return
        assert found.node == verdict.node
        assert found.scores[verdict.node] == pytest.approx(verdict.score, abs=NEAR)
        if attempt is not None:
            same_reasons(attempt, Counter(found.infeasible.values()), len(found.unresolvable))
            for candidate in attempt.candidates:
                assert found.scores[candidate.node] == pytest.approx(candidate.score, abs=NEAR)
                assert found.score_parts[candidate.node] == candidate.parts
        self.state.apply(
            Assumed([pod.key], np.array([self.state.table.rows[verdict.node]]), {pod.key: verdict.pod})
        )
        self.placed_count += 1


def same_reasons(attempt: Attempt, counts: Counter[str], unresolvable_count: int) -> None:
    assert attempt.reasons == dict(counts)
    assert attempt.unresolvable_count == unresolvable_count


@settings(
    deadline=None,
    max_examples=examples(60),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(scenarios(pods_max=60))
def test_every_verdict_is_the_kernel_s(scenario: Scenario) -> None:
    Pair(scenario).run()


def test_the_comparison_sees_placements() -> None:
    size = Scenario(seed=3, nodes=40, pods=60, groups=12, resources=4, cycles=4, own_profiles=True)
    pairs = [Pair(size), Pair(replace(size, constraints=False))]
    for pair in pairs:
        pair.run()
    assert [pair.placed_count > 5 for pair in pairs] == [True, True]
    assert pairs[1].placed_count > 30
