"""Keeps of an event what berth reads, so that nothing stores the rest: environments, commands, annotations.

The structs that read manifests say which fields those are. ``domain/manifests/fields.py`` lists all fields,
and a test compares the two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import inspect

from domain.manifests.actions import WireNodeAction
from domain.manifests.config_objects import READERS
from domain.manifests.metadata import Identity, Labelled, WireOwner
from domain.manifests.node import USAGE_WINDOW_KEY, WireNodeSpec, WireNodeStatus
from domain.manifests.pod import WirePodSpec
from domain.manifests.status import WirePodStatus
from domain.manifests.usage import WireNodeUsage
from domain.model.devices import DEVICES_KEY
from domain.model.limits import event_bytes_max
from domain.model.pods import SAFE_TO_EVICT_KEY
from services.codec.envelope import BIND_FAILED


class _Bare(msgspec.Struct, rename="camel", omit_defaults=True):
    """What is kept of a deleted object, and of one whose kind is not known."""

    kind: str | None = None
    api_version: str | None = None
    metadata: Identity | None = None


class _PodAnnotations(msgspec.Struct, omit_defaults=True):
    devices: str | None = msgspec.field(default=None, name=DEVICES_KEY)
    safe_to_evict: Any = msgspec.field(default=None, name=SAFE_TO_EVICT_KEY)


class _PodMeta(Labelled, omit_defaults=True):
    owner_references: list[WireOwner] | None = None
    annotations: _PodAnnotations | None = None


class _NodeAnnotations(msgspec.Struct, omit_defaults=True):
    usage_window: Any = msgspec.field(default=None, name=USAGE_WINDOW_KEY)


class _NodeMeta(Labelled, omit_defaults=True):
    annotations: _NodeAnnotations | None = None


class _Pod(_Bare, omit_defaults=True):
    metadata: _PodMeta | None = None
    spec: WirePodSpec | None = None
    status: WirePodStatus | None = None


class _Node(_Bare, omit_defaults=True):
    metadata: _NodeMeta | None = None
    spec: WireNodeSpec | None = None
    status: WireNodeStatus | None = None


class _Specified(_Bare, omit_defaults=True):
    spec: Any = None


KEPT: Mapping[str, type[msgspec.Struct]] = {
    "Pod": _Pod,
    "Node": _Node,
    "NodeUsage": WireNodeUsage,
    "NodeAction": WireNodeAction,
    "SchedulingProfile": _Specified,
    **{kind: reader.wire for kind, reader in READERS.items()},
}
"""Per kind, what is kept of an object."""

_WHOLE = ("ADDED", "MODIFIED", BIND_FAILED)
"""The types of events whose object says all of it."""

_Rule = dict[str, Any] | list[Any] | bool | None
"""What to keep: these fields, a list of items, anything (True), a map of scalars (False), or a scalar."""


def kept(event_type: object, thing: dict[str, Any]) -> Any:
    """Return what is kept of a valid object; all of it if a type is wrong, which the decoder then refuses."""
    try:
        return msgspec.convert(thing, KEPT[thing["kind"]] if event_type in _WHOLE else _Bare)
    except (msgspec.ValidationError, KeyError, TypeError):  # TypeError: the kind is a list
        return thing


def stripped(thing: dict[str, Any]) -> Any:
    """Return what is kept of an object in which types may be wrong. A value of a wrong type is dropped."""
    kind = thing.get("kind")
    return _keep(thing, _RULES.get(kind if isinstance(kind, str) else "", _BARE))


def kept_of_refused(value: bytes) -> tuple[bytes, str]:
    """Return what a dead letter keeps of a record, and a text for its message.

    Bytes that are not an event may hold anything, also part of a secret. Nothing of them is kept but their
    number and their hash. The record itself is in the log as long as that keeps it.
    """
    try:
        content = msgspec.json.decode(value) if len(value) <= event_bytes_max else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        content = None
    if isinstance(content, dict):
        event = {name: content[name] for name in ("type", "at", "id") if isinstance(content.get(name), str)}
        if isinstance(thing := content.get("object"), dict):
            event["object"] = stripped(thing)
        return msgspec.json.encode(event), ""
    if not value:
        return b"", ""
    digest = hashlib.sha256(value).hexdigest()
    return b"", f"; nothing of its {len(value)} bytes is kept here (SHA-256 {digest})"


def _rule_of(shape: inspect.Type) -> _Rule:
    if isinstance(shape, inspect.UnionType):
        return _rule_of(next(each for each in shape.types if not isinstance(each, inspect.NoneType)))
    if isinstance(shape, inspect.StructType):
        return {field.encode_name: _rule_of(field.type) for field in shape.fields}
    if isinstance(shape, inspect.ListType):
        return [_rule_of(shape.item_type)]
    if isinstance(shape, inspect.DictType):
        return False
    return True if isinstance(shape, inspect.AnyType) else None


def _keep(value: Any, rule: _Rule) -> Any:
    if rule is True:
        return value
    if isinstance(rule, list):
        return [_keep(item, rule[0]) for item in value] if isinstance(value, list) else None
    if rule is None:
        return None if isinstance(value, dict | list) else value
    if not isinstance(value, dict):
        return None
    if rule is False:
        return {name: _keep(each, None) for name, each in value.items()}
    return {name: _keep(value[name], rule[name]) for name in rule if name in value}


_RULES = {kind: _rule_of(inspect.type_info(shape)) for kind, shape in KEPT.items()}
_BARE = _rule_of(inspect.type_info(_Bare))
