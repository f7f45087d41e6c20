"""Measured usage of nodes: what was really used, in percent of what the node has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from domain.model.errors import FieldError
from domain.model.validation import key_path, shown

_FIGURES = ("avg", "std", "latest")


class Measured(msgspec.Struct, frozen=True, gc=False):
    """One resource of one node over the window of measurement, in percent; None: not measured."""

    avg: float | None = None
    std: float | None = None
    latest: float | None = None


Usage = Mapping[str, Mapping[str, Measured]]
"""Node -> resource -> what was measured; a node or resource that is missing was not measured."""


def usage_from_manifest(document: Any, path: str = "usage") -> dict[str, dict[str, Measured]]:
    """Return usage given as plain dicts: ``{node: {resource: {avg, std, latest}}}``.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    return {
        node: {
            resource: _measured(figures, key_path(key_path(path, node), resource))
            for resource, figures in _mapping(resources, key_path(path, node)).items()
        }
        for node, resources in _mapping(document, path).items()
    }


def _measured(figures: Any, path: str) -> Measured:
    found = {}
    for name, value in _mapping(figures, path).items():
        if name not in _FIGURES:
            raise FieldError(key_path(path, name), f"unknown; allowed are {', '.join(_FIGURES)}")
        if value is not None:
            found[name] = _percent(value, f"{path}.{name}")
    return Measured(**found)


def _percent(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise FieldError(path, f"expected a number (percent), got {shown(value)}")
    return float(value)


def _mapping(value: Any, path: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FieldError(path, f"expected an object, got {shown(value)}")
    return {str(key): item for key, item in value.items()}
