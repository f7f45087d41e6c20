"""What nodes lend to pods of weaker promises: room, who may take it, and when it ends."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from domain.cycle.schedule import Scheduler
from domain.manifests.objects import convert_manifest, node_from_manifest, pod_from_manifest
from domain.manifests.usage import WireNodeUsage, usage_from_wire
from domain.model.colocation import CoLocationPolicy, EstimateRule, LendingForm, Portion, ViewRule
from domain.model.config import CO_LOCATION_POLICY
from domain.model.events import ConfigUpserted, NodeUpserted, NodeUsed, PodDeleted, PodUpserted
from domain.model.pods import COLOCATION_PROFILE
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.usage import NodeUsage
from domain.state.resources import ROOM
from domain.state.steps import Written
from tests.builders import Json, node_manifest, pod_manifest

GI = 1 << 30
MINUTE_MS = 60_000


def low(image: str = "i") -> list[Json]:
    """Return containers that say nothing: a pod of these is expected to use 4 cores and 4 GiB."""
    return [{"name": f"c{i}", "image": image} for i in range(4)]


class Cluster:
    """Two nodes of 40 cores that request 38 each; on a 35 are in use, on b 10."""

    def __init__(self, **nodes: Json) -> None:
        self.scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
        self.now_ms, self.placed = 0, Counter[str]()
        for name in ("a", "b"):
            labels = nodes.get(name, {})
            self.fold(NodeUpserted(node_of(name, labels)))
            self.pod(f"big-{name}", node=name, cpu="38", memory="40Gi", is_high=True)
        self.now_ms = 10 * MINUTE_MS
        self.measure("a", high="35")
        self.measure("b", high="10")

    def fold(self, event: Any) -> None:
        self.scheduler.fold(event)

    def pod(
        self,
        name: str,
        *,
        node: str | None = None,
        cpu: str | None = None,
        memory: str | None = None,
        limit: str | None = None,
        is_high: bool = False,
        image: str = "i",
    ) -> None:
        """Let a pod come: on a node since now, or under the profile colocation."""
        manifest = pod_manifest(name, node_name=node, scheduler_name=COLOCATION_PROFILE)
        asked = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v}
        limits = asked if is_high else ({"cpu": limit, "memory": "1Gi"} if limit else {})
        resources = {"requests": asked, "limits": limits}
        manifest["spec"]["containers"] = (
            [{"name": "c", "image": image, "resources": resources}] if asked or limits else low(image)
        )
        self.fold(PodUpserted(pod_from_manifest(manifest)))
        if node:
            self.fold(Written({f"default/{name}": max(self.now_ms, 1)}))

    def measure(self, node: str, **cores: str) -> None:
        quality = {name: {"cpu": cpu, "memory": "1Gi"} for name, cpu in cores.items()}
        manifest = {"kind": "NodeUsage", "metadata": {"name": node}, "quality": quality}
        self.fold(NodeUsed(usage_from_wire(convert_manifest(manifest, WireNodeUsage, ""), self.now_ms, "")))

    def sample(self, node: str, percent: float) -> None:
        """Measure the cpu of a node, and nothing by quality."""
        self.fold(NodeUsed(NodeUsage(node=node, at_ms=self.now_ms, percent={"cpu": percent})))

    def cycle(self) -> dict[str, int]:
        """Try what waits; return how many pods went where, and how many found no node."""
        found, placed_ms = Counter[str](), dict[str, int]()
        while self.scheduler.has_work:
            result = self.scheduler.cycle(self.now_ms)
            for verdict in result.verdicts:
                found[getattr(verdict, "node", "") or "waits"] += 1
                placed_ms[verdict.pod.key] = self.now_ms
            self.scheduler.fold(Written(placed_ms))
        return dict(found)

    def why(self, name: str) -> dict[str, int]:
        """Return why a pod waits: how many nodes refused it for which reason."""
        (group,) = [
            g
            for g in self.scheduler.queue.groups.values()
            if any(f"default/{name}" in line.pods for line in g.lines.values())
        ]
        assert group.attempt is not None
        return dict(group.attempt.reasons_at_failure)

    def room(self, node: str) -> list[float]:
        """Return what a node lends to mid and low pods: cores and GiB."""
        self.scheduler.sync()
        table = self.scheduler.state.table
        row = table.rows[node]
        cpu, memory, low_cpu, low_memory = (
            table.allocatable[ROOM, row] - table.requested[ROOM, row]
        ).tolist()
        return [cpu / 1000, memory / GI, low_cpu / 1000, low_memory / GI]

    def policy(self, name: str = "p", **fields: Any) -> None:
        self.fold(ConfigUpserted(CO_LOCATION_POLICY, "", name, CoLocationPolicy(**fields), None))


def node_of(name: str, labels: Json) -> Any:
    return node_from_manifest(node_manifest(name, cpu=40, memory="100Gi", labels=labels), strict=True)


def test_the_two_nodes_of_the_study() -> None:
    cluster = Cluster()
    assert cluster.room("a") == [1, 89, 1, 89]
    assert cluster.room("b") == [26, 89, 26, 89], "40 less 10 in use, less a tenth of 40"
    cluster.pod("equal", cpu="5", memory="1Gi", is_high=True)
    assert cluster.cycle() == {"waits": 1}
    assert cluster.why("equal") == {"insufficient:cpu": 2}
    cluster.pod("burst", cpu="1", limit="10")
    assert cluster.cycle() == {"b": 1}
    assert cluster.room("b")[0] == 16


def test_low_pods_do_not_herd_and_a_settled_measurement_lends_what_they_left() -> None:
    cluster = Cluster()
    for i in range(40):
        cluster.pod(f"low-{i}")
    assert cluster.cycle() == {"b": 6, "waits": 34}
    assert cluster.why("low-39") == {"insufficient-room:cpu": 2}
    cluster.now_ms += MINUTE_MS - 1
    cluster.measure("a", high="35")
    cluster.measure("b", high="10", low="6")
    assert cluster.cycle() == {}, "the six may still be starting: they count by their estimates"
    cluster.now_ms += 1
    cluster.measure("b", high="10", low="6")
    assert cluster.cycle() == {"b": 5}


def test_room_for_one_pod_costs_one_attempt_and_not_one_of_each_group_that_waits() -> None:
    """A measurement wakes all groups that ask for no more than it found; the first takes it."""
    cluster = Cluster()
    for i in range(30):
        cluster.pod(f"low-{i}", image=f"i-{i}")
    assert cluster.cycle() == {"b": 6, "waits": 24}
    cluster.now_ms += 2 * MINUTE_MS
    cluster.measure("b", high="10", low="20")  # they use 4 cores less than was expected of them
    result = cluster.scheduler.cycle(cluster.now_ms)
    assert [len(result.verdicts), len(result.attempts)] == [1, 1]
    behind = cluster.scheduler.cycle(cluster.now_ms)
    assert (behind.verdicts, behind.attempts, cluster.scheduler.has_work) == ([], [], False)
    cluster.scheduler.fold(Written({result.verdicts[0].pod.key: cluster.now_ms}))
    cluster.now_ms += MINUTE_MS
    cluster.measure("b", high="10", low="16")
    assert cluster.cycle() == {"b": 2}
    cluster.now_ms += 10 * MINUTE_MS
    cluster.measure("b")
    cluster.measure("a")
    assert cluster.cycle() == {"a": 9, "b": 9}


def test_a_group_takes_all_the_room_that_a_measurement_finds() -> None:
    cluster = Cluster()
    for i in range(20):
        cluster.pod(f"low-{i}")
    assert cluster.cycle() == {"b": 6, "waits": 14}
    cluster.now_ms += 2 * MINUTE_MS
    cluster.measure("b", high="2", low="4")
    assert cluster.cycle() == {"b": 7}


def test_only_a_measurement_by_quality_covers_pods_where_room_follows_from_one() -> None:
    """A sample in percent says nothing of what the pods of a quality use: what is lent stays as it was."""
    cluster = Cluster()
    for i in range(10):
        cluster.pod(f"low-{i}")
    assert cluster.cycle() == {"b": 6, "waits": 4}
    cluster.now_ms += MINUTE_MS
    cluster.sample("b", 40.0)
    assert cluster.cycle() == {}, "the measurement that lends is of before the six came"
    cluster.measure("b", high="10", low="6")
    assert cluster.cycle() == {"b": 4}


def test_samples_cover_pods_again_once_nothing_is_lent_any_more() -> None:
    """As where an agent is gone: what counts pods in flight would count them for ever."""
    cluster = Cluster()
    entry, began_ms = cluster.scheduler.state.nodes["b"], cluster.now_ms
    cluster.now_ms = began_ms + 100_000
    cluster.pod("late", node="b")
    cluster.now_ms = began_ms + 150_000
    cluster.sample("b", 40.0)
    assert entry.recent == {"default/late"}
    cluster.now_ms = began_ms + 160_000
    cluster.sample("b", 40.0)
    assert entry.recent == set(), "the view is too old, also for a clock that is a minute behind"
    cluster.now_ms = began_ms + 120_000
    cluster.measure("b", high="10")
    assert entry.recent == {"default/late"}, "it comes late, and lends"


def test_high_pods_are_not_asked_for_room() -> None:
    cluster = Cluster()
    cluster.measure("a", high="40")
    cluster.pod("high", cpu="2", memory="1Gi", is_high=True)
    assert sum(cluster.cycle().values()) == 1
    assert not cluster.scheduler.queue.groups


@pytest.mark.parametrize("quality", ["low", "mid"])
def test_a_node_that_was_measured_too_long_ago_lends_nothing(quality: str) -> None:
    cluster = Cluster()
    cluster.now_ms += 90_000
    asked = (None, None) if quality == "low" else ("1", "2")
    cluster.pod("p", cpu=asked[0], limit=asked[1])
    assert cluster.cycle() == {"b": 1}
    cluster.now_ms += 1
    assert cluster.scheduler.due_ms(cluster.now_ms - 1) == cluster.now_ms
    cluster.pod("q", cpu=asked[0], limit=asked[1])
    assert cluster.cycle() == {"waits": 1}
    assert cluster.why("q") == {"insufficient-room:cpu,insufficient-room:memory": 2}
    cluster.measure("b", high="10")
    assert cluster.cycle() == {"b": 1}, "a measurement wakes it"


def test_a_node_without_a_measurement_by_quality_lends_nothing() -> None:
    cluster = Cluster()
    cluster.fold(NodeUpserted(node_of("c", {})))
    assert cluster.room("c") == [0, 0, 0, 0]


def test_a_pod_that_left_gives_its_estimate_back_and_wakes() -> None:
    cluster = Cluster()
    for i in range(7):
        cluster.pod(f"low-{i}")
    assert cluster.cycle() == {"b": 6, "waits": 1}
    gone = next(k for k, e in cluster.scheduler.state.pods.items() if e.node == "b" and "low" in k)
    cluster.fold(PodDeleted("default", gone.split("/")[1]))
    assert cluster.cycle() == {"b": 1}


def test_a_policy_holds_from_its_place_in_the_log_and_by_the_nodes_labels() -> None:
    cluster = Cluster(b={"pool": "batch"})
    view = ViewRule(margin_cpu=Portion(amount=10_000))
    cluster.policy("batch", node_selector={"pool": "batch"}, view=view)
    assert (cluster.room("a")[2], cluster.room("b")[2]) == (1, 20)
    cluster.policy("all", estimate=EstimateRule(cpu_milli=2_000, memory_bytes=GI))
    for i in range(4):
        cluster.pod(f"low-{i}")
    assert cluster.cycle() == {"b": 2, "waits": 2}, "each is expected to use 8 cores now"
    cluster.policy("all", estimate=EstimateRule())
    assert cluster.room("b")[2] == 12, "those that came count anew, too"
    assert cluster.cycle() == {"b": 2}


def test_what_is_lent_may_follow_from_requests() -> None:
    cluster = Cluster()
    cluster.policy(view=ViewRule(low_form=LendingForm.REQUEST, margin_cpu=Portion()))
    assert cluster.room("b")[2] == 2, "40 less the 38 that high pods request"
    cluster.fold(PodDeleted("default", "big-b"))
    assert cluster.room("b")[2] == 40


def test_what_nodes_lend_follows_their_rows_and_specs() -> None:
    cluster = Cluster()
    node = node_manifest("b", cpu=20, memory="100Gi", resource_version=9)
    cluster.fold(NodeUpserted(node_from_manifest(node, strict=True)))
    assert cluster.room("b")[2] == 8, "20 less 10 in use, less a tenth"
    cluster.fold(NodeUpserted(node_of("c", {})))
    assert cluster.room("b")[2] == 8


def test_a_hot_node_takes_no_weaker_pods_until_it_is_calm() -> None:
    cluster = Cluster()

    def measure(count: int, cores: str) -> None:
        for _ in range(count):
            cluster.now_ms += 10_000
            cluster.measure("b", high=cores)
            cluster.cycle()

    measure(4, "32")
    cluster.pod("early")
    assert cluster.cycle() == {"b": 1}, "used to 80 %, it has room for one, and is not hot yet"
    cluster.fold(PodDeleted("default", "early"))
    measure(1, "32")
    cluster.pod("late")
    assert cluster.cycle() == {"waits": 1}, "five bad samples in a row"
    assert cluster.why("late")["hot-node"] == 1
    measure(2, "10")
    assert cluster.cycle() == {}
    assert cluster.why("late")["hot-node"] == 1
    measure(1, "10")
    assert not cluster.scheduler.queue.groups, "three good ones, and what waits is placed"


def test_high_pods_go_to_a_hot_node() -> None:
    cluster = Cluster()
    for _ in range(5):
        cluster.now_ms += 10_000
        cluster.measure("b", high="39")
    cluster.pod("high", cpu="2", memory="1Gi", is_high=True)
    cluster.pod("other", cpu="2", memory="1Gi", is_high=True)
    assert cluster.cycle() == {"a": 1, "b": 1}


def test_pods_that_borrow_need_the_node_as_it_was_and_high_pods_do_not() -> None:
    """So low pods of other workers cause a high pod no conflict."""
    cluster = Cluster()
    cluster.pod("high", cpu="1", memory="1Gi", is_high=True)
    cluster.pod("mid", cpu="1", limit="2")
    cluster.pod("low")
    result = cluster.scheduler.cycle(cluster.now_ms)
    strict = {
        verdict.pod.name for verdict in result.verdicts if getattr(verdict, "attempt", -1) in result.strict
    }
    assert strict == {"mid", "low"}
