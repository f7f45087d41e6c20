"""Finds unknown fields in manifests, and guesses which field was meant: nothing else would notice them."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from domain.model.validation import key_path

NEAR = 0.8
"""Names that are at least this similar count as misspellings of each other."""

OF_KUBERNETES = frozenset(("creationTimestamp",))
"""Real fields that berth does not read, and whose names are similar to one that it reads."""


def unknown_fields(manifest: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield unknown fields of an object, each with a known field of a similar name, or "".

    A field that is similar to no other is reported only where all fields of Kubernetes are known
    (``domain.manifests.fields``).

    Cost: one pass over the manifest; comparisons are remembered.
    """
    kind = manifest.get("kind") if isinstance(manifest, dict) else None
    if isinstance(kind, str) and (shape := _shapes().get(kind)) is not None:
        yield from _unknown_fields(manifest, shape, path)


def ignored(path: str, near: str) -> str:
    """Say that a field is unknown, and what was probably meant."""
    if not near:
        return f"{path}: is no field of Kubernetes, so it is ignored"
    return f"{path}: is not known, so it is ignored; did you mean {near}?"


def meant(key: str, known: tuple[str, ...]) -> str | None:
    """Return the known name that ``key`` looks like a misspelling of, or None."""
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(key.lower(), by_lower, 1, NEAR)
    return by_lower[near[0]] if near and key not in known else None


@lru_cache(maxsize=1)
def _shapes() -> dict[str, Any]:
    from msgspec import inspect

    from domain.manifests.actions import WireNodeAction
    from domain.manifests.config_objects import READERS
    from domain.manifests.node import WireNode
    from domain.manifests.pod import WirePod
    from domain.manifests.usage import WireNodeUsage

    return {
        "HostedReplicas": inspect.type_info(READERS["HostedReplicas"].wire),
        "Node": inspect.type_info(WireNode),
        "NodeAction": inspect.type_info(WireNodeAction),
        "NodeUsage": inspect.type_info(WireNodeUsage),
        "Pod": inspect.type_info(WirePod),
        "PriorityClass": inspect.type_info(READERS["PriorityClass"].wire),
    }


@lru_cache(maxsize=1)
def _tables() -> dict[type, tuple[str, ...]]:
    """Return the fields of those objects inside a manifest of which every field is known."""
    from domain.manifests.fields import SHAPES

    return {shape.wire: shape.names() for shape in SHAPES}


@lru_cache(maxsize=4096)
def _meant(key: str, known: tuple[str, ...]) -> str | None:
    return None if key in OF_KUBERNETES else meant(key, known)


def _unknown_fields(value: Any, shape: Any, path: str) -> Iterator[tuple[str, str]]:
    from msgspec import inspect

    if isinstance(shape, inspect.UnionType):
        for each in shape.types:
            yield from _unknown_fields(value, each, path)
    elif isinstance(shape, inspect.ListType) and isinstance(value, list):
        for at, item in enumerate(value):
            yield from _unknown_fields(item, shape.item_type, f"{path}[{at}]")
    elif isinstance(shape, inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in shape.fields}
        known = _tables().get(shape.cls)
        for key, inner in value.items():
            below = key_path(path, key).removeprefix(".")
            if key in fields:
                yield from _unknown_fields(inner, fields[key], below)
            elif near := _meant(key, known or tuple(fields)):
                yield below, near
            elif known is not None and key not in known:
                yield below, ""
