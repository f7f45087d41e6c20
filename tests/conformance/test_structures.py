"""Do the stores, the node list, the choice among equals and the commit behave as the published systems' do?

The thin drivers here put each case through the real classes; what a case says of an index that does not
exist in berth is named in ``NOT_KEPT``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest

from domain.engine.evaluate import evaluate
from domain.manifests.profile import profile_from_manifest
from domain.model.events import NodeDeleted, NodeUpserted, PodDeleted, PodUpserted
from domain.plugins.registry import ProfilePlan
from domain.state.cluster import ClusterState
from domain.state.resources import ResourceIndex
from domain.state.snapshot import Snapshot
from domain.state.table import NodeTable
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.ledger import MemoryLedger
from services.plan.scenario import plan_scenario
from services.ports.ledger import Committed, NodeClaim, NodeFact
from services.ports.log import PODS_TOPIC, TopicPartition
from tests.batches import batch_of
from tests.builders import node_manifest, pod_manifest
from tests.conformance.tables import FIT_ONLY, STRUCTURES
from tests.conformance.tables import structure_cases as cases
from tests.contract.batches import advance
from tests.contract.ledgers import ManualClock, loaded
from tests.depth import DEPTH
from tests.values import node, pod, template

NOT_KEPT = {"nodes_with_affinity_pods"}
BY_CPU = {
    "filters": ["NodeResourcesFit"],
    "scores": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 1}]}
            },
        }
    ],
}


def differs(snapshot: Snapshot, table: NodeTable) -> bool:
    rows, resources = table.count, table.allocatable.shape[0]
    return int(snapshot.columns.rows_count[0]) != rows or any(
        (mine[:resources, :rows] != theirs[:, :rows]).any()
        for mine, theirs in (
            (snapshot.columns.allocatable, table.allocatable),
            (snapshot.columns.requested, table.requested),
        )
    )


class Inventory:
    """A cluster under the operations of the cases, and what each sync of a snapshot finds."""

    def __init__(self) -> None:
        self.state = ClusterState(seed=1)
        self.snapshot = Snapshot(self.state.table)
        self.deltas: list[dict[str, Any]] = []
        self._names_seen: list[str] = []
        self._changes = 0

    def do(self, op: str, *args: str) -> None:
        """Carry out one operation; every update is a real one."""
        self._changes += 1
        version = self._changes
        match op, args:
            case (("add_node" | "update_node"), (name,)):
                self.state.apply(NodeUpserted(node(name, 1_000 + version, version=version)))
            case "remove_node", (name,):
                self.state.apply(NodeDeleted(name, resource_version=version))
            case (("add_pod" | "update_pod"), (pod_name, name, *_)):
                self.state.apply(PodUpserted(pod(pod_name, template(version), on=name, version=version)))
            case "remove_pod", (pod_name, _):
                self.state.apply(PodDeleted("default", pod_name, resource_version=version))
            case "sync", ():
                self.sync()
            case _:
                raise AssertionError(op)

    def sync(self) -> None:
        """Note by name what the sync copied: rows are not identities."""
        table, generation = self.state.table, self.snapshot.generation
        copied_before = int(self.snapshot.changes.length[0])
        self.snapshot.sync()
        copied = self.snapshot.changes.rows[copied_before : int(self.snapshot.changes.length[0])].tolist()
        before = {self._names_seen[row] for row in copied if row < len(self._names_seen)}
        newer = [row for row in copied if row < table.count and table.generation[row] > generation]
        self.deltas.append(
            {
                "upserted": sorted(table.names[row] for row in newer),
                "removed": sorted(before - table.rows.keys()),
                "size_after": int(self.snapshot.columns.rows_count[0]),
            }
        )
        self._names_seen = list(table.names)
        assert not differs(self.snapshot, table)


@pytest.mark.parametrize("case", cases("snapshot"))
def test_snapshot(case: dict[str, Any]) -> None:
    inventory, expect = Inventory(), case["expect"]
    assert expect.keys() - NOT_KEPT == {"nodes_newest_change_first", "delta_at_each_sync"}
    for op in case["ops"]:
        inventory.do(*op)
    assert list(inventory.state.table.newest_first()) == expect["nodes_newest_change_first"]
    assert inventory.deltas == expect["delta_at_each_sync"]


def entries(snapshot: Snapshot, table: NodeTable) -> dict[str, Any]:
    count = int(snapshot.columns.rows_count[0])
    free = snapshot.columns.allocatable[0, :count] - snapshot.columns.requested[0, :count]
    return {name: int(value) for name, value in zip(table.names, free, strict=True)}


@pytest.mark.parametrize("vouched", [False, True])
@pytest.mark.parametrize("case", cases("sync-local-edits"))
def test_a_trial_placement_vanishes_unless_the_state_counted_it(case: dict[str, Any], vouched: bool) -> None:
    """Rows are edited as the kernel edits them: a column is written, and the row is noted in the log."""
    free = {name: int(str(value).removeprefix("free=")) for name, value in case["authoritative"].items()}
    table = NodeTable(ResourceIndex(), seed=1)
    for i, (name, value) in enumerate(free.items()):
        table.upsert(node(name, value), i + 1)
    snapshot = Snapshot(table)
    snapshot.sync()
    rows = [table.rows[name] for name in case["locally_dirty"] if name in free]
    for row in rows:
        snapshot.columns.requested[0, row] -= 9
        snapshot.changes.rows[int(snapshot.changes.length[0])] = row
        snapshot.changes.length[0] += 1
    edited = entries(snapshot, table)
    assert edited != free
    if vouched:
        snapshot.caught_up()
    noted = int(snapshot.changes.length[0])
    snapshot.sync()
    copied = snapshot.changes.rows[noted : int(snapshot.changes.length[0])].tolist()
    assert copied == ([] if vouched else sorted(rows))
    after = {
        key: int(str(value).removeprefix("free=")) for key, value in case["expect"]["snapshot_after"].items()
    }
    assert entries(snapshot, table) == (edited if vouched else after)


def test_a_trial_placement_vanishes_also_when_the_log_was_started_anew() -> None:
    table = NodeTable(ResourceIndex(), seed=1)
    for i in range(3):
        table.upsert(node(f"n{i}"), i + 1)
    snapshot = Snapshot(table)
    snapshot.sync()
    snapshot.columns.requested[0, 1] = 7
    snapshot.changes.rows[int(snapshot.changes.length[0])] = 1
    snapshot.changes.length[0] += 1
    assert not snapshot.reserve(snapshot.changes_max)
    assert differs(snapshot, table)
    snapshot.sync()
    assert not differs(snapshot, table)


@pytest.mark.parametrize("case", cases("recency-list"))
def test_newest_first(case: dict[str, Any]) -> None:
    table = NodeTable(ResourceIndex(), seed=1)
    for op, name in case["ops"]:
        if op == "set":
            table.upsert(node(name), 1)
        elif name in table.rows:
            table.remove(name)
    assert list(table.newest_first()) == case["expect"]["keys_newest_first"]


@pytest.mark.parametrize("case", cases("node-list"))
def test_node_list(case: dict[str, Any]) -> None:
    """Adding appends, removing swaps the last one in; an update of the list removes and adds."""
    state, returned = ClusterState(seed=1), []
    for op, name in case["ops"]:
        before = list(state.table.names)
        if op in ("delete", "update"):
            state.apply(NodeDeleted(name))
        if op == "update" or (op == "add" and name not in state.table.rows):
            state.apply(NodeUpserted(node(name, version=None)))
        returned.append(state.table.names != before)
    assert state.table.names == case["expect"]["list"]
    assert returned == case["expect"]["returned"]


RESOURCES = {"ext-a": "example.com/ext-a", "hugepages": "hugepages-2Mi"}


def named(amounts: dict[str, Any]) -> dict[str, str]:
    return {RESOURCES.get(name, name): str(value) for name, value in amounts.items()}


def containers(asks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"name": f"c{i}", "image": "i", "resources": {"requests": named(ask), "limits": limits(named(ask))}}
        for i, ask in enumerate(asks)
    ]


def limits(requests: dict[str, str]) -> dict[str, str]:
    """Extended resources and huge pages need a limit equal to the request."""
    return {name: value for name, value in requests.items() if name not in ("cpu", "memory")}


@pytest.mark.parametrize("case", cases("bind-recheck"))
def test_what_is_checked_at_the_commit(case: dict[str, Any]) -> None:
    in_use = {name: value for name, value in case["in_use"].items() if name != "pods"}
    room = named(case["capacity"])
    offering = node_manifest("n") | {"status": {"capacity": room, "allocatable": room}}
    holder = pod_manifest("holder", node_name="n", spec={"containers": containers([in_use]), "nodeName": "n"})
    overhead = {"overhead": named(case["overhead"])} if case["overhead"] else {}
    asked = {
        "containers": containers(case["containers"]),
        "initContainers": containers(case["init_containers"]),
        **overhead,
    }
    scenario = {
        "objects": [offering, holder, pod_manifest("p", spec=asked)],
        "schedule": ["p"],
        "profile": FIT_ONLY,
    }
    (verdict,) = plan_scenario(scenario)
    short = ",".join(f"insufficient:{RESOURCES.get(name, name)}" for name in case["expect"]["short_of"])
    expected = "too-many-pods" if case["expect"]["short_of"] == ["pods"] else short
    assert verdict.infeasible == ({"n": expected} if expected else {})
    assert (verdict.node == "n") is case["expect"]["fits"]


def choose(scores: dict[str, float], seed: int, salts: int = 1) -> list[str]:
    """Return the choice of several groups among nodes whose scores are in this order; nothing is placed."""
    state, plan = ClusterState(seed=seed), ProfilePlan(profile_from_manifest(BY_CPU))
    for name, score in scores.items():
        state.apply(NodeUpserted(node(name, int(1_000 * score))))
    waiting = pod("p", template(100))
    groups = [msgspec.structs.replace(waiting, signature=salt.to_bytes(16, "big")) for salt in range(salts)]
    return [str(evaluate(state, plan, group).node) for group in groups]


@pytest.mark.parametrize(
    "case", [each for each in cases("pick-host") if "one_of" in each.values[0]["expect"]]
)
def test_the_best_node_is_chosen_and_the_seed_decides_between_equals(case: dict[str, Any]) -> None:
    chosen = [choose(case["scores"], seed)[0] for seed in range(60)]
    assert set(chosen) == set(case["expect"]["one_of"])
    assert chosen == [choose(case["scores"], seed)[0] for seed in range(60)]


@pytest.mark.parametrize("case", [each for each in cases("pick-host") if "draws" in each.values[0]])
def test_equals_are_chosen_evenly(case: dict[str, Any]) -> None:
    """A draw is a group: one group's pods stay with one choice while nothing changes.

    A tenth of the draws show as much: the tolerance is then more than twice their standard deviation.
    """
    draws = case["draws"] if DEPTH == "nightly" else case["draws"] // 10
    counts = Counter(choose(case["scores"], 1, draws))
    assert set(counts) == set(case["scores"])
    shares = np.array(list(counts.values())) / draws
    assert np.abs(shares - case["expect"]["share_of_each"]).max() < case["expect"]["tolerance"]


class Racing:
    """Workers that see nodes at a version, decide by what they saw, and commit by that version."""

    def __init__(self, nodes: dict[str, dict[str, int]]) -> None:
        self.ids = {name: i + 1 for i, name in enumerate(nodes)}
        self.free = {(name, row["version"]): row["free_cpu_m"] for name, row in nodes.items()}
        self.most = {name: row["free_cpu_m"] for name, row in nodes.items()}
        self.database = MemoryDatabase(1)
        self.ledger = MemoryLedger(self.database, ManualClock())
        self._plan = ProfilePlan(profile_from_manifest(FIT_ONLY))
        self._offset = 0

    async def start(self, nodes: dict[str, dict[str, int]]) -> None:
        (self._lease,) = await self.ledger.acquire("worker", 30)
        await self.ledger.ensure_offsets(self._lease, {TopicPartition(PODS_TOPIC, 0): 0})
        facts = [
            NodeFact(
                id=self.ids[name],
                name=name,
                version_seen=0,
                changes=row["version"],
                delta={},
                spec=node(name, row["free_cpu_m"]),
                spec_count=1,
            )
            for name, row in nodes.items()
        ]
        assert await self._commit(facts=facts) == Committed()

    async def attempt(self, name: str, seen_version: int, cpu_m: int) -> str:
        state = ClusterState(seed=1)
        state.apply(NodeUpserted(node(name, self.free[name, seen_version])))
        if evaluate(state, self._plan, pod("p", template(cpu_m))).node is None:
            return "no-room"
        left = self.free[name, seen_version] - cpu_m
        claim = NodeClaim(
            id=self.ids[name],
            name=name,
            version_seen=seen_version,
            spec_count_seen=1,
            changes=1,
            delta={"cpu": cpu_m},
        )
        if (await self._commit(claims=[claim])).lost_nodes:
            return "conflict"
        self.free[name, seen_version + 1] = left
        return "bound"

    async def _commit(self, **nodes: Any) -> Committed:
        move = advance(self._lease, self._offset, self._offset + 1)
        outcome = await self.ledger.commit(batch_of(advances=[move], log_time_ms=1, **nodes))
        assert isinstance(outcome, Committed)
        self._offset += 1
        return outcome


@pytest.mark.parametrize("case", cases("version-cas"))
async def test_a_commit_compares_the_version_that_was_seen(case: dict[str, Any]) -> None:
    racing = Racing(case["nodes"])
    await racing.start(case["nodes"])
    results = [
        await racing.attempt(each["node"], each["seen_version"], each["cpu_m"]) for each in case["attempts"]
    ]
    assert results == case["expect"]["results"]
    known = {row.name: row for row in (await loaded(racing.ledger, [racing._lease])).nodes}
    found = {
        name: {"version": row.version, "free_cpu_m": racing.most[name] - row.requested.get("cpu", 0)}
        for name, row in known.items()
    }
    assert found == case["expect"]["nodes_after"]


def test_all_groups_of_the_file_are_run() -> None:
    of_preemption = {
        "prefix-sum", "prefix-sum-sequence", "prune", "eligible-priorities",
        "importance-order", "victims", "claimed-victims", "candidate-order",
    }  # fmt: skip
    of_queue = {"queue-score", "backoff"}
    assert set(STRUCTURES) - of_preemption - of_queue == {
        "snapshot", "sync-local-edits", "recency-list", "node-list",
        "bind-recheck", "pick-host", "version-cas",
    }  # fmt: skip
    assert sum(len(group) for group in STRUCTURES.values()) > 40
