"""Does a budget match the pods that kube-scheduler says, and allow what its status or its pods say?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from domain.engine.budgets import Budgets, allowed_by
from domain.model.config import DISRUPTION_BUDGET, DisruptionBudget
from domain.model.events import ConfigUpserted, PodDeleted, PodUpserted
from domain.model.pods import PodSpec
from domain.model.selectors import LabelRequirement, LabelSelector
from domain.state.cluster import ClusterState
from domain.state.steps import Reclassify
from tests.values import pod

WEB = LabelSelector((LabelRequirement("app", "In", ("web",)),))
NO_CANARY = LabelSelector((LabelRequirement("track", "NotIn", ("canary",)),))


def web(name: str, *, on: str = "n", namespace: str = "shop", **labels: str) -> PodSpec:
    return pod(name, on=on, namespace=namespace, labels={"app": "web", **labels})


def budget(name: str, selector: LabelSelector | None = WEB, **fields: Any) -> ConfigUpserted:
    content = DisruptionBudget(selector=selector, **fields)
    return ConfigUpserted(DISRUPTION_BUDGET, "shop", name, content)


def state_of(*things: PodSpec | ConfigUpserted) -> ClusterState:
    state = ClusterState(seed=1)
    for each in things:
        state.apply(PodUpserted(each) if isinstance(each, PodSpec) else each)
    state.apply(Reclassify())
    return state


def allowed(budgets: Budgets) -> dict[str, int]:
    return dict(zip([name for _, name in budgets.names], budgets.allowed.tolist(), strict=True))


def matched(budgets: Budgets, state: ClusterState, name: str, namespace: str = "shop") -> list[str]:
    return [budgets.names[number][1] for number in budgets.of(state.pods[f"{namespace}/{name}"])]


def test_without_budgets_no_pod_is_followed() -> None:
    state = state_of(web("a"))
    budgets = Budgets(state)
    assert (len(budgets), budgets.of(state.pods["shop/a"])) == (0, ())
    assert state.index.changed is None
    assert state.pods["shop/a"].pod_class is None


def test_a_status_needs_no_pods_to_be_followed() -> None:
    state = state_of(web("a"), budget("b", disruptions_allowed=3, min_available=100))
    assert allowed(Budgets(state)) == {"b": 3}
    assert state.index.changed is None


def test_a_budget_matches_labelled_pods_of_its_namespace() -> None:
    state = state_of(
        web("a"), web("c", track="canary"), web("far", namespace="depot"),
        pod("bare", on="n", namespace="shop"), pod("db", on="n", namespace="shop", labels={"app": "db"}),
        budget("web"), budget("rest", NO_CANARY), budget("empty", LabelSelector()), budget("none", None),
    )  # fmt: skip
    budgets = Budgets(state)
    assert [name for _, name in budgets.names] == ["rest", "web"]
    assert matched(budgets, state, "a") == ["rest", "web"]
    assert matched(budgets, state, "c") == ["web"]
    assert matched(budgets, state, "db") == ["rest"]
    assert matched(budgets, state, "far", "depot") == []
    assert matched(budgets, state, "bare") == []  # its selector matches it, but kube-scheduler does not ask


def test_a_disrupted_pod_does_not_count_against_its_budget() -> None:
    state = state_of(web("a"), web("b"), budget("web", disruptions_allowed=1, disrupted=("a",)))
    budgets = Budgets(state, {"shop/a"})
    assert (matched(budgets, state, "a"), matched(budgets, state, "b")) == ([], ["web"])
    assert allowed(budgets) == {"web": 1}


def test_a_pod_that_was_decided_to_go_counts_until_it_is_gone() -> None:
    state = state_of(
        web("a"), web("b"), web("c"), budget("stated", disruptions_allowed=2), budget("two", min_available=2)
    )
    evicted = {"shop/a"}
    budgets = Budgets(state, evicted)
    assert allowed(budgets) == {"stated": 1, "two": 0}
    going = msgspec.structs.replace(web("a"), terminating=True, resource_version=2)
    state.apply(PodUpserted(going))
    state.apply(Reclassify())
    budgets.sync()
    assert allowed(budgets) == {"stated": 1, "two": 0}
    state.apply(PodDeleted("shop", "a"))
    budgets.sync()
    assert allowed(budgets) == {"stated": 2, "two": 0}
    evicted |= {"shop/b", "shop/c"}
    state.apply(PodUpserted(web("d")))
    budgets.sync()
    assert allowed(budgets) == {"stated": 0, "two": 0}


def test_a_waiting_or_terminating_pod_is_expected_and_not_healthy() -> None:
    leaving = msgspec.structs.replace(web("c"), terminating=True)
    state = state_of(web("a"), web("b"), leaving, web("d", on=""), budget("web", max_unavailable="75%"))
    assert allowed(Budgets(state)) == {"web": 1}  # of four, three may be away, and two are


def test_pods_that_come_and_go_while_they_wait_are_expected_or_no_more() -> None:
    state = state_of(web("a"), web("b"), budget("web", max_unavailable=1))
    budgets = Budgets(state)
    assert allowed(budgets) == {"web": 1}
    state.apply(PodUpserted(web("c", on="")))
    budgets.sync()
    assert allowed(budgets) == {"web": 0}
    state.apply(PodDeleted("shop", "c"))
    budgets.sync()
    assert allowed(budgets) == {"web": 1}


@pytest.mark.parametrize(
    ("fields", "healthy", "expected", "allows"),
    [
        ({"min_available": 2}, 5, 5, 3),
        ({"min_available": 7}, 5, 5, 0),
        ({"min_available": "50%"}, 5, 5, 2),
        ({"min_available": "0%"}, 5, 5, 5),
        ({"min_available": "1%"}, 5, 5, 4),
        ({"max_unavailable": 2}, 5, 5, 2),
        ({"max_unavailable": 2}, 4, 5, 1),
        ({"max_unavailable": 9}, 5, 5, 5),
        ({"max_unavailable": "50%"}, 5, 5, 3),
        ({"max_unavailable": "100%"}, 3, 5, 3),
        ({"max_unavailable": "0%"}, 5, 5, 0),
        ({"min_available": 0}, 0, 0, 0),
        ({}, 5, 5, 0),
    ],
)
def test_what_is_allowed_without_a_status(
    fields: dict[str, Any], healthy: int, expected: int, allows: int
) -> None:
    assert allowed_by(DisruptionBudget(selector=WEB, **fields), healthy, expected) == allows


def test_a_new_status_keeps_the_numbers_and_another_selector_gives_new_ones() -> None:
    state = state_of(web("a"), budget("a", disruptions_allowed=1), budget("b", disruptions_allowed=2))
    budgets = Budgets(state)
    version = budgets.version
    state.apply(budget("b", disruptions_allowed=5))
    budgets.sync()
    assert (allowed(budgets), budgets.version) == ({"a": 1, "b": 5}, version)
    state.apply(budget("a", NO_CANARY, disruptions_allowed=1))
    state.apply(Reclassify())
    budgets.sync()
    assert budgets.version > version
    assert matched(budgets, state, "a") == ["a", "b"]
