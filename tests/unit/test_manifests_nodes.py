"""Is a v1 Node read as it is meant, and every wrong field named?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from domain.manifests.objects import node_from_manifest
from domain.model.errors import FieldError
from domain.model.nodes import NodeImage, NodeSpec, Taint
from tests.builders import node_manifest

FULL = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n-1",
        "uid": "u-1",
        "resourceVersion": "17",
        "labels": {"kubernetes.io/hostname": "n-1", "empty": ""},
        "annotations": {"ignored": 1},
    },
    "spec": {
        "podCIDR": "10.0.0.0/24",
        "unschedulable": True,
        "taints": [
            {"key": "a/b", "value": "c", "effect": "NoExecute", "timeAdded": "x"},
            {"key": "d", "effect": "NoSchedule"},
        ],
    },
    "status": {
        "capacity": {"cpu": 8, "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "2"},
        "allocatable": {"cpu": "7500m", "memory": "15.5Gi", "pods": 100, "nvidia.com/gpu": 2.0},
        "images": [{"names": ["pause:3.9", "pause@sha256:1"], "sizeBytes": 300}],
        "conditions": [{"type": "Ready"}],
        "declaredFeatures": ["b", "a", "b"],
    },
}


def with_value(*path: str | int, value: Any, manifest: Any = FULL) -> Any:
    """Return the manifest with one value replaced."""
    if not path:
        return value
    copy: Any = dict(manifest) if isinstance(manifest, dict) else list(manifest)
    copy[path[0]] = with_value(*path[1:], value=value, manifest=manifest[path[0]] if len(path) > 1 else None)
    return copy


def test_a_node_is_read_whole() -> None:
    assert node_from_manifest(FULL) == NodeSpec(
        name="n-1",
        uid="u-1",
        resource_version=17,
        labels={"kubernetes.io/hostname": "n-1", "empty": ""},
        taints=(Taint("a/b", "c", "NoExecute"), Taint("d", "", "NoSchedule")),
        unschedulable=True,
        allocatable={"cpu": 7500, "memory": 31 << 29, "pods": 100, "nvidia.com/gpu": 2},
        capacity={"cpu": 8000, "memory": 16 << 30, "pods": 110, "nvidia.com/gpu": 2},
        images=(NodeImage(("pause:3.9", "pause@sha256:1"), 300),),
        declared_features=("a", "b"),
    )


def test_a_node_survives_the_ledger() -> None:
    node = node_from_manifest(FULL)
    assert msgspec.json.decode(msgspec.json.encode(node), type=NodeSpec) == node


def test_capacity_stands_in_for_allocatable_and_pods_have_a_default() -> None:
    manifest = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "2"}}}
    node = node_from_manifest(manifest)
    assert (node.uid, node.resource_version) == ("n", None)
    assert node.allocatable == {"cpu": 2000, "pods": 110}
    assert node.capacity == {"cpu": 2000}
    assert node_from_manifest(manifest, strict=False).allocatable == {"cpu": 2000}


def test_null_is_the_same_as_absent() -> None:
    manifest = node_manifest("n")
    manifest["metadata"].update(labels=None, uid=None, resourceVersion=None)
    manifest["spec"] = {"taints": None, "unschedulable": None}
    manifest["status"].update(images=None)
    assert node_from_manifest(manifest) == node_from_manifest(node_manifest("n"))


WRONG: dict[str, tuple[Any, str, str]] = {
    "name missing": (with_value("metadata", "name", value=None), "metadata.name", "missing"),
    "name upper case": (with_value("metadata", "name", value="N_1"), "metadata.name", "DNS-1123"),
    "name with newline": (with_value("metadata", "name", value="n\n"), "metadata.name", "DNS-1123"),
    "name too long": (with_value("metadata", "name", value="n" * 254), "metadata.name", "253"),
    "name not text": (
        with_value("metadata", "name", value=7),
        "metadata.name",
        "expected a string, got an integer",
    ),
    "version": (with_value("metadata", "resourceVersion", value="1x"), "metadata.resourceVersion", "decimal"),
    "version too large": (
        with_value("metadata", "resourceVersion", value=str(2**63)),
        "metadata.resourceVersion",
        "2^63",
    ),
    "label key": (with_value("metadata", "labels", "-a", value="b"), "metadata.labels.-a", "label key"),
    "label value": (
        with_value("metadata", "labels", "a.b/c", value="d e"),
        "metadata.labels[a.b/c]",
        "label value",
    ),
    "label number": (with_value("metadata", "labels", "a", value=1), "metadata.labels.a", "string"),
    "labels list": (
        with_value("metadata", "labels", value=[]),
        "metadata.labels",
        "expected an object, got a list",
    ),
    "too many labels": (
        with_value("metadata", "labels", value={f"l{i}": "" for i in range(257)}),
        "metadata.labels",
        "labels_per_object_max",
    ),
    "taint effect": (
        with_value("spec", "taints", 1, "effect", value="Never"),
        "spec.taints[1].effect",
        "NoSchedule",
    ),
    "taint key": (with_value("spec", "taints", 0, "key", value=""), "spec.taints[0].key", "label key"),
    "too many taints": (
        with_value("spec", "taints", value=[{"key": "a", "effect": "NoSchedule"}] * 129),
        "spec.taints",
        "taints_per_node_max",
    ),
    "too many features": (
        with_value("status", "declaredFeatures", value=["f"] * 257),
        "status.declaredFeatures",
        "declared_features_per_node_max",
    ),
    "unschedulable text": (
        with_value("spec", "unschedulable", value="yes"),
        "spec.unschedulable",
        "true or false",
    ),
    "cpu negative": (
        with_value("status", "allocatable", "cpu", value="-1"),
        "status.allocatable.cpu",
        "negative",
    ),
    "cpu unreadable": (
        with_value("status", "capacity", "cpu", value="4x"),
        "status.capacity.cpu",
        "allowed is",
    ),
    "cpu zero": (with_value("status", "allocatable", "cpu", value="0"), "status.allocatable.cpu", "is 0"),
    "memory zero": (
        with_value("status", "allocatable", "memory", value=0),
        "status.allocatable.memory",
        "is 0",
    ),
    "pods zero": (with_value("status", "allocatable", "pods", value="0"), "status.allocatable.pods", "is 0"),
    "nothing offered": (
        with_value("status", "allocatable", value={"pods": "1"}),
        "status.allocatable",
        "neither",
    ),
    "no status": (with_value("status", value=None), "status.capacity", "neither"),
    "too many pods": (
        with_value("status", "allocatable", "pods", value=10**6),
        "status.allocatable.pods",
        "pods_per_node_max",
    ),
    "cpu too large": (
        with_value("status", "capacity", "cpu", value="1T"),
        "status.capacity.cpu",
        "cpu_milli_max",
    ),
    "memory too large": (
        with_value("status", "capacity", "memory", value="2Pi"),
        "status.capacity.memory",
        "resource_value_max",
    ),
    "half a device": (
        with_value("status", "capacity", "nvidia.com/gpu", value="500m"),
        "status.capacity[nvidia.com/gpu]",
        "whole numbers",
    ),
    "resource name": (
        with_value("status", "capacity", "a b", value="1"),
        "status.capacity[a b]",
        "resource name",
    ),
    "resource type": (with_value("status", "capacity", "cpu", value=[1]), "status.capacity.cpu", "quantity"),
    "resource true": (with_value("status", "capacity", "cpu", value=True), "status.capacity.cpu", "quantity"),
    "image": (
        with_value("status", "images", 0, "names", value=["a\x00"]),
        "status.images[0].names[0]",
        "printable",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_field_is_named(case: str) -> None:
    manifest, path, message = WRONG[case]
    with pytest.raises(FieldError) as caught:
        node_from_manifest(manifest, path="items[3]")
    assert caught.value.path == f"items[3].{path}"
    assert message in caught.value.message


@pytest.mark.parametrize("name", ["X", "node-A"])
def test_planning_takes_nodes_as_they_are_written(name: str) -> None:
    manifest = node_manifest(name, cpu=0, memory=None, pods=None)
    assert node_from_manifest(manifest, strict=False).allocatable == {"cpu": 0}


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(FieldError, match="object: expected an object, got an integer"):
        node_from_manifest(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        (None, None),
        ([], None),
        ([{"type": "MemoryPressure", "status": "True"}], None),
        ([{"type": "Ready"}], None),
        ([{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "Ready", "status": "Unknown", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}], False),
    ],
)
def test_the_ready_condition_says_whether_a_node_is_ready(
    conditions: list[dict[str, str]] | None, ready: bool | None
) -> None:
    manifest = node_manifest("n")
    manifest["status"]["conditions"] = conditions
    assert node_from_manifest(manifest).ready is ready


def test_only_the_time_of_a_condition_changes_nothing() -> None:
    specs = []
    for at in ("2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"):
        manifest = node_manifest("n")
        manifest["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": at}]
        specs.append(node_from_manifest(manifest))
    assert specs[0] == specs[1]


def test_a_ready_condition_that_is_neither_is_named() -> None:
    manifest = node_manifest("n")
    manifest["status"]["conditions"] = [{"type": "Ready", "status": "yes"}]
    with pytest.raises(FieldError, match=r"status\.conditions\[0\]\.status.*True, False, Unknown"):
        node_from_manifest(manifest)


def test_a_node_stored_by_an_older_berth_still_decodes() -> None:
    stored = b'{"name":"n","uid":"u","resource_version":3,"allocatable":{"cpu":4000}}'
    assert msgspec.json.decode(stored, type=NodeSpec).ready is None
