"""Reads a berth/v1 HostedReplicas: which workload berth scales, and between which bounds."""

from __future__ import annotations

import msgspec

from domain.manifests.metadata import Identity
from domain.model.errors import FieldError
from domain.model.hosting import HostedReplicas
from domain.model.limits import hosted_pods_max
from domain.model.pods import CONTROLLERS
from domain.model.validation import check_choice, check_range, check_subdomain


class WireHosted(msgspec.Struct, omit_defaults=True):
    """``spec.workload`` as it is written."""

    kind: str | None = None
    name: str | None = None


class WireHostedSpec(msgspec.Struct, omit_defaults=True):
    """``spec`` as it is written."""

    workload: WireHosted | None = None
    min: int | None = None
    max: int | None = None


class WireHostedReplicas(msgspec.Struct, rename="camel", omit_defaults=True):
    """A HostedReplicas as it is written."""

    kind: str | None = None
    api_version: str | None = None
    metadata: Identity | None = None
    spec: WireHostedSpec | None = None


def hosted_from_wire(wire: WireHostedReplicas, path: str) -> HostedReplicas:
    """Return what an object says.

    ``min`` is 1 or more: what a pod asks for is known from a pod, so that none would ever come again after 0.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    spec, path = wire.spec or WireHostedSpec(), f"{path}.spec"
    if spec.workload is None:
        raise FieldError(f"{path}.workload", "is missing; it says which pods are meant, by kind and name")
    kind = check_choice(spec.workload.kind or "", tuple(CONTROLLERS), f"{path}.workload.kind")
    name = check_subdomain(spec.workload.name or "", f"{path}.workload.name")
    least, most = (_pods(value, f"{path}.{at}") for at, value in (("min", spec.min), ("max", spec.max)))
    if least > most:
        raise FieldError(f"{path}.max", f"{most} is below min, which is {least}")
    return HostedReplicas(kind=kind, workload=name, least=least, most=most)


def _pods(value: int | None, path: str) -> int:
    if value is None:
        raise FieldError(path, f"is missing; allowed is 1 to {hosted_pods_max}")
    return check_range(value, 1, hosted_pods_max, path)
