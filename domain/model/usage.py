"""Measured usage of nodes: what was really used, in percent of what the node has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from domain.model.colocation import Heat, PodCounters, UseByQuality
from domain.model.errors import FieldError
from domain.model.timestamps import NEVER_MS
from domain.model.validation import finite, key_path, shown

_FIGURES = ("avg", "std", "latest", "peak")


class Measured(msgspec.Struct, frozen=True, gc=False):
    """One resource of one node over the window of measurement, in percent; None: not measured.

    ``peak`` is the highest value of the day before.
    """

    avg: float | None = None
    std: float | None = None
    latest: float | None = None
    peak: float | None = None


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What was measured on a node at one moment.

    ``percent`` is of the node's capacity; ``used`` is absolute, in the resources' canonical units, and
    becomes percent when it is folded. ``window`` holds figures that were made where it was measured.
    ``window_seconds`` is the window in which a worker folded it, all in percent. ``quality`` is what was used
    by quality, in sum; ``pods`` what each pod has used since it started, by uid. ``pressure`` is the share of
    the last minute, in percent, in which a task waited for cpu (PSI, ``some avg60``). ``latency`` says of
    pods, by uid, how their latency compares with its bound: 1.2 is a fifth too slow. ``logged_ms`` is when
    the log took a measurement by quality, unset where the node cannot have been measured and forgotten
    before. ``signs`` are what is bad about one by quality (``HotSpotRule``), in words, as the worker found
    that folded it first: by the node and the policy that it knew.
    """

    node: str
    at_ms: int
    percent: dict[str, float] = {}
    used: dict[str, int] = {}
    window: dict[str, Measured] = {}
    window_seconds: int | msgspec.UnsetType = msgspec.UNSET
    quality: UseByQuality | msgspec.UnsetType = msgspec.UNSET
    pods: dict[str, PodCounters] | msgspec.UnsetType = msgspec.UNSET
    pressure: float | msgspec.UnsetType = msgspec.UNSET
    latency: dict[str, float] | msgspec.UnsetType = msgspec.UNSET
    logged_ms: int | msgspec.UnsetType = msgspec.UNSET
    signs: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class SeriesRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored samples and figures of one resource of one node.

    Attributes
    ----------
    ago_ms : list of int
        How long before the node's latest measurement each sample was taken, oldest first.
    percent : list of float
        The samples.
    given, given_ago_ms
        The figures that came with an event, and how long before the latest measurement.
    peaks : dict
        Day since the epoch (UTC) -> the highest sample of it, for the day of the latest measurement and the
        one before.
    """

    ago_ms: list[int] = []
    percent: list[float] = []
    given: Measured | None = None
    given_ago_ms: int = 0
    peaks: dict[int, float] = {}


class CountedPod(NamedTuple):
    """How far the use of a pod is counted: its counters as of ``at_ms``. See ``PodCounters``."""

    at_ms: int
    cpu_seconds: float
    memory_byte_seconds: float


class QualityRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of a node that was measured by quality: see ``NodeUsage``.

    ``at_ms`` is when ``use`` was measured. ``counted`` says by uid how far the use of each pod is counted;
    what a pod that is not among them used counts from its start if it started after ``since_ms``, and else
    from its first report as of later than that. It is ``NEVER_MS`` in the record of a build that counted
    nothing. ``heat`` says whether the node is hot.
    """

    at_ms: int
    use: UseByQuality
    since_ms: int = NEVER_MS
    counted: dict[str, CountedPod] = {}
    heat: Heat = Heat()


class UsageRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored measured usage of a node. A record without any series means that there is none."""

    node: str
    at_ms: int
    series: dict[str, SeriesRecord]
    quality: QualityRecord | None = None


Usage = Mapping[str, Mapping[str, Measured]]
"""Node -> resource -> what was measured; a node or resource that is missing was not measured."""


def usage_from_manifest(document: Any, path: str = "usage") -> dict[str, dict[str, Measured]]:
    """Return usage given as plain dicts: ``{node: {resource: {avg, std, latest, peak}}}``.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    return {
        node: {
            resource: measured_from_manifest(figures, key_path(key_path(path, node), resource))
            for resource, figures in _mapping(resources, key_path(path, node)).items()
        }
        for node, resources in _mapping(document, path).items()
    }


def measured_from_manifest(figures: Any, path: str) -> Measured:
    """Return the figures of one resource, in percent; see ``usage_from_manifest``."""
    found = {}
    for name, value in _mapping(figures, path).items():
        if name not in _FIGURES:
            raise FieldError(key_path(path, name), f"unknown; allowed are {', '.join(_FIGURES)}")
        if value is not None:
            found[name] = _percent(value, f"{path}.{name}")
    return Measured(**found)


def _percent(value: Any, path: str) -> float:
    percent = finite(value)
    if percent is None:
        raise FieldError(path, f"expected a number (percent), got {shown(value)}")
    return percent


def _mapping(value: Any, path: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FieldError(path, f"expected an object, got {shown(value)}")
    return {str(key): item for key, item in value.items()}
