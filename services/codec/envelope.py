"""The envelope of every event: its type, its kind and its topic, and how a wrong one is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from domain.manifests.actions import WireNodeAction
from domain.manifests.metadata import Identity, WireOwner
from domain.manifests.node import WireNode
from domain.manifests.status import WirePodStatus
from domain.manifests.usage import WireNodeUsage
from domain.model.config import CONTENTS, OF_CLUSTER
from domain.model.timestamps import Moment
from domain.model.validation import shown
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC

EVENT_TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
BIND_FAILED = "BIND_FAILED"
"""What may happen to a pod alone: its binder could not bind it to the node that it names."""

KINDS: Mapping[str, tuple[str, str]] = {
    "Node": ("v1", NODES_TOPIC),
    "Pod": ("v1", PODS_TOPIC),
    "NodeUsage": ("berth/v1", USAGE_TOPIC),
    "NodeAction": ("berth/v1", USAGE_TOPIC),
    "SchedulingProfile": ("berth/v1", CONFIG_TOPIC),
    "PriorityClass": ("scheduling.k8s.io/v1", CONFIG_TOPIC),
    "Namespace": ("v1", CONFIG_TOPIC),
    "PodDisruptionBudget": ("policy/v1", CONFIG_TOPIC),
    "PodGroup": ("scheduling.x-k8s.io/v1alpha1", CONFIG_TOPIC),
    "Workload": ("scheduling.k8s.io/v1alpha1", CONFIG_TOPIC),
    "CoLocationPolicy": ("berth/v1", CONFIG_TOPIC),
    "HostedReplicas": ("berth/v1", CONFIG_TOPIC),
    "Service": ("v1", CONFIG_TOPIC),
    "ReplicationController": ("v1", CONFIG_TOPIC),
    "ReplicaSet": ("apps/v1", CONFIG_TOPIC),
    "StatefulSet": ("apps/v1", CONFIG_TOPIC),
    "Deployment": ("apps/v1", CONFIG_TOPIC),
    "Job": ("batch/v1", CONFIG_TOPIC),
}
"""Every kind that berth knows: its apiVersion and the topic of its events."""

OTHER_VERSIONS: Mapping[str, tuple[str, ...]] = {"PodGroup": ("scheduling.k8s.io/v1alpha2",)}
"""Kinds that there are in other API groups, too, with the same use."""


def versions_of(kind: str) -> tuple[str, ...]:
    """Return the apiVersions that a kind may have, the most common one first."""
    return (KINDS[kind][0], *OTHER_VERSIONS.get(kind, ()))


NAMESPACED_KINDS = ("Pod", *(kind for kind in CONTENTS if kind not in OF_CLUSTER))


def types_on(topic: str) -> tuple[str, ...]:
    """Return what may happen to the objects of a topic."""
    return (*EVENT_TYPES, BIND_FAILED) if topic == PODS_TOPIC else EVENT_TYPES


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """Why a record is not accepted: a stable code, the field, what is wrong, what is allowed."""

    code: str
    path: str
    message: str


class Refusal(Exception):
    """Carries a ``Rejected`` out of the decoder."""

    def __init__(self, code: str, path: str, message: str) -> None:
        super().__init__(code)
        self.rejected = Rejected(code, _clean(path, 512), _clean(message, 1024))


class Envelope(msgspec.Struct, gc=False):
    type: str | None = None
    at: Moment | None = None
    id: str | None = None


class RawMeta(Identity, gc=False):
    labels: msgspec.Raw = msgspec.Raw()
    annotations: msgspec.Raw = msgspec.Raw()
    owner_references: list[WireOwner] | None = None


class RawPod(msgspec.Struct, gc=False, rename="camel"):
    kind: str | None = None
    api_version: str | None = None
    metadata: RawMeta | None = None
    spec: msgspec.Raw = msgspec.Raw()
    status: WirePodStatus | None = None


class PodEvent(Envelope, gc=False):
    object: RawPod | None = None


class NodeEvent(Envelope):
    object: WireNode | None = None


class AnyObject(msgspec.Struct, gc=False, rename="camel"):
    kind: str | None = None
    api_version: str | None = None
    metadata: Identity | None = None


class RawConfigObject(AnyObject, gc=False):
    spec: msgspec.Raw = msgspec.Raw()


class ConfigEvent(Envelope, gc=False):
    object: RawConfigObject | None = None


class UsageEvent(Envelope):
    object: WireNodeUsage | None = None


class ActionEvent(Envelope):
    object: WireNodeAction | None = None


class AnyEvent(Envelope):
    object: AnyObject | None = None


O = TypeVar("O", RawPod, WireNode, WireNodeUsage, WireNodeAction, RawConfigObject, AnyObject)  # noqa: E741


def check_envelope(event_type: str | None, thing: O | None, topic: str) -> O:
    """Return the object of an event whose type and kind belong on the topic."""
    if (
        thing is not None
        and (event_type in EVENT_TYPES or (event_type == BIND_FAILED and topic == PODS_TOPIC))
        and KINDS.get(thing.kind or "") == (thing.api_version, topic)
    ):
        return thing  # as nearly all are
    if event_type is None:
        raise Refusal("not-an-event", "type", f"is missing; allowed are {', '.join(types_on(topic))}")
    if thing is None:
        raise Refusal("not-an-event", "object", "is missing; an event carries the object that it is about")
    if event_type not in types_on(topic):
        allowed = ", ".join(types_on(topic))
        raise Refusal("unknown-type", "type", f"{shown(event_type)} is not allowed; allowed are {allowed}")
    kind, api_version = thing.kind or "", thing.api_version
    if kind not in KINDS:
        raise Refusal(
            "unknown-kind", "object.kind", f"{shown(kind)} is unknown; allowed are {', '.join(KINDS)}"
        )
    expected_topic = KINDS[kind][1]
    if api_version and api_version not in versions_of(kind):
        message = f"{shown(api_version)} is unknown; allowed for a {kind} is {' or '.join(versions_of(kind))}"
        raise Refusal("unknown-kind", "object.apiVersion", message)
    if topic != expected_topic:
        message = f"a {kind} does not belong on {topic}; its topic is {expected_topic}"
        raise Refusal("wrong-topic", "object.kind", message)
    return thing


def check_key(key: bytes | None, expected: str) -> None:
    """Raise if a record's key is not its object's: the key decides the partition, and so the order."""
    if key is not None and key != expected.encode():
        raise Refusal(
            "key-mismatch",
            "key",
            f"{shown(key.decode(errors='replace'))} is not the object's; allowed is {expected}",
        )


def _clean(text: str, length_max: int) -> str:
    """Return text that every store can hold: no control characters, no lone surrogates, not too long."""
    safe = "".join(
        char if char.isprintable() and not "\ud800" <= char <= "\udfff" else repr(char)[1:-1] for char in text
    )
    return safe if len(safe) <= length_max else safe[: length_max - 1] + "…"
