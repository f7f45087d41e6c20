"""One seeded random case: every decision of the scheduler against the plain evaluation and the oracle."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import numpy as np

from domain.cycle.schedule import Scheduler
from domain.engine.evaluate import evaluate
from domain.engine.verdicts import Placement
from domain.model.decisions import Attempt
from domain.model.events import Event
from domain.plugins.registry import ProfilePlan
from domain.state.cluster import ClusterState
from domain.state.steps import Assumed, Written
from tests.oracle.placing import Look, Oracle, as_told
from tests.oracle.scenarios import Scenario, World
from tests.oracle.scoring import ONE

LOOKS_MAX = 4_000
"""So many pairs of pod and node does the oracle look at per case, which is slow; at least one pod in each."""


def scenario_of(seed: int) -> Scenario:
    """Return a case: most are small, a few have thousands of nodes or pods."""
    random = Random(seed)
    nodes, pods = random.choice(((1, 20), (5, 30), (12, 40), (30, 60), (30, 60), (60, 30), (700, 12)))
    if seed % 500 == 0:
        nodes, pods = random.choice(((2_000, 300), (200, 5_000)))
    return Scenario(
        seed=seed,
        nodes=random.randint(1, nodes),
        pods=random.randint(1, pods),
        groups=random.choice((1, 2, 5, 20)),
        resources=random.randint(1, 8),
        cycles=random.choice((1, 2, 4)),
        changes=random.choice((0, 3, 10)),
        alike=random.random() < 0.3,
        constraints=random.random() < 0.7,
        priorities=random.random() < 0.5,
        own_profiles=False,
        any_profiles=True,
    )


def run_seeded(seed: int) -> Counter[str]:
    """Check one case; return how many decisions were compared with what.

    Raises
    ------
    AssertionError
        Two of the three disagree: kernel and evaluation in a part of a score, one of them and the oracle by
        more than one unit of a total per score, or by a reason.
    """
    return Case(scenario_of(seed)).run()


class Case:
    """A scheduler; a state on which each of its decisions is evaluated one by one; and the oracle."""

    def __init__(self, scenario: Scenario) -> None:
        self.world = World(scenario)
        self.scheduler = Scheduler(self.world.profiles, seed=scenario.seed)
        self.state = ClusterState(seed=scenario.seed)
        self.oracle = Oracle(self.world.profiles, seed=scenario.seed)
        self.plans = {name: ProfilePlan(profile) for name, profile in self.world.profiles.items()}
        self.near = {n: len(p.scores) / ONE + 1e-9 for n, p in self.world.profiles.items()}
        self.compared: Counter[str] = Counter()
        self._look_each = max(1, scenario.nodes * scenario.pods // LOOKS_MAX)

    def run(self) -> Counter[str]:
        """Play the whole scenario: nodes and usage, then in every cycle some pods and some changes."""
        world, scenario = self.world, self.world.scenario
        self.feed(world.first_nodes() + world.measurements(0.8))
        for i in range(scenario.cycles):
            self.feed(world.new_pods(scenario.pods // scenario.cycles + 1))
            self.feed(world.changes(0 if i == 0 else scenario.changes))
            self.feed(world.measurements(0.1 if i else 0.0))
            self.cycle()
        return self.compared

    def feed(self, events: list[Event]) -> None:
        for event in events:
            self.scheduler.fold(event)
            self.state.apply(event)
            self.oracle.take(event)
            self.write()

    def write(self) -> None:
        """Say of each pod that was placed when that was, as the ledger does."""
        now_ms = self.world.now_ms
        new = {key: now_ms for key, pod in self.state.pods.items() if pod.node and not pod.placed_ms}
        if new:
            self.scheduler.fold(Written(new))
            self.state.apply(Written(new))
        for key in new:
            self.oracle.pods[key].placed_ms = now_ms

    def cycle(self) -> None:
        result = self.scheduler.cycle()
        explained: set[int] = set()
        for i, verdict in enumerate(result.tried):
            key = verdict.pod.key
            attempt = None if verdict.attempt in explained else result.attempts[verdict.attempt]
            explained.add(verdict.attempt)
            node = verdict.node if isinstance(verdict, Placement) else ""
            score = verdict.score if isinstance(verdict, Placement) else 0.0
            if attempt is not None and not node and attempt.bound_count == 0:
                attempt = None  # a verdict from an earlier look, told once more
            self.same_as_evaluation(key, node, score, attempt)
            if i % self._look_each == 0:
                self.same_as_oracle(key, node, score, attempt)
            if node:
                self.state.apply(Assumed([key], np.array([self.state.table.rows[node]]), {key: verdict.pod}))
                self.oracle.place(self.oracle.pods[key], node)
                assert self.oracle.pods[key].devices == verdict.pod.devices
        self.write()

    def same_as_evaluation(self, key: str, node: str, score: float, attempt: Attempt | None) -> None:
        pod = self.state.pods[key].spec
        plan = self.plans.get(pod.template.profile)
        if plan is None:
            assert node == ""
            return
        found = evaluate(self.state, plan, pod)
        assert (found.node or "") == node
        near = self.near[pod.template.profile]
        assert not node or math.isclose(found.scores[node], score, abs_tol=near)
        self.compared["evaluated"] += 1
        self.compared["placed"] += bool(node)
        if attempt is not None:
            assert attempt.reasons == as_told(attempt.reasons, Counter(found.infeasible.values()))
            assert attempt.unresolvable_count == len(found.unresolvable)
            for candidate in attempt.candidates:
                assert math.isclose(found.scores[candidate.node], candidate.score, abs_tol=near)
                assert found.score_parts[candidate.node] == candidate.parts
            self.compared["explained"] += 1

    def same_as_oracle(self, key: str, node: str, score: float, attempt: Attempt | None) -> None:
        look = self.oracle.look(self.oracle.pods[key])
        if not node:
            assert look.totals == {}
            return
        near = self.near[look.pod.template.profile]
        assert math.isclose(look.totals[node], score, abs_tol=near)
        assert look.totals[node] >= look.score - near
        self.compared["looked"] += 1
        if attempt is not None:
            assert (attempt.reasons, attempt.unresolvable_count) == (look.reasons, look.unresolvable_count)
            self.same_parts(look, attempt, near)

    def same_parts(self, look: Look, attempt: Attempt, near: float) -> None:
        known = {name: parts for name, _, parts in look.candidates}
        for candidate in attempt.candidates:
            assert math.isclose(look.totals[candidate.node], candidate.score, abs_tol=near)
            for label, value in known.get(candidate.node, {}).items():
                assert math.isclose(value, candidate.parts[label], abs_tol=1e-7), label
