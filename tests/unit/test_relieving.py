"""Which pods leave a hot node, when, and where a dry run must have found room for them."""

from __future__ import annotations

from typing import Any

import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Migration
from domain.manifests.objects import convert_manifest, node_from_manifest, pod_from_manifest
from domain.manifests.usage import WireNodeUsage, usage_from_wire
from domain.model.colocation import CoLocationPolicy, HotSpotRule
from domain.model.config import CO_LOCATION_POLICY, DISRUPTION_BUDGET, DisruptionBudget
from domain.model.events import ConfigUpserted, NodeUpserted, NodeUsed, PodDeleted, PodUpserted
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.selectors import LabelRequirement, LabelSelector
from domain.state.changes import MovesEnded
from domain.state.steps import Unrelieved, Written
from tests.builders import Json, node_manifest, pod_manifest

SECOND_MS = 1_000
START_MS = 1_000 * SECOND_MS
CORES = 10


class Cluster:
    """Nodes of ten cores, on which pods run since long ago."""

    def __init__(self, *nodes: str, preempts: bool = True, **labels: str) -> None:
        self.scheduler = Scheduler(BUILT_IN_PROFILES, seed=1, preempts=preempts, preemption_seconds=60)
        self.now_ms = START_MS
        self.ended: list[MovesEnded] = []
        for name in nodes:
            manifest = node_manifest(name, cpu=CORES, memory="64Gi", labels=labels)
            self.scheduler.fold(NodeUpserted(node_from_manifest(manifest)))

    def pod(self, name: str, node: str, *, by: str = "", ago_s: int = 600, **more: Any) -> None:
        """Let a pod run, of a controller of its own name where none is given."""
        manifest = pod_manifest(name, node_name=node, **{"cpu": "1", **more})
        self.tell(owned(manifest, by or f"of-{name}"))
        self.scheduler.fold(Written({f"default/{name}": self.now_ms - ago_s * SECOND_MS}))

    def tell(self, manifest: Json) -> None:
        self.scheduler.fold(PodUpserted(pod_from_manifest(manifest)))

    def gone(self, *names: str) -> None:
        for name in names:
            self.scheduler.fold(PodDeleted("default", name))

    def heat(self, node: str, cores: float = 9.0, *, times: int = 5, pressure: float | None = None) -> None:
        """Measure a node so often, ten seconds apart."""
        for _ in range(times):
            self.now_ms += 10 * SECOND_MS
            quality = {"mid": {"cpu": str(cores), "memory": "1Gi"}}
            manifest: Json = {"kind": "NodeUsage", "metadata": {"name": node}, "quality": quality}
            if pressure is not None:
                manifest["pressure"] = {"cpu": pressure}
            usage = usage_from_wire(convert_manifest(manifest, WireNodeUsage, ""), self.now_ms, "")
            self.scheduler.fold(NodeUsed(usage))

    def budget(self, allowed: int, **labels: str) -> None:
        asked = tuple(LabelRequirement(key, "In", (value,)) for key, value in labels.items())
        budget = DisruptionBudget(selector=LabelSelector(asked), disruptions_allowed=allowed)
        self.scheduler.fold(ConfigUpserted(DISRUPTION_BUDGET, "default", "budget", budget, None))

    def rule(self, **fields: Any) -> None:
        policy = CoLocationPolicy(hot_spot=HotSpotRule(**fields))
        self.scheduler.fold(ConfigUpserted(CO_LOCATION_POLICY, "", "all", policy, None))

    def cycle(self) -> list[Migration]:
        """Run cycles until nothing is left to do; return the moves that were decided."""
        found: list[Migration] = []
        while True:
            result = self.scheduler.cycle(self.now_ms)
            found += [each for each in result.moves if isinstance(each, Migration)]
            self.ended += [each for each in result.moves if isinstance(each, MovesEnded)]
            if not self.scheduler.has_work:
                return found

    def moved(self) -> dict[str, str]:
        """Return which pods leave, by name, and where a dry run put each."""
        return {each.pod.name: each.target for one in self.cycle() for each in one.moves}


def owned(manifest: Json, by: str, kind: str = "ReplicaSet") -> Json:
    controller = {"kind": kind, "name": by, "uid": f"u-{by}", "controller": True, "apiVersion": "apps/v1"}
    manifest["metadata"]["ownerReferences"] = [controller]
    return manifest


def hot_and_cool(**more: Any) -> Cluster:
    """Return a cluster in which node hot is used to 90 %, and of its three pods one is enough: 2 cores."""
    cluster = Cluster("hot", "cool", **more)
    for i, cpu in enumerate((1, 2, 1)):
        cluster.pod(f"p{i}", "hot", cpu=str(cpu))
    cluster.heat("hot")
    return cluster


def test_the_fewest_pods_that_bring_a_hot_node_below_its_target_leave_it() -> None:
    cluster = hot_and_cool()
    (decided,) = cluster.cycle()
    assert [(each.pod.name, each.target) for each in decided.moves] == [("p1", "cool")]
    assert decided.moves[0].estimate.cpu_milli == 3_000, "one and a half of what it requests"
    assert (decided.node, decided.shard, decided.why) == ("hot", 0, ("cpu is used to 90.0 %",))
    assert decided.node_version == cluster.scheduler.state.nodes["hot"].version
    assert cluster.scheduler.state.moves.under_way == {"default/p1": "hot"}
    assert cluster.cycle() == []


def test_nothing_moves_where_pods_may_not_be_evicted_at_all() -> None:
    assert hot_and_cool(preempts=False).cycle() == []


def test_a_node_that_is_not_hot_or_calms_down_keeps_its_pods() -> None:
    cluster = Cluster("hot", "cool")
    cluster.pod("p", "hot", cpu="2")
    cluster.heat("hot", times=4)
    assert cluster.cycle() == [], "the fifth bad sample makes it hot"
    cluster.heat("hot", times=1)
    cluster.heat("hot", 7.5, times=1)
    assert cluster.scheduler.state.usage.qualities["hot"].heat.is_hot
    assert cluster.cycle() == [], "the latest sample is good"
    cluster.heat("hot", times=1)
    assert cluster.moved() == {"p": "cool"}


def test_low_pods_go_first_and_mid_pods_only_where_these_are_not_enough() -> None:
    cluster = Cluster("hot", "cool")
    cluster.pod("mid", "hot", cpu="2")
    for i in range(2):
        cluster.pod(f"low{i}", "hot", cpu=None)
    cluster.heat("hot", 8.5)
    assert cluster.moved() == {"low0": "cool", "low1": "cool"}, "each is expected to use a core"
    assert cluster.scheduler.state.moves.targets() == {"cool"}


def test_a_pod_that_no_measurement_covers_yet_stays() -> None:
    cluster = Cluster("hot", "cool")
    cluster.pod("young", "hot", cpu="2", ago_s=0)
    cluster.heat("hot")
    assert cluster.cycle() == []
    cluster.heat("hot", times=2)
    assert cluster.moved() == {"young": "cool"}


def test_a_stale_measurement_moves_nothing() -> None:
    cluster = hot_and_cool()
    cluster.now_ms += 91 * SECOND_MS
    assert cluster.cycle() == []


def test_pressure_without_use_moves_one_pod() -> None:
    cluster = Cluster("hot", "cool")
    for i in range(3):
        cluster.pod(f"p{i}", "hot", cpu=str(i + 1))
    cluster.heat("hot", 3.0, pressure=55.0)
    (decided,) = cluster.cycle()
    assert [each.pod.name for each in decided.moves] == ["p2"]
    assert decided.why == ("pods wait for cpu 55.0 % of the time",)


# ------------------------------------------------------------------------------------------- the dry run


def test_nothing_moves_where_all_other_nodes_are_hot_too() -> None:
    cluster = Cluster("hot", "other")
    cluster.pod("p", "hot", cpu="2")
    cluster.pod("q", "other", cpu="2")
    cluster.heat("hot")
    cluster.heat("other")
    cluster.heat("hot", times=1)
    assert cluster.cycle() == []


def test_a_hot_node_takes_no_high_pod_either() -> None:
    """High pods go where what they request is free, whatever the node is busy with."""
    cluster = Cluster("hot", "other")
    limits = {
        "resources": {"requests": {"cpu": "3", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "1Gi"}}
    }
    cluster.pod("high", "hot", spec={"containers": [{"name": "c", "image": "i", **limits}]})
    cluster.heat("other")
    cluster.heat("hot")
    assert cluster.cycle() == []


def test_a_pod_that_fits_nowhere_else_makes_way_for_another_choice() -> None:
    cluster = Cluster("hot", "cool")
    cluster.pod("pinned", "hot", cpu="3", node_selector={"only": "here"})
    cluster.pod("free", "hot", cpu="2")
    cluster.heat("hot")
    assert cluster.moved() == {"free": "cool"}


def test_each_pod_goes_where_the_ones_before_it_leave_room() -> None:
    cluster = Cluster("hot", "cool", "far")
    cluster.pod("big", "hot", cpu="2")
    cluster.pod("also", "hot", cpu="2")
    for node in ("cool", "far"):
        cluster.pod(f"on-{node}", node, cpu="7")
    cluster.rule(target_percent=40.0)
    cluster.heat("hot")
    moved = cluster.moved()
    assert set(moved) == {"big", "also"}
    assert set(moved.values()) == {"cool", "far"}, "a node has room for one of them"


def test_a_node_for_which_a_move_is_under_way_takes_no_other_one() -> None:
    cluster = Cluster("a", "b", "cool")
    for node in ("a", "b"):
        cluster.pod(f"on-{node}", node, cpu="2")
        cluster.heat(node)
    cluster.heat("a", times=1)
    assert cluster.moved() == {"on-a": "cool"}
    cluster.gone("on-a")
    cluster.heat("b", times=1)
    assert cluster.moved() == {"on-b": "cool"}


def test_a_dry_run_leaves_no_trace() -> None:
    cluster, other = hot_and_cool(), hot_and_cool(preempts=False)
    for each in (cluster, other):
        each.cycle()
        anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ANTI]}}
        for i in range(3):
            pod = pod_manifest(f"new{i}", cpu="1", labels={"app": "x"}, affinity=anti)
            each.tell(pod)
        each.cycle()
    nodes = [{k: p.node for k, p in each.scheduler.state.pods.items()} for each in (cluster, other)]
    assert nodes[0] == nodes[1]


ANTI = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}


# ----------------------------------------------------------------------------------------- which pods stay


@pytest.mark.parametrize("why", ["bare", "DaemonSet", "Node", "pinned", "terminating", "gang"])
def test_a_pod_that_optimise_may_not_move_stays(why: str) -> None:
    cluster = Cluster("hot", "cool")
    manifest = pod_manifest("p", node_name="hot", cpu="3")
    if why != "bare":
        manifest = owned(manifest, "rs", why if why in ("DaemonSet", "Node") else "ReplicaSet")
    meta = manifest["metadata"]
    if why == "pinned":
        meta["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    if why == "terminating":
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if why == "gang":
        meta["labels"] = {"scheduling.x-k8s.io/pod-group": "g"}
    cluster.tell(manifest)
    cluster.scheduler.fold(Written({"default/p": 1}))
    cluster.heat("hot")
    assert cluster.cycle() == []
    cluster.pod("free", "hot", cpu="2")
    cluster.heat("hot", times=1)
    assert cluster.moved() == {"free": "cool"}


def test_a_budget_that_lets_no_pod_go_keeps_its_pods() -> None:
    cluster = Cluster("hot", "cool")
    cluster.pod("kept", "hot", cpu="3", labels={"app": "web"})
    cluster.budget(0, app="web")
    cluster.heat("hot")
    assert cluster.cycle() == []
    cluster.pod("free", "hot", cpu="2")
    cluster.heat("hot", times=1)
    assert cluster.moved() == {"free": "cool"}


def test_pods_that_leave_count_against_their_budget_until_they_are_gone() -> None:
    cluster = Cluster("hot", "warm", "cool", "far")
    for node in ("hot", "warm"):
        for i in range(2):
            cluster.pod(f"{node}{i}", node, cpu="1", labels={"app": "web"})
    cluster.rule(target_percent=70.0)
    cluster.budget(1, app="web")
    cluster.heat("hot", 8.0)
    (decided,) = cluster.cycle()
    assert len(decided.moves) == 1
    assert decided.budgets == ("default/budget",)
    cluster.heat("warm", 8.0)
    assert cluster.cycle() == [], "the budget let one go, and it has not gone yet"
    cluster.gone(*(each.pod.name for each in decided.moves))
    cluster.heat("warm", 8.0, times=1)
    assert len(cluster.moved()) == 1, "its status says that one may go"


def test_a_budget_that_lets_one_of_two_go_lets_another_pod_go_instead() -> None:
    cluster = Cluster("hot", "cool")
    for name in ("web0", "web1"):
        cluster.pod(name, "hot", cpu="1", labels={"app": "web"})
    cluster.pod("other", "hot", cpu="900m")
    cluster.budget(1, app="web")
    cluster.heat("hot", 9.5)
    moved = cluster.moved()
    assert set(moved) == {"web0", "other"}


# ---------------------------------------------------------------------------------- how many, and how often


def test_three_moves_are_under_way_in_the_cluster_and_one_per_workload() -> None:
    nodes = [f"hot{i}" for i in range(5)]
    cluster = Cluster(*nodes, *(f"cool{i}" for i in range(5)))
    for i, node in enumerate(nodes):
        cluster.pod(f"p{i}", node, cpu="2", by="same" if i < 2 else f"w{i}")
    cluster.rule(moves_max=3)
    for _ in range(5):
        for node in nodes:
            cluster.heat(node, times=1)
    assert set(cluster.moved()) == {"p0", "p2", "p3"}
    cluster.gone("p2")
    assert set(cluster.moved()) == {"p4"}, "another of the workload of p0 waits until it is gone"
    cluster.gone("p0")
    for node in nodes:
        cluster.heat(node, times=1)
    assert set(cluster.moved()) == {"p1"}


def test_a_node_that_needs_more_moves_than_may_begin_keeps_all_of_its_pods() -> None:
    cluster = Cluster("hot", "cool")
    for i in range(8):
        cluster.pod(f"p{i}", "hot", cpu="400m")
    cluster.heat("hot", 9.5)
    assert cluster.cycle() == []
    cluster.rule(moves_max=8)
    cluster.heat("hot", 9.5, times=1)
    assert len(cluster.moved()) == 5


def test_at_most_so_many_hot_nodes_are_looked_at_in_a_cycle_and_the_others_come_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("domain.cycle.relieve.relief_looks_max", 2)
    nodes = [f"hot{i}" for i in range(5)]
    cluster = Cluster(*nodes, "cool")
    for i, node in enumerate(nodes):
        cluster.pod(f"p{i}", node, cpu="2", node_selector=None if i == 4 else {"only": "here"})
    for _ in range(5):
        for node in nodes:
            cluster.heat(node, times=1)
    first = cluster.scheduler.cycle(cluster.now_ms)
    assert first.looked_at == {"hot0", "hot1"}
    assert cluster.scheduler.has_work
    assert cluster.moved() == {"p4": "cool"}
    assert not cluster.scheduler.cycle(cluster.now_ms).looked_at, "nothing was measured since"


def test_a_node_rests_after_its_moves() -> None:
    cluster = hot_and_cool()
    assert len(cluster.cycle()) == 1
    decided_ms = cluster.now_ms
    state = cluster.scheduler.state
    assert cluster.scheduler.due_ms(cluster.now_ms) <= decided_ms + 60 * SECOND_MS
    cluster.gone("p1")
    cluster.heat("hot", times=1)
    assert cluster.cycle() == []
    assert state.moves.due_ms(state.own) == decided_ms + 300 * SECOND_MS
    cluster.heat("hot", 9.0, times=28)
    assert cluster.now_ms < decided_ms + 300 * SECOND_MS
    assert cluster.cycle() == []
    cluster.heat("hot", times=1)
    assert set(cluster.moved()) == {"p0", "p2"}


def test_pods_that_have_not_left_in_time_may_stay_and_the_node_rests_on() -> None:
    cluster = hot_and_cool()
    cluster.cycle()
    cluster.now_ms += 59 * SECOND_MS
    assert (cluster.cycle(), cluster.ended) == ([], [])
    cluster.now_ms += SECOND_MS
    assert cluster.cycle() == []
    (ended,) = cluster.ended
    assert (ended.node, ended.shard, [pod.name for pod in ended.spared]) == ("hot", 0, ["p1"])
    assert not cluster.scheduler.state.moves.under_way
    assert not cluster.scheduler.state.leaving
    assert set(cluster.scheduler.state.moves.reliefs) == {"hot"}
    cluster.now_ms += 240 * SECOND_MS
    cluster.cycle()
    assert not cluster.scheduler.state.moves.reliefs
    assert len(cluster.ended) == 1


def test_a_relief_that_the_ledger_refused_is_decided_again() -> None:
    cluster = hot_and_cool()
    (decided,) = cluster.cycle()
    cluster.scheduler.fold(Unrelieved(["hot"]))
    assert cluster.scheduler.state.nodes["hot"].version == decided.node_version - 1
    assert [each.moves for each in cluster.cycle()] == [decided.moves]


def test_a_relief_that_the_ledger_refused_after_its_pod_left_is_no_relief() -> None:
    """Another worker's pod may leave before this one hears that it was late: else the version stays wrong."""
    cluster = hot_and_cool()
    (decided,) = cluster.cycle()
    cluster.gone("p1")
    cluster.scheduler.fold(Unrelieved(["hot"]))
    state = cluster.scheduler.state
    assert state.moves.reliefs == {}
    assert state.nodes["hot"].version == decided.node_version, "the pod left, and nothing was claimed"


# ------------------------------------------------------------------------------------- beside preemption


def test_a_pod_that_leaves_is_no_victim_and_its_room_is_counted_as_free() -> None:
    cluster = Cluster("hot", "cool")
    cluster.pod("p0", "hot", cpu="4", priority=0)
    cluster.pod("p1", "hot", cpu="4", priority=0)
    cluster.heat("hot")
    assert len(cluster.moved()) == 1
    (moved,) = (key for key in cluster.scheduler.state.moves.under_way)
    cluster.pod("full", "cool", cpu="10", priority=100)
    cluster.tell(pod_manifest("urgent", cpu="5", priority=10))
    cluster.cycle()
    nominations = cluster.scheduler.state.nominations
    assert nominations.entries["default/urgent"].node == "hot"
    assert nominations.evicted == {}, "what leaves already is enough"
    cluster.gone(moved.partition("/")[2])
    cluster.cycle()
    assert cluster.scheduler.state.pods["default/urgent"].node == "hot"


def test_a_hot_node_waits_for_pods_that_leave_it_for_another() -> None:
    cluster = Cluster("hot", "cool")
    cluster.pod("low", "hot", cpu="3", priority=0)
    cluster.pod("kept", "hot", cpu="3", priority=20)
    cluster.pod("full", "cool", cpu="5", priority=20)
    cluster.tell(pod_manifest("urgent", cpu="7", priority=10))
    cluster.heat("hot")
    assert cluster.cycle() == []
    assert set(cluster.scheduler.state.nominations.evicted) == {"default/low"}
