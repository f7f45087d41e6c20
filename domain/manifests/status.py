"""Read the status of a v1 Pod: its phase, its QoS class, its start, and what it says of resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from domain.manifests.requests import Reported, Resize
from domain.model.resources import read_amounts
from domain.model.timestamps import Moment, format_ms, to_ms
from domain.model.validation import check_choice

_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_FINISHED = ("Succeeded", "Failed")
_QOS_CLASSES = ("Guaranteed", "Burstable", "BestEffort")
_RESIZE_PENDING = "PodResizePending"
_INFEASIBLE = "Infeasible"
_DISRUPTION = "DisruptionTarget"
_PREEMPTED = "PreemptionByScheduler"


class WireActual(msgspec.Struct, omit_defaults=True):
    """``resources`` of a status: what is in force."""

    requests: dict[str, Any] | None = None


class WireContainerStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    """What a status says of the resources of a container, or of the pod as a whole."""

    name: str | None = None
    resources: WireActual | None = None
    allocated_resources: dict[str, Any] | None = None

    def read(self, path: str) -> Reported | None:
        """Return what is reported, None where nothing is in force yet."""
        if self.resources is None:
            return None
        return Reported(
            actual=read_amounts(self.resources.requests, f"{path}.resources.requests"),
            allocated=read_amounts(self.allocated_resources, f"{path}.allocatedResources"),
        )


class WirePodCondition(msgspec.Struct, gc=False, omit_defaults=True):
    """A condition of a pod, without its times, which do not matter."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None


class WirePodStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    """``status`` of a Pod as it is written."""

    phase: str | None = None
    qos_class: str | None = None
    start_time: Moment | None = None
    nominated_node_name: str | None = None
    container_statuses: list[WireContainerStatus] | None = None
    init_container_statuses: list[WireContainerStatus] | None = None
    resources: WireActual | None = None
    allocated_resources: dict[str, Any] | None = None
    conditions: list[WirePodCondition] | None = None


class WireResize(msgspec.Struct, omit_defaults=True):
    """What a status says of resources, by the names of containers."""

    containers: dict[str, WireContainerStatus]
    pod: WireContainerStatus
    infeasible: bool = False

    def read(self, names: Sequence[str], init_names: Sequence[str], path: str) -> Resize:
        """Return the same in the order of a spec's containers; ``path`` is the status's."""

        def of(name: str, at: str) -> Reported | None:
            status = self.containers.get(name)
            return None if status is None else status.read(f"{path}.{at}[{name}]")

        return Resize(
            containers=[of(name, "containerStatuses") for name in names],
            init_containers=[of(name, "initContainerStatuses") for name in init_names],
            pod=self.pod.read(path),
            infeasible=self.infeasible,
        )


def resize_of(status: WirePodStatus | None) -> WireResize | None:
    """Return what a status says of resources; None where it says nothing, as of a pod that waits."""
    if status is None:
        return None
    of_sidecars = status.init_container_statuses
    if status.container_statuses is None and of_sidecars is None and status.resources is None:
        return None
    containers = {
        each.name or "": each
        for each in (*(status.container_statuses or ()), *(of_sidecars or ()))
        if each.resources is not None
    }
    if not containers and status.resources is None:
        return None
    pod = WireContainerStatus(None, status.resources, status.allocated_resources)
    pending = [each.reason for each in status.conditions or () if each.type == _RESIZE_PENDING]
    return WireResize(containers, pod, infeasible=pending[:1] == [_INFEASIBLE])


class Course(NamedTuple):
    """How far a pod has come: as of ``PodSpec``. The node for which it is nominated is not checked yet."""

    finished: bool = False
    start_time: str = ""
    nominated_node: str | None = None
    preempted: bool = False


NOT_STARTED = Course()


def read_course(status: WirePodStatus, path: str) -> Course:
    """Return how far a pod has come; ``path`` is the status's."""
    phase = status.phase and check_choice(status.phase, _PHASES, f"{path}.phase")
    return Course(
        finished=phase in _FINISHED,
        start_time="" if status.start_time is None else format_ms(to_ms(status.start_time)),
        nominated_node=status.nominated_node_name,
        preempted=_is_preempted(status.conditions or ()),
    )


def _is_preempted(conditions: Sequence[WirePodCondition]) -> bool:
    """Return whether a scheduler is the one that disrupts a pod. Its first such condition counts."""
    disrupted = [(each.status, each.reason) for each in conditions if each.type == _DISRUPTION]
    return disrupted[:1] == [("True", _PREEMPTED)]


def given_qos(status: WirePodStatus | None, path: str) -> str:
    """Return the QoS class that a pod's status gives, "" when it gives none."""
    if status is None or not status.qos_class:
        return ""
    return check_choice(status.qos_class, _QOS_CLASSES, f"{path}.qosClass")
