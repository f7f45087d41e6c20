"""The metadata that every kind shares: name, namespace, uid, resource version, labels."""

from __future__ import annotations

from typing import Any

import msgspec

from domain.model.errors import FieldError
from domain.model.pods import CONTROLLERS, Controller
from domain.model.timestamps import Moment
from domain.model.validation import (
    check_dns_label,
    check_labels,
    check_printable,
    check_subdomain,
    read_resource_version,
    shown,
)

DEFAULT_NAMESPACE = "default"


class WireOwner(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """An owner reference as it is written."""

    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


class Identity(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """``metadata`` without the labels; everything may be missing until it is needed."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    deletion_timestamp: Moment | None = None


class Labelled(Identity, gc=False, omit_defaults=True):
    """``metadata`` of which the labels matter too."""

    labels: dict[str, Any] | None = None


class ObjectMeta(Labelled, gc=False):
    """``metadata`` as it is written."""

    annotations: dict[str, Any] | None = None


class PodMeta(ObjectMeta, gc=False):
    """``metadata`` of a Pod as it is written."""

    owner_references: list[WireOwner] | None = None


def read_name(name: str | None, path: str, *, strict: bool) -> str:
    """Return an object's name; without ``strict`` anything printable is one."""
    if not name:
        raise FieldError(f"{path}.name", "is missing; every object needs a name")
    return check_subdomain(name, path, ".name") if strict else check_printable(name, path, ".name")


def read_namespace(namespace: str | None, path: str) -> str:
    """Return an object's namespace, ``default`` when it names none."""
    if not namespace:
        return DEFAULT_NAMESPACE
    return check_dns_label(namespace, path, ".namespace")


def read_uid(uid: str | None, missing: str, path: str) -> str:
    """Return an object's uid, ``missing`` when it has none.

    A '/' is only in what stands for a missing uid, ``namespace/name``: no pod can take that of another.
    """
    if not uid:
        return missing
    if "/" in uid and uid != missing:
        raise FieldError(f"{path}.uid", f"{shown(uid)} contains '/', which no uid may")
    return check_printable(uid, path, ".uid")


def read_version(version: str | None, path: str) -> int | None:
    """Return an object's resource version as a number."""
    return read_resource_version(version, path, ".resourceVersion")


def read_deletion(meta: Identity, missing: str, path: str) -> tuple[str, int | None]:
    """Return the uid and version of a deletion; the uid is "" where ``missing`` stands for it."""
    uid = read_uid(meta.uid, missing, path)
    return "" if uid == missing else uid, read_version(meta.resource_version, path)


def read_labels(labels: dict[str, Any] | None, path: str) -> dict[str, str]:
    """Return an object's labels."""
    return check_labels(labels, f"{path}.labels")


def read_controller(owners: list[WireOwner] | None, path: str) -> Controller | None:
    """Return the object that controls a pod; None if there is none or its kind is not in ``CONTROLLERS``."""
    if not owners:
        return None
    controlling = [(index, owner) for index, owner in enumerate(owners) if owner.controller]
    if len(controlling) > 1:
        raise FieldError(
            f"{path}.ownerReferences[{controlling[1][0]}].controller",
            "is true for a second owner; allowed is one controller",
        )
    for index, owner in controlling:
        kind, at = owner.kind or "", f"{path}.ownerReferences[{index}]"
        if kind in CONTROLLERS and owner.api_version == CONTROLLERS[kind]:
            name = check_subdomain(owner.name or "", f"{at}.name")
            return Controller(kind, name, check_printable(owner.uid or "", f"{at}.uid"))
    return None
