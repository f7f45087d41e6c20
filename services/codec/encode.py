"""Turns values into bytes of records: decisions for ``berth.decisions``, events for the state topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson

from domain.manifests.metadata import Identity, read_name, read_namespace
from domain.manifests.objects import convert_manifest
from domain.model.decisions import Decision, Outcome
from domain.model.errors import FieldError
from domain.model.hosting import ReplicasSaid
from domain.model.pods import PodTemplate
from domain.model.timestamps import format_ms
from domain.model.validation import shown
from services.codec.envelope import BIND_FAILED, EVENT_TYPES, KINDS, NAMESPACED_KINDS, AnyObject, versions_of
from services.ports.log import NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC


def template_fragment(template: PodTemplate, signature: bytes) -> bytes:
    """Return the part of the record that all decisions of a template share. Make it once per template."""
    requests = dict(sorted(template.requests.items()))
    return orjson.dumps({"signature": signature.hex(), "requests": requests})


class DecidedPod(msgspec.Struct, gc=False):
    """The pod of a decision record."""

    namespace: str
    name: str
    uid: str
    resource_version: str | None


class Preempting(msgspec.Struct, gc=False, kw_only=True):
    """Which pods leave for which: ``victims`` of a nominated pod, else the ``preemptor``.

    Pods are named by their uids. ``nominated`` is the id of the preemptor's decision. ``shard`` is that of
    a pod that has to leave: the partition of ``berth.pods`` in which it is said that it has left. Of a pod
    of a gang the key says it.
    """

    victims: Sequence[str] | msgspec.UnsetType = msgspec.UNSET
    violations: int | msgspec.UnsetType = msgspec.UNSET
    expires_at: str | msgspec.UnsetType = msgspec.UNSET
    preemptor: str | msgspec.UnsetType = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    nominated: str | msgspec.UnsetType = msgspec.UNSET
    shard: int | msgspec.UnsetType = msgspec.UNSET


class Amount(msgspec.Struct, gc=False, kw_only=True):
    """cpu in thousandths of a core, and memory in bytes."""

    cpu: int
    memory: int


class Migrating(msgspec.Struct, gc=False, kw_only=True):
    """A pod leaves a hot node, its ``source`` (key ``from``): ``why`` the node is hot, in plain words.

    ``relief`` is what the pod is expected to use, ``to`` the node on which a dry run found room for it.
    ``shard`` is as of ``Preempting``.
    """

    source: str = msgspec.field(name="from")
    why: Sequence[str]
    relief: Amount
    to: str
    shard: int | msgspec.UnsetType = msgspec.UNSET


class DecisionRecord(msgspec.Struct, gc=False):
    """A record of ``berth.decisions``, in the order of its keys."""

    id: str
    shard: int
    epoch: int
    seq: int
    pod: DecidedPod
    outcome: str
    node: str | None
    devices: Sequence[int] | msgspec.UnsetType
    decided_at: str
    event_at: str | None
    sent_by: str | None
    profile: str
    profile_revision: int | None
    reason: str
    reasons: Mapping[str, int]
    warnings: Sequence[str] | msgspec.UnsetType
    score: float | None
    preemption: Preempting | msgspec.UnsetType
    migration: Migrating | msgspec.UnsetType
    template: msgspec.Raw
    labels: Mapping[str, str]
    node_version: int | None


_NO_REASONS: Mapping[str, int] = {}
_encode_record = msgspec.json.Encoder().encode

CONFLICT = "conflict"
"""The reason code of a pod that berth had placed, and that another worker's change undid."""


def encode_decision(
    decision: Decision,
    fragment: bytes,
    labels: Mapping[str, str],
    node_version: int | None,
    sent_by: str | None,
    reasons: Mapping[str, int] = _NO_REASONS,
    warnings: Sequence[str] | msgspec.UnsetType = msgspec.UNSET,
    preemption: Preempting | msgspec.UnsetType = msgspec.UNSET,
    migration: Migrating | msgspec.UnsetType = msgspec.UNSET,
) -> bytes:
    """Return the record of a decision for ``berth.decisions``; equal arguments give equal bytes.

    Parameters
    ----------
    decision : Decision
        The decision.
    fragment : bytes
        What ``template_fragment`` made of the pod's template.
    labels : mapping
        The pod's labels.
    node_version : int or None
        The node's version in the ledger after this decision; None where no node is concerned.
    sent_by : str or None
        Who sent the event that the decision answers; None where that was not noted.
    reasons : mapping, optional
        Nodes per reason code.
    warnings : sequence, optional
        Codes of the pod's fields that had no effect. Without it the key is left out.
    preemption : Preempting, optional
        The pod for which this one leaves, or the pods that leave for it. Without it the key is left out.
    migration : Migrating, optional
        Why this pod leaves a hot node. Without it the key is left out.
    """
    version = decision.resource_version
    return _encode_record(
        DecisionRecord(
            f"{decision.shard}-{decision.seq}",
            decision.shard,
            decision.epoch,
            decision.seq,
            DecidedPod(
                decision.namespace,
                decision.name,
                decision.pod_uid,
                None if version is None else str(version),
            ),
            decision.outcome,
            decision.node,
            decision.devices or msgspec.UNSET,
            format_ms(decision.decided_at_ms),
            None if decision.event_at_ms is None else format_ms(decision.event_at_ms),
            sent_by,
            decision.profile,
            decision.profile_revision,
            decision.reason,
            reasons,
            warnings,
            decision.score,
            preemption,
            migration,
            msgspec.Raw(fragment),
            labels,
            node_version,
        )
    )


class HostedWorkload(msgspec.Struct, gc=False):
    """The workload of a scale."""

    kind: str
    name: str


class ScaleRecord(msgspec.Struct, gc=False):
    """A record of ``berth.scales``, in the order of its keys."""

    seq: int
    namespace: str
    name: str
    workload: HostedWorkload
    min: int
    max: int
    wanted: int
    running: int
    waiting_since: str | None
    load_percent: float | None
    reason: str
    decided_at: str


def encode_scale(said: ReplicasSaid) -> bytes:
    """Return the record of a change of how many replicas are wanted; equal arguments give equal bytes."""
    since_ms = said.waiting_since_ms
    return _encode_record(
        ScaleRecord(
            said.seq,
            said.namespace,
            said.name,
            HostedWorkload(said.kind, said.workload),
            said.least,
            said.most,
            said.wanted,
            said.running,
            None if since_ms is None else format_ms(since_ms),
            said.load_percent,
            said.reason,
            format_ms(said.at_ms),
        )
    )


def encode_conflict(payload: bytes) -> bytes:
    """Return the record of a decision that another worker's change of the node undid: the pod waits again."""
    record: dict[str, Any] = msgspec.json.decode(payload)
    reason = conflict_reason(record["node"])
    record |= {"outcome": Outcome.CONFLICT, "node": None, "score": None, "node_version": None}
    record.pop("preemption", None)
    record.pop("devices", None)
    return _encode_record(record | {"reason": reason, "reasons": {CONFLICT: 1}})


def encode_spared(payload: bytes) -> bytes:
    """Return the record of an eviction that another worker's change of the node undid: the pod stays."""
    record: dict[str, Any] = msgspec.json.decode(payload)
    return _encode_record(record | {"outcome": Outcome.SPARED, "reason": conflict_reason(record["node"])})


def conflict_reason(node: str | None) -> str:
    """Return why a pod was not placed on a node that berth had chosen."""
    return f"another worker changed {node} first"


def move_version(payload: bytes, by: int) -> bytes:
    """Return the record of a decision with another version of its node: that is the last key."""
    before, _, version = payload.rpartition(b":")
    return payload if version == b"null}" else b"%b:%d}" % (before, int(version[:-1]) + by)


def decision_key(decision: Decision) -> bytes:
    """Return the key of a decision's record: ``namespace/name``."""
    return f"{decision.namespace}/{decision.name}".encode()


def encode_event(event_type: str, thing: Any, at: str | None = None, event_id: str | None = None) -> bytes:
    """Return the record of an event.

    Raises
    ------
    FieldError
        If the type is unknown or the object holds what JSON cannot.
    """
    if event_type not in EVENT_TYPES and event_type != BIND_FAILED:
        raise FieldError("type", f"{shown(event_type)} is not allowed; allowed are {', '.join(EVENT_TYPES)}")
    event: dict[str, Any] = {"type": event_type, "object": thing}
    if at is not None:
        event["at"] = at
    if event_id is not None:
        event["id"] = event_id
    try:
        return msgspec.json.encode(event)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FieldError("object", f"cannot be written as JSON: {error}") from None


def event_topic_and_key(thing: Mapping[str, Any], path: str = "object") -> tuple[str, bytes]:
    """Return the topic and the key of an object's events.

    Raises
    ------
    FieldError
        If the kind has no topic, or the object has no valid name.
    """
    return topic_and_key(convert_manifest(thing, AnyObject, path), path)


def topic_and_key(wire: Any, path: str = "object") -> tuple[str, bytes]:
    """Return the same for an object that has been read: its kind, its apiVersion and its metadata."""
    kind = wire.kind or ""
    if kind not in KINDS:
        raise FieldError(f"{path}.kind", f"{shown(kind)} is unknown; allowed are {', '.join(KINDS)}")
    topic = KINDS[kind][1]
    if wire.api_version and wire.api_version not in versions_of(kind):
        allowed = " or ".join(versions_of(kind))
        message = f"{shown(wire.api_version)} is unknown; allowed for a {kind} is {allowed}"
        raise FieldError(f"{path}.apiVersion", message)
    meta, meta_path = wire.metadata or Identity(), f"{path}.metadata"
    key = read_name(meta.name, meta_path, strict=True)
    if kind in NAMESPACED_KINDS:
        key = f"{read_namespace(meta.namespace, meta_path)}/{key}"
    if topic not in (PODS_TOPIC, NODES_TOPIC, USAGE_TOPIC):
        key = f"{kind}/{key}"  # the topic holds several kinds, and compaction goes by key
    return topic, key.encode()
