"""Does the planner of preemption find the victims and the node of the plain definition?"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest

from domain.engine.budgets import Budgets
from domain.engine.evaluate import compiled_alone
from domain.engine.preemption import Decided, Nominated, Planned, Preemptor
from domain.model.events import NodeDeleted, NodeUpserted, PodDeleted, PodUpserted
from domain.model.nodes import NodeSpec, Taint
from domain.model.selectors import (
    LabelSelector,
)
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.state.steps import Reclassify
from tests.depth import some
from tests.oracle.devices import GPU, wants
from tests.oracle.preempting import Budget, Preemption
from tests.oracle.preempting_clusters import (
    APPS,
    DEFAULT,
    HOST,
    MOMENT_MS,
    STRICT,
    ZONE,
    Cluster,
    pod_of,
    random_template,
    selector,
)


def random_cluster(seed: int, *, nodes: int = 8, per_node: int = 6, asks_devices: float = 0.0) -> Cluster:
    rng = random.Random(seed)
    cluster = Cluster(rng.choice((DEFAULT, STRICT)))
    wild = rng.choice((0.0, 0.1, 0.4))
    for i in range(rng.randint(1, nodes)):
        labels = {HOST: f"n{i}"} | ({ZONE: f"z{rng.randint(0, 2)}"} if rng.random() < 0.95 else {})
        room = {"cpu": rng.choice((1000, 2000)), "memory": rng.choice((8, 20)), "pods": rng.choice((4, 30))}
        if asks_devices and (count := rng.choice((0, 1, 2, 2, 4, 17))):
            room[GPU] = count
        taints = (Taint("k", "v", "NoSchedule"),) if rng.random() < 0.1 else ()
        spec = NodeSpec(
            name=f"n{i}", uid=f"n{i}", resource_version=1, allocatable=room, labels=labels, taints=taints
        )
        cluster.take(NodeUpserted(spec))
        for k in range(rng.randint(0, per_node)):
            template = random_template(rng, rng.randint(0, 9), wild, asks_devices=asks_devices)
            start = f"2026-01-01T00:00:0{rng.randint(0, 3)}.000Z" if rng.random() < 0.7 else ""
            app = rng.choice((*APPS, ""))
            cluster.take(PodUpserted(pod_of(f"p{i}-{k}", template, app, f"n{i}", start)))
            if rng.random() < 0.5:
                cluster.place_at(f"d/p{i}-{k}", MOMENT_MS + 500 * rng.randint(0, 7))
    for b in range(rng.randint(0, 3)):
        disrupted = {f"p{rng.randint(0, 3)}-0"} if rng.random() < 0.3 else set()
        chosen = selector(rng.choice(APPS)) if rng.random() < 0.9 else LabelSelector(())
        namespace = "d" if rng.random() < 0.9 else "other"
        cluster.add_budget(f"b{b}", Budget(namespace, chosen, rng.randint(0, 2), disrupted))
    of_preemptor = 0.9 if asks_devices else 0.0
    template = random_template(rng, rng.randint(1, 12), max(wild, 0.2), asks_devices=of_preemptor)
    app = rng.choice((*APPS, ""))
    cluster.preemptors = [pod_of(f"new{i}", template, app) for i in range(4)]
    for pod in cluster.preemptors:
        cluster.take(PodUpserted(pod))
    return cluster


def found_by_kernel(
    cluster: Cluster, claimed: set[str], nominated: Sequence[tuple[str, str]], count: int
) -> tuple[list[Planned], list[Planned]]:
    """Return each node's plan and the nominations, by the planner."""
    state, pod = cluster.state, cluster.preemptors[0]
    with compiled_alone(state, ProfilePlan(cluster.profile), pod, NodeView(state)) as alone:
        given = Decided(
            Budgets(state, claimed),
            claimed,
            [Nominated(state.pods[key].pod_class, node) for key, node in nominated],
        )
        for key, node in nominated:  # as a cycle writes what the preemptor must leave alone
            spec = state.pods[key].spec
            columns, values = state.nominations.amounts_of(spec.signature, spec.template)
            alone.snapshot.columns.requested[columns, state.table.rows[node]] += values
        preemptor = Preemptor(state, alone.snapshot, alone.slots)
        found, _ = preemptor.candidates(alone.program, given)
        return found, preemptor.plan(alone.program, count, given).planned


def with_devices(asks_devices: float, seeds: range) -> list[tuple[int, float]]:
    return [(seed, asks_devices) for seed in some(seeds)]


def told(planned: Planned) -> tuple[str, list[str], int]:
    return planned.node, list(planned.victims), planned.weight.violations


@pytest.mark.parametrize(
    ("seed", "asks_devices"),
    [*with_devices(0.0, range(150)), *with_devices(0.6, range(400, 600))],
)
def test_same_victims_and_same_nodes(seed: int, asks_devices: float) -> None:
    cluster = random_cluster(seed, asks_devices=asks_devices)
    oracle = Preemption(cluster.oracle, cluster.budgets)
    entry = cluster.oracle.pods[cluster.preemptors[0].key]
    expected = oracle.candidates(entry)
    found, planned = found_by_kernel(cluster, set(), [], len(cluster.preemptors))
    assert {each.node: told(each) for each in found} == {
        node: (node, each.victims, each.violations) for node, each in expected.items()
    }
    nominations = [oracle.nominate(cluster.oracle.pods[pod.key]) for pod in cluster.preemptors]
    assert [told(each) for each in planned] == [
        (each.node, each.victims, each.violations) for each in nominations if each is not None
    ]


@pytest.mark.parametrize(
    ("seed", "asks_devices"),
    [*with_devices(0.0, range(150, 250)), *with_devices(0.6, range(600, 800))],
)
def test_what_is_decided_already_counts(seed: int, asks_devices: float) -> None:
    """Pods that were evicted are gone and are never offered again; nominated ones are there."""
    cluster, rng = random_cluster(seed, asks_devices=asks_devices), random.Random(seed)
    placed = [key for key, pod in cluster.oracle.pods.items() if pod.node]
    claimed = set(rng.sample(placed, min(len(placed), rng.randint(0, 6))))
    nominated = []
    for i in range(rng.randint(0, 3)):
        template = random_template(rng, 12, 0.3, asks_devices=asks_devices)
        pod = pod_of(f"waits{i}", template, rng.choice((*APPS, "")))
        cluster.take(PodUpserted(pod))
        nominated.append((pod.key, rng.choice(list(cluster.oracle.nodes))))
    for budget in cluster.budgets:
        budget.allowed -= sum(budget.holds(cluster.oracle.pods[key]) for key in claimed)
        budget.allowed = max(budget.allowed, 0)
    oracle = Preemption(cluster.oracle, cluster.budgets, claimed, nominated)
    expected = oracle.candidates(cluster.oracle.pods[cluster.preemptors[0].key])
    found, planned = found_by_kernel(cluster, claimed, nominated, len(cluster.preemptors))
    assert {each.node: told(each) for each in found} == {
        node: (node, each.victims, each.violations) for node, each in expected.items()
    }
    nominations = [oracle.nominate(cluster.oracle.pods[pod.key]) for pod in cluster.preemptors]
    assert [told(each) for each in planned] == [
        (each.node, each.victims, each.violations) for each in nominations if each is not None
    ]


@pytest.mark.parametrize("asks_devices", [0.0, 0.6])
@pytest.mark.parametrize("seed", some(range(250, 256)))
def test_fifty_nodes_and_five_hundred_pods(seed: int, asks_devices: float) -> None:
    """The same on clusters of a size; and by itself: no victim is one too many, none is as important."""
    cluster = random_cluster(seed, nodes=50, per_node=18, asks_devices=asks_devices)
    oracle = Preemption(cluster.oracle, cluster.budgets)
    entry = cluster.oracle.pods[cluster.preemptors[0].key]
    expected = oracle.candidates(entry)
    found, _ = found_by_kernel(cluster, set(), [], 1)
    assert {each.node: told(each) for each in found} == {
        node: (node, each.victims, each.violations) for node, each in expected.items()
    }
    pods = cluster.oracle.pods
    for each in found:
        for key in each.victims:
            assert pods[key].spec.template.priority < entry.spec.template.priority
            pods[key].node = ""
        assert oracle.fits(entry, each.node)
        for key in each.victims:
            pods[key].node = each.node
            assert not oracle.fits(entry, each.node), f"{key} need not go"
            pods[key].node = ""
        for key in each.victims:
            pods[key].node = each.node


@pytest.mark.parametrize("asks_devices", [0.0, 0.6])
@pytest.mark.parametrize("seed", some(range(300, 340)))
def test_the_pods_by_row_follow_the_state(seed: int, asks_devices: float) -> None:
    """A planner that lived through many changes plans as one that sees the cluster for the first time."""
    cluster, rng = random_cluster(seed, asks_devices=asks_devices), random.Random(seed)
    state, pod = cluster.state, cluster.preemptors[0]
    with compiled_alone(state, ProfilePlan(cluster.profile), pod, NodeView(state)) as alone:
        budgets = Budgets(state)
        old = Preemptor(state, alone.snapshot, alone.slots)
        old.plan(alone.program, 2, Decided(budgets))
        for step in range(12):
            change(cluster, rng, step, asks_devices=asks_devices)
            if not state.index.is_settled:
                state.apply(Reclassify())
            alone.snapshot.sync()
            alone.slots.counters.sync(alone.snapshot.rows_width)
            alone.slots.start_call()
            budgets.sync()
            entry = state.pods[pod.key]
            program = alone.slots.program(
                b"key", pod.signature, pod.template, alone.program.plan, entry.pod_class
            )
            assert program is not None
            placed = [key for key, each in state.pods.items() if each.node]
            claimed = set(rng.sample(placed, min(len(placed), 3)))
            now = Decided(budgets, claimed)
            fresh = Preemptor(state, alone.snapshot, alone.slots)
            expected = fresh.candidates(program, now), fresh.plan(program, 3, now)
            state.index.renewed = old._victims._renewed  # as if nobody else had asked
            assert (old.candidates(program, now), old.plan(program, 3, now)) == expected


@pytest.mark.wide
def test_devices_decide_who_goes() -> None:
    """What the comparisons above rest on: pods go for a share, and for whole devices that others share."""
    shares = wholes = 0
    for seed in range(400, 600):
        cluster = random_cluster(seed, asks_devices=0.6)
        pods, entry = cluster.oracle.pods, cluster.oracle.pods[cluster.preemptors[0].key]
        if not wants(entry.spec.template)[0]:
            continue
        for each in Preemption(cluster.oracle).candidates(entry).values():
            held = [wants(pods[key].spec.template)[1] for key in each.victims]
            is_share = wants(entry.spec.template)[1] < 1000
            shares += is_share and any(0 < milli < 1000 for milli in held)
            wholes += not is_share and any(0 < milli < 1000 for milli in held)
    assert shares > 30
    assert wholes > 30


def change(cluster: Cluster, rng: random.Random, step: int, *, asks_devices: float) -> None:
    """Let a pod come, go or change, or a node."""
    nodes = sorted(cluster.oracle.nodes)
    placed = sorted(key for key, pod in cluster.oracle.pods.items() if pod.node)
    kind = rng.randint(0, 5)
    if kind == 0 and placed:
        cluster.take(PodDeleted("d", rng.choice(placed).partition("/")[2]))
    elif kind == 1 and placed:
        spec = cluster.oracle.pods[rng.choice(placed)].spec
        cluster.take(
            PodUpserted(
                msgspec.structs.replace(
                    spec,
                    resource_version=step + 2,
                    labels={"app": rng.choice(APPS)},
                    start_time=f"2026-01-01T00:00:0{rng.randint(0, 5)}.000Z",
                )
            )
        )
    elif kind == 5 and placed:
        cluster.place_at(rng.choice(placed), MOMENT_MS + 500 * rng.randint(0, 7))
    elif kind == 2 and len(nodes) > 2:
        cluster.take(NodeDeleted(rng.choice(nodes)))
    else:
        template = random_template(rng, rng.randint(0, 9), 0.2, asks_devices=asks_devices)
        cluster.take(PodUpserted(pod_of(f"late{step}", template, rng.choice(APPS), rng.choice(nodes))))
