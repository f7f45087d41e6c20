"""Read a berth/v1 NodeUsage: its shape as written, and the ``NodeUsage`` made of it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from domain.manifests.metadata import Identity, read_name
from domain.model.colocation import Amounts, PodCounters, Quality, UseByQuality
from domain.model.errors import FieldError
from domain.model.limits import pod_counter_max, pods_per_node_max, usage_percent_max, usage_resources_max
from domain.model.resources import CPU, MEMORY, read_amounts, to_canonical
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
    quality: dict[str, Any] | None = None
    pods: dict[str, Any] | None = None
    pressure: dict[str, Any] | None = None
    latency: dict[str, Any] | None = None


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
    quality = UNSET if usage.quality is None else _use_by_quality(usage.quality, f"{path}.quality")
    if quality is not UNSET:  # what was used by quality was used by the node
        for index, resource in enumerate((CPU, MEMORY)):
            if resource not in percent and resource not in used:
                used[resource] = sum(getattr(quality, each)[index] for each in Quality)
    window = {
        resource: _figures(figures, key_path(f"{path}.window", resource))
        for resource, figures in (usage.window or {}).items()
    }
    named = percent.keys() | used.keys() | window.keys()
    if not named:
        raise FieldError(path, "says nothing; allowed are percent, used, window and quality, at least one")
    for field, resources in (("percent", percent), ("window", window)):
        for resource in resources:
            if not is_qualified_name(resource):
                raise FieldError(
                    key_path(f"{path}.{field}", resource),
                    f"{shown(resource)} is not a resource name; allowed is [subdomain/]name, as network",
                )
    check_count(len(named), usage_resources_max, "usage_resources_max", path)
    return NodeUsage(
        node=name,
        at_ms=at_ms,
        percent=percent,
        used=used,
        window=window,
        quality=quality,
        pods=_pods(usage, path),
        pressure=_pressure(usage, f"{path}.pressure"),
        latency=_latency(usage, f"{path}.latency"),
    )


def _use_by_quality(quality: dict[str, Any], path: str) -> UseByQuality:
    allowed = ", ".join(Quality)
    for name, amounts in quality.items():
        if name not in list(Quality):
            raise FieldError(key_path(path, name), f"unknown; allowed are {allowed}")
        if not isinstance(amounts, dict):
            raise FieldError(key_path(path, name), f"expected an object, got {shown(amounts)}")
        for resource in amounts:
            if resource not in (CPU, MEMORY):
                raise FieldError(
                    key_path(f"{path}.{name}", resource), f"unknown; allowed are {CPU}, {MEMORY}"
                )
    found = {name: to_canonical(read_amounts(quality[name], f"{path}.{name}")) for name in quality}
    return UseByQuality(
        **{name: Amounts(each.get(CPU, 0), each.get(MEMORY, 0)) for name, each in found.items()}
    )


def _pods(usage: WireNodeUsage, path: str) -> dict[str, PodCounters] | UnsetType:
    if usage.pods is None:
        return UNSET
    if usage.quality is None:
        raise FieldError(f"{path}.pods", "stands alone; it is given with quality, as of the same moment")
    check_count(len(usage.pods), pods_per_node_max, "pods_per_node_max", f"{path}.pods")
    return {uid: _counters(each, key_path(f"{path}.pods", uid)) for uid, each in usage.pods.items()}


def _counters(counters: Any, path: str) -> PodCounters:
    names = ("cpuSeconds", "memoryByteSeconds")
    if not isinstance(counters, dict):
        raise FieldError(path, f"expected an object, got {shown(counters)}")
    for name in counters:
        if name not in names:
            raise FieldError(key_path(path, name), f"unknown; allowed are {', '.join(names)}")
    found = [_at_least_0(counters.get(name, 0), f"{path}.{name}") for name in names]
    for name, value in zip(names, found, strict=True):
        if value > pod_counter_max:
            allowed = f"allowed is 0 to {pod_counter_max:g} (pod_counter_max)"
            raise FieldError(f"{path}.{name}", f"{shown(counters[name])} is out of range; {allowed}")
    return PodCounters(*found)


def _pressure(usage: WireNodeUsage, path: str) -> float | UnsetType:
    if usage.pressure is None:
        return UNSET
    for name in usage.pressure:
        if name != CPU:
            raise FieldError(key_path(path, name), f"unknown; allowed is {CPU}: percent of the last minute")
    percent = _at_least_0(usage.pressure.get(CPU, 0), f"{path}.{CPU}")
    if percent > 100.0:
        raise FieldError(f"{path}.{CPU}", f"{shown(percent)} is out of range; allowed is 0 to 100")
    return percent


def _latency(usage: WireNodeUsage, path: str) -> dict[str, float] | UnsetType:
    if usage.latency is None:
        return UNSET
    check_count(len(usage.latency), pods_per_node_max, "pods_per_node_max", path)
    return {uid: _at_least_0(value, key_path(path, uid)) for uid, value in usage.latency.items()}


def _at_least_0(value: Any, path: str) -> float:
    number = finite(value)
    if number is None or number < 0:
        raise FieldError(path, f"expected a number of 0 or more, got {shown(value)}")
    return number


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
