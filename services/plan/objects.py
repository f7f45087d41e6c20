"""Turns objects of manifests into the events that a scheduler folds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import orjson

from domain.manifests.node import DEFAULT_NODE_PODS
from domain.manifests.objects import convert_manifest, node_from_manifest, pod_event_from_manifest
from domain.manifests.profile import KIND as PROFILE_KIND
from domain.manifests.profile import profile_from_manifest
from domain.manifests.usage import WireNodeUsage, usage_from_wire
from domain.model.errors import FieldError
from domain.model.events import (
    Event,
    NodeDeleted,
    NodeUpserted,
    NodeUsed,
    PodDeleted,
    ProfileDeleted,
    ProfileEvent,
    ProfileUpserted,
)
from domain.plugins.registry import ProfilePlan
from services.codec.decode import Decoder
from services.codec.encode import event_topic_and_key
from services.codec.envelope import BIND_FAILED
from services.ports.log import Record

MEASURED_MS = 86_400_000
"""The moment of all measurements in a plan, long after the pods that run were placed."""


class Given(NamedTuple):
    """One object of the input.

    ``path`` is what the paths in its errors begin with, ``where`` the file and document that it stands in. A
    ``wrapped`` object was written by itself, not in an event, so users know no ``object.`` in paths.
    """

    type: str
    manifest: Any
    path: str = "object"
    where: str = ""
    wrapped: bool = False

    def error(self, path: str, message: str) -> FieldError:
        """Return an error about a field of the object that says where the object stands."""
        shown_path = path.removeprefix("object.") if self.wrapped else path
        return FieldError(f"{self.where}: {shown_path}" if self.where else shown_path, message)


def event_of(given: Given, *, lenient: bool) -> Event | ProfileEvent | None:
    """Return the event that an object stands for, or None if it changes nothing for a plan.

    Parameters
    ----------
    given : Given
        An object of a kind that the log takes.
    lenient : bool
        Take nodes and pods exactly as they are written. Otherwise a node without a number of pods gets
        kubelet's default, and a node affinity with a mistake is an error.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    manifest, path, gone = given.manifest, given.path, given.type == "DELETED"
    match manifest["kind"]:
        case "Node":
            return _node(manifest, path, gone=gone, lenient=lenient)
        case "Pod":
            event = pod_event_from_manifest(manifest, path=path, strict=False, lenient=lenient)
            pod = event.pod
            if gone:
                return PodDeleted(pod.namespace, pod.name, resource_version=pod.resource_version)
            if given.type == BIND_FAILED:
                return msgspec.structs.replace(event, pod=msgspec.structs.replace(pod, node_name=""))
            return event
        case "NodeUsage":
            usage = convert_manifest(manifest, WireNodeUsage, path)
            return None if gone else NodeUsed(usage_from_wire(usage, MEASURED_MS, path))
        case kind if kind == PROFILE_KIND:
            return _profile(manifest, path, gone=gone)
        case _:
            return _as_logged(given)


def _node(manifest: Mapping[str, Any], path: str, *, gone: bool, lenient: bool) -> Event:
    node = node_from_manifest(manifest, path=path, strict=False)
    if gone:
        return NodeDeleted(node.name, resource_version=node.resource_version)
    if not lenient and node.allocatable and "pods" not in node.allocatable:
        room = {**node.allocatable, "pods": DEFAULT_NODE_PODS}
        node = msgspec.structs.replace(node, allocatable=room)
    return NodeUpserted(node)


def _profile(manifest: Any, path: str, *, gone: bool) -> ProfileEvent:
    profile = profile_from_manifest(manifest, path=path)
    if gone:
        return ProfileDeleted(profile.name)
    try:
        ProfilePlan(profile)
    except FieldError as error:
        raise FieldError(f"{path}.spec.{error.path}", error.message) from None
    return ProfileUpserted(profile)


def _as_logged(given: Given) -> Event | ProfileEvent | None:
    """Read an object exactly as a worker reads it from the log."""
    topic, key = event_topic_and_key(given.manifest)
    value = orjson.dumps({"type": given.type, "object": given.manifest})
    decoded = Decoder().decode(Record(topic, 0, 0, key, value, 0))
    if decoded.rejected is not None:
        path = decoded.rejected.path.removeprefix("object")
        raise FieldError(f"{given.path}{path}", decoded.rejected.message)
    return decoded.event
