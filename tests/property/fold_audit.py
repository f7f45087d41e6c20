"""Recompute from scratch what the columns of a state say."""

from __future__ import annotations

from collections import Counter

from domain.model.devices import BUSY, GPU, SHARED, amounts, asked, with_devices
from domain.model.events import NodeUpserted
from domain.model.nodes import TAINT_EFFECTS, Taint
from domain.state.cluster import ClusterState
from domain.state.keyed_values import ABSENT
from domain.state.resources import CPU_BEYOND, MEMORY_BEYOND, NOWHERE
from domain.state.table import NodeTable
from tests.property.class_audit import audit_classes


def audit(state: ClusterState) -> None:
    """Recompute from scratch what the columns say, and compare."""
    table = state.table
    assert sorted(table.rows.values()) == list(range(table.count)) == list(range(len(table.names)))
    assert {name for name, entry in state.nodes.items() if not entry.deleted} == set(table.rows)
    on_node: dict[str, list[str]] = {}
    for key, pod in state.pods.items():
        assert pod.spec.key == key
        if pod.node:
            on_node.setdefault(pod.node, []).append(key)
    for name, entry in state.nodes.items():
        assert sorted(entry.pods) == sorted(on_node.get(name, []))
        specs = [pod.spec for pod in entry.pods.values()]
        expected: Counter[str] = Counter(pods=len(specs))
        for spec in specs:
            expected.update(spec.template.requests)
            expected.update(amounts(spec.template.requests, spec.devices))
        assert state.requested_of(name) == {k: v for k, v in expected.items() if v}
    audit_classes(state)
    for name, row in table.rows.items():
        audit_row(state, name, row)


def audit_taints(table: NodeTable, row: int) -> None:
    taints = table.specs[row].taints
    for number, effect in enumerate(TAINT_EFFECTS):
        assert table.taint_counts[number, row] == sum(taint.effect == effect for taint in taints)
    found: list[tuple[Taint, str]] = []
    for taint in taints:
        nth = sum((each.key, each.effect) == (taint.key, taint.effect) for each, _ in found)
        column = table.taints.column((taint.key, taint.effect, nth))
        assert column is not None
        found.append((taint, table.taints.values.text(int(column[row]))))
    assert all(taint.value == value for taint, value in found)
    assert table.taint_totals == table.taint_counts.sum(axis=1).tolist()


def audit_devices(state: ClusterState, name: str, row: int) -> None:
    """Recompute what is taken of each device, and what follows from it."""
    entry, resources, requested = state.nodes[name], state.resources, state.table.requested
    assert entry.spec is not None
    whole = entry.spec.allocatable.get(GPU, 0)
    pods = [pod.spec for pod in entry.pods.values()]
    told_apart = 0 < whole <= 16
    taken = [0] * (whole if told_apart else 0)
    for pod in pods:
        ask = asked(pod.template.requests)
        if told_apart and ask.number and entry.pods[pod.key].adopted:
            assert pod.devices
        for device in pod.devices:
            taken[device : device + 1] = [each + ask.milli for each in taken[device : device + 1]]
    busy, shared = resources.column(BUSY), resources.column(SHARED)
    if busy != NOWHERE:
        asked_whole = sum(pod.template.requests.get(GPU, 0) for pod in pods)
        assert requested[busy, row] == (sum(each > 0 for each in taken) if told_apart else asked_whole)
    if shared != NOWHERE:
        assert requested[shared, row] == min(taken, default=0)
    for column, milli in zip(resources.device_columns.tolist(), taken, strict=False):
        assert requested[column, row] == milli


def audit_row(state: ClusterState, name: str, row: int) -> None:
    table, spec = state.table, state.nodes[name].spec
    assert spec is not None
    assert (table.names[row], table.specs[row]) == (name, spec)
    offered = {n: int(table.allocatable[c, row]) for c, n in state.resources.visible()}
    visible = {n: v for n, v in with_devices(spec.allocatable).items() if v and not n.startswith("~")}
    assert {n: v for n, v in offered.items() if v} == visible
    audit_devices(state, name, row)
    assert table.allocatable[4:6, row].tolist() == table.allocatable[0:2, row].tolist()
    scoring = [
        sum(p.spec.template.scoring_cpu_milli for p in state.nodes[name].pods.values()),
        sum(p.spec.template.scoring_memory_bytes for p in state.nodes[name].pods.values()),
    ]
    assert table.requested[4:6, row].tolist() == scoring
    templates = [p.spec.template for p in state.nodes[name].pods.values()]
    for beyond, resource in ((CPU_BEYOND, "cpu"), (MEMORY_BEYOND, "memory")):
        excess = [each.limits.get(resource, 0) - each.requests.get(resource, 0) for each in templates]
        assert int(table.requested[beyond, row]) == sum(each for each in excess if each > 0)
        assert int(table.allocatable[beyond, row]) == (spec.capacity or spec.allocatable).get(resource, 0)
    labels = {}
    for label in ("zone", "rank", "disk"):
        column = table.labels.column(label)
        if column is not None and column[row] != ABSENT:
            labels[label] = table.labels.values.text(int(column[row]))
    assert labels == spec.labels
    audit_taints(table, row)
    assert bool(table.unschedulable[row]) == spec.unschedulable
    assert int(table.ordinal[row]) == state.nodes[name].ordinal
    lone = ClusterState(seed=1)
    lone.apply(NodeUpserted(spec))
    assert table.tie[row] == lone.table.tie[0]
