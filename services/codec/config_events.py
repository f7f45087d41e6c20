"""Turns records of configuration objects into events."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from domain.manifests.config_objects import READERS
from domain.manifests.metadata import Identity, read_name, read_namespace, read_version
from domain.manifests.profile import KIND as PROFILE_KIND
from domain.manifests.profile import profile_from_spec
from domain.model.errors import FieldError
from domain.model.events import (
    ConfigDeleted,
    ConfigUpserted,
    Event,
    ProfileDeleted,
    ProfileEvent,
    ProfileUpserted,
)
from domain.model.validation import check_dns_label, check_subdomain, field_error, shown
from domain.plugins.registry import ProfilePlan
from services.codec.envelope import KINDS, NAMESPACED_KINDS, ConfigEvent, Refusal, check_envelope, check_key
from services.ports.log import CONFIG_TOPIC, Record

_META_PATH = "object.metadata"
_SPEC_PATH = "object.spec"
T = TypeVar("T")


class _EventOf(msgspec.Struct, Generic[T]):
    """An event about an object of one kind."""

    object: T


class ConfigDecoder:
    """Turns records of ``berth.config`` into events."""

    def __init__(self) -> None:
        self._event = msgspec.json.Decoder(ConfigEvent)
        self._of_kind: dict[str, msgspec.json.Decoder[Any]] = {
            kind: msgspec.json.Decoder(_EventOf[reader.wire])  # type: ignore[name-defined]
            for kind, reader in READERS.items()
        }

    def decode(self, record: Record, value: bytes) -> tuple[ConfigEvent, Event | ProfileEvent | None]:
        """Return the envelope and what it says; None if that changes nothing here."""
        event = self._event.decode(value)
        thing = check_envelope(event.type, event.object, CONFIG_TOPIC)
        if event.type == "BOOKMARK":
            return event, None
        kind, meta = thing.kind or "", thing.metadata or Identity()
        name = read_name(meta.name, _META_PATH, strict=True)
        namespace = read_namespace(meta.namespace, _META_PATH) if kind in NAMESPACED_KINDS else ""
        key = f"{namespace}/{name}" if namespace else name
        if record.key != key.encode():  # a producer that leaves out the kind is understood as well
            check_key(record.key, f"{kind}/{key}")
        version = read_version(meta.resource_version, _META_PATH)
        if event.type == "DELETED":
            return event, _deleted(kind, namespace, name, version)
        if kind == PROFILE_KIND:
            return event, _profile(thing.spec, name, version)
        content = READERS[kind].read(self._of_kind[kind].decode(value).object, "object")
        return event, ConfigUpserted(kind, namespace, name, content, version)


def config_tombstone(key: str) -> Event | ProfileEvent:
    """Return what the deletion of a key says."""
    kind, _, rest = key.partition("/")
    if kind not in KINDS or KINDS[kind][1] != CONFIG_TOPIC:
        allowed = "kind/name, or kind/namespace/name"
        raise Refusal("not-an-event", "key", f"{shown(key)} names no object; allowed is {allowed}")
    namespace, name = "", rest
    if kind in NAMESPACED_KINDS:
        namespace, _, name = rest.partition("/")
        check_dns_label(namespace, "key")
    return _deleted(kind, namespace, check_subdomain(name, "key"), None)


def _deleted(kind: str, namespace: str, name: str, version: int | None) -> Event | ProfileEvent:
    return (
        ProfileDeleted(name, version)
        if kind == PROFILE_KIND
        else ConfigDeleted(kind, namespace, name, version)
    )


def _profile(spec_raw: msgspec.Raw, name: str, version: int | None) -> ProfileUpserted:
    try:
        spec = msgspec.json.decode(spec_raw) if spec_raw else None
    except msgspec.ValidationError as error:  # JSON, but with a number that nothing can hold
        raise FieldError(_SPEC_PATH, field_error(error, "").message) from None
    profile = profile_from_spec(spec, name=name, path=_SPEC_PATH)
    try:
        plan = ProfilePlan(profile)
    except FieldError as error:
        raise FieldError(f"{_SPEC_PATH}.{error.path}", error.message) from None
    if plan.fit is None:
        message = "NodeResourcesFit is missing; a worker never places a pod where there is no room for it"
        raise FieldError(f"{_SPEC_PATH}.filters", message)
    return ProfileUpserted(profile, version)
