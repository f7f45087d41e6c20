"""Do pods that ask for each other get the same nodes where the scheduler was restored in between?"""

from __future__ import annotations

import msgspec
import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import CycleResult, Placement
from domain.model.config import NAMESPACE, Namespace
from domain.model.events import ConfigUpserted, Event
from domain.model.profiles import PluginUse, Profile
from domain.plugins import registry
from domain.plugins.filters.inter_pod_affinity import InterPodAffinity
from domain.plugins.filters.pod_topology_spread import PodTopologySpread
from domain.plugins.scores.inter_pod_affinity import InterPodAffinity as InterPodAffinityScore
from domain.plugins.scores.pod_topology_spread import PodTopologySpread as PodTopologySpreadScore
from tests.depth import some
from tests.property.drawn import NAMESPACES, Draw, next_event

SEEDS = some(range(25))
FILTERS_ASKED = ("NodeResourcesFit", "NodePorts", "PodTopologySpread", "InterPodAffinity")
SCORES_ASKED = ("PodTopologySpread", "InterPodAffinity", "NodeResourcesFit")


@pytest.fixture
def profiles(monkeypatch: pytest.MonkeyPatch) -> dict[str, Profile]:
    filters = {each.name: each for each in (PodTopologySpread, InterPodAffinity)}
    scores = {each.name: each for each in (PodTopologySpreadScore, InterPodAffinityScore)}
    monkeypatch.setattr(registry, "FILTERS", {**registry.FILTERS, **filters})
    monkeypatch.setattr(registry, "SCORES", {**registry.SCORES, **scores})
    made = Profile(
        name="default-scheduler",
        filters=tuple(PluginUse(name=name) for name in FILTERS_ASKED),
        scores=tuple(PluginUse(name=name) for name in SCORES_ASKED),
    )
    return {made.name: made}


def restored(old: Scheduler, profiles: dict[str, Profile]) -> Scheduler:
    """Make a scheduler as a restart does from the ledger, which keeps no label that was ever watched."""
    new, state = Scheduler(profiles, seed=1), old.state
    for thing in state.config.known.values():
        new.state.restore_config(thing)
    known = {name: entry for name, entry in state.nodes.items() if entry.spec is not None}
    for name, entry in sorted(known.items(), key=lambda item: item[1].ordinal):
        assert entry.spec is not None
        new.state.restore_node(
            name=name,
            ordinal=entry.ordinal,
            version=entry.version,
            spec=entry.spec,
            deleted=entry.deleted,
        )
    for key, pod in sorted(state.pods.items()):
        if pod.node:
            new.state.restore_pod(pod.spec, node=pod.node, adopted=pod.adopted)
        assert pod.node or not old.queue.is_fresh(key)
    waiting = [pod for pod in state.pods.values() if not pod.node]
    for pod in sorted(waiting, key=lambda each: each.arrival):
        new.restore_pod(pod.spec, arrival=pod.arrival)
    for which, (at_ms, version) in state.tombstones.known():
        key, uid = which.split(" ")
        new.state.tombstones.add(key, uid, None if version < 0 else version, at_ms)
    return new


def decided(result: CycleResult) -> list[tuple[str, str, float, bool]]:
    """Return who got which node for which score, and who is told to wait."""
    found = []
    for verdict in result.tried:
        if isinstance(verdict, Placement):
            found.append((verdict.pod.key, verdict.node, verdict.score, True))
        else:
            attempt = result.attempts[verdict.attempt]
            found.append((verdict.pod.key, repr(attempt.reasons_at_failure), 0.0, attempt.unresolvable))
    return found


def story(seed: int) -> list[list[Event]]:
    """Return batches of events; namespaces get and change labels, too."""
    random, batches, version = Draw(seed), [], 0
    for _ in range(14):
        batch: list[Event] = []
        for _ in range(random.randrange(1, 8)):
            version += 1
            if random.random() < 0.1:
                team = Namespace(labels={"team": random.choice(("blue", "red"))})
                batch.append(ConfigUpserted(NAMESPACE, "", random.choice(NAMESPACES), team, version))
            else:
                batch.append(next_event(random, version))
        batches.append(batch)
    return batches


def settle(scheduler: Scheduler) -> list[tuple[str, str, float, bool]]:
    """Run cycles until there is no work."""
    found: list[tuple[str, str, float, bool]] = []
    for _ in range(50):
        if not scheduler.has_work:
            return found
        found += decided(scheduler.cycle())
    raise AssertionError("the scheduler never comes to rest")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_restart_changes_no_decision(seed: int, profiles: dict[str, Profile]) -> None:
    whole, cut = Scheduler(profiles, seed=1), Scheduler(profiles, seed=1)
    random = Draw(seed + 1_000)
    for batch in story(seed):
        for scheduler in (whole, cut):
            for event in batch:
                scheduler.fold(event)
        assert settle(cut) == settle(whole)
        if random.random() < 0.4:
            cut = restored(cut, profiles)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_pod_waits_that_would_fit(seed: int, profiles: dict[str, Profile]) -> None:
    """A restored scheduler tries every waiting pod again, whatever woke it or should have."""
    scheduler = Scheduler(profiles, seed=1)
    for batch in story(seed):
        for event in batch:
            scheduler.fold(event)
        settle(scheduler)
        again = restored(scheduler, profiles)
        settle(again)
        waited = {key for key, pod in scheduler.state.pods.items() if not pod.node}
        assert {key for key in waited if again.state.pods[key].node} == set()


@pytest.mark.deep
def test_the_stories_place_refuse_and_wake(profiles: dict[str, Profile]) -> None:
    """Else the test above would say little."""
    placed = refused = by_rules = woken = 0
    for seed in SEEDS:
        scheduler, waits = Scheduler(profiles, seed=1), set[str]()
        for batch in story(seed):
            for event in batch:
                scheduler.fold(event)
            while scheduler.has_work:
                result = scheduler.cycle()
                by_rules += sum(attempt.rules is not msgspec.UNSET for attempt in result.attempts)
                for key, _, score, _ in decided(result):
                    is_placed = scheduler.state.pods[key].node != ""
                    placed, refused = placed + is_placed, refused + (not is_placed)
                    woken += is_placed and key in waits
                    waits.add(key)
                    assert score >= 0
    assert min(placed, refused, by_rules, woken) > len(SEEDS)
