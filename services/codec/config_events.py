"""Turns records of configuration objects into events."""

from __future__ import annotations

import msgspec

from domain.manifests.metadata import Identity, read_name, read_version
from domain.manifests.priority_class import KIND as PRIORITY_CLASS_KIND
from domain.manifests.priority_class import WirePriorityClass, priority_class_from_wire
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
from domain.model.validation import check_subdomain, field_error, shown
from domain.plugins.registry import ProfilePlan
from services.codec.envelope import KINDS, ConfigEvent, Refusal, check_envelope, check_key
from services.ports.log import CONFIG_TOPIC, Record

_META_PATH = "object.metadata"
_SPEC_PATH = "object.spec"
_USED = (PROFILE_KIND, PRIORITY_CLASS_KIND)
"""Kinds of configuration that are used. Of the other kinds only the envelope is checked."""


class _PriorityClassEvent(msgspec.Struct):
    """An event about a PriorityClass, whose fields stand beside its metadata."""

    object: WirePriorityClass


class ConfigDecoder:
    """Turns records of ``berth.config`` into events."""

    def __init__(self) -> None:
        self._event = msgspec.json.Decoder(ConfigEvent)
        self._class_event = msgspec.json.Decoder(_PriorityClassEvent)

    def decode(self, record: Record, value: bytes) -> tuple[ConfigEvent, Event | ProfileEvent | None]:
        """Return the envelope and what it says; None if that changes nothing here."""
        event = self._event.decode(value)
        thing = check_envelope(event.type, event.object, CONFIG_TOPIC)
        if event.type == "BOOKMARK" or thing.kind not in _USED:
            return event, None
        meta = thing.metadata or Identity()
        name = read_name(meta.name, _META_PATH, strict=True)
        if record.key != name.encode():  # a producer that keys by name alone is understood as well
            check_key(record.key, f"{thing.kind}/{name}")
        version = read_version(meta.resource_version, _META_PATH)
        if event.type == "DELETED":
            return event, _config_deleted(thing.kind, name, version)
        if thing.kind == PROFILE_KIND:
            return event, _profile(thing.spec, name, version)
        wire = self._class_event.decode(value).object
        return event, ConfigUpserted(priority_class_from_wire(wire, "object"), version)


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


def _config_deleted(kind: str, name: str, version: int | None) -> Event | ProfileEvent:
    return ProfileDeleted(name, version) if kind == PROFILE_KIND else ConfigDeleted(kind, "", name, version)


def config_tombstone(key: str) -> Event | ProfileEvent | None:
    """Return what the deletion of a key says, None of a kind that is not used."""
    kind, _, name = key.partition("/")
    if kind in _USED:
        return _config_deleted(kind, check_subdomain(name, "key"), None)
    if kind not in KINDS:
        raise Refusal("not-an-event", "key", f"{shown(key)} names no object; allowed is kind/name")
    return None
