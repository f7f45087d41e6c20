"""Read manifests, as a user or a cluster writes them, into the values that berth works with.

``strict`` is for the log: there, names and containers must be as the Kubernetes API demands, and a node must
offer something. Without it a manifest is taken exactly as written, for planning with made-up machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from domain.manifests.devices import read_devices
from domain.manifests.metadata import (
    Identity,
    PodMeta,
    read_controller,
    read_labels,
    read_name,
    read_namespace,
    read_uid,
    read_version,
)
from domain.manifests.node import WireNode, node_from_wire
from domain.manifests.pod import (
    WirePod,
    WirePodSpec,
    asked_of_pods,
    priority_class,
    read_node_name,
    template_from_wire,
)
from domain.manifests.status import NOT_STARTED, WirePodStatus, given_qos, read_course, resize_of
from domain.model.events import PodUpserted
from domain.model.nodes import NodeSpec
from domain.model.pods import SAFE_TO_EVICT_KEY, Controller, PodSpec, PodTemplate, with_labels
from domain.model.signature import signature
from domain.model.validation import field_error

T = TypeVar("T")


def convert_manifest(manifest: Mapping[str, Any], shape: type[T], path: str) -> T:
    """Return plain dicts and lists as a wire struct; a value of a wrong type is a ``FieldError``."""
    try:
        return msgspec.convert(manifest, shape)
    except msgspec.ValidationError as error:
        raise field_error(error, path) from None


def node_from_manifest(manifest: Mapping[str, Any], *, path: str = "object", strict: bool = True) -> NodeSpec:
    """Return a v1 Node, given as plain dicts, as ``NodeSpec``.

    Parameters
    ----------
    manifest : mapping
        The Node; unknown fields are ignored.
    path : str
        What the paths in errors begin with.
    strict : bool
        The name must be a DNS-1123 subdomain; allocatable (or capacity, where there is no allocatable) must
        name cpu or memory, must not give 0 for cpu, memory or pods, and a missing ``pods`` becomes 110.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    return node_from_wire(convert_manifest(manifest, WireNode, path), path, strict=strict)


def pod_from_manifest(
    manifest: Mapping[str, Any], *, path: str = "object", strict: bool = True, lenient: bool = False
) -> PodSpec:
    """Return the pod of ``pod_event_from_manifest``, without the priority that a class would give it."""
    return pod_event_from_manifest(manifest, path=path, strict=strict, lenient=lenient).pod


def pod_event_from_manifest(
    manifest: Mapping[str, Any], *, path: str = "object", strict: bool = True, lenient: bool = False
) -> PodUpserted:
    """Return a v1 Pod, given as plain dicts, as the event that it was added or modified.

    Parameters
    ----------
    manifest : mapping
        The Pod; unknown fields are ignored.
    path : str
        What the paths in errors begin with.
    strict : bool
        The name must be a DNS-1123 subdomain, and the pod must have a container.
    lenient : bool
        A required node affinity term that the Kubernetes API would refuse matches no node, as in its
        scheduler, and is no error.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    pod = convert_manifest(manifest, WirePod, path)
    spec = pod.spec or WirePodSpec()
    qos = given_qos(pod.status, f"{path}.status")
    resize = resize_of(pod.status) if spec.node_name else None
    template = template_from_wire(spec, qos, f"{path}.spec", strict=strict, lenient=lenient, resize=resize)
    meta, meta_path = pod.metadata or PodMeta(), f"{path}.metadata"
    labels = read_labels(meta.labels, meta_path)
    namespace = read_namespace(meta.namespace, meta_path)
    template = with_labels(template, labels, namespace)
    asked = asked_of_pods(spec)
    if asked is not None:
        template = asked.complete_template(template, labels, namespace, f"{path}.spec")
    assembled = assemble_pod(
        meta,
        labels=labels,
        controller=read_controller(meta.owner_references, meta_path),
        status=pod.status,
        template=template,
        template_signature=signature(template),
        node_name=read_node_name(spec.node_name, f"{path}.spec.nodeName", strict=strict),
        annotations=meta.annotations,
        path=path,
        strict=strict,
    )
    return PodUpserted(assembled, priority_class(spec, f"{path}.spec.priorityClassName"))


def assemble_pod(
    meta: Identity,
    *,
    labels: dict[str, str],
    controller: Controller | None,
    status: WirePodStatus | None,
    template: PodTemplate,
    template_signature: bytes,
    node_name: str,
    annotations: Mapping[str, Any] | None,
    path: str,
    strict: bool,
) -> PodSpec:
    """Return a pod from its parts. Template, labels, controller and node name are checked already."""
    meta_path = f"{path}.metadata"
    name = read_name(meta.name, meta_path, strict=strict)
    namespace = read_namespace(meta.namespace, meta_path)
    key = f"{namespace}/{name}"
    uid = read_uid(meta.uid, key, meta_path)
    version = read_version(meta.resource_version, meta_path)
    deleted = meta.deletion_timestamp is not None
    course = NOT_STARTED if status is None else read_course(status, f"{path}.status")
    nominated = ""
    if course.nominated_node and not node_name:
        nominated = read_node_name(course.nominated_node, f"{path}.status.nominatedNodeName", strict=strict)
    return PodSpec(  # by position as far as nearly all pods differ: to name a field costs far more
        uid,
        key,
        version,
        template,
        template_signature,
        labels,
        node_name,
        # A pod that is deleted before it is bound can never be bound: nothing is left to place.
        finished=course.finished or (deleted and not node_name),
        start_time=course.start_time,
        terminating=deleted and bool(node_name),
        controller=controller,
        nominated_node=nominated,
        preempted=deleted and course.preempted,
        devices=read_devices(annotations, template, meta_path) if annotations and node_name else (),
        pinned=annotations is not None and annotations.get(SAFE_TO_EVICT_KEY) == "false",
    )
