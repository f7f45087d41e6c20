"""Which kinds of objects `berth apply` and `berth plan` use, and how they report the others."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from domain.model.config import WORKLOAD
from services.codec.envelope import KINDS, versions_of
from services.plan.spelling import meant

WORKLOADS: Mapping[str, str] = {
    "CronJob": "batch",
    "DaemonSet": "apps",
    "Deployment": "apps",
    "Job": "batch",
    "ReplicaSet": "apps",
    "ReplicationController": "",
    "StatefulSet": "apps",
}
"""Kinds that a controller turns into pods, with their API groups."""

SELECTING = tuple(kind for kind in WORKLOADS if kind in KINDS)
"""Those of them whose selectors the log takes."""

CONFIGURATION = "KubeSchedulerConfiguration"
_CONFIGURATION_GROUP = "kubescheduler.config.k8s.io"
_TEMPLATES = f"{WORKLOAD}.scheduling.k8s.io"
_KNOWN = (*KINDS, *WORKLOADS, CONFIGURATION)


class Use(enum.Enum):
    """The use of an object."""

    EVENT = "the log takes it"
    WORKLOAD = "a controller turns it into pods"
    CONFIGURATION = "its profiles are profiles of berth"
    NONE = "it says nothing about where pods go"


def use_of(manifest: Any) -> Use:
    """Return the use of an object by its kind and API group. Without apiVersion it may be of any group."""
    kind = manifest.get("kind") if isinstance(manifest, Mapping) else None
    if not isinstance(kind, str):
        return Use.NONE
    api_version = manifest.get("apiVersion")
    group = _group(api_version) if isinstance(api_version, str) and api_version else None
    if kind in WORKLOADS and group in (None, WORKLOADS[kind]):
        return Use.WORKLOAD
    if kind == WORKLOAD and api_version and api_version not in versions_of(kind):
        return Use.NONE  # of v1alpha2: a controller makes PodGroups of it, which are used
    if kind in KINDS and group in (None, *map(_group, versions_of(kind))):
        return Use.EVENT
    if kind == CONFIGURATION and group in (None, _CONFIGURATION_GROUP):
        return Use.CONFIGURATION
    return Use.NONE


class Skipped:
    """Counts by kind what a command passes over, and that of which it sends the selector only."""

    def __init__(self) -> None:
        self._selecting: Counter[str] = Counter()
        self._templates = 0
        self._counts: dict[Use, Counter[str]] = {Use.NONE: Counter(), Use.WORKLOAD: Counter()}

    def __bool__(self) -> bool:
        """Whether anything was passed over."""
        return any(self._counts.values()) or self._templates > 0

    def add(self, manifest: Mapping[str, Any]) -> None:
        """Count an object."""
        use = Use.WORKLOAD if use_of(manifest) is Use.WORKLOAD else Use.NONE
        kind = str(manifest.get("kind"))
        if use is Use.NONE and kind in _KNOWN:  # of another API group
            kind = f"{kind}.{_group(manifest['apiVersion'])}"
            if kind == _TEMPLATES:
                self._templates += 1
                return
        self._counts[use][kind] += 1

    def add_selecting(self, manifest: Mapping[str, Any]) -> None:
        """Count a workload whose selector is sent."""
        self._selecting[str(manifest.get("kind"))] += 1

    def lines(self) -> list[str]:
        """Return what was passed over and why, a line per reason."""
        found = []
        if self._selecting:
            found.append(
                f"{counted(self._selecting.items())}: only the selector is sent; a controller turns such an "
                "object into pods, and `berth plan` shows where they would go"
            )
        if workloads := self._counts[Use.WORKLOAD]:
            found.append(
                f"skipped {counted(workloads.items())}: a controller turns such an object into pods; "
                "`berth plan` shows where they would go"
            )
        if self._templates:
            found.append(
                f"skipped {counted([(WORKLOAD, self._templates)])}: a controller makes PodGroups of such an "
                f"object, and these are read; only a Workload of {versions_of(WORKLOAD)[0]} is read itself"
            )
        if others := self._counts[Use.NONE]:
            found.append(f"skipped {counted(others.items())}: nothing to place")
            near = {kind: meant(kind, _KNOWN) for kind in others}
            found += [f"{kind}: did you mean {close}?" for kind, close in near.items() if close]
        return found


def counted(kinds: Iterable[tuple[str, int]]) -> str:
    """Return ``3 ConfigMaps, 1 Service``, the most frequent first."""
    ordered = sorted(kinds, key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {_plural(kind) if count != 1 else kind}" for kind, count in ordered)


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


def _plural(kind: str) -> str:
    if kind.endswith(("ss", "x", "ch")):
        return f"{kind}es"
    if kind.endswith("y") and kind[-2:-1] not in "aeiou":
        return f"{kind[:-1]}ies"
    return kind if kind.endswith("s") else f"{kind}s"
