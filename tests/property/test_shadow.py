"""Are decisions, journal and state the same, byte for byte, whether a shadow profile looks on or not?"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from domain.cycle.schedule import Scheduler
from domain.engine.shadow import Compared, Comparing
from domain.model.events import NodeDeleted, NodeUpserted, PodUpserted
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.selectors import LabelSelector, SpreadConstraint
from domain.plugins.registry import ProfilePlan
from domain.queue.groups import WaitingGroup
from domain.state.digest import digest_of
from services.worker.metrics import ShadowMetrics
from services.worker.planner import Planner
from services.worker.shadow import Shadow
from tests.builders import profile_manifest
from tests.depth import some
from tests.history.day import read, replay
from tests.property.site import Producer, Site, batches, payloads
from tests.values import GIB, node, pod, template

RECORDS = 120
ALL = LabelSelector(())


def tireless(profile: str) -> Shadow:
    """Return a shadow profile that no time is counted against, so that it compares every attempt."""
    shadow = Shadow(profile, ShadowMetrics(CollectorRegistry()), lambda: 0)
    shadow._credit_us = 1.0
    return shadow


@pytest.fixture
def shadows(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[list[Shadow]]:
    """Give every planner that is made, those of a replay too, the shadow profile that is asked for."""
    made, before = list[Shadow](), Planner.__init__

    def begin(self: Planner, *args: Any, **kwargs: Any) -> None:
        before(self, *args, **kwargs)
        self.shadow = tireless(request.param)
        made.append(self.shadow)

    monkeypatch.setattr(Planner, "__init__", begin)
    yield made
    assert {each.figures.state for each in made} <= {"on", "unknown"}


@pytest.mark.parametrize("shadows", ["packed", "default-scheduler"], indirect=True)
def test_the_recorded_day_has_the_same_bytes_beside_a_shadow_profile(shadows: list[Shadow]) -> None:
    outcome = replay(read())
    assert outcome.difference is None, outcome.difference
    assert sum(each.figures.counts.attempts for each in shadows) > 20


@pytest.fixture
def compared_anew(monkeypatch: pytest.MonkeyPatch) -> list[Compared]:
    """Compare each pod once more with nothing kept, and note what came of it."""
    found, compare = list[Compared](), Comparing.compare

    def twice(self: Comparing, group: WaitingGroup, key: str, shadow: ProfilePlan) -> Compared:
        found.append(compare(self, group, key, shadow))
        assert compare(Comparing(self.state), group, key, shadow) == found[-1]
        return found[-1]

    monkeypatch.setattr(Comparing, "compare", twice)
    return found


@pytest.mark.parametrize("shadows", ["packed"], indirect=True)
def test_what_is_kept_from_pod_to_pod_changes_no_answer(
    shadows: list[Shadow], compared_anew: list[Compared]
) -> None:
    assert replay(read()).difference is None
    differing = [each for each in compared_anew if each.shadow_loss]
    assert (len(compared_anew) > 20, len(differing) > 3) == (True, True)


@pytest.mark.parametrize("seed", some(range(8)))
def test_nor_where_nodes_and_resources_come_and_go(seed: int, compared_anew: list[Compared]) -> None:
    random, scheduler = Random(seed), Scheduler(BUILT_IN_PROFILES, seed=1)
    shadow = tireless("most-allocated")
    for step in range(120):
        name, draw = f"n{random.randrange(90)}", random.random()
        if draw < 0.6:
            extended = {f"x/{random.randrange(3)}": 4} if random.random() < 0.2 else None
            labels = {"zone": random.choice("xyz")}
            cpu = random.choice((2_000, 4_000))
            of = node(name, cpu, version=None, labels=labels, extended=extended)
            scheduler.fold(NodeUpserted(of))
        elif draw < 0.7:
            scheduler.fold(NodeDeleted(name))
        else:
            spread = SpreadConstraint(topology_key="zone", hard=random.random() < 0.5, selector=ALL)
            rules = (spread,) if random.random() < 0.2 else ()
            shape = template(cpu=random.choice((100, 300)), memory=GIB, spread=rules)
            scheduler.fold(PodUpserted(pod(f"p{step}", shape)))
        shadow.cycle(scheduler, step, step)
    assert shadow.figures.state == "on"
    assert len(compared_anew) > 10


@pytest.mark.parametrize("preempts", [False, True])
@pytest.mark.parametrize("seed", some(range(20)))
def test_a_worker_writes_the_same_beside_a_shadow_profile(seed: int, preempts: bool) -> None:
    packed = profile_manifest("packed", "MostAllocated", resource_version=1)
    records = Producer(Random(seed)).records(RECORDS)
    alone, watched = Site(preempts=preempts), Site(preempts=preempts)
    watched.planner.shadow = tireless("packed")
    for site in (alone, watched):
        site.tell("ADDED", packed)
        for batch in batches(records, Random(seed)):
            site.take(batch)
    assert payloads(watched) == payloads(alone)
    assert watched.database.journal == alone.database.journal
    assert digest_of(watched.planner.scheduler.state) == digest_of(alone.planner.scheduler.state)
    counts = watched.planner.shadow.figures.counts
    assert counts.attempts > 5
    assert counts.skipped == 0
