"""What becomes of pods that leave a hot node: in decisions, in the ledger, after a restart and elsewhere."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from domain.model.decisions import Outcome
from domain.model.events import PodUpserted
from domain.model.pods import SAFE_TO_EVICT_KEY
from services.codec.decode import Decoder
from services.codec.kept import kept
from services.codec.partition import partition_for
from services.ports.ledger import Committed
from services.worker.metrics import WorkerMetrics
from tests.builders import node_manifest, pod_manifest
from tests.property.site import SHARDS, Site
from tests.property.team import Team, audit, budget_manifest, columns, keys_of, node_of
from tests.unit.heated import HOT_MS, STEP_MS, cluster, heat, hot_site, measure, owned
from tests.unit.preempted import AT_MS, high, leave, same_after_a_restart, told


def under_way(site: Site) -> dict[str, str]:
    return {row.name: row.target for row in site.database.moves.open()}


def test_a_pod_is_told_to_leave_with_where_from_and_why_and_where_to() -> None:
    site = hot_site()
    (row,) = [row for row in site.decided() if row["outcome"] == "evicted"]
    shard = partition_for(b"default/web", None, SHARDS)
    assert row["migration"] == {
        "from": "hot",
        "why": ["cpu is used to 90.0 %"],
        "relief": {"cpu": 3_000, "memory": 1 << 30},
        "to": "cool",
        "shard": shard,
    }
    assert "preemption" not in row
    hot = next(node for node in site.database.nodes.values() if node.name == "hot")
    assert row["shard"] == hot.id % SHARDS, "the owner of the node decides"
    assert row["reason"] == "leaves hot, which is hot (cpu is used to 90.0 %); cool would take it"
    assert (row["pod"]["name"], row["node"], row["decided_at"]) == ("web", "hot", "2023-11-14T22:23:20.000Z")
    assert under_way(site) == {"web": "cool"}
    same_after_a_restart(site)


def test_a_pod_that_left_is_replaced_elsewhere_and_its_node_rests() -> None:
    site = hot_site()
    leave(site, "web", at_ms=HOT_MS + 1_000)
    assert under_way(site) == {}
    assert len(site.database.moves.moves) == 1, "the node rests"
    same_after_a_restart(site)
    site.tell("ADDED", owned("web-again"), at_ms=HOT_MS + 2_000)
    assert told(site, "web-again") == [("web-again", "bound", "cool")]
    heat(site, until_ms=HOT_MS + 290_000)
    assert under_way(site) == {}
    same_after_a_restart(site)
    heat(site, until_ms=HOT_MS + 310_000)
    same_after_a_restart(site)
    assert not site.database.moves.moves, "one pod of a core is not enough"
    site.tell("ADDED", owned("more", node_name="hot"), at_ms=HOT_MS + 320_000)
    heat(site, until_ms=HOT_MS + 420_000)
    assert under_way(site) == {"more": "cool"}


def test_a_pod_that_did_not_leave_in_time_is_spared() -> None:
    site = hot_site()
    assert site.planner.scheduler.due_ms(HOT_MS) <= HOT_MS + 60_000
    site.tell("ADDED", measure("cool", 1.0), at_ms=HOT_MS + 59_999)
    assert told(site, "web")[-1] == ("web", "evicted", "hot")
    site.tell("ADDED", measure("cool", 1.0), at_ms=HOT_MS + 60_000)
    assert told(site, "web")[-1] == ("web", "spared", "hot")
    (row,) = [row for row in site.decided() if row["outcome"] == "spared"]
    assert row["reason"] == "it did not leave hot, which is hot, in time"
    assert under_way(site) == {}
    same_after_a_restart(site)


@pytest.mark.parametrize("when", ["decided", "gone", "spared", "rested"])
def test_the_same_is_decided_after_a_restart(when: str) -> None:
    sites = [hot_site(), hot_site()]
    for site, restarts in zip(sites, (True, False), strict=True):
        for moment in ("decided", "gone", "spared", "rested"):
            if moment == "gone":
                leave(site, "small", at_ms=HOT_MS + 5_000)
            elif moment == "spared":
                site.tell("ADDED", measure("hot"), at_ms=HOT_MS + 70_000)
            elif moment == "rested":
                site.tell("ADDED", measure("hot"), at_ms=HOT_MS + 310_000)
            if restarts and moment == when:
                site.planner = site.restarted()
            site.take([])  # a worker that has begun looks at once what is timed
        site.tell("ADDED", measure("hot"), at_ms=HOT_MS + 320_000)
        site.tell("ADDED", measure("cool", 1.0), at_ms=HOT_MS + 390_000)
    assert sites[0].decided() == sites[1].decided()
    assert [how for _, how, _ in told(sites[0], "web")[1:]] == ["evicted", "spared"] * 2


def test_a_pod_that_is_to_leave_is_no_victim_of_preemption() -> None:
    site = hot_site(
        owned("web", node_name="hot", cpu=2, priority=0), pod_manifest("base", cpu=6, node_name="hot")
    )
    site.tell("ADDED", owned("full", node_name="cool", cpu=10, priority=50), at_ms=HOT_MS + 1)
    site.tell("ADDED", high("urgent", cpu=4), at_ms=HOT_MS + 2)
    assert told(site, "urgent") == [("urgent", "nominated", "hot")]
    assert [how for _, how, _ in told(site, "web")] == ["adopted", "evicted"]
    same_after_a_restart(site)
    leave(site, "web", at_ms=HOT_MS + 3)
    assert told(site, "urgent")[1:] == [("urgent", "bound", "hot")]


def test_a_worker_that_is_late_evicts_no_pod_and_plans_again() -> None:
    site = cluster(owned("web", node_name="hot"))
    heat(site, until_ms=HOT_MS - STEP_MS)
    assert [how for _, how, _ in told(site, "web")] == ["adopted", "evicted"]
    late = cluster(owned("web", node_name="hot"))
    for ago in range(4, 0, -1):
        late.tell("ADDED", measure("hot"), at_ms=HOT_MS - ago * STEP_MS)
    hot = next(row for row in late.database.nodes.values() if row.name == "hot")
    batch = late.planner.plan_batch(late.records([("ADDED", measure("hot"), HOT_MS)]))
    late.database.nodes[hot.id] = msgspec.structs.replace(hot, version=hot.version + 1)
    committed = late.database.apply(batch)
    assert isinstance(committed, Committed)
    assert list(committed.lost_pods) == ["default/web"]
    late.database.nodes[hot.id] = hot
    assert told(late, "web")[1:] == [("web", "spared", "hot")]
    assert not late.database.moves.moves
    again = late.planner.plan_batch([], list(committed.lost_pods))
    assert late.database.apply(again) == Committed()
    assert told(late, "web")[2:] == [("web", "evicted", "hot")]
    same_after_a_restart(late)


def test_a_refusal_that_comes_when_the_pod_is_gone_changes_nothing() -> None:
    site = cluster(owned("web", node_name="hot"))
    heat(site)
    site.planner.plan_batch(site.records([("DELETED", owned("web"), HOT_MS + 1)]))
    site.planner.plan_batch([], ["default/web"])
    assert not site.planner.scheduler.state.moves.under_way


# --------------------------------------------------------------------------------------- several workers


def team_of(count: int = 2) -> tuple[Team, str, list[str]]:
    """Return two workers, a hot node of the second one, and the names of pods of either one on it."""
    team = Team([0], [1], preempts=True)
    hot = node_of(team, 1, "hot")
    team.tell("ADDED", *(node_manifest(name, cpu=10, memory="64Gi") for name in (hot, node_of(team, 0))))
    names = [keys_of(team, shard, 1, f"pod{shard}-")[0] for shard in range(count)]
    team.tell("ADDED", *(owned(name, node_name=hot, cpu=1.2) for name in names))
    return team, hot, names


def test_the_owner_of_the_node_decides_on_pods_of_all_shards_and_others_follow() -> None:
    team, hot, names = team_of()
    for ago in range(4, -1, -1):
        team.tell("ADDED", measure(hot, 8.9), at_ms=HOT_MS - ago * STEP_MS)
    evicted = [row for row in team.decided() if row["outcome"] == "evicted"]
    assert sorted(row["pod"]["name"] for row in evicted) == sorted(names)
    ordinal = next(row.id for row in team.database.nodes.values() if row.name == hot)
    assert {row["shard"] for row in evicted} == {ordinal % 2}
    shards = {row["pod"]["name"]: row["migration"]["shard"] for row in evicted}
    assert shards == {name: shard for shard, name in enumerate(names)}
    known = [planner.scheduler.state.moves for planner in team.planners]
    assert known[0].under_way == known[1].under_way == {f"default/{name}": hot for name in names}
    assert {n: (r.node, r.rests_until_ms) for n, r in known[0].reliefs.items()} == {
        n: (r.node, r.rests_until_ms) for n, r in known[1].reliefs.items()
    }
    team.tell("DELETED", *(owned(name) for name in names), at_ms=HOT_MS + 1_000)
    assert known[0].under_way == known[1].under_way == {}
    assert all(hot in each.reliefs for each in known)
    audit(team)
    team.tell("ADDED", measure(hot, 1.0), at_ms=HOT_MS + 301_000)
    assert not any(each.reliefs for each in known)
    assert not team.database.moves.moves


def test_a_worker_that_takes_the_shard_of_a_hot_node_goes_on_with_its_moves() -> None:
    team, hot, names = team_of()
    for ago in range(4, -1, -1):
        team.tell("ADDED", measure(hot, 8.9), at_ms=HOT_MS - ago * STEP_MS)
    ordinal = next(row.id for row in team.database.nodes.values() if row.name == hot)
    owner = ordinal % 2
    team.give(owner, [owner])
    team.take(team.planners[1 - owner], [owner])
    team.rest()
    team.tell("ADDED", measure(hot, 8.9), at_ms=HOT_MS + 60_000)
    spared = [row for row in team.decided() if row["outcome"] == "spared"]
    assert sorted(row["pod"]["name"] for row in spared) == sorted(names)
    assert {row["shard"] for row in spared} == {owner}
    team.die(1 - owner)
    team.rest()
    (state,) = {id(p.scheduler.state): p.scheduler.state for p in team.planners if p.owned}.values()
    assert set(state.moves.reliefs) == {hot}
    assert not state.moves.under_way
    assert columns(team.planners[1 - owner])["nodes"]


def test_of_two_workers_that_use_up_one_budget_the_later_one_evicts_no_pod() -> None:
    team = Team([0], [1], preempts=True)
    hot = [node_of(team, shard, "hot") for shard in range(2)]
    cool = [node_of(team, shard, "cool") for shard in range(2)]
    team.tell("ADDED", *(node_manifest(name, cpu=10, memory="64Gi") for name in (*hot, *cool)))
    names = [keys_of(team, shard, 1, "web")[0] for shard in range(2)]
    labels = {"app": "web"}
    pods = [owned(name, node_name=node, labels=labels) for name, node in zip(names, hot, strict=True)]
    team.tell("ADDED", budget_manifest(1), *pods)
    for ago in range(4, 0, -1):
        team.tell("ADDED", *(measure(node) for node in hot), at_ms=HOT_MS - ago * STEP_MS)
    team.step(0, [team.record("ADDED", measure(hot[1]), HOT_MS)])
    known = team.unread(1)
    team.step(0, [team.record("ADDED", measure(hot[0]), HOT_MS)])
    batch = team.planners[1].plan_batch([], (), known)
    assert [row.name for row in batch.pods.moved] == [names[1]], "it has not heard of the other one"
    outcome = team.database.apply(batch)
    assert isinstance(outcome, Committed)
    assert list(outcome.lost_pods) == [f"default/{names[1]}"]
    assert [row.name for row in team.database.moves.open()] == [names[0]]
    team.lost[1] = list(outcome.lost_pods)
    team.rest()
    assert [row.name for row in team.database.moves.open()] == [names[0]], "the budget lets one go"
    audit(team)


def test_a_new_pod_that_loses_its_node_is_not_taken_for_the_one_of_its_name_that_left() -> None:
    """A StatefulSet makes its pods anew with their names, also just after one was told to go."""
    team = Team([0], [1], preempts=True)
    hot, cool = node_of(team, 0, "hot"), node_of(team, 1, "cool")
    team.tell(
        "ADDED",
        node_manifest(hot, cpu=10, memory="64Gi"),
        node_manifest(cool, cpu=10, memory="64Gi", labels={"pool": "cool"}),
    )
    (web,), (full,) = keys_of(team, 0, 1, "web"), keys_of(team, 1, 1, "full")
    pod = owned(web, kind="StatefulSet", node_selector={"pool": "cool"})
    team.tell("ADDED", pod | {"spec": pod["spec"] | {"nodeName": hot}})
    for ago in range(4, 0, -1):
        team.tell("ADDED", measure(hot), at_ms=HOT_MS - ago * STEP_MS)
    team.step(0, [team.record("ADDED", measure(hot), HOT_MS)])
    assert [row.name for row in team.database.moves.open()] == [web]
    team.step(1, [team.record("ADDED", pod_manifest(full, cpu=9), HOT_MS)])
    pod["metadata"]["uid"] = "again"
    records = [team.record("DELETED", owned(web), HOT_MS + 1), team.record("ADDED", pod, HOT_MS + 1)]
    team.step(0, records, follows=False)
    assert team.lost[0] == [f"default/{web}"], "another worker filled the node"
    team.rest()
    for planner in team.planners:
        assert set(planner.scheduler.state.moves.reliefs) == {hot}, "the node rests"
    assert [row.name for row in team.database.pending.values()] == [web]
    assert not team.planners[0].scheduler.state.pods[f"default/{web}"].node
    audit(team)


def test_a_relief_that_is_refused_is_not_taken_for_an_earlier_one_of_a_pod_of_that_name() -> None:
    team = Team([0], [1], preempts=True)
    first, later, cool = node_of(team, 0, "first"), node_of(team, 0, "later"), node_of(team, 1, "cool")
    for node in (first, later, cool):
        team.tell("ADDED", node_manifest(node, cpu=10, memory="64Gi", labels={"name": node}))
    (web,), (other,) = keys_of(team, 0, 1, "web"), keys_of(team, 1, 1, "other")
    for node, hot_ms in ((first, HOT_MS), (later, HOT_MS + 200_000)):
        pod = owned(web, kind="StatefulSet", node_name=node)
        pod["metadata"]["uid"] = f"on-{node}"
        team.tell("ADDED", pod, at_ms=hot_ms - 150_000)
        for ago in range(4, 0, -1):
            team.tell("ADDED", measure(node), at_ms=hot_ms - ago * STEP_MS)
        if node == first:
            team.tell("ADDED", measure(node), at_ms=hot_ms)
            assert [row.node for row in team.database.moves.open()] == [first]
            team.tell("DELETED", pod, at_ms=hot_ms + 1)
    selected = pod_manifest(other, node_selector={"name": later})
    team.step(1, [team.record("ADDED", selected, HOT_MS + 200_000)])
    team.step(0, [team.record("ADDED", measure(later), HOT_MS + 200_000)], follows=False)
    assert team.lost[0] == [f"default/{web}"], "another worker changed the node"
    team.rest()
    for planner in team.planners:
        assert set(planner.scheduler.state.moves.reliefs) == {first, later}, "it was decided again"
    audit(team)


def test_a_pod_that_was_placed_by_the_batch_before_stays_where_its_relief_is_refused() -> None:
    """Of a backlog, one batch after another covers minutes of log time."""
    team = Team([0], [1], preempts=True)
    hot, cool = node_of(team, 0, "hot"), node_of(team, 1, "cool")
    for node in (hot, cool):
        team.tell("ADDED", node_manifest(node, cpu=10, memory="64Gi", labels={"name": node}))
    (web,), (other,) = keys_of(team, 0, 1, "web"), keys_of(team, 1, 1, "other")
    for ago in range(4, 0, -1):
        team.tell("ADDED", measure(hot), at_ms=HOT_MS - 60_000 - ago * STEP_MS)
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "preference": {"matchExpressions": [{"key": "name", "operator": "In", "values": [hot]}]},
                }
            ]
        }
    }
    team.step(0, [team.record("ADDED", owned(web, affinity=affinity), HOT_MS - 65_000)])
    assert [row.opened.node for row in team.database.open_placements.values()] == [hot]
    selected = pod_manifest(other, node_selector={"name": hot})
    team.step(1, [team.record("ADDED", selected, HOT_MS)])
    team.step(0, [team.record("ADDED", measure(hot), HOT_MS)], follows=False)
    assert team.lost[0] == [f"default/{web}"], "another worker changed the node"
    team.step(0)
    assert team.planners[0].scheduler.state.pods[f"default/{web}"].node == hot
    team.rest()
    assert [row.name for row in team.database.moves.open()] == [web], "it was decided again"
    audit(team)


def test_metrics_count_a_pod_that_stays_after_all_as_spared() -> None:
    site = cluster(owned("web", node_name="hot"))
    for ago in range(4, 0, -1):
        site.tell("ADDED", measure("hot"), at_ms=HOT_MS - ago * STEP_MS)
    batch = site.planner.plan_batch(site.records([("ADDED", measure("hot"), HOT_MS)]))
    registry = CollectorRegistry()
    WorkerMetrics(registry).committed(batch, Committed(lost_pods={"default/web": "default/web"}))
    counted = {how: registry.get_sample_value("berth_decisions_total", {"outcome": how}) for how in Outcome}
    assert {how: count for how, count in counted.items() if count} == {Outcome.SPARED: 1}
    assert registry.get_sample_value("berth_worker_conflicts_total") == 0


# ---------------------------------------------------------------------------- what a pod says of itself


def test_all_workers_know_that_a_pod_is_not_safe_to_evict_also_after_a_restart() -> None:
    team = Team([0], [1], preempts=True)
    team.tell("ADDED", node_manifest(node_of(team, 0), cpu=10))
    pod = owned("kept")
    pod["metadata"]["annotations"] = {SAFE_TO_EVICT_KEY: "false", "other": "said"}
    team.tell("ADDED", pod)
    team.die(0)
    team.rest()
    for planner in team.planners:
        entry = planner.scheduler.state.pods["default/kept"]
        assert entry.node
        assert entry.spec.pinned
    audit(team)
    pod["metadata"]["annotations"][SAFE_TO_EVICT_KEY] = "true"
    team.tell("MODIFIED", pod)
    assert not any(each.scheduler.state.pods["default/kept"].spec.pinned for each in team.planners)
    audit(team)


@pytest.mark.parametrize("said", [False, None, 1, ["false"]])
def test_an_annotation_that_is_no_text_pins_nothing(said: object) -> None:
    pod = owned("web")
    pod["metadata"]["annotations"] = {SAFE_TO_EVICT_KEY: said}
    (change,) = [Decoder().decode(record) for record in Site().records([("ADDED", pod, AT_MS)])]
    assert isinstance(change.event, PodUpserted)
    assert not change.event.pod.pinned
    assert kept("ADDED", pod) is not pod, "nothing of a wrong type makes the API refuse it"


def test_the_api_keeps_the_annotation() -> None:
    pod = owned("web")
    pod["metadata"]["annotations"] = {SAFE_TO_EVICT_KEY: "false", "other": "said"}
    told = msgspec.to_builtins(kept("ADDED", pod))
    assert told["metadata"]["annotations"] == {SAFE_TO_EVICT_KEY: "false"}
