"""Read a v1 Pod: its shape as written, and the ``PodTemplate`` made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from domain.manifests.between_pods import BetweenPods, WireSpread, between_pods
from domain.manifests.constraints import (
    COMPARING,
    WireAffinity,
    WireToleration,
    read_node_affinity,
    read_tolerations,
)
from domain.manifests.devices import check_asked
from domain.manifests.gang_names import WireSchedulingGroup, WireWorkloadRef, gang_name
from domain.manifests.metadata import PodMeta
from domain.manifests.ports import WirePort, read_ports
from domain.manifests.requests import (
    ContainerNeeds,
    PodNeeds,
    Resize,
    cpu_claim,
    effective_limits,
    effective_requests,
    memory_claim,
    qos_class,
    resized,
    scoring_requests,
)
from domain.manifests.status import WirePodStatus, WireResize
from domain.manifests.volumes import WirePresent, WireVolume, attaches_disks, claims_volumes
from domain.model.errors import FieldError
from domain.model.limits import (
    containers_per_pod_max,
    gates_per_pod_max,
    host_ports_per_pod_max,
    requested_resources_max,
)
from domain.model.pods import DEFAULT_PROFILE, HostPort, PodTemplate, memory_claim_of
from domain.model.priorities import PREEMPTION_POLICIES
from domain.model.quantities import milli_to_units
from domain.model.resources import PODS, Amounts, check_amount, read_amounts, to_canonical
from domain.model.validation import (
    check_choice,
    check_count,
    check_labels,
    check_printable,
    check_range,
    check_subdomain,
    too_many,
)

_INT32 = 2**31
_IMAGE_LENGTH_MAX = 1024
_RESTART_ALL = "RestartAllContainers"
_ports_of = attrgetter("ports")


class WireResources(msgspec.Struct, omit_defaults=True):
    """``resources`` of a container or a pod as they are written."""

    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None
    claims: list[WirePresent] | None = None


class WireRestartRule(msgspec.Struct, gc=False, omit_defaults=True):
    """What a container's exit does, as it is written."""

    action: str | None = None


class WireContainer(msgspec.Struct, rename="camel", omit_defaults=True):
    """A container as it is written."""

    name: str | None = None
    image: str | None = None
    resources: WireResources | None = None
    ports: list[WirePort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[WireRestartRule] | None = None


class WireGate(msgspec.Struct, gc=False, omit_defaults=True):
    """A scheduling gate as it is written."""

    name: str | None = None


class WirePodSpec(msgspec.Struct, rename="camel", omit_defaults=True):
    """``spec`` of a Pod as it is written."""

    containers: list[WireContainer] | None = None
    init_containers: list[WireContainer] | None = None
    resources: WireResources | None = None
    overhead: dict[str, Any] | None = None
    node_name: str | None = None
    node_selector: dict[str, Any] | None = None
    affinity: WireAffinity | None = None
    tolerations: list[WireToleration] | None = None
    topology_spread_constraints: list[WireSpread] | None = None
    host_network: bool | None = None
    host_users: bool | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    scheduler_name: str | None = None
    scheduling_gates: list[WireGate] | None = None
    volumes: list[WireVolume] | None = None
    resource_claims: list[WirePresent] | None = None
    scheduling_group: WireSchedulingGroup | None = None
    workload_ref: WireWorkloadRef | None = None
    runtime_class_name: str | None = None


class WirePod(msgspec.Struct, rename="camel", omit_defaults=True):
    """A Pod as it is written."""

    kind: str | None = None
    api_version: str | None = None
    metadata: PodMeta | None = None
    spec: WirePodSpec | None = None
    status: WirePodStatus | None = None


def template_from_wire(
    spec: WirePodSpec,
    qos: str,
    path: str,
    *,
    strict: bool,
    lenient: bool = False,
    resize: WireResize | None = None,
) -> PodTemplate:
    """Return what matters for placing a pod, without what it asks of other pods (``asked_of_pods``).

    ``qos`` is the QoS class that the pod's status gives, "" where it gives none; ``path`` is the spec's.
    ``lenient`` is that of ``read_node_affinity``. ``resize`` is what the status of a bound pod says of
    resources: the template then has what counts on the node.
    """
    containers, init_containers = spec.containers or [], spec.init_containers or []
    if strict and not containers:
        raise FieldError(f"{path}.containers", "is missing; a pod needs at least one container")
    check_count(
        len(containers) + len(init_containers),
        containers_per_pod_max,
        "containers_per_pod_max",
        f"{path}.containers",
    )
    needs = _needs(spec, path)
    counted = needs if resize is None else resized(needs, _resize(spec, resize, path))
    amounts = effective_requests(counted)
    scoring_cpu_milli, scoring_memory_milli = scoring_requests(counted, amounts)
    affinity = spec.affinity
    asks_more = _asks_more(spec)  # most pods do not, and every different one would pay for a closer look
    template = PodTemplate(
        requests=_requests(amounts, path),
        scoring_cpu_milli=scoring_cpu_milli,
        scoring_memory_bytes=milli_to_units(scoring_memory_milli),
        node_selector=check_labels(spec.node_selector, f"{path}.nodeSelector") if spec.node_selector else {},
        node_affinity=read_node_affinity(
            affinity.node_affinity, f"{path}.affinity.nodeAffinity", lenient=lenient
        )
        if affinity
        else None,
        tolerations=read_tolerations(spec.tolerations, f"{path}.tolerations") if spec.tolerations else (),
        host_ports=_host_ports(spec, path),
        priority=check_range(spec.priority, -_INT32, _INT32 - 1, f"{path}.priority") if spec.priority else 0,
        preemption_policy=check_choice(
            spec.preemption_policy, PREEMPTION_POLICIES, f"{path}.preemptionPolicy"
        )
        if spec.preemption_policy
        else PREEMPTION_POLICIES[0],
        qos_class=qos or qos_class(needs),
        profile=check_printable(spec.scheduler_name, f"{path}.schedulerName")
        if spec.scheduler_name
        else DEFAULT_PROFILE,
        images=_images(spec, path),
        limits=to_canonical(_within_limits(effective_limits(needs), "the limits", path)),
        cpu_claim=cpu_claim(needs),
        gates=_gates(spec.scheduling_gates, f"{path}.schedulingGates") if spec.scheduling_gates else (),
        unsupported=tuple(_unsupported(spec)) if asks_more else (),
        ignored=tuple(_ignored(spec)) if asks_more else (),
        volume_images=_volume_images(spec.volumes, f"{path}.volumes") if spec.volumes else (),
        features=tuple(_features(spec)),
        gang=gang_name(spec.scheduling_group, spec.workload_ref, path),
    )
    is_more = bool(needs.init_containers or needs.has_pod_level or needs.overhead or resize is not None)
    if len(needs.containers) == 1 and not is_more:
        return template  # as most pods: what it says of memory follows from its requests and limits
    claim = memory_claim(needs)
    is_known = not needs.containers or claim == memory_claim_of(template)
    return template if is_known else replace(template, memory_claim=claim)


def _asks_more(spec: WirePodSpec) -> bool:
    """Return whether the pod has anything that could be unsupported or ignored."""
    for containers in (spec.containers, spec.init_containers):
        for each in containers or ():
            if each.resources is not None and each.resources.claims:
                return True
    if spec.resources is not None and spec.resources.claims:
        return True
    return bool(
        spec.volumes
        or spec.resource_claims
        or spec.runtime_class_name
        or any(each.operator in COMPARING for each in spec.tolerations or ())
    )


def asked_of_pods(spec: WirePodSpec) -> BetweenPods | None:
    """Return what the pods of a spec ask of other pods, which depends on their own labels; mostly None."""
    affinity = spec.affinity
    if affinity is None:
        return between_pods(spec.topology_spread_constraints, None, None)
    return between_pods(spec.topology_spread_constraints, affinity.pod_affinity, affinity.pod_anti_affinity)


def _unsupported(spec: WirePodSpec) -> Iterator[str]:
    """Yield the codes of what the pod demands and berth does not honour; ``fields.POD_SPEC`` lists them."""
    if spec.volumes and claims_volumes(spec.volumes):
        yield "volume-claims"
    if spec.resource_claims or any(
        each.resources is not None and each.resources.claims
        for each in (spec, *(spec.containers or ()), *(spec.init_containers or ()))
    ):
        yield "resource-claims"


def _ignored(spec: WirePodSpec) -> Iterator[str]:
    """Yield the codes of what could matter for placing the pod and is ignored."""
    if spec.volumes and attaches_disks(spec.volumes):
        yield "disks"
    if spec.runtime_class_name and spec.overhead is None:
        yield "runtime-class"
    if any(each.operator in COMPARING for each in spec.tolerations or ()):
        yield "comparing-tolerations"


def priority_class(spec: WirePodSpec, path: str) -> str | None:
    """Return the pod's priority class, "" for the default one; None if the pod has a number itself."""
    if spec.priority is not None:
        return None
    return check_printable(spec.priority_class_name, path) if spec.priority_class_name else ""


def _within_limits(amounts: Amounts, what: str, path: str) -> Amounts:
    """Return what the containers add up to. Each may be within the limits where their sum is not."""
    for name, milli in amounts.items():
        try:
            check_amount(name, milli, path)
        except FieldError as error:
            raise FieldError(f"{path}.containers", f"the sum of {what} of {name} {error.message}") from None
    return amounts


def _requests(amounts: Amounts, path: str) -> dict[str, int]:
    within = _within_limits(amounts, "the requests", path)
    requests = {name: value for name, value in to_canonical(within).items() if value}
    check_asked(requests, f"{path}.containers")
    if len(requests) > requested_resources_max:
        too_many(f"{path}.containers", len(requests), requested_resources_max, "requested_resources_max")
    return requests


def read_node_name(node_name: str | None, path: str, *, strict: bool) -> str:
    """Return the node that a pod is bound to, "" when it is not bound."""
    if not node_name:
        return ""
    check_subdomain(node_name, path) if strict else check_printable(node_name, path)
    return node_name


def _needs(spec: WirePodSpec, path: str) -> PodNeeds:
    containers = _containers(spec.containers or [], f"{path}.containers")
    if spec.init_containers is None and spec.resources is None and spec.overhead is None:
        return PodNeeds(containers=containers)  # as most pods are
    own = spec.resources or WireResources()
    return PodNeeds(
        containers=containers,
        init_containers=_containers(spec.init_containers or [], f"{path}.initContainers"),
        has_pod_level=spec.resources is not None,
        pod_requests=_requested(own.requests, f"{path}.resources.requests"),
        pod_limits=_requested(own.limits, f"{path}.resources.limits"),
        overhead=_requested(spec.overhead, f"{path}.overhead"),
    )


def _containers(containers: list[WireContainer], path: str) -> list[ContainerNeeds]:
    needs = []
    for index, container in enumerate(containers):
        resources = container.resources
        if resources is None:
            needs.append(ContainerNeeds(restartable=_is_restartable(container)))
            continue
        below = f"{path}[{index}].resources"
        needs.append(
            ContainerNeeds(
                requests=_requested(resources.requests, f"{below}.requests") if resources.requests else {},
                limits=_requested(resources.limits, f"{below}.limits") if resources.limits else {},
                restartable=_is_restartable(container),
            )
        )
    return needs


def _resize(spec: WirePodSpec, resize: WireResize, path: str) -> Resize:
    """Return what a status says, in the order of the spec's containers."""
    names = [each.name or "" for each in spec.containers or ()]
    init_names = [each.name or "" for each in spec.init_containers or ()]
    return resize.read(names, init_names, path.removesuffix("spec") + "status")


def _requested(values: dict[str, Any] | None, path: str) -> Amounts:
    if values and PODS in values:
        raise FieldError(f"{path}.{PODS}", "cannot be requested; every pod counts as one")
    return read_amounts(values, path)


def _is_restartable(container: WireContainer) -> bool:
    return container.restart_policy == "Always"


def _host_ports(spec: WirePodSpec, path: str) -> tuple[HostPort, ...]:
    """Return the node's ports that the pod holds as long as it runs, sorted, each once."""
    if not any(map(_ports_of, (*(spec.containers or ()), *(spec.init_containers or ())))):
        return ()
    ports = set(_ports(spec.containers or [], f"{path}.containers", bool(spec.host_network), every=True))
    ports.update(
        _ports(spec.init_containers or [], f"{path}.initContainers", bool(spec.host_network), every=False)
    )
    check_count(len(ports), host_ports_per_pod_max, "host_ports_per_pod_max", f"{path}.containers")
    return tuple(sorted(ports))


def _ports(
    containers: Iterable[WireContainer], path: str, host_network: bool, *, every: bool
) -> Iterator[HostPort]:
    for index, container in enumerate(containers):
        taken = list(read_ports(container.ports or (), f"{path}[{index}].ports", host_network))
        if every or _is_restartable(container):
            yield from taken


def _images(spec: WirePodSpec, path: str) -> tuple[str, ...]:
    """Return the images of all containers, sorted: an image that two containers use counts twice."""
    images = []
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers or ()):
            if container.image:
                below = f"{path}.{field}[{index}].image"
                images.append(check_printable(container.image, below, length_max=_IMAGE_LENGTH_MAX))
    return tuple(sorted(images))


def _volume_images(volumes: list[WireVolume], path: str) -> tuple[str, ...]:
    return tuple(
        sorted(
            check_printable(
                volume.image.reference, f"{path}[{i}].image.reference", length_max=_IMAGE_LENGTH_MAX
            )
            for i, volume in enumerate(volumes)
            if volume.image is not None and volume.image.reference
        )
    )


def _features(spec: WirePodSpec) -> Iterator[str]:
    """Yield the features that a node must declare for the pod, sorted (Kubernetes 1.36)."""
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        if any(rule.action == _RESTART_ALL for rule in container.restart_policy_rules or ()):
            yield "RestartAllContainersOnContainerExits"
            break
    if spec.host_network and spec.host_users is False:
        yield "UserNamespacesHostNetworkSupport"


def _gates(gates: list[WireGate], path: str) -> tuple[str, ...]:
    check_count(len(gates), gates_per_pod_max, "gates_per_pod_max", path)
    return tuple(
        check_printable(gate.name or "", f"{path}[{index}].name") for index, gate in enumerate(gates)
    )
