"""Does a waiting pod get its node as soon as there is one, as if all were tried after every event?"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from domain.cycle.schedule import Scheduler
from domain.model.events import PodUpserted
from domain.model.pods import PodSpec
from tests.depth import examples
from tests.oracle.scenarios import Scenario, World, scenarios

CYCLES_MAX = 20


def fits_somewhere(world: World, state_of: Scheduler, waiting: PodSpec) -> bool:
    """Ask a scheduler that knows of no earlier attempt."""
    fresh = Scheduler(world.profiles, seed=0)
    state = state_of.state
    for entry in sorted((e for e in state.nodes.values() if e.spec is not None), key=lambda e: e.ordinal):
        assert entry.spec is not None
        fresh.state.restore_node(
            name=entry.spec.name, ordinal=entry.ordinal, version=1, spec=entry.spec, deleted=entry.deleted
        )
    for name, window in state.usage.windows.items():
        fresh.state.restore_usage(window.record(name))
    for pod in state.pods.values():
        if pod.spec.key != waiting.key:
            fresh.state.restore_pod(
                pod.spec, node=pod.node, adopted=False
            )  # those that wait count as masters
    fresh.fold(PodUpserted(waiting))
    return any(
        verdict.pod.key == waiting.key and hasattr(verdict, "node") for verdict in fresh.cycle().verdicts
    )


@settings(deadline=None, max_examples=examples(50))
@given(scenarios(nodes_max=12, pods_max=30, groups_max=8), st.booleans())
def test_no_pod_waits_that_would_fit(scenario: Scenario, any_profiles: bool) -> None:
    world = World(replace(scenario, any_profiles=any_profiles))
    scheduler = Scheduler(world.profiles, seed=1)
    events = world.new_pods(scenario.pods // 2) + world.first_nodes() + world.measurements(0.8)
    for _ in range(scenario.cycles):
        events += world.new_pods(3) + world.changes(1 + scenario.changes) + world.measurements(0.3)
    for at, event in enumerate(events):
        scheduler.fold(event)
        if (scenario.seed + at) % 3 == 0:
            continue  # several events in one cycle
        cycles = 0
        while scheduler.has_work:
            scheduler.cycle()
            cycles += 1
            assert cycles < CYCLES_MAX, "the scheduler never comes to rest"
        tried: set[bytes] = set()
        for pod in [p.spec for p in scheduler.state.pods.values() if not p.node]:
            if pod.signature not in tried:
                tried.add(pod.signature)
                assert not fits_somewhere(world, scheduler, pod), f"{pod.key} waits, and would fit"
