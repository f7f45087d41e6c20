"""Do budgets say what a recount over all pods says, whatever happened in between?"""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.engine.budgets import Budgets
from domain.model.config import DISRUPTION_BUDGET, DisruptionBudget
from domain.model.events import ConfigDeleted, ConfigUpserted
from domain.state.cluster import ClusterState
from domain.state.pods import PodEntry
from domain.state.steps import Assumed, Reclassify
from tests.depth import examples
from tests.property.class_audit import audit_classes
from tests.property.drawn import NAMESPACES, Draw, next_event

Named = dict[tuple[str, str], DisruptionBudget]


def draw_budget(random: Draw) -> DisruptionBudget:
    many = random.choice((1, 2, 3, "0%", "30%", "50%", "100%"))
    named = random.choice(("min_available", "max_unavailable", ""))
    return DisruptionBudget(
        selector=random.choice((None, random.selector(), random.selector(), random.selector())),
        disruptions_allowed=random.choice((None, None, None, None, 0, 1, 3)),
        disrupted=tuple(sorted(f"p{random.randrange(25)}" for _ in range(random.choice((0, 0, 3))))),
        **({named: many} if named else {}),
    )


def next_budget(random: Draw, state: ClusterState, known: Named) -> None:
    """Let a budget come, change or go."""
    place = random.choice(NAMESPACES), random.choice("abcdef")
    if random.random() < 0.25:
        state.apply(ConfigDeleted(DISRUPTION_BUDGET, *place))
        known.pop(place, None)
    else:
        known[place] = draw_budget(random)
        state.apply(ConfigUpserted(DISRUPTION_BUDGET, *place, known[place]))


def matches(pod: PodEntry, place: tuple[str, str], budget: DisruptionBudget) -> bool:
    selector = budget.selector
    if selector is None or not selector.requirements or pod.spec.namespace != place[0]:
        return False
    return selector.matches(pod.spec.labels)


def counts_against(pod: PodEntry, place: tuple[str, str], budget: DisruptionBudget) -> bool:
    return bool(pod.spec.labels) and matches(pod, place, budget) and pod.spec.name not in budget.disrupted


def allowed(state: ClusterState, evicted: set[str], place: tuple[str, str], budget: DisruptionBudget) -> int:
    """Count by hand: every pod, by its own labels."""
    pods = [pod for pod in state.pods.values() if matches(pod, place, budget)]
    leaving = [
        pod for pod in pods if pod.spec.key in evicted and pod.node and counts_against(pod, place, budget)
    ]
    if budget.disruptions_allowed is not None:
        return max(0, budget.disruptions_allowed - len(leaving))
    healthy = [pod for pod in pods if pod.node and not pod.spec.terminating and pod not in leaving]

    def share(value: int | str) -> int:
        return value if isinstance(value, int) else math.ceil(int(value[:-1]) * len(pods) / 100)

    if budget.max_unavailable is not None:
        desired = max(0, len(pods) - share(budget.max_unavailable))
    elif budget.min_available is not None:
        desired = share(budget.min_available)
    else:
        return 0
    return max(0, len(healthy) - desired)


def audit(state: ClusterState, budgets: Budgets, known: Named, evicted: set[str]) -> None:
    in_force = {place: b for place, b in known.items() if b.selector is not None and b.selector.requirements}
    assert budgets.names == sorted(in_force)
    assert budgets.allowed.dtype == np.int32
    for number, place in enumerate(budgets.names):
        assert budgets.allowed[number] == allowed(state, evicted, place, in_force[place])
    for pod in state.pods.values():
        against = [place for place in budgets.names if counts_against(pod, place, in_force[place])]
        assert [budgets.names[number] for number in budgets.of(pod)] == against


def place_some(state: ClusterState, random: Draw) -> None:
    waiting = [key for key, entry in state.pods.items() if not entry.node]
    keys = random.sample(waiting, min(len(waiting), 3)) if state.table.count else []
    rows = [random.randrange(state.table.count) for _ in keys]
    state.apply(Assumed(keys, np.array(rows, dtype=np.int64)))


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(0, 1 << 32), st.integers(1, 150))
def test_budgets_follow_whatever_happens(seed: int, steps: int) -> None:
    random, state, evicted = Draw(seed), ClusterState(seed=1), set[str]()
    known: Named = {}
    budgets = Budgets(state, evicted)
    for step in range(steps):
        if random.random() < (1 if step < 6 else 0.05):
            next_budget(random, state, known)
        else:
            state.apply(next_event(random, step + 1))
        if random.random() < 0.5:
            continue
        state.apply(Reclassify())
        audit_classes(state)
        evicted ^= set(random.sample(sorted(state.pods), min(len(state.pods), random.randrange(3))))
        if random.random() < 0.1:
            Budgets(state, evicted).sync()  # another one may take over what the first one follows
        budgets.sync()
        audit(state, budgets, known, evicted)
        place_some(state, random)
        if random.random() < 0.5:
            budgets.sync()
            audit(state, budgets, known, evicted)
