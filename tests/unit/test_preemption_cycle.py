"""Does a pod that finds no node get one promised, others evicted for it, and what was promised at last?"""

from __future__ import annotations

from collections import Counter
from itertools import chain

import msgspec
import orjson
import pytest

from domain.model.limits import preemption_seconds
from domain.state.digest import digest_of
from services.ports.ledger import Committed
from tests.builders import node_manifest, pod_manifest
from tests.property.site import Site, audit, kept
from tests.unit.preempted import AT_MS, high, site_of, told

LATE_MS = AT_MS + preemption_seconds * 1000


def victims(site: Site) -> list[str]:
    return sorted(row["pod"]["name"] for row in site.decided() if row["outcome"] == "evicted")


def batches_with(site: Site, outcome: str) -> list[int]:
    """Return the batch of each decision with an outcome."""
    of = site.database
    rows = [zip(of.decisions[shard], of.recorded_ms[shard], strict=True) for shard in of.decisions]
    return [batch for (decision, _), batch in chain(*rows) if decision.outcome == outcome]


def leave(site: Site, *names: str, at_ms: int = AT_MS) -> None:
    site.tell("DELETED", *(pod_manifest(name) for name in names), at_ms=at_ms)


def same_after_a_restart(site: Site) -> None:
    audit(site)
    assert kept(site.planner) == kept(site.restarted())


def test_a_pod_gets_a_node_promised_and_goes_there_when_its_victims_have_left() -> None:
    site = site_of()
    site.tell("ADDED", high())
    assert told(site, "high") == [("high", "nominated", "n0")]
    assert victims(site) == ["low0", "low1"]
    same_after_a_restart(site)
    leave(site, "low0")
    assert told(site, "high") == [("high", "nominated", "n0")], "one victim is still there"
    same_after_a_restart(site)
    leave(site, "low1")
    assert told(site, "high") == [("high", "nominated", "n0"), ("high", "bound", "n0")]
    assert not site.database.nominations.rows
    same_after_a_restart(site)


def test_what_is_told_of_it_names_pods_by_uid_and_the_decision() -> None:
    site = site_of()
    site.tell("ADDED", high())
    nominated, *evicted = [row for row in site.decided() if row.get("preemption")]
    assert (nominated["outcome"], nominated["score"]) == ("nominated", None)
    assert sorted(nominated["preemption"].pop("victims")) == sorted(row["pod"]["uid"] for row in evicted)
    assert nominated["preemption"] == {"violations": 0, "expires_at": "2023-11-14T22:14:20.000Z"}
    told_of = {"preemptor": nominated["pod"]["uid"], "priority": 10, "nominated": nominated["id"]}
    assert all(row["preemption"] == told_of and row["shard"] == nominated["shard"] for row in evicted)
    assert nominated["reasons"] == {"insufficient:cpu": 1}


def test_equal_and_lower_pods_do_not_take_what_is_promised_and_a_higher_one_does() -> None:
    site = site_of()
    site.tell("ADDED", high(cpu=3))
    leave(site, "low0")
    site.tell("ADDED", pod_manifest("late", cpu=2, priority=10), pod_manifest("small", cpu=2, priority=-1))
    assert ("late", "bound", "n0") not in told(site, "late")
    assert ("small", "bound", "n0") not in told(site, "small")
    site.tell("ADDED", pod_manifest("urgent", cpu=2, priority=20))
    assert told(site, "urgent") == [("urgent", "bound", "n0")]
    leave(site, "low1")
    assert told(site, "high")[1:] == [("high", "cleared", "n0")], "3 of 4 cores are not left"
    same_after_a_restart(site)


def test_a_group_is_planned_at_once_each_pod_on_a_node_of_its_own() -> None:
    site = site_of(nodes=5)
    site.tell("ADDED", *(high(f"high{i}") for i in range(7)))
    rows = site.decided()
    nodes = Counter(row["node"] for row in rows if row["outcome"] == "nominated")
    assert nodes == {f"n{i}": 1 for i in range(5)}
    assert len(victims(site)) == len(set(victims(site))) == 10
    assert Counter(row["outcome"] for row in rows if row["pod"]["name"].startswith("high")) == {
        "nominated": 5,
        "unschedulable": 2,
    }
    leave(site, *victims(site))
    bound = [row["node"] for row in site.decided() if row["outcome"] == "bound" and row["score"] is None]
    assert sorted(bound) == sorted(nodes)
    same_after_a_restart(site)


def test_pods_behind_take_nothing_of_what_a_pod_before_them_needs() -> None:
    """Placing stops where the first pod finds none: else small ones of lower priority ate the room."""
    site = site_of()
    leave(site, "low0")
    small = [pod_manifest(f"small{i}", cpu=1, priority=5) for i in range(2)]
    site.tell("ADDED", high(cpu=4), *small)
    assert told(site, "high") == [("high", "nominated", "n0")]
    assert victims(site) == ["low1"]
    assert not [each for each in told(site, "small0", "small1") if each[1] == "bound"]


def test_a_promise_ends_with_its_time_and_victims_that_are_still_there_may_stay() -> None:
    site = site_of()
    site.tell("ADDED", high())
    leave(site, "low0")
    site.tell("ADDED", pod_manifest("other", "b", cpu=9), at_ms=LATE_MS - 1)
    assert told(site, "high") == [("high", "nominated", "n0")]
    site.tell("ADDED", pod_manifest("another", "b", cpu=9), at_ms=LATE_MS)
    assert told(site, "high")[1] == ("high", "cleared", "n0")
    assert ("low1", "spared", "n0") in told(site, "low1")
    assert told(site, "high")[2:] == [("high", "nominated", "n0")], "it is planned again"
    assert told(site, "low1")[-1] == ("low1", "evicted", "n0")
    same_after_a_restart(site)


def test_a_higher_pod_takes_over_a_promised_node() -> None:
    site = site_of()
    site.tell("ADDED", high(cpu=2))
    assert len(victims(site)) == 1
    site.tell("ADDED", high("urgent", priority=20))
    assert told(site, "high")[1] == ("high", "cleared", "n0")
    assert told(site, "urgent") == [("urgent", "nominated", "n0")]
    assert {row.key for row in site.database.nominations.rows.values()} == {"default/urgent"}
    same_after_a_restart(site)


def test_a_promise_ends_with_its_node_and_with_its_pod() -> None:
    site = site_of()
    site.tell("ADDED", high())
    site.tell("DELETED", node_manifest("n0", resource_version=2))
    assert told(site, "high")[1] == ("high", "cleared", "n0")
    same_after_a_restart(site)
    site.tell("ADDED", node_manifest("n0", cpu=4, resource_version=3))
    assert told(site, "high")[-1] == ("high", "nominated", "n0")
    leave(site, "high")
    assert told(site, "high")[-2:] == [("high", "cleared", "n0"), ("high", "released", None)]
    assert [each for each in told(site, "low0", "low1") if each[1] == "spared"][-2:]
    same_after_a_restart(site)


def test_a_cycle_plans_for_so_many_groups_only_and_the_others_come_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A producer whose pods are all unlike each other must not hold up a worker for minutes."""
    monkeypatch.setattr("domain.cycle.preempting.cycle_work_max", 500, raising=False)
    site = site_of(nodes=6)
    site.tell("ADDED", *(high(f"high{i}", cpu=4 - i / 10) for i in range(6)))
    nominated = batches_with(site, "nominated")
    assert max(Counter(nominated).values()) == 2
    assert len(nominated) == 6
    same_after_a_restart(site)


def test_a_promise_without_victims_waits_for_those_of_another_pod() -> None:
    site = site_of(pods_each=1)
    site.tell("ADDED", high("first", cpu=1), high("second", cpu=1))
    assert victims(site) == ["low0"]
    site.tell("MODIFIED", node_manifest("n0", cpu=4, labels={"a": "b"}, resource_version=2))
    assert told(site, "second") == [("second", "nominated", "n0")], "nobody took its room"
    leave(site, "low0")
    assert told(site, "second")[1:] == [("second", "bound", "n0")]


def test_who_may_stay_is_told_in_the_same_order_after_a_restart() -> None:
    orders = []
    for is_restarted in (False, True):
        site = site_of(pods_each=4)
        site.tell("ADDED", high())
        if is_restarted:
            site.planner = site.restarted()
        leave(site, "high")
        orders.append([name for name, outcome, _ in told(site, *victims(site)) if outcome == "spared"])
    assert orders[0] == orders[1]


def test_who_may_not_preempt_waits() -> None:
    site = site_of()
    never = high()
    never["spec"]["preemptionPolicy"] = "Never"
    site.tell("ADDED", never, pod_manifest("equal", cpu=4, priority=0))
    assert {each[1] for each in told(site, "high", "equal")} == {"unschedulable"}
    assert victims(site) == []


def test_a_nomination_that_the_ledger_refused_is_taken_back() -> None:
    site = site_of()
    digest = digest_of(site.planner.scheduler.state)
    n0 = next(row for row in site.database.nodes.values() if row.name == "n0")
    moved = msgspec.structs.replace(n0, version=n0.version + 1)
    records = site.records([("ADDED", high(), AT_MS)])
    batch = site.planner.plan_batch(records)
    site.database.nodes[n0.id] = moved
    committed = site.database.apply(batch)
    assert isinstance(committed, Committed)
    assert list(committed.lost) == ["default/high"]
    site.database.nodes[n0.id] = n0
    assert told(site, "high") == [("high", "conflict", None)]
    assert {each[1] for each in told(site, "low0", "low1")} == {"bound", "spared"}
    assert not site.database.nominations.rows
    again = site.planner.plan_batch([], list(committed.lost))
    assert site.database.apply(again) == Committed()
    assert told(site, "high")[1:] == [("high", "nominated", "n0")]
    assert digest != digest_of(site.planner.scheduler.state)
    assert orjson.dumps(told(site, "low0"))
