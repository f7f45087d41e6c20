"""What events and decisions are as records: topic, key and partition, and back; no input or output."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from aiokafka.partitioner import murmur2
from msgspec import Struct

from berth.client import models
from berth.client.errors import InvalidRequest

NODES_TOPIC = "berth.nodes"
PODS_TOPIC = "berth.pods"
USAGE_TOPIC = "berth.usage"
CONFIG_TOPIC = "berth.config"
DECISIONS_TOPIC = "berth.decisions"
TOPICS = (NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, CONFIG_TOPIC)
"""The topics that producers write."""

RECORD_BYTES_MAX = 1 << 20
"""The largest event that berth takes."""

TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
BIND_FAILED = "BIND_FAILED"
_TOPIC_OF = {"Node": NODES_TOPIC, "Pod": PODS_TOPIC, "NodeUsage": USAGE_TOPIC, "NodeAction": USAGE_TOPIC}
_OF_CLUSTER = ("SchedulingProfile", "PriorityClass", "Namespace", "CoLocationPolicy")
_OF_NAMESPACE = (
    "PodDisruptionBudget", "PodGroup", "Workload", "HostedReplicas", "Service", "ReplicationController",
    "ReplicaSet", "StatefulSet", "Deployment", "Job",
)  # fmt: skip
KINDS = (*_TOPIC_OF, *_OF_CLUSTER, *_OF_NAMESPACE)

_BINARY_UNITS = ((60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki"))
_BINARY_RESOURCES = ("memory", "ephemeral-storage", "storage")
_SEQ_DIGITS_MAX = 18


class EventRecord(NamedTuple):
    """An event as it is written."""

    topic: str
    key: bytes
    value: bytes


def record_of(event: Mapping[str, Any], index: int) -> EventRecord:
    """Return an event as a record; ``index`` is its number among those that were given.

    Raises
    ------
    InvalidRequest
        It has no topic or no key, or is larger than berth takes. What else is wrong with the object, the
        worker finds.
    """
    thing = event.get("object")
    if not isinstance(thing, Mapping):
        raise _wrong(index, "object", "is missing; an event carries the object that it is about")
    topic, key = _topic_and_key(thing, index)
    allowed = (*TYPES, BIND_FAILED) if topic == PODS_TOPIC else TYPES
    if event.get("type") not in allowed:
        text = f"{event.get('type')!r:.60} is not allowed; allowed are {', '.join(allowed)}"
        raise _wrong(index, "type", text)
    said = {name: event[name] for name in ("type", "object", "at", "id") if event.get(name) is not None}
    try:
        value = msgspec.json.encode(said)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _wrong(index, "object", f"cannot be written as JSON: {error}") from None
    if len(value) > RECORD_BYTES_MAX:
        raise _wrong(index, "object", f"makes a record of {len(value)} bytes; allowed are {RECORD_BYTES_MAX}")
    return EventRecord(topic, key, value)


def _topic_and_key(thing: Mapping[str, Any], index: int) -> tuple[str, bytes]:
    kind, meta = thing.get("kind"), thing.get("metadata")
    if kind not in KINDS:
        raise _wrong(index, "object.kind", f"{kind!r:.60} is unknown; allowed are {', '.join(KINDS)}")
    name = meta.get("name") if isinstance(meta, Mapping) else None
    if not isinstance(meta, Mapping) or not isinstance(name, str) or not name:
        raise _wrong(index, "object.metadata.name", "is missing; every object needs a name")
    parts = [name]
    if kind == "Pod" or kind in _OF_NAMESPACE:
        namespace = meta.get("namespace") or "default"
        if not isinstance(namespace, str):
            raise _wrong(index, "object.metadata.namespace", f"{namespace!r:.60} is no text")
        parts.insert(0, namespace)
    topic = _TOPIC_OF.get(kind, CONFIG_TOPIC)
    if topic == CONFIG_TOPIC:
        parts.insert(0, kind)  # the topic holds several kinds, and compaction goes by key
    try:
        return topic, "/".join(parts).encode()
    except UnicodeEncodeError:
        raise _wrong(index, "object.metadata.name", "cannot be written as UTF-8") from None


def _wrong(index: int, path: str, message: str) -> InvalidRequest:
    detail = models.ErrorDetail(index=index, path=path, message=message)
    return InvalidRequest(message, code="invalid-event", path=f"events[{index}].{path}", details=[detail])


def partition_of(key: bytes, count: int) -> int:
    """Return the partition of a key among so many, as Kafka's default partitioner chooses it."""
    return (int(murmur2(key)) & 0x7FFFFFFF) % count


class _Template(Struct):
    signature: str = ""
    requests: dict[str, int] = {}


class _Rest(Struct):
    """What a record says in another shape than the API."""

    labels: dict[str, str] = {}
    template: _Template = msgspec.field(default_factory=_Template)


class Read(NamedTuple):
    """A record of `berth.decisions` as it is followed.

    ``name`` is the ledger's, ``after`` the decision that was kept before it where those between were pruned;
    ``value`` is read only where the record is taken.
    """

    seq: int
    name: bytes
    after: int | None
    value: bytes


class _Numbers(Struct):
    id: str = ""


_decode_id = msgspec.json.Decoder(_Numbers).decode
_decode_decision = msgspec.json.Decoder(models.Decision, strict=False).decode  # a record has versions as text
_decode_rest = msgspec.json.Decoder(_Rest).decode


def read_of(shard: int, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> Read | None:
    """Return what a record says; None: it is no decision of a ledger in this shard."""
    said = dict(headers)  # the last one of each name counts
    name = said.get("berth-ledger")
    if not name or value is None:
        return None
    try:
        of, _, number = _decode_id(value).id.partition("-")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    seq = _whole(number)
    return Read(seq, name, _whole(said.get("berth-after")), value) if of == str(shard) and seq else None


def _whole(text: str | bytes | None) -> int | None:
    is_whole = text is not None and text.isdigit() and text.isascii() and len(text) <= _SEQ_DIGITS_MAX
    return int(text) if is_whole and text is not None else None


def decision_of(value: bytes) -> tuple[models.Decision, Mapping[str, str]]:
    """Return a decision as the API shows it, and the labels of its pod.

    Raises
    ------
    msgspec.DecodeError
        The bytes are no decision as this client knows it.
    """
    decision, rest = _decode_decision(value), _decode_rest(value)
    requests = {name: _quantity(name, amount) for name, amount in sorted(rest.template.requests.items())}
    shown = msgspec.structs.replace(decision, requests=requests, signature=rest.template.signature)
    return shown, rest.labels


def _quantity(resource: str, amount: int) -> str:
    """Return an amount as a Kubernetes quantity: cpu is in thousandths, all else in its own unit."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if amount and (resource in _BINARY_RESOURCES or resource.startswith("hugepages-")):
        for shift, suffix in _BINARY_UNITS:
            if amount % (1 << shift) == 0:
                return f"{amount >> shift}{suffix}"
    return str(amount)


def digest_of(value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> str:
    """Return 16 hex digits by which a record is known again."""
    found = hashlib.blake2b(value or b"", digest_size=8)
    for name, content in headers:
        found.update(b"\0" + name.encode() + b"\0" + (content or b""))
    return found.hexdigest()
