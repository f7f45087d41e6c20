"""Is what is timed decided at its moment, wherever the log is cut into batches?"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from domain.model.limits import bind_failure_seconds, timed_step_ms
from domain.model.timestamps import NEVER_MS
from services.adapters.memory.ledger import state_of
from services.ports.log import Record
from tests.builders import Json, node_manifest, pod_manifest
from tests.property.site import Site
from tests.property.team import Team
from tests.unit.preempted import AT_MS, high, site_of, told

LATE_MS = AT_MS + 60_000
Told = tuple[str, Json, int]


def at(seconds: float, kind: str, manifest: Json) -> Told:
    return kind, manifest, AT_MS + round(1_000 * seconds)


def lived(site: Site, records: list[Record], cuts: tuple[int, ...]) -> Site:
    for start, end in itertools.pairwise((0, *cuts, len(records))):
        site.take(records[start:end])
    return site


def decided(site: Site) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "decided_at"} for row in site.decided()]


OTHER = [at(59, "ADDED", pod_manifest("other", "b", cpu=9, priority=-5))]
BEHIND = [
    at(60.4, "DELETED", pod_manifest("low0")),
    at(60.5, "DELETED", pod_manifest("low1")),
    at(61, "ADDED", pod_manifest("late", "b", cpu=9, priority=-5)),
]


@pytest.mark.parametrize("cuts", [(), (1,), (2,), (1, 3), (1, 2, 3)])
def test_a_promise_ends_before_what_comes_behind_its_time(cuts: tuple[int, ...]) -> None:
    site = site_of()
    site.tell("ADDED", high())
    lived(site, site.records(OTHER + BEHIND), cuts)
    # Had it not run out before the victims left, the pod would have been bound where it was promised.
    outcomes = [each[1] for each in told(site, "high")]
    assert outcomes[:3] == ["nominated", "cleared", "nominated"]
    (cleared,) = [row for row in site.decided() if row["outcome"] == "cleared"][:1]
    assert cleared["decided_at"].endswith(":20.000Z"), "that is when it was due"


def test_what_is_timed_is_told_to_the_ledger_for_the_ticks() -> None:
    site = site_of()
    assert {row.due_ms for row in site.database.shards.values()} == {NEVER_MS}
    site.tell("ADDED", high())
    assert LATE_MS in {row.due_ms for row in site.database.shards.values()}
    site.tell("DELETED", pod_manifest("low0"), pod_manifest("low1"))
    assert LATE_MS not in {row.due_ms for row in site.database.shards.values()}


def test_many_things_that_are_due_cost_a_batch_a_step() -> None:
    site = site_of(nodes=20)
    for number in range(20):
        site.tell("ADDED", high(f"high{number}"), at_ms=AT_MS + 40 * number)
    before = site.database.batches_count
    site.take(site.records([at(90, "ADDED", pod_manifest("late", "b", cpu=9, priority=-5))]))
    cleared = {row["decided_at"] for row in site.decided() if row["outcome"] == "cleared"}
    assert len(cleared) == 2, "the first one is due at a step, the others at the next"
    assert site.database.batches_count - before < 10
    assert timed_step_ms == 1_000


def test_a_node_is_tried_again_for_a_pod_when_its_time_is_over_and_not_before() -> None:
    site = Site(preempts=True)
    site.tell("ADDED", node_manifest("n0", cpu=4, resource_version=1))
    site.tell("ADDED", pod_manifest("p", cpu=1))
    site.tell("BIND_FAILED", pod_manifest("p", cpu=1, node_name="n0"), at_ms=AT_MS + 300)
    over_ms = AT_MS + 1_000 * (bind_failure_seconds + 1)
    assert over_ms in {row.due_ms for row in site.database.shards.values()}
    site.take(site.records([at(bind_failure_seconds + 9, "ADDED", pod_manifest("late", cpu=9))]))
    (again,) = [row for row in site.decided() if row["outcome"] == "bound"][1:]
    assert state_of(site.database, site.leases).log_time_ms == over_ms + 8_000
    assert again["decided_at"] == "2023-11-14T22:14:21.000Z"


def test_a_worker_without_shards_has_no_batches_of_its_own() -> None:
    team = Team([0, 1], [], preempts=True)
    team.tell("ADDED", node_manifest("n0", cpu=4))
    team.tell("ADDED", *(pod_manifest(f"low{i}", cpu=2, priority=0) for i in range(2)))
    team.tell("ADDED", high())
    assert [len(each.scheduler.state.nominations.entries) for each in team.planners] == [1, 1]
