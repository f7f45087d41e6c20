"""Measured usage: what an event may say, what the fold keeps of it, and which pods a measurement knows."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from domain.manifests.objects import node_from_manifest, pod_from_manifest
from domain.manifests.usage import WireNodeUsage, usage_from_wire
from domain.model.colocation import DEFAULT_POLICY
from domain.model.errors import FieldError
from domain.model.events import NodeDeleted, NodeUpserted, NodeUsed, PodDeleted, PodUpserted
from domain.model.limits import usage_resources_max
from domain.model.usage import Measured, NodeUsage
from domain.plugins.view import NodeView
from domain.state.changes import Change, NodeMeasured, Refused, Skipped
from domain.state.cluster import ClusterState
from domain.state.resources import RECENT_FIXED, RECENT_SILENT
from domain.state.steps import Assumed, Written
from tests.builders import Json, node_manifest, pod_manifest

CLAIMS = slice(RECENT_FIXED, RECENT_SILENT + 1)
MINUTE_MS = 60_000
DAY_MS = 86_400_000


def read(**fields: Any) -> NodeUsage:
    wire = msgspec.convert({"kind": "NodeUsage", "metadata": {"name": "n"}, **fields}, WireNodeUsage)
    return usage_from_wire(wire, 1_000, "object")


def state_of(*nodes: Json) -> ClusterState:
    state = ClusterState(seed=1)
    for manifest in nodes:
        state.apply(NodeUpserted(node_from_manifest(manifest, strict=True)))
    return state


def measure(state: ClusterState, at_ms: int, node: str = "n", **fields: Any) -> Change:
    return state.apply(NodeUsed(NodeUsage(node=node, at_ms=at_ms, **fields)))[0]


def add_pod(state: ClusterState, name: str, node: str | None = None, **fields: Any) -> None:
    state.apply(PodUpserted(pod_from_manifest(pod_manifest(name, node_name=node, **fields))))


def recent(state: ClusterState, node: str = "n") -> list[int]:
    found: list[int] = state.table.requested[CLAIMS, state.table.rows[node]].tolist()
    return found


# ----------------------------------------------------------------------------------------- what is written


def test_all_three_forms_are_read() -> None:
    usage = read(
        percent={"cpu": 37.5, "network": 12}, used={"memory": "3Gi"}, window={"disk": {"avg": 1, "std": 0.5}}
    )
    assert usage == NodeUsage(
        node="n",
        at_ms=1_000,
        percent={"cpu": 37.5, "network": 12.0},
        used={"memory": 3 << 30},
        window={"disk": Measured(avg=1.0, std=0.5)},
    )


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "object"),
        ({"percent": {}}, "object"),
        ({"percent": {"cpu": -1}}, "object.percent.cpu"),
        ({"percent": {"cpu": 10_001}}, "object.percent.cpu"),
        ({"percent": {"cpu": "37"}}, "object.percent.cpu"),
        ({"percent": {"cpu": True}}, "object.percent.cpu"),
        ({"percent": {"a b": 1}}, "object.percent[a b]"),
        ({"percent": {"nvidia.com/gpu": None}}, "object.percent[nvidia.com/gpu]"),
        ({"used": {"cpu": "much"}}, "object.used.cpu"),
        ({"used": {"cpu": "-1"}}, "object.used.cpu"),
        ({"percent": {"cpu": 1}, "used": {"cpu": "1"}}, "object.used.cpu"),
        ({"window": {"cpu": 7}}, "object.window.cpu"),
        ({"window": {"cpu": {"mean": 7}}}, "object.window.cpu"),
        ({"window": {"cpu": {"avg": 7, "std": -1}}}, "object.window.cpu.std"),
        ({"window": {"": {"avg": 7}}}, "object.window[]"),
        ({"percent": {f"r{i}": 1 for i in range(usage_resources_max + 1)}}, "object"),
        ({"metadata": {}, "percent": {"cpu": 1}}, "object.metadata.name"),
    ],
)
def test_what_is_wrong_is_named(fields: Json, path: str) -> None:
    with pytest.raises(FieldError) as error:
        read(**fields)
    assert error.value.path == path


# -------------------------------------------------------------------------------------------------- windows


def test_absolute_usage_is_taken_as_percent_of_the_capacity() -> None:
    manifest = node_manifest("n", cpu="4", memory="8Gi")
    manifest["status"]["allocatable"]["cpu"] = "2"
    state = state_of(manifest)
    measure(state, 1, used={"cpu": 1_000, "memory": 2 << 30})
    measured = state.usage.measured["n"]
    assert (measured["cpu"].latest, measured["memory"].latest) == (25.0, 25.0)


@pytest.mark.parametrize("used", [{"network": 1}, {"cpu": 4_000_000}])
def test_absolute_usage_without_a_capacity_is_refused(used: dict[str, int]) -> None:
    state = state_of(node_manifest("n"))
    change = measure(state, 1, used=used)
    assert isinstance(change, Refused)
    assert change.path == f"object.used.{next(iter(used))}"
    assert isinstance(measure(state, 1, node="unknown", used={"cpu": 1}), Refused)
    assert state.usage.windows == {}


def test_a_window_is_as_long_as_its_node_says() -> None:
    for key in ("annotations", "labels"):
        manifest = node_manifest("n")
        manifest["metadata"][key] = {"berth.io/usage-window-seconds": "60"}
        state = state_of(manifest, node_manifest("other"))
        for minute in range(3):
            for node in ("n", "other"):
                measure(state, minute * MINUTE_MS, node=node, percent={"cpu": 10.0 * minute})
        assert state.usage.measured["n"]["cpu"] == Measured(avg=20.0, std=0.0, latest=20.0)
        assert state.usage.measured["other"]["cpu"].avg == 10.0


@pytest.mark.parametrize("value", ["9", "86401", "-1", "1.5", "", "soon"])
def test_a_window_that_is_no_length_is_refused(value: str) -> None:
    manifest = node_manifest("n")
    manifest["metadata"]["annotations"] = {"berth.io/usage-window-seconds": value}
    with pytest.raises(FieldError) as error:
        node_from_manifest(manifest, strict=True)
    assert error.value.path == "object.metadata.annotations[berth.io/usage-window-seconds]"


def test_figures_given_replace_computed_ones_until_a_later_sample() -> None:
    state = state_of(node_manifest("n"))
    given = Measured(avg=50.0, std=5.0)
    measure(state, 1_000, percent={"cpu": 10.0}, window={"cpu": given})
    assert state.usage.measured["n"]["cpu"] == Measured(avg=50.0, std=5.0, latest=10.0)
    measure(state, 500_000, percent={"cpu": 30.0})
    assert state.usage.measured["n"]["cpu"] == Measured(avg=20.0, std=10.0, latest=30.0)


def test_the_peak_of_yesterday_is_that_before_the_latest_measurement() -> None:
    state = state_of(node_manifest("n"))
    view = NodeView(state)
    for at_ms, value in ((1, 80.0), (2, 30.0), (DAY_MS + 1, 90.0)):
        measure(state, at_ms, percent={"cpu": value})
    assert state.usage.measured["n"]["cpu"].peak == 80.0
    measure(state, 3, percent={"cpu": 85.0})
    assert view.peak_yesterday("cpu", np.array([0])).tolist() == [85.0]
    measure(state, 2 * DAY_MS, percent={"cpu": 5.0})
    assert state.usage.measured["n"]["cpu"].peak == 90.0
    measure(state, 5 * DAY_MS, percent={"cpu": 5.0})
    assert state.usage.measured["n"]["cpu"].peak is None


def test_a_node_that_never_was_may_come_later_but_one_that_is_gone_is_forgotten() -> None:
    state = ClusterState(seed=1)
    measure(state, 1, percent={"cpu": 40.0})
    state.apply(NodeUpserted(node_from_manifest(node_manifest("n"), strict=True)))
    assert (state.usage.unknown, state.usage.measured["n"]["cpu"].avg) == (set(), 40.0)
    assert NodeMeasured("n") in state.apply(NodeDeleted("n"))
    assert (dict(state.usage.windows), dict(state.usage.measured)) == ({}, {})
    assert isinstance(measure(state, 2, percent={"cpu": 41.0}), Skipped)
    state.apply(NodeUpserted(node_from_manifest(node_manifest("n"), strict=True)))
    assert isinstance(measure(state, 3, percent={"cpu": 42.0}), NodeMeasured)


def test_unknown_nodes_and_resources_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("domain.state.usage.unknown_nodes_measured_max", 2)
    state = state_of(node_manifest("known"))
    for node in ("a", "b", "known", "a"):
        assert isinstance(measure(state, 1, node=node, percent={"cpu": 1.0}), NodeMeasured)
    assert isinstance(measure(state, 1, node="c", percent={"cpu": 1.0}), Refused)
    for i in range(usage_resources_max - 1):
        measure(state, 1, node="a", percent={f"r{i}": 1.0})
    assert isinstance(measure(state, 1, node="a", percent={"one-more": 1.0}), Refused)
    assert len(state.usage.measured["a"]) == usage_resources_max


# -------------------------------------------------------------------------------------------- recent claims


SETTLE_MS = DEFAULT_POLICY.view.settle_seconds * 1_000


def note_placed(state: ClusterState, **placed_ms: int) -> None:
    state.apply(Written({f"default/{name}": at_ms for name, at_ms in placed_ms.items()}))


def test_a_measurement_covers_the_pods_that_settled() -> None:
    state = state_of(node_manifest("n"))
    add_pod(state, "old", "n", cpu="100m")
    note_placed(state, old=1_000)
    assert recent(state) == [0, 100, 0]
    measure(state, 1_000 + SETTLE_MS - 1, percent={"cpu": 1.0})
    assert recent(state) == [0, 100, 0], "it may just have started"
    measure(state, 1_000 + SETTLE_MS, percent={"cpu": 1.0})
    assert recent(state) == [0, 0, 0]
    add_pod(state, "new", "n", cpu="200m")
    add_pod(state, "assumed", cpu="30m")
    state.apply(Assumed(["default/assumed"], np.array([0])))
    note_placed(state, new=70_000, assumed=80_000)
    measure(state, 70_000 + SETTLE_MS, percent={"cpu": 1.0})
    assert recent(state) == [0, 30, 0]
    measure(state, 70_000, percent={"cpu": 1.0})
    assert recent(state) == [0, 30, 0], "a late measurement covers no more, and no less"
    for name in ("old", "new"):
        state.apply(PodDeleted("default", name))
    assert recent(state) == [0, 30, 0], "what was covered is not taken back"
    assert state.requested_of("n") == {"cpu": 30, "pods": 1}
    measure(state, 80_000 + SETTLE_MS, percent={"cpu": 1.0})
    assert recent(state) == [0, 0, 0]


def test_when_a_pod_was_placed_may_be_known_after_the_measurement() -> None:
    state = state_of(node_manifest("n"))
    add_pod(state, "p", "n", cpu="100m")
    measure(state, SETTLE_MS + 5, percent={"cpu": 1.0})
    assert recent(state) == [0, 100, 0]
    note_placed(state, p=5)
    assert recent(state) == [0, 0, 0]


def test_a_pod_that_is_placed_again_is_recent_again() -> None:
    state = state_of(node_manifest("n"))
    add_pod(state, "p", "n", cpu="100m")
    note_placed(state, p=5)
    measure(state, SETTLE_MS + 5, percent={"cpu": 1.0})
    add_pod(state, "p", "n", cpu="300m")
    assert recent(state) == [0, 300, 0], "it was resized, which is a placement of its own"


def test_pods_of_a_node_that_was_measured_before_it_was_known() -> None:
    state = ClusterState(seed=1)
    add_pod(state, "before", "n", cpu="1m")
    note_placed(state, before=1)
    measure(state, 1 + SETTLE_MS, percent={"cpu": 1.0})
    measure(state, 1 + SETTLE_MS, node="m", percent={"cpu": 1.0})
    add_pod(state, "after", "n", cpu="2m")
    add_pod(state, "other", "m", cpu="4m")
    note_placed(state, after=2, other=2)
    for node in ("n", "m"):
        state.apply(NodeUpserted(node_from_manifest(node_manifest(node), strict=True)))
    assert (recent(state), recent(state, "m")) == ([0, 2, 0], [0, 4, 0])


def test_a_row_is_stamped_when_its_usage_changes() -> None:
    state = state_of(node_manifest("n"), node_manifest("m"))
    before = state.table.last_generation
    measure(state, 1, percent={"cpu": 1.0})
    row = state.table.rows["n"]
    assert state.table.usage_generation[row] == state.table.last_usage_generation > before
    assert state.table.usage_generation[state.table.rows["m"]] == 0
    assert state.table.changed_since(before).tolist() == [row]
