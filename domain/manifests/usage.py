"""Read a berth/v1 NodeUsage: its shape as written, and the ``NodeUsage`` made of it."""

from __future__ import annotations

from typing import Any

import msgspec

from domain.manifests.metadata import Identity, read_name
from domain.model.errors import FieldError
from domain.model.limits import usage_percent_max, usage_resources_max
from domain.model.resources import read_amounts, to_canonical
from domain.model.usage import Measured, NodeUsage
from domain.model.validation import check_count, finite, is_qualified_name, key_path, shown

_WINDOW_FIGURES = ("avg", "std", "latest")


class WireNodeUsage(msgspec.Struct, rename="camel", omit_defaults=True):
    """A NodeUsage as it is written."""

    kind: str | None = None
    api_version: str | None = None
    metadata: Identity | None = None
    percent: dict[str, Any] | None = None
    used: dict[str, Any] | None = None
    window: dict[str, Any] | None = None


def usage_from_wire(usage: WireNodeUsage, at_ms: int, path: str) -> NodeUsage:
    """Return what a NodeUsage says was measured at a moment.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    name = read_name((usage.metadata or Identity()).name, f"{path}.metadata", strict=True)
    percent = {
        resource: _percent(value, key_path(f"{path}.percent", resource))
        for resource, value in (usage.percent or {}).items()
    }
    used = to_canonical(read_amounts(usage.used, f"{path}.used"))
    for resource in used:
        if resource in percent:
            raise FieldError(
                key_path(f"{path}.used", resource), "is given in percent too; allowed is one of them"
            )
    window = {
        resource: _figures(figures, key_path(f"{path}.window", resource))
        for resource, figures in (usage.window or {}).items()
    }
    named = percent.keys() | used.keys() | window.keys()
    if not named:
        raise FieldError(path, "says nothing; allowed are percent, used and window, at least one resource")
    for field, resources in (("percent", percent), ("window", window)):
        for resource in resources:
            if not is_qualified_name(resource):
                raise FieldError(
                    key_path(f"{path}.{field}", resource),
                    f"{shown(resource)} is not a resource name; allowed is [subdomain/]name, as network",
                )
    check_count(len(named), usage_resources_max, "usage_resources_max", path)
    return NodeUsage(node=name, at_ms=at_ms, percent=percent, used=used, window=window)


def _figures(figures: Any, path: str) -> Measured:
    if not isinstance(figures, dict):
        raise FieldError(path, f"expected an object, got {shown(figures)}")
    known = {name: figures[name] for name in _WINDOW_FIGURES if figures.get(name) is not None}
    if not known:
        raise FieldError(path, f"says nothing; allowed are {', '.join(_WINDOW_FIGURES)}")
    return Measured(**{name: _percent(value, f"{path}.{name}") for name, value in known.items()})


def _percent(value: Any, path: str) -> float:
    percent = finite(value)
    if percent is None:
        raise FieldError(path, f"expected a number (percent), got {shown(value)}")
    if not 0 <= percent <= usage_percent_max:
        raise FieldError(
            path, f"{shown(value)} is out of range; allowed is 0 to {usage_percent_max} (usage_percent_max)"
        )
    return percent
