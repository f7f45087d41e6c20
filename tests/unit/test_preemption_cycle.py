"""Does a pod that finds no node get one promised, others evicted for it, and what was promised at last?"""

from __future__ import annotations

from collections import Counter
from itertools import chain

import msgspec
import orjson
import pytest

from domain.model.limits import dying_seconds_max, preemption_seconds
from domain.state.digest import digest_of
from services.codec.partition import partition_for
from services.ports.ledger import Committed
from tests.builders import Json, node_manifest, pod_manifest
from tests.property.site import SHARDS, Site
from tests.unit.preempted import AT_MS, high, leave, same_after_a_restart, site_of, told, victims

LATE_MS = AT_MS + preemption_seconds * 1000


def batches_with(site: Site, outcome: str) -> list[int]:
    """Return the batch of each decision with an outcome."""
    of = site.database
    rows = [zip(of.decisions[shard], of.recorded_ms[shard], strict=True) for shard in of.decisions]
    return [batch for (decision, _), batch in chain(*rows) if decision.outcome == outcome]


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
    for row in evicted:
        shard = partition_for(f"default/{row['pod']['name']}".encode(), None, SHARDS)
        assert row["preemption"] == {**told_of, "shard": shard}, "where its deletion is to be told"
        assert row["shard"] == nominated["shard"]
        why = "makes room for a pod of priority 10 that would wait otherwise: 0/1 nodes: 1 insufficient:cpu"
        assert row["reason"] == why
    assert nominated["reasons"] == {"insufficient:cpu": 1}


def test_a_victim_is_told_the_most_frequent_reasons_for_which_the_preemptor_would_wait() -> None:
    site = Site(preempts=True)
    taints = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    site.tell("ADDED", node_manifest("n0"), node_manifest("n1", cpu=1), node_manifest("n2", taints=taints))
    site.tell("ADDED", node_manifest("n3", unschedulable=True), node_manifest("n4", memory="1Gi"))
    site.tell("ADDED", pod_manifest("low", cpu=4, priority=0, node_name="n0"))
    site.tell("ADDED", high(memory="2Gi"))
    (row,) = [row for row in site.decided() if row["outcome"] == "evicted"]
    named = "2 insufficient:cpu; 1 insufficient:memory; 1 node-unschedulable; ..."
    assert row["reason"].endswith(f"would wait otherwise: 0/5 nodes: {named}")


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
    monkeypatch.setattr("domain.cycle.schedule.cycle_work_max", 600)
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
    assert list(committed.lost_pods) == ["default/high"]
    site.database.nodes[n0.id] = n0
    assert told(site, "high") == [("high", "conflict", None)]
    assert {each[1] for each in told(site, "low0", "low1")} == {"bound", "spared"}
    assert not site.database.nominations.rows
    assert [pod.tried for pod in site.database.pending.values()] == [False]
    again = site.planner.plan_batch([], list(committed.lost_pods))
    assert site.database.apply(again) == Committed()
    assert told(site, "high")[1:] == [("high", "nominated", "n0")]
    assert digest != digest_of(site.planner.scheduler.state)
    assert orjson.dumps(told(site, "low0"))


def test_a_pod_whose_promise_was_lost_is_told_what_it_finds_then() -> None:
    site = site_of()
    n0 = next(row for row in site.database.nodes.values() if row.name == "n0")
    batch = site.planner.plan_batch(site.records([("ADDED", high(), AT_MS)]))
    site.database.nodes[n0.id] = msgspec.structs.replace(n0, version=n0.version + 1)
    committed = site.database.apply(batch)
    assert isinstance(committed, Committed)
    site.database.nodes[n0.id] = n0
    restarted = site.restarted()
    gone = [("DELETED", node_manifest("n0", resource_version=2), AT_MS)]
    site.database.apply(site.planner.plan_batch(site.records(gone), list(committed.lost_pods)))
    assert told(site, "high") == [("high", "conflict", None), ("high", "unschedulable", None)]
    assert restarted.scheduler.queue.is_fresh("default/high"), "also after a restart"


def dying(name: str, node: str | None) -> Json:
    """Return a placed pod that was told to end, and has time to do so."""
    pod = pod_manifest(name, cpu=2, priority=0, node_name=node, resource_version=9)
    pod["metadata"]["deletionTimestamp"] = "2023-11-14T22:20:00Z"
    return pod


def pass_to(site: Site, at_ms: int) -> None:
    """Let log time pass."""
    site.tell("ADDED", pod_manifest(f"at{at_ms}", "b", cpu=9, priority=-5), at_ms=at_ms)


def test_a_promise_is_kept_while_its_victims_end_slowly_but_not_for_ever() -> None:
    site = site_of(nodes=2)
    site.tell("ADDED", high())
    node = told(site, "high")[0][2]
    slow = victims(site)
    pods = [dying(name, node) for name in slow]
    site.tell("MODIFIED", *pods)
    pass_to(site, LATE_MS + 1_000)
    leave(site, slow[0], at_ms=LATE_MS + 2_000)
    assert told(site, "high") == [("high", "nominated", node)], "the other one is still about to end"
    assert not [each for each in told(site, *slow) if each[1] == "spared"]
    same_after_a_restart(site)
    late = site_of(nodes=2)
    late.tell("ADDED", high())
    late.tell("MODIFIED", *pods)
    pass_to(late, AT_MS + dying_seconds_max * 1_000)
    assert told(late, "high")[1] == ("high", "cleared", node)
    leave(site, slow[1], at_ms=LATE_MS + 3_000)
    assert told(site, "high")[1:] == [("high", "bound", node)]


def test_a_pod_for_which_nobody_left_tries_another_node_and_then_waits_longer_each_time() -> None:
    site = site_of(nodes=2)
    site.tell("ADDED", high())
    nominated = list[tuple[int, str | None]]()
    for seconds in range(10, 700, 10):
        before = len(told(site, "high"))
        pass_to(site, AT_MS + seconds * 1_000)
        now = told(site, "high")[before:]
        nominated += [(seconds, node) for _, how, node in now if how == "nominated"]
    first = told(site, "high")[0][2]
    other = "n1" if first == "n0" else "n0"
    assert nominated == [(60, other), (180, first), (360, other), (660, first)]


def test_a_promise_without_victims_that_runs_out_lets_nobody_wait_longer() -> None:
    site = site_of(pods_each=1)
    site.tell("ADDED", high("first", cpu=1), high("second", cpu=1))
    for seconds in range(60, 600, 60):
        pass_to(site, AT_MS + seconds * 1_000)
    cleared = Counter(name for name, how, _ in told(site, "first", "second") if how == "cleared")
    assert cleared["first"] < cleared["second"], "the room of the second one depends on others alone"


def test_others_of_its_group_do_not_wait_with_it() -> None:
    site = site_of()
    site.tell("ADDED", high())
    for seconds in (60, 120):
        pass_to(site, AT_MS + seconds * 1_000)
    site.tell("ADDED", high("late"), at_ms=AT_MS + 121_000)
    assert told(site, "late") == [("late", "nominated", "n0")]
    assert told(site, "high")[-1] == ("high", "cleared", "n0")


def test_a_promise_ends_where_its_node_refuses_the_pod_whoever_leaves() -> None:
    site = site_of(nodes=2)
    site.tell("ADDED", high())
    first, before = told(site, "high")[0][2], victims(site)
    assert first is not None
    site.tell("MODIFIED", node_manifest(first, cpu=4, unschedulable=True, resource_version=2))
    (other,) = {"n0", "n1"} - {first}
    assert told(site, "high")[1:] == [("high", "cleared", first), ("high", "nominated", other)]
    spared = [name for name, how, _ in told(site, *before) if how == "spared"]
    assert sorted(spared) == before, "nobody has to leave a node that the pod cannot have"
    same_after_a_restart(site)
