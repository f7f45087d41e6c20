"""Does a pod keep the node that was promised to it, where the ledger did not grant its bind?"""

from __future__ import annotations

from collections.abc import Collection

import pytest

from domain.state.digest import digest_of
from services.ports.ledger import Committed
from tests.builders import Json, node_manifest, pod_manifest
from tests.property.site import Site, audit
from tests.unit.preempted import AT_MS, high, site_of, told


def lost(site: Site, *events: tuple[str, Json], at_ms: int = AT_MS) -> list[str]:
    """Take events while somebody holds all nodes; return whose claims were lost."""
    batch = site.planner.plan_batch(site.records([(*each, at_ms) for each in events]))
    site.database.nodes_held.update(site.database.nodes)
    committed = site.database.apply(batch)
    site.database.nodes_held.clear()
    assert isinstance(committed, Committed)
    return list(committed.lost_pods)


def go_on(site: Site, keys: Collection[str], *events: tuple[str, Json], at_ms: int = AT_MS) -> None:
    """Take events after these pods lost, and come to rest."""
    records = site.records([(*each, at_ms) for each in events])
    assert site.database.apply(site.planner.plan_batch(records, list(keys))) == Committed()
    site.take([])
    audit(site)


GONE = [("DELETED", pod_manifest("low0")), ("DELETED", pod_manifest("low1"))]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_promise_is_kept_and_nobody_older_takes_the_room(is_restarted: bool) -> None:
    site = site_of()
    patient = pod_manifest("patient", cpu=4, priority=10)
    patient["spec"]["preemptionPolicy"] = "Never"
    site.tell("ADDED", patient)
    site.tell("ADDED", high())
    assert lost(site, *GONE) == ["default/high"]
    assert [row.key for row in site.database.nominations.rows.values()] == ["default/high"]
    if is_restarted:
        site.planner = site.restarted()
        site.take([])
    else:
        go_on(site, ["default/high"])
    assert [each[1:] for each in told(site, "high")] == [
        ("nominated", "n0"),
        ("conflict", None),
        ("bound", "n0"),
    ]
    assert not site.database.nominations.rows
    assert told(site, "patient") == [("patient", "unschedulable", None)]


def test_what_is_known_then_is_what_a_restart_knows() -> None:
    site = site_of()
    site.tell("ADDED", high())
    keys = lost(site, *GONE)
    restarted = site.restarted()
    site.planner._recent_claims.forget(keys)
    ours, theirs = site.planner.scheduler, restarted.scheduler
    assert ours.state.nominations.entries == theirs.state.nominations.entries
    assert digest_of(ours.state) == digest_of(theirs.state)
    assert site.planner.ledger_view.untried == restarted.ledger_view.untried == set()


def test_who_was_spared_when_the_pod_was_bound_stays_spared() -> None:
    site = site_of(pods_each=4)
    site.tell("ADDED", high("low-one", cpu=2, priority=5))
    site.tell("ADDED", high(cpu=4))
    asked = [row["pod"]["name"] for row in site.decided() if row["outcome"] == "evicted"]
    bigger = node_manifest("n0", cpu=8, resource_version=2)
    keys = lost(site, ("MODIFIED", bigger))
    assert "default/high" in keys
    assert {each[1] for each in told(site, *asked)} >= {"spared"}
    assert not site.database.nominations.evictions
    go_on(site, keys)
    assert told(site, "high")[-1] == ("high", "bound", "n0")


def test_a_promise_of_a_node_that_is_gone_is_cleared() -> None:
    site = site_of()
    site.tell("ADDED", high())
    go_on(site, lost(site, *GONE), ("DELETED", node_manifest("n0", resource_version=2)))
    assert [each[1] for each in told(site, "high")] == ["nominated", "conflict", "cleared"]
    assert not site.database.nominations.rows


def test_a_promise_whose_room_was_taken_is_cleared() -> None:
    site = site_of()
    site.tell("ADDED", high())
    keys = lost(site, *GONE)
    taker = ("ADDED", pod_manifest("taker", cpu=2, priority=99, node_name="n0"))
    go_on(site, keys, taker)
    assert [each[1] for each in told(site, "high")][:3] == ["nominated", "conflict", "cleared"]
