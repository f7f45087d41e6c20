"""What a group asks of other pods, as it reaches the kernel."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from domain.counting.counted import NOTHING, Counted, counted_of
from domain.kernels import arrays as kernel
from domain.model.limits import rules_per_pod_max, values_per_pod_max
from domain.model.profiles import PluginUse, Profile
from domain.model.selectors import LabelSelector
from domain.plugins.base import Reason
from domain.plugins.counting import CounterSpec, CountFilter, CountScore, Incoming, Rule, Value
from domain.plugins.registry import ProfilePlan, ScoreUse
from domain.plugins.weighers import Match, Weigher
from tests.values import template

COUNTER = CounterSpec("zone", Weigher(matches=(((Match(selector=LabelSelector()),), 1),)))
OF_OTHERS = CounterSpec("zone", Weigher())
FULL = Reason("full", unresolvable=False)


class Refuses(CountFilter):
    """A filter of so many rules."""

    name: ClassVar[str] = "Refuses"
    reads: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, count: int) -> None:
        self.count = count

    def rules(self, pod: Incoming) -> list[Rule]:
        """See ``CountFilter``."""
        return [Rule(kernel.AT_MOST, COUNTER, n, FULL) for n in range(self.count)]


class Rates(CountScore):
    """A score of so many values."""

    name: ClassVar[str] = "Rates"
    reads: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, count: int) -> None:
        self.count = count

    def values(self, pod: Incoming) -> list[Value]:
        """See ``CountScore``."""
        return [Value(COUNTER)] * self.count


def counted(rules: int, *values: int) -> Counted:
    """Return what a pod asks under a profile with a filter of so many rules, and a score per number."""
    plan = ProfilePlan(Profile(name="p", filters=(PluginUse(name="NodeName"),), scores=()))
    plan.count_filters.append((1, Refuses(rules)))
    plan.count_scores.extend(ScoreUse(f"s{i}", 1.0, Rates(count)) for i, count in enumerate(values))
    return counted_of(plan, Incoming(template(), "default", {}, None, cast(Any, None)))


def test_a_pod_that_asks_nothing_of_others_has_no_rule_and_no_score() -> None:
    assert counted(0, 0, 0) is NOTHING


def test_a_score_without_values_keeps_its_place_beside_one_that_has_some() -> None:
    assert [len(values) for values in counted(0, 0, 2).scores] == [0, 2]


def test_rules_keep_the_position_of_their_filter() -> None:
    assert [(position, rule.bound) for position, rule in counted(2).rules] == [(1, 0), (1, 1)]


def test_as_many_rules_and_values_as_the_kernel_takes_are_taken() -> None:
    most = counted(rules_per_pod_max, values_per_pod_max)
    assert len(most.rules) == rules_per_pod_max
    assert len(most.scores[0]) == values_per_pod_max


def test_a_pod_with_more_is_refused_everywhere_and_told_why() -> None:
    for too_many in (counted(rules_per_pod_max + 1), counted(0, values_per_pod_max, 1)):
        ((_, rule),) = too_many.rules
        assert (rule.kind, rule.bound) == (kernel.AT_MOST, -1)
        assert rule.reason == rule.missing
        assert rule.reason.unresolvable
        assert rule.reason.code == "too-many-rules"
        assert too_many.scores == []
