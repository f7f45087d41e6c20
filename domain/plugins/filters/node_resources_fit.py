"""NodeResourcesFit (filter): the node must have room for everything that the pod requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.model.devices import BUSY, GPU, GPU_MILLI, SHARED, asked
from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import Demand, Reason, ResourceFilter
from domain.state.resources import PODS, ResourceIndex

_FIRST = ("cpu", "memory", "ephemeral-storage")
_NATIVE = "kubernetes.io"


class NodeResourcesFit(ResourceFilter):
    """Refuse a node where requested + request > allocatable for any resource, or that is full of pods.

    Devices are looked at one by one (docs/devices.md): whole ones (``nvidia.com/gpu``) must be wholly free, a
    share (``berth.dev/gpu-milli``) must be free on one of them. A node with more than 16 counts them.

    Resources with a request of 0 are not checked. A shortage is unresolvable when the request exceeds even
    the empty node; too many pods never are, even where ``pods`` is 0.

    Arguments: ``ignoredResources``, ``ignoredResourceGroups`` (extended resources not to check, by name and
    by what stands before the ``/``; those of ``kubernetes.io`` and huge pages are not extended). The score's
    arguments may stand beside them.
    Reason codes: ``too-many-pods``, ``insufficient:<resource>``, comma-joined in the order pods, cpu, memory,
    ephemeral-storage, others.
    Source: kube-scheduler plugin NodeResourcesFit.
    """

    name: ClassVar[str] = "NodeResourcesFit"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})
    phrases: ClassVar[Mapping[str, str]] = {
        "too-many-pods": "hold as many pods as they may",
        "insufficient": "lack",
    }

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        allowed = ("ignoredResources", "ignoredResourceGroups", "scoringStrategy", "arithmetic")
        given = Arguments(args, path, allowed)
        self._ignored = given.names("ignoredResources")
        self._ignored_groups = given.names("ignoredResourceGroups")

    def demands(self, template: PodTemplate, resources: ResourceIndex) -> list[Demand]:
        """See ``ResourceFilter``: the pod itself first, then cpu, memory, ephemeral storage, the others."""
        names = [n for n in _FIRST if n in template.requests]
        names += sorted(n for n in template.requests if n not in _FIRST and not self._ignores(n))
        demands = [Demand(PODS, 1, "pods")]
        ask = asked(template.requests)
        if not ask.number:
            return demands + [Demand(resources.column(n), template.requests[n], n) for n in names]
        # Both say the same where a pod asks for whole devices; a share must be free on one device.
        columns = {GPU: BUSY, GPU_MILLI: SHARED}
        if GPU in template.requests and GPU_MILLI in names:
            names.remove(GPU_MILLI)
        demands += [Demand(resources.column(columns.get(n, n)), template.requests[n], n) for n in names]
        return demands

    def _ignores(self, name: str) -> bool:
        group, slash, _ = name.partition("/")
        extended = bool(slash) and not group.endswith(_NATIVE)
        return extended and (name in self._ignored or group in self._ignored_groups)

    def reason(self, short: list[str], *, unresolvable: bool) -> Reason:
        """See ``ResourceFilter``: ``too-many-pods`` and ``insufficient:<resource>``, comma-joined."""
        codes = ["too-many-pods" if name == "pods" else f"insufficient:{name}" for name in short]
        return Reason(",".join(codes), unresolvable)
