"""Turns records of the log into events. It is fast where events repeat, and never raises.

Equal pods mostly come with a byte-identical ``spec``, so a ``Decoder`` keeps what it made of a spec and of a
set of labels, within bounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec

from domain.manifests.actions import action_from_wire
from domain.manifests.between_pods import BetweenPods
from domain.manifests.metadata import (
    Identity,
    read_controller,
    read_deletion,
    read_labels,
    read_name,
    read_namespace,
)
from domain.manifests.node import node_from_wire
from domain.manifests.objects import assemble_pod
from domain.manifests.pod import (
    WirePodSpec,
    asked_of_pods,
    priority_class,
    read_node_name,
    template_from_wire,
)
from domain.manifests.status import WirePodStatus, WireResize, given_qos, resize_of
from domain.manifests.usage import usage_from_wire
from domain.manifests.volumes import without_plain
from domain.model.devices import DEVICES_KEY
from domain.model.errors import FieldError
from domain.model.events import (
    BindFailed,
    Event,
    NodeActed,
    NodeDeleted,
    NodeUpserted,
    NodeUsed,
    PodDeleted,
    PodUpserted,
    ProfileEvent,
)
from domain.model.limits import event_bytes_max, usage_ahead_seconds_max
from domain.model.pods import (
    CLUSTER_LABEL,
    LABELS_READ,
    POD_GROUP_LABEL,
    ROLE_LABEL,
    SAFE_TO_EVICT_KEY,
    Controller,
    PodTemplate,
    with_labels,
)
from domain.model.signature import signature as signature_of
from domain.model.timestamps import clamp_ms, to_ms
from domain.model.validation import check_dns_label, check_printable, check_subdomain, field_error, shown
from services.codec.config_events import ConfigDecoder, config_tombstone
from services.codec.envelope import (
    BIND_FAILED,
    ActionEvent,
    AnyEvent,
    AnyObject,
    Envelope,
    NodeEvent,
    PodEvent,
    RawMeta,
    Refusal,
    Rejected,
    UsageEvent,
    check_envelope,
    check_key,
)
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, TICKS_TOPIC, USAGE_TOPIC, Record

_META_PATH = "object.metadata"
_DEVICES, _SAFE_TO_EVICT = DEVICES_KEY.encode(), SAFE_TO_EVICT_KEY.encode()
_SPEC_PATH = "object.spec"
# What a decoder remembers: at most 64 MiB of specs and 8 MiB of labels.
_SPECS_MAX = 2048
_SPEC_BYTES_MAX = 16 << 10
_LABELS_MAX = 8192
_LABELS_BYTES_MAX = 1 << 10

_NODE_ACTION = b"NodeAction"
_decode_any = msgspec.json.Decoder(AnyEvent).decode
_decode_action = msgspec.json.Decoder(ActionEvent).decode

K = TypeVar("K")
V = TypeVar("V")


class Decoded(msgspec.Struct, frozen=True, gc=False):
    """What a record says: an event, or why it is rejected, or neither if it changes nothing here.

    ``event_at_ms`` is when it happened, as the producer claims; None if it claims nothing.
    """

    event: Event | ProfileEvent | None
    rejected: Rejected | None
    event_at_ms: int | None = None
    id: str | None = None


class _Shape(NamedTuple):
    """What is made of a spec: a template, and ``between``, which the labels of each pod complete.

    ``asked`` is what ``between`` was made of, as bytes.
    """

    template: PodTemplate
    signature: bytes
    between: BetweenPods | None
    asked: bytes


class Decoder:
    """Turns records into events; remembers specs and labels, so use one per worker.

    It does not ask whether a pod's profile exists. The event that brings the profile may still be on its way,
    and the pod waits for it.
    """

    def __init__(self) -> None:
        self._pod_event = msgspec.json.Decoder(PodEvent)
        self._node_event = msgspec.json.Decoder(NodeEvent)
        self._config = ConfigDecoder()
        self._usage_event = msgspec.json.Decoder(UsageEvent)
        self._spec = msgspec.json.Decoder(WirePodSpec)
        self._encoder = msgspec.json.Encoder()
        self._label_map = msgspec.json.Decoder(dict[str, Any] | None)
        self._specs: dict[tuple[bytes, str, bytes], tuple[_Shape, str, str | None]] = {}
        self._shapes: dict[tuple[bytes, str, bytes], _Shape] = {}
        self._in_use: WeakValueDictionary[bytes, PodTemplate] = WeakValueDictionary()
        self._of_labels: dict[tuple[object, ...], tuple[PodTemplate, bytes]] = {}
        self._controllers: dict[Controller, Controller] = {}
        self._labels: dict[bytes, tuple[dict[str, str], bool]] = {}
        self._node_names: dict[str, str] = {}

    def decode(self, record: Record) -> Decoded:
        """Return what a record of a state topic says. It never raises, whatever the bytes are."""
        value = record.value
        try:
            if value is None:
                if record.fault is not None:
                    raise Refusal(record.fault.code, "", record.fault.message)
                return Decoded(_tombstone(record), None)
            if len(value) > event_bytes_max:
                raise Refusal(
                    "too-large", "", f"is {len(value)} bytes; allowed are {event_bytes_max} (event_bytes_max)"
                )
            if record.topic == PODS_TOPIC:
                pod_event = self._pod_event.decode(value)
                return _decoded(pod_event, self._pod(record, pod_event))
            if record.topic == NODES_TOPIC:
                node_event = self._node_event.decode(value)
                return _decoded(node_event, _node(record, node_event))
            if record.topic == TICKS_TOPIC:  # whatever it says, it says that time passes
                return Decoded(None, None)
            if record.topic == CONFIG_TOPIC:
                return _decoded(*self._config.decode(record, value))
            if _NODE_ACTION in value and _is_action(value):
                action_event = _decode_action(value)
                return _decoded(action_event, _action(record, action_event))
            usage_event = self._usage_event.decode(value)
            return _decoded(usage_event, _usage(record, usage_event))
        except Refusal as refusal:
            rejected = refusal.rejected
        except FieldError as error:
            rejected = Refusal(error.code, error.path, error.message).rejected
        except (msgspec.DecodeError, ValueError, ArithmeticError, RecursionError) as error:
            rejected = _diagnose(value or b"", record.topic, error)
        return Decoded(None, rejected)

    @property
    def remembered_count(self) -> int:
        """How many specs, sets of labels, names of nodes and controllers are remembered."""
        of_specs = len(self._specs) + len(self._shapes) + len(self._of_labels)
        return of_specs + len(self._labels) + len(self._node_names) + len(self._controllers)

    def _pod(self, record: Record, event: PodEvent) -> Event | None:
        pod = check_envelope(event.type, event.object, PODS_TOPIC)
        if event.type == "BOOKMARK":
            return None
        meta = pod.metadata or RawMeta()
        if event.type == "DELETED":
            name = read_name(meta.name, _META_PATH, strict=True)
            namespace = read_namespace(meta.namespace, _META_PATH)
            key = f"{namespace}/{name}"
            check_key(record.key, key)
            return PodDeleted(namespace, name, *read_deletion(meta, key, _META_PATH))
        shape, node_name, asked = self._spec_of(pod.spec, pod.status)
        template, signature = shape.template, shape.signature
        labels, are_read = self._labels_of(meta.labels)
        if are_read or shape.between is not None or template.gang:
            namespace = read_namespace(meta.namespace, _META_PATH)
            template, signature = self._labelled(shape, labels, namespace)
        controller = None
        if meta.owner_references and (controller := read_controller(meta.owner_references, _META_PATH)):
            controller = _remember(self._controllers, controller, controller, _LABELS_MAX)
        spec = assemble_pod(
            meta,
            labels=labels,
            controller=controller,
            status=pod.status,
            template=template,
            template_signature=signature,
            node_name=node_name,
            annotations=self._annotations_of(meta.annotations, is_bound=bool(node_name)),
            path="object",
            strict=True,
        )
        check_key(record.key, spec.key)
        if event.type != BIND_FAILED:
            return PodUpserted(spec, asked)
        if not node_name:
            raise FieldError(
                "object.spec.nodeName", "is missing; it names the node to which the pod could not be bound"
            )
        waits = msgspec.structs.replace(spec, node_name="", devices=())
        return BindFailed(PodUpserted(waits, asked), node_name)

    def _spec_of(self, raw: msgspec.Raw, status: WirePodStatus | None) -> tuple[_Shape, str, str | None]:
        """Return what is made of a spec, its node name and its priority class.

        A spec that was seen before costs a look-up.
        """
        qos, resize, said = "", None, b""
        if status is not None:
            qos, resize = given_qos(status, "object.status"), resize_of(status)
            said = b"" if resize is None else self._encoder.encode(resize)
        key = (bytes(raw), qos, said)  # a copy: the raw view would keep the whole record alive
        known = self._specs.get(key)
        if known is not None:
            return known
        try:
            wire = self._spec.decode(key[0] or b"null")
        except msgspec.ValidationError as error:
            if key[0] in (b"", b"null"):
                raise FieldError("object.spec", "is missing; a pod needs a spec") from None
            raise field_error(error, "object.spec") from None
        node_name = read_node_name(wire.node_name, "object.spec.nodeName", strict=True)
        if node_name:  # pods of a node share it
            node_name = _remember(self._node_names, node_name, node_name, _LABELS_MAX)
        asked = priority_class(wire, "object.spec.priorityClassName")
        shape = self._shape(wire, qos, resize if node_name else None, said if node_name else b"")
        found = (shape, node_name, asked)
        is_short = len(key[0]) + len(said) <= _SPEC_BYTES_MAX
        return _remember(self._specs, key, found, _SPECS_MAX) if is_short else found

    def _shape(self, wire: WirePodSpec, qos: str, resize: WireResize | None, said: bytes) -> _Shape:
        """Return what is made of a spec. Specs that differ only in what placing ignores share it."""
        wire.node_name = wire.priority_class_name = None
        if wire.volumes:
            wire.volumes = without_plain(wire.volumes)
        key = (self._encoder.encode(wire), qos, said)
        known = self._shapes.get(key)
        if known is not None:
            return known
        template = template_from_wire(wire, qos, "object.spec", strict=True, resize=resize)
        signature = signature_of(template)
        # Pods may still refer to a template that is forgotten here, so a million of them hold each one once.
        template = self._in_use.setdefault(signature, template)
        between = asked_of_pods(wire)
        asked = self._encoder.encode((wire.affinity, wire.topology_spread_constraints)) if between else b""
        found = _Shape(template, signature, between, asked)
        is_short = len(key[0]) + len(said) <= _SPEC_BYTES_MAX
        return _remember(self._shapes, key, found, _SPECS_MAX) if is_short else found

    def _labelled(self, shape: _Shape, labels: dict[str, str], namespace: str) -> tuple[PodTemplate, bytes]:
        """Return template and signature for a pod with these labels in this namespace."""
        cluster, role = labels.get(CLUSTER_LABEL, ""), labels.get(ROLE_LABEL, "")
        between = shape.between
        values = tuple(map(labels.get, between.label_keys)) if between is not None else ()
        key = (shape.signature, shape.asked, namespace, cluster, role, labels.get(POD_GROUP_LABEL), values)
        known = self._of_labels.get(key)
        if known is not None:
            return known
        labelled = with_labels(shape.template, labels, namespace)
        if between is not None:
            labelled = between.complete_template(labelled, labels, namespace, _SPEC_PATH)
        signature = signature_of(labelled)
        found = (self._in_use.setdefault(signature, labelled), signature)
        is_short = len(shape.asked) <= _SPEC_BYTES_MAX
        return _remember(self._of_labels, key, found, _SPECS_MAX) if is_short else found

    def _labels_of(self, raw: msgspec.Raw) -> tuple[dict[str, str], bool]:
        """Return labels, and whether placing reads any of them; pods with the same ones share one dict."""
        key = bytes(raw)
        known = self._labels.get(key)
        if known is not None:
            return known
        try:
            wire = self._label_map.decode(key or b"null")
        except msgspec.ValidationError as error:
            raise field_error(error, f"{_META_PATH}.labels") from None
        labels = read_labels(wire, _META_PATH)
        found = (labels, not LABELS_READ.isdisjoint(labels))
        return _remember(self._labels, key, found, _LABELS_MAX) if len(key) <= _LABELS_BYTES_MAX else found

    def _annotations_of(self, raw: msgspec.Raw, *, is_bound: bool) -> dict[str, Any] | None:
        """Return annotations where they name devices of a bound pod, or pin a pod; others are not read."""
        text = bytes(raw)
        if not (is_bound and _DEVICES in text) and _SAFE_TO_EVICT not in text:
            return None
        try:
            found: dict[str, Any] | None = self._label_map.decode(text)
        except msgspec.ValidationError as error:
            raise field_error(error, f"{_META_PATH}.annotations") from None
        return found


def _decoded(envelope: Envelope, event: Event | ProfileEvent | None) -> Decoded:
    event_id = check_printable(envelope.id, "id") if envelope.id else None
    return Decoded(event, None, None if envelope.at is None else to_ms(envelope.at), event_id)


def _remember(memory: dict[K, V], key: K, value: V, count_max: int) -> V:
    """Return the value remembered under the key, else remember ``value``. When full, forget all."""
    if len(memory) >= count_max:
        memory.clear()
    return memory.setdefault(key, value)


def _node(record: Record, event: NodeEvent) -> Event | None:
    node = check_envelope(event.type, event.object, NODES_TOPIC)
    if event.type == "BOOKMARK":
        return None
    if event.type == "DELETED":
        meta = node.metadata or Identity()
        name = read_name(meta.name, _META_PATH, strict=True)
        check_key(record.key, name)
        return NodeDeleted(name, *read_deletion(meta, name, _META_PATH))
    spec = node_from_wire(node, "object", strict=True)
    check_key(record.key, spec.name)
    return NodeUpserted(spec)


def _usage(record: Record, event: UsageEvent) -> Event | None:
    usage = check_envelope(event.type, event.object, record.topic)
    if event.type in ("BOOKMARK", "DELETED"):  # a measurement stays
        return None
    found = usage_from_wire(usage, _told_ms(record, event), "object")
    check_key(record.key, found.node)
    if found.quality is not msgspec.UNSET:
        found = msgspec.structs.replace(found, logged_ms=clamp_ms(record.timestamp_ms))
    return NodeUsed(found)


def _is_action(value: bytes) -> bool:
    """Say whether an event is of a NodeAction: others may hold the word somewhere."""
    thing = _decode_any(value).object
    return thing is not None and thing.kind == "NodeAction"


def _action(record: Record, event: ActionEvent) -> Event | None:
    action = check_envelope(event.type, event.object, record.topic)
    if event.type in ("BOOKMARK", "DELETED"):  # what was done was done
        return None
    found = action_from_wire(action, _told_ms(record, event), "object")
    check_key(record.key, found.node)
    return NodeActed(found)


def _told_ms(record: Record, event: Envelope) -> int:
    """Return when something on a node was, by the clock of its agent, which may be a little ahead."""
    at_ms = clamp_ms(record.timestamp_ms) if event.at is None else to_ms(event.at)
    ahead_ms = at_ms - record.timestamp_ms
    if ahead_ms > usage_ahead_seconds_max * 1000 and record.timestamp_ms > 0:
        allowed = f"allowed are at most {usage_ahead_seconds_max} s (usage_ahead_seconds_max)"
        raise FieldError("at", f"is {ahead_ms // 1000} s after its record was written; {allowed}")
    return at_ms


def _tombstone(record: Record) -> Event | ProfileEvent | None:
    if record.topic in (USAGE_TOPIC, TICKS_TOPIC):
        return None
    if record.key is None:
        raise Refusal(
            "not-an-event", "key", "is missing; a record without a value deletes what its key names"
        )
    key = record.key.decode("utf-8", "backslashreplace")
    if record.topic == NODES_TOPIC:
        return NodeDeleted(check_subdomain(key, "key"))
    if record.topic == CONFIG_TOPIC:
        return config_tombstone(key)
    namespace, slash, name = key.partition("/")
    if record.topic != PODS_TOPIC or not slash:
        raise Refusal("not-an-event", "key", f"{shown(key)} is not a pod's; allowed is namespace/name")
    return PodDeleted(check_dns_label(namespace, "key"), check_subdomain(name, "key"))


def _diagnose(value: bytes, topic: str, error: Exception) -> Rejected:
    """Return why a record could not be read: no JSON, no event, or a field of a wrong type."""
    try:
        content = msgspec.json.decode(value)
        if not isinstance(content, dict):
            raise Refusal("not-an-event", "", "is not a JSON object; an event is {type, object, at, id}")
        event_type, thing = content.get("type"), content.get("object")
        if isinstance(thing, dict) and isinstance(event_type, str):
            kind, api_version = thing.get("kind"), thing.get("apiVersion")
            if isinstance(kind, str) and isinstance(api_version, str | None):
                check_envelope(event_type, AnyObject(kind, api_version), topic)
        if isinstance(error, msgspec.ValidationError):
            raise field_error(error, "")
    except Refusal as refusal:
        return refusal.rejected
    except FieldError as wrong:
        return Refusal(wrong.code, wrong.path, wrong.message).rejected
    except msgspec.ValidationError as wrong:  # JSON, but with a number that nothing can hold
        problem = field_error(wrong, "")
        return Refusal(problem.code, problem.path, problem.message).rejected
    except RecursionError:
        return Rejected("not-json", "", "is nested too deep to be read")
    except (msgspec.DecodeError, UnicodeError) as wrong:
        return Refusal("not-json", "", f"is not JSON: {wrong}").rejected
    return Refusal("not-json", "", f"cannot be read: {error}").rejected
