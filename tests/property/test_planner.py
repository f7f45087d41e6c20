"""Does the ledger say the same whatever comes in, in whatever batches, and wherever a worker starts anew?"""

from __future__ import annotations

from random import Random

import pytest

from services.ports.log import NODES_TOPIC, PODS_TOPIC
from tests.builders import event_bytes, node_manifest, pod_manifest, record
from tests.depth import some
from tests.property.site import Producer, Site, audit, batches, kept, payloads

SEEDS = some(range(40))
RECORDS = 120


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_accepted_does_not_depend_on_batches(seed: int) -> None:
    records = Producer(Random(seed)).records(RECORDS)
    whole, cut = Site(), Site()
    whole.take(records)
    audit(whole)
    for batch in batches(records, Random(seed)):
        cut.take(batch)
        audit(cut)
    assert cut.accepted() == whole.accepted()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_restart_at_any_point_changes_nothing(seed: int) -> None:
    records, random = Producer(Random(seed)).records(RECORDS), Random(seed)
    steady, shaken = Site(), Site()
    for batch in batches(records, random):
        steady.take(batch)
        shaken.take(batch)
        again = shaken.restarted()
        assert kept(again) == kept(shaken.planner)
        if random.random() < 0.3:
            shaken.planner = again
    assert payloads(shaken) == payloads(steady)


def test_a_pod_that_was_woken_is_decided_when_there_was_room() -> None:
    """Not when it began to wait, also if news of its own came in the same batch."""
    site = Site()
    pods = [pod_manifest(name, cpu=1, resource_version=1) for name in "ab"]
    newer = pod_manifest("b", cpu=1, resource_version=2, labels={"app": "x"})
    gone = pod_manifest("a", resource_version=3)
    site.take([record(NODES_TOPIC, event_bytes("ADDED", node_manifest("n", cpu=1)), timestamp_ms=1_000)])
    site.take(
        [
            record(PODS_TOPIC, event_bytes("ADDED", pod), offset=i, timestamp_ms=2_000)
            for i, pod in enumerate(pods)
        ]
    )
    site.take(
        [
            record(PODS_TOPIC, event_bytes("MODIFIED", newer), offset=2, timestamp_ms=8_000),
            record(PODS_TOPIC, event_bytes("DELETED", gone), offset=3, timestamp_ms=9_000),
        ]
    )
    decided = [(d.name, d.outcome.value, d.decided_at_ms) for d, _ in site.database.decisions[0]]
    assert decided[-2:] == [("a", "released", 9_000), ("b", "bound", 9_000)]


def test_what_a_producer_claims_moves_no_clock() -> None:
    """Bound at 20:00 and released at 19:00, or the year 2199 as log time: a claim stays a claim."""
    site = Site()
    node = event_bytes("ADDED", node_manifest("n", cpu=1), at="2199-01-01T00:00:00Z")
    pod, gone = pod_manifest("p", cpu=1, resource_version=1), pod_manifest("p", resource_version=2)
    came, left = event_bytes("ADDED", pod, at="2026-01-01T20:00:00Z"), event_bytes("DELETED", gone)
    site.take([record(NODES_TOPIC, node, timestamp_ms=1_000)])
    site.take([record(PODS_TOPIC, came, timestamp_ms=2_000)])
    site.take([record(PODS_TOPIC, left, offset=1, timestamp_ms=1_500)])  # a broker's clock went back
    decided = [(d.decided_at_ms, d.event_at_ms) for d, _ in site.database.decisions[0]]
    assert decided == [(2_000, 1_767_297_600_000), (2_000, None)]
    (placement,) = site.database.placements
    assert (placement.opened.at_ms, placement.released_at_ms) == (2_000, 2_000)
    assert site.database.shards[0].log_time_ms == 2_000


def test_a_pod_that_was_woken_has_no_claim() -> None:
    site = Site()
    pods = [event_bytes("ADDED", pod_manifest("p", cpu=1), at="2026-01-01T20:00:00Z")]
    site.take([record(PODS_TOPIC, pod, timestamp_ms=1_000) for pod in pods])
    node = event_bytes("ADDED", node_manifest("n", cpu=1), at="2026-01-01T21:00:00Z")
    site.take([record(NODES_TOPIC, node, timestamp_ms=2_000)])
    decided = [(d.outcome.value, d.event_at_ms) for d, _ in site.database.decisions[0]]
    assert decided == [("unschedulable", 1_767_297_600_000), ("bound", None)]
