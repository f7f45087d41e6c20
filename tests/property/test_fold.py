"""Does the fold give the same cluster whatever is repeated, comes late, or comes in another order?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.model.events import (
    BindFailed,
    ConfigDeleted,
    ConfigUpserted,
    Event,
    NodeActed,
    NodeDeleted,
    NodeUpserted,
    NodeUsed,
    PodDeleted,
    PodUpserted,
)
from domain.model.nodes import NodeSpec
from domain.state.cluster import ClusterState
from domain.state.digest import digest_of
from domain.state.resources import ResourceIndex
from domain.state.snapshot import Snapshot
from domain.state.steps import Assumed
from domain.state.table import NodeTable
from tests.depth import examples
from tests.oracle.devices import GPU
from tests.oracle.scenarios import RESOURCES, Scenario, World
from tests.property.fold_audit import audit

fold_settings = settings(deadline=None, max_examples=examples(60))


def make_scenario(seed: int, nodes: int, pods: int) -> Scenario:
    return Scenario(seed=seed, nodes=nodes, pods=pods, groups=6, resources=8, cycles=1)


histories = st.builds(make_scenario, st.integers(0, 1 << 32), st.integers(1, 20), st.integers(0, 40))


def history(scenario: Scenario) -> list[Event]:
    """Return everything that happens to a cluster, in order."""
    world = World(scenario)
    events = world.first_nodes()
    while scenario.pods > len(events) - scenario.nodes:
        events += world.new_pods(3) + world.changes(2)
    return events + world.changes(10)


def fold(events: Sequence[Event], state: ClusterState | None = None) -> ClusterState:
    state = state or ClusterState(seed=1)
    for event in events:
        state.apply(event)
    return state


def key_of(event: Event) -> tuple[str, str]:
    match event:
        case NodeUpserted():
            return ("node", event.node.name)
        case NodeDeleted():
            return ("node", event.name)
        case NodeUsed():
            return ("node", event.usage.node)
        case NodeActed():
            return ("node", event.action.node)
        case PodUpserted():
            return ("pod", event.pod.key)
        case PodDeleted():
            return ("pod", f"{event.namespace}/{event.name}")
        case BindFailed():
            return ("pod", event.pod.pod.key)
        case ConfigUpserted():
            return ("config", event.name)
        case ConfigDeleted():
            return ("config", event.name)


@fold_settings
@given(histories)
def test_columns_are_the_sum_of_what_exists(scenario: Scenario) -> None:
    random, state = Random(scenario.seed), ClusterState(seed=1)
    for event in history(scenario):
        state.apply(event)
        assume_something(state, random)
        audit(state)


@fold_settings
@given(histories, st.integers(0, 100), st.integers(0, 100))
def test_any_stretch_may_be_delivered_again(scenario: Scenario, start: int, length: int) -> None:
    events = history(scenario)
    once = fold(events)
    assume_something(once, Random(start))
    digest = digest_of(once)
    assert digest_of(fold(events[start : start + length], once)) == digest
    assert digest_of(fold(events, once)) == digest


@fold_settings
@given(histories, st.integers(0, 100))
def test_repeats_on_the_way_change_nothing(scenario: Scenario, seed: int) -> None:
    random, events = Random(seed), history(scenario)
    repeated: list[Event] = []
    for i, event in enumerate(events):
        repeated += [event, *random.sample(events[: i + 1], random.randrange(min(3, i + 1)))]
    assert digest_of(fold(repeated)) == digest_of(fold(events))


@fold_settings
@given(histories, st.integers(0, 100))
def test_order_matters_only_within_a_key(scenario: Scenario, seed: int) -> None:
    """Nodes keep their order of arrival among themselves: it is what their ordinals record.

    Who comes first gets the lower device. So nobody asks for one.
    """
    scenario = replace(scenario, resources=min(scenario.resources, RESOURCES.index(GPU) + 2))
    events = history(scenario)
    nodes = [event for event in events if key_of(event)[0] == "node"]
    lanes: dict[tuple[str, str], list[Event]] = {("node", ""): nodes}
    for event in events:
        if key_of(event)[0] == "pod":
            lanes.setdefault(key_of(event), []).append(event)
    random, mixed = Random(seed), []
    heads = [lane for lane in lanes.values() if lane]
    while heads:
        lane = random.choice(heads)
        mixed.append(lane.pop(0))
        heads = [lane for lane in heads if lane]
    state = fold(mixed)
    audit(state)
    assert digest_of(state) == digest_of(fold(events))


@fold_settings
@given(histories, st.integers(0, 100), st.booleans())
def test_a_snapshot_that_syncs_now_and_then_equals_the_table(
    scenario: Scenario, seed: int, sleepy: bool
) -> None:
    random, state = Random(seed), ClusterState(seed=1)
    snapshot = Snapshot(state.table)
    events = history(scenario)
    for event in events * (30 if sleepy else 1):
        state.apply(event)
        if sleepy:
            for row in range(state.table.count):
                state.table.touch(row)
        if random.random() < (0.01 if sleepy else 0.4):
            snapshot.sync()
            assert_same_columns(snapshot, state)
        assume_something(state, random)
    snapshot.sync()
    assert_same_columns(snapshot, state)


def assume_something(state: ClusterState, random: Random) -> None:
    waiting = [key for key, pod in state.pods.items() if not pod.node]
    if waiting and state.table.count and random.random() < 0.2:
        keys = random.sample(waiting, min(len(waiting), 3))
        rows = [random.randrange(state.table.count) for _ in keys]
        state.apply(Assumed(keys, np.array(rows)))


def assert_same_columns(snapshot: Snapshot, state: ClusterState) -> None:
    table, columns, count = state.table, snapshot.columns, state.table.count
    assert columns.rows_count[0] == count
    height = table.allocatable.shape[0]
    assert np.array_equal(columns.allocatable[:height, :count], table.allocatable[:, :count])
    assert np.array_equal(columns.requested[:height, :count], table.requested[:, :count])
    assert np.array_equal(columns.tie[:count], table.tie[:count])


class Followed:
    """What changed, in order, by row and by node, kept in full."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []
        self.nodes: list[str] = []  # newest last

    def note(self, table: NodeTable, rows: set[int], name: str | None) -> None:
        self.rows += [(table.last_generation, row) for row in rows]
        if name is not None:
            self.nodes = [other for other in self.nodes if other != name] + [name]


def change(table: NodeTable, random: Random, followed: Followed) -> None:
    """Add, remove, or touch one node."""
    spec = NodeSpec(name=f"n{random.randrange(40)}", uid="u", resource_version=1)
    row = table.rows.get(spec.name)
    if row is None:
        followed.note(table, {table.upsert(spec, 1)}, spec.name)
    elif random.random() < 0.2:
        table.remove(spec.name)
        followed.nodes.remove(spec.name)
        followed.note(table, {row, table.count}, None)
    elif random.random() < 0.2:
        rows = np.array(sorted(random.sample(range(table.count), random.randrange(table.count))), dtype=int)
        table.touch_many(rows)
        for each in rows.tolist():
            followed.note(table, {each}, table.names[each])
    else:
        table.touch(row)
        followed.note(table, {row}, spec.name)


@fold_settings
@given(st.integers(0, 1 << 32), st.integers(1, 1_200))
def test_what_changed_since_any_generation_is_known(seed: int, changes: int) -> None:
    random, table, followed = Random(seed), NodeTable(ResourceIndex(), seed=1), Followed()
    known: list[int] = []
    for _ in range(changes):
        change(table, random, followed)
        known.append(table.last_generation)
    for generation in (0, *random.sample(known, min(20, len(known)))):
        changed = set(table.changed_since(generation).tolist())
        assert changed == {row for at, row in followed.rows if at > generation}
        assert changed >= set(np.flatnonzero(table.generation[: table.count] > generation).tolist())
    assert table.changed_since(table.last_generation).tolist() == []
    assert list(table.newest_first()) == followed.nodes[::-1]
    assert len(table._changes) <= 520, "what says nothing new is dropped"
