"""Does the scheduler decide as the plain oracle does where pods ask for and shun one another?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from domain.model.selectors import LabelSelector
from domain.plugins import spread_constraints
from domain.plugins.counting import CounterSpec, Rule
from domain.plugins.filters import inter_pod_affinity as affinity_filter
from domain.plugins.filters import pod_topology_spread as spread_filter
from domain.plugins.weighers import Match, Weigher
from domain.queue.queue import Queue
from domain.state.pod_classes import PodClass
from domain.state.pod_index import PodIndex
from domain.state.steps import Reclassify
from tests.depth import some
from tests.oracle.crowd_pair import CrowdPair, restart_at_random
from tests.oracle.crowds import size_of
from tests.oracle.placing import Look

WORK_MAX = 6_000
SEEDS = range(60)


@pytest.mark.parametrize("seed", some(SEEDS))
def test_scheduler_equals_oracle(seed: int) -> None:
    CrowdPair(size_of(seed, work_max=WORK_MAX)).run()


@pytest.mark.parametrize("seed", some(range(100, 120)))
def test_a_restart_changes_nothing(seed: int) -> None:
    CrowdPair(size_of(seed, work_max=WORK_MAX)).run(restart_at_random(seed))


@pytest.mark.wide
def test_the_crowds_are_of_all_sizes_and_most_pods_find_a_node() -> None:
    sizes = [size_of(seed, work_max=1_000_000) for seed in range(2_000)]
    assert (min(size.nodes for size in sizes), max(size.nodes for size in sizes)) == (1, 300)
    assert (min(size.pods for size in sizes), max(size.pods for size in sizes)) == (1, 500)
    pairs = [CrowdPair(size_of(seed, work_max=WORK_MAX)) for seed in range(200, 212)]
    for pair in pairs:
        pair.run()
    assert sum(pair.placed_count for pair in pairs) > 100
    assert sum(pair.explained_count for pair in pairs) > 50


def seen(look: Look) -> tuple[object, ...]:
    """Return all that a pod sees of the nodes."""
    infeasible = {name: (each.code, each.unresolvable) for name, each in look.infeasible.items()}
    return infeasible, look.totals, look.parts


@pytest.mark.parametrize("seed", some(range(300, 320)))
def test_two_pods_of_one_class_have_the_same_feasible_nodes_and_scores(seed: int) -> None:
    """The oracle, which knows no classes, looks for each pod that the scheduler has in one group."""
    pair = CrowdPair(size_of(seed, work_max=WORK_MAX))
    for events in pair.crowd.history():
        for event in events:
            pair.feed(event)
        pair.scheduler._follow(pair.scheduler.state.apply(Reclassify()))
        for group in pair.scheduler.queue.groups.values():
            first, *others = [pair.oracle.look(pair.oracle.pods[key]) for key in list(group.pods)[:8]]
            assert all(seen(look) == seen(first) for look in others)
        pair.cycle()


class Broken(NamedTuple):
    """A part of the scheduler, and how it would work if it were wrong."""

    owner: Any
    name: str
    wrong: Callable[..., Any]


def never(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""


def of_any_node(*args: Any, **kwargs: Any) -> CounterSpec:
    """Count on all nodes, whatever the policies and keys."""
    return msgspec.structs.replace(spread_constraints.counter_of(*args, **kwargs), eligible=None)


def without_itself(*args: Any, **kwargs: Any) -> Rule:
    """Let a pod not count itself."""
    rule = SPREAD_RULE(*args, **kwargs)
    return rule._replace(bound=args[0].spread.max_skew)


def with_everybody(weigher: Weigher, pod: Any, namespaces: Any) -> int:
    """Count pods that are being deleted for spread, too."""
    return WEIGH(msgspec.structs.replace(weigher, with_terminating=True), pod, namespaces)


def untold(index: PodIndex, pod_class: PodClass, node: str, change: int) -> None:
    """Count a pod without telling the counters."""
    index.count_placed_pod(pod_class, node, change)


def never_told_apart(index: PodIndex, namespace: str, selector: Any, change: int = 1) -> None:
    """Put pods into one class whatever their labels."""
    WATCH(index, namespace, selector and LabelSelector(), change)


SPREAD_RULE, WEIGH, WATCH = spread_filter._rule, Weigher.weigh, PodIndex.watch
BROKEN = {
    "the minimum is over the wrong domains": Broken(spread_filter, "counter_of", of_any_node),
    "a pod does not count itself": Broken(spread_filter, "_rule", without_itself),
    "namespaces are ignored": Broken(Match, "_selects", lambda *args: True),
    "pods that are being deleted count for spread": Broken(Weigher, "weigh", with_everybody),
    "counters do not follow events": Broken(PodIndex, "count_pod", untold),
    "labels tell no pods apart": Broken(PodIndex, "watch", never_told_apart),
    "selectors tell only later pods apart": Broken(PodIndex, "reclassify", lambda *args: []),
    "moved counters wake nobody": Broken(Queue, "wake_counted", never),
    "terms of others are not looked at": Broken(affinity_filter, "terms_of_others", lambda *args: []),
}


@pytest.mark.wide
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_scheduler_is_noticed(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these builds differs from the oracle on some crowd of those above."""
    monkeypatch.setattr(broken.owner, broken.name, broken.wrong)
    with pytest.raises(AssertionError):
        run_all()


def run_all() -> None:
    for seed in SEEDS:
        CrowdPair(size_of(seed, work_max=WORK_MAX)).run()
