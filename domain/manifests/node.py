"""Read a v1 Node: its shape as written, and the ``NodeSpec`` made of it."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from domain.manifests.metadata import ObjectMeta, read_labels, read_name, read_uid, read_version
from domain.model.errors import FieldError
from domain.model.limits import (
    declared_features_per_node_max,
    taints_per_node_max,
    usage_window_seconds_max,
    usage_window_seconds_min,
)
from domain.model.nodes import TAINT_EFFECTS, NodeImage, NodeSpec, Taint
from domain.model.resources import CPU, MEMORY, PODS, check_pods, read_amounts, to_canonical
from domain.model.validation import (
    check_choice,
    check_count,
    check_label_key,
    check_label_value,
    check_printable,
    check_range,
    key_path,
    shown,
)

READY = "Ready"
CONDITION_STATUSES = ("True", "False", "Unknown")
DEFAULT_NODE_PODS = 110
"""The number of pods of a node that does not name one: kubelet's default."""

USAGE_WINDOW_KEY = "berth.io/usage-window-seconds"
"""Annotation or label of a node: the length of its usage window."""

_IMAGE_NAME_LENGTH_MAX = 1024


class WireTaint(msgspec.Struct, gc=False, omit_defaults=True):
    """A taint as it is written."""

    key: str | None = None
    value: str | None = None
    effect: str | None = None


class WireNodeSpec(msgspec.Struct, omit_defaults=True):
    """``spec`` of a Node as it is written."""

    unschedulable: bool | None = None
    taints: list[WireTaint] | None = None


class WireImage(msgspec.Struct, rename="camel", omit_defaults=True):
    """A container image as a Node's status lists it."""

    names: list[str] | None = None
    size_bytes: int | None = None


class WireCondition(msgspec.Struct, gc=False, omit_defaults=True):
    """A condition as a Node's status lists it, without its times, which do not matter."""

    type: str | None = None
    status: str | None = None


class WireNodeStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    """``status`` of a Node as it is written."""

    capacity: dict[str, Any] | None = None
    allocatable: dict[str, Any] | None = None
    images: list[WireImage] | None = None
    conditions: list[WireCondition] | None = None
    declared_features: list[str] | None = None


class WireNode(msgspec.Struct, rename="camel", omit_defaults=True):
    """A Node as it is written."""

    kind: str | None = None
    api_version: str | None = None
    metadata: ObjectMeta | None = None
    spec: WireNodeSpec | None = None
    status: WireNodeStatus | None = None


def node_from_wire(node: WireNode, path: str, *, strict: bool) -> NodeSpec:
    """Return what scheduling needs of a Node; see ``manifests.node_from_manifest``."""
    meta = node.metadata or ObjectMeta()
    spec = node.spec or WireNodeSpec()
    status = node.status or WireNodeStatus()
    meta_path = f"{path}.metadata"
    name = read_name(meta.name, meta_path, strict=strict)
    capacity = read_amounts(status.capacity, f"{path}.status.capacity")
    offered = "capacity" if status.allocatable is None else "allocatable"
    allocatable = capacity
    if status.allocatable is not None:
        allocatable = read_amounts(status.allocatable, f"{path}.status.allocatable")
    if strict:
        allocatable = _usable(allocatable, f"{path}.status.{offered}")
    check_pods(allocatable, f"{path}.status.{offered}")
    return NodeSpec(
        name=name,
        uid=read_uid(meta.uid, name, meta_path),
        resource_version=read_version(meta.resource_version, meta_path),
        labels=read_labels(meta.labels, meta_path),
        taints=_taints(spec.taints or [], f"{path}.spec.taints"),
        unschedulable=bool(spec.unschedulable),
        allocatable=to_canonical(allocatable),
        capacity=to_canonical(capacity),
        usage_window_seconds=_usage_window(meta, meta_path),
        images=_images(status.images or [], f"{path}.status.images"),
        ready=_ready(status.conditions or [], f"{path}.status.conditions"),
        declared_features=_features(status.declared_features or [], f"{path}.status.declaredFeatures"),
    )


def _ready(conditions: list[WireCondition], path: str) -> bool | None:
    """Return whether the Ready condition is True. A silent node (Unknown) is not ready."""
    for index, condition in enumerate(conditions):
        if condition.type == READY and condition.status is not None:
            status = check_choice(condition.status, CONDITION_STATUSES, f"{path}[{index}].status")
            return status == "True"
    return None


def _features(features: list[str], path: str) -> tuple[str, ...]:
    check_count(len(features), declared_features_per_node_max, "declared_features_per_node_max", path)
    return tuple(sorted({check_printable(name, f"{path}[{i}]") for i, name in enumerate(features)}))


def _usage_window(meta: ObjectMeta, path: str) -> int:
    """Return the seconds of the annotation, else of the label; 0 if there is neither."""
    for field, values in (("annotations", meta.annotations), ("labels", meta.labels)):
        value = (values or {}).get(USAGE_WINDOW_KEY)
        if value is not None:
            at = key_path(f"{path}.{field}", USAGE_WINDOW_KEY)
            if not isinstance(value, str) or not re.fullmatch("[0-9]{1,9}", value):
                raise FieldError(at, f"{shown(value)} is no number of seconds; allowed is a string of digits")
            return check_range(int(value), usage_window_seconds_min, usage_window_seconds_max, at)
    return 0


def _usable(allocatable: dict[str, int], path: str) -> dict[str, int]:
    """Return what a node offers with the default for pods; raise if no pod could ever run on it."""
    if CPU not in allocatable and MEMORY not in allocatable:
        raise FieldError(path, "names neither cpu nor memory; a node must offer at least one of them")
    for name in (CPU, MEMORY, PODS):
        if allocatable.get(name) == 0:
            raise FieldError(
                key_path(path, name),
                f"is 0; a node must offer some {name} (to keep pods off it, set unschedulable)",
            )
    return allocatable if PODS in allocatable else {**allocatable, PODS: DEFAULT_NODE_PODS * 1000}


def _taints(taints: list[WireTaint], path: str) -> tuple[Taint, ...]:
    check_count(len(taints), taints_per_node_max, "taints_per_node_max", path)
    return tuple(_taint(taint, f"{path}[{index}]") for index, taint in enumerate(taints))


def _taint(taint: WireTaint, path: str) -> Taint:
    return Taint(
        key=check_label_key(taint.key or "", f"{path}.key"),
        value=check_label_value(taint.value or "", f"{path}.value"),
        effect=check_choice(taint.effect or "", TAINT_EFFECTS, f"{path}.effect"),
    )


def _images(images: list[WireImage], path: str) -> tuple[NodeImage, ...]:
    return tuple(
        NodeImage(
            names=tuple(
                check_printable(name, f"{path}[{index}].names[{at}]", length_max=_IMAGE_NAME_LENGTH_MAX)
                for at, name in enumerate(image.names or ())
            ),
            size_bytes=max(image.size_bytes or 0, 0),
        )
        for index, image in enumerate(images)
    )
