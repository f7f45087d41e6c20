"""Does the scheduler decide, node for node and reason for reason, what the plain oracle decides?"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from domain.cycle.schedule import Scheduler
from domain.engine import bounds as bounds_module
from domain.engine import slots as slots_module
from domain.engine.slots import GroupSlots
from domain.engine.verdicts import CycleResult, Placement
from domain.model.events import Event, PodUpserted
from domain.state import snapshot as snapshot_module
from tests.depth import examples
from tests.oracle.pair import Pair
from tests.oracle.restarts import restarted
from tests.oracle.scenarios import Scenario, World, scenarios

NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)  # an example takes too long to shrink hundreds
settings.register_profile(
    "oracle",
    deadline=None,
    max_examples=examples(150),
    phases=NO_SHRINKING,
    suppress_health_check=list(HealthCheck),
)
oracle_settings = settings.get_profile("oracle")


@settings(oracle_settings)
@given(scenario=scenarios())
def test_scheduler_equals_oracle(scenario: Scenario) -> None:
    Pair(World(scenario)).run()


@settings(oracle_settings, max_examples=examples(12))
@given(scenario=scenarios(nodes_min=500, nodes_max=1_200, pods_max=15))
def test_scheduler_equals_oracle_over_many_nodes(scenario: Scenario) -> None:
    """More rows than a block of the kernel's scan has."""
    Pair(World(scenario)).run()


@settings(oracle_settings, max_examples=examples(100))
@given(
    scenario=scenarios(nodes_min=9, pods_max=300, groups_max=300),
    span=st.sampled_from((1, 2, 4)),
    twins_from=st.sampled_from((0, 2, 8, 10_000)),
)
def test_bounds_over_small_blocks_change_nothing(scenario: Scenario, span: int, twins_from: int) -> None:
    """Few rows per block, so that most blocks of a small cluster are passed over, and twins by twos."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds_module, "SPAN", span)
        patch.setattr(bounds_module, "EQUAL_ROWS_FROM", twins_from)
        Pair(World(scenario)).run()


@settings(oracle_settings, max_examples=examples(60))
@given(scenario=scenarios())
@pytest.mark.parametrize(("slots", "cached"), [(2, 1), (3, 2), (64, 2)])
def test_few_slots_change_nothing(scenario: Scenario, slots: int, cached: int) -> None:
    """Groups that take each other's slots, trees and static parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots_module, "_CACHED_MIN", cached)
        pair = Pair(World(scenario))
        scheduler = pair.scheduler
        scheduler._slots = GroupSlots(scheduler.state, scheduler._snapshot, slots_max=slots, bytes_max=1)
        assert len(scheduler._slots.groups.trees.owner) == cached
        pair.run()


@settings(oracle_settings, max_examples=examples(60))
@given(scenario=scenarios())
def test_slots_that_grow_change_nothing(scenario: Scenario) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots_module, "_SLOTS_FIRST", 1)
        patch.setattr(slots_module, "_SLOTS_GROWTH", 2)
        Pair(World(scenario)).run()


@settings(oracle_settings, max_examples=examples(100))
@given(scenario=scenarios(groups_max=4))
def test_a_short_change_log_changes_nothing(scenario: Scenario) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_module, "_LOG_LENGTH", 64)
        Pair(World(scenario)).run()


@settings(oracle_settings, max_examples=examples(60))
@given(scenario=scenarios(), restarts=st.lists(st.booleans(), min_size=6, max_size=6))
def test_a_restart_changes_nothing(scenario: Scenario, restarts: list[bool]) -> None:
    pair = Pair(World(scenario))
    again = iter(restarts)

    def between() -> None:
        if next(again):
            pair.scheduler = restarted(pair.scheduler, pair.world.profiles)

    pair.run(between)


@settings(oracle_settings, max_examples=examples(60))
@given(
    scenario=scenarios(),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    any_profiles=st.booleans(),
)
def test_batches_may_be_cut_anywhere(scenario: Scenario, cuts: list[int], any_profiles: bool) -> None:
    world = World(replace(scenario, priorities=False, any_profiles=any_profiles))
    at_once, in_parts = (Scheduler(world.profiles, seed=scenario.seed) for _ in range(2))
    events = world.new_pods(scenario.pods)
    pods = [event for event in events if isinstance(event, PodUpserted) and not event.pod.node_name]
    first = world.first_nodes() + world.measurements(0.8) + [event for event in events if event not in pods]
    expected = [part for event in first + pods for part in settled(at_once, event)]
    expected.append(at_once.cycle())
    parts = [part for event in first for part in settled(in_parts, event)]
    for cut in itertools.cycle(cuts):
        parts += [part for event in pods[:cut] for part in settled(in_parts, event)]
        del pods[:cut]
        parts.append(in_parts.cycle())
        if not pods:
            break
    in_words = [[told for part in run for told in what_pods_are_told(part)] for run in (parts, expected)]
    assert in_words[0] == in_words[1]


def settled(scheduler: Scheduler, event: Event) -> list[CycleResult]:
    """Fold an event as a worker does: what must be tried before it is tried first."""
    results = []
    while scheduler.settles_first(event):
        results.append(scheduler.cycle())
    scheduler.fold(event)
    return results


def what_pods_are_told(result: CycleResult) -> list[tuple[str, str, float, dict[str, int]]]:
    return [
        (verdict.pod.key, verdict.node, verdict.score, {})
        if isinstance(verdict, Placement)
        else (verdict.pod.key, "", 0.0, result.attempts[verdict.attempt].reasons_at_failure)
        for verdict in result.tried
    ]
