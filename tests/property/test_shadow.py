"""Are decisions, journal and state the same, byte for byte, whether a shadow profile looks on or not?"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from domain.state.digest import digest_of
from services.worker.metrics import ShadowMetrics
from services.worker.planner import Planner
from services.worker.shadow import Shadow
from tests.builders import profile_manifest
from tests.depth import some
from tests.history.day import read, replay
from tests.property.site import Producer, Site, batches, payloads

RECORDS = 120


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
