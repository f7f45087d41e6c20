"""Reads a scheduling.k8s.io/v1 PriorityClass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from domain.manifests.metadata import Identity, read_name
from domain.model.config import PRIORITY_CLASS
from domain.model.errors import FieldError
from domain.model.priorities import (
    PREEMPTION_POLICIES,
    SYSTEM_CLASSES,
    SYSTEM_PREFIX,
    USER_PRIORITY_MAX,
    PriorityClass,
)
from domain.model.validation import check_choice, check_range, field_error

KIND = PRIORITY_CLASS


class WirePriorityClass(msgspec.Struct, rename="camel", omit_defaults=True):
    """A PriorityClass as it is written."""

    kind: str | None = None
    api_version: str | None = None
    metadata: Identity | None = None
    value: int | None = None
    global_default: bool | None = None
    preemption_policy: str | None = None


def priority_class_from_manifest(manifest: Mapping[str, Any], *, path: str = "object") -> PriorityClass:
    """Return a PriorityClass given as plain dicts.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    try:
        wire = msgspec.convert(manifest, WirePriorityClass)
    except msgspec.ValidationError as error:
        raise field_error(error, path) from None
    return priority_class_from_wire(wire, path)


def priority_class_from_wire(wire: WirePriorityClass, path: str) -> PriorityClass:
    """Return the PriorityClass. Its name and value must be such that Kubernetes accepts them."""
    name = read_name((wire.metadata or Identity()).name, f"{path}.metadata", strict=True)
    if wire.value is None:
        raise FieldError(f"{path}.value", "is missing; a priority class needs an integer")
    found = PriorityClass(
        name=name,
        value=check_range(wire.value, -(2**31), 2**31 - 1, f"{path}.value"),
        global_default=bool(wire.global_default),
        preemption_policy=check_choice(
            wire.preemption_policy or PREEMPTION_POLICIES[0], PREEMPTION_POLICIES, f"{path}.preemptionPolicy"
        ),
    )
    if not name.startswith(SYSTEM_PREFIX):
        check_range(found.value, -(2**31), USER_PRIORITY_MAX, f"{path}.value")
    elif found != SYSTEM_CLASSES.get(name):
        known = ", ".join(f"{each.name} ({each.value})" for each in SYSTEM_CLASSES.values())
        raise FieldError(
            f"{path}.metadata.name",
            f"names beginning with {SYSTEM_PREFIX} are the system's; allowed are {known}, as they are",
        )
    return found
