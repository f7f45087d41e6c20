"""Read configuration objects: namespaces, priority classes, budgets, pod groups, selectors of pods, policies.

Of a Service, a Deployment and their like only the selector matters. Source of what is allowed: the
validation and the defaults of the Kubernetes 1.36 API.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from domain.manifests.colocation_policy import WireCoLocationPolicy, policy_from_wire
from domain.manifests.hosted_replicas import WireHostedReplicas, hosted_from_wire
from domain.manifests.label_selectors import WireLabelSelector, read_label_selector, selector_of
from domain.manifests.metadata import Identity, Labelled, read_labels
from domain.manifests.priority_class import WirePriorityClass, priority_class_from_wire
from domain.manifests.volumes import WirePresent
from domain.model.config import Content, DisruptionBudget, Namespace, PodGroup, Selecting, Workload
from domain.model.errors import FieldError
from domain.model.resources import read_amounts, to_canonical
from domain.model.selectors import LabelRequirement, LabelSelector
from domain.model.validation import (
    check_choice,
    check_dns_label,
    check_label_key,
    check_labels,
    check_range,
    check_subdomain,
    key_path,
    shown,
)

_SHARE = re.compile("(100|[0-9]{1,2})%")
_PODS_MAX = 2**31 - 1
_GROUPS_MAX = 8

TOPOLOGY_KEY, TOPOLOGY_MODE = "berth.dev/topology-key", "berth.dev/topology-mode"
"""Annotations of a PodGroup: all of its pods are to be in one domain, or had better be."""

_KUBERNETES = "scheduling.k8s.io/"
NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that each namespace has; its value is the namespace's name."""


class _Wire(msgspec.Struct, rename="camel", omit_defaults=True):
    kind: str | None = None
    api_version: str | None = None
    metadata: Identity | None = None


class WireNamespace(_Wire, omit_defaults=True):
    """A Namespace as it is written."""

    metadata: Labelled | None = None


class WireLabelMap(msgspec.Struct, omit_defaults=True):
    """``spec`` of a Service as it is written."""

    selector: dict[str, Any] | None = None


class WireService(_Wire, omit_defaults=True):
    """A Service as it is written."""

    spec: WireLabelMap | None = None


class WireTemplate(msgspec.Struct, omit_defaults=True):
    """A pod template as it is written: its labels."""

    metadata: Labelled | None = None


class WireReplicationControllerSpec(WireLabelMap, omit_defaults=True):
    """``spec`` of a ReplicationController as it is written."""

    template: WireTemplate | None = None


class WireReplicationController(_Wire, omit_defaults=True):
    """A ReplicationController as it is written."""

    spec: WireReplicationControllerSpec | None = None


class WireSelectorSpec(msgspec.Struct, omit_defaults=True):
    """``spec`` of what makes pods, as it is written."""

    selector: WireLabelSelector | None = None


class WireWorkload(_Wire, omit_defaults=True):
    """A ReplicaSet, StatefulSet, Deployment or Job as it is written."""

    spec: WireSelectorSpec | None = None


class WireBudgetSpec(WireSelectorSpec, rename="camel", omit_defaults=True):
    """``spec`` of a PodDisruptionBudget as it is written."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class WireBudgetStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    """``status`` of a PodDisruptionBudget as a controller writes it."""

    disruptions_allowed: int | None = None
    disrupted_pods: dict[str, Any] | None = None


class WireBudget(_Wire, omit_defaults=True):
    """A PodDisruptionBudget as it is written."""

    spec: WireBudgetSpec | None = None
    status: WireBudgetStatus | None = None


class WireTopology(msgspec.Struct, omit_defaults=True):
    """The annotations of a PodGroup that berth reads."""

    key: Any = msgspec.field(default=None, name=TOPOLOGY_KEY)
    mode: Any = msgspec.field(default=None, name=TOPOLOGY_MODE)


class WireGroupMeta(Identity, omit_defaults=True):
    """``metadata`` of a PodGroup as it is written."""

    annotations: WireTopology | None = None


class WireGang(msgspec.Struct, rename="camel", omit_defaults=True):
    """``schedulingPolicy.gang`` as it is written."""

    min_count: int | None = None


class WirePolicy(msgspec.Struct, omit_defaults=True):
    """``schedulingPolicy`` as it is written."""

    gang: WireGang | None = None
    basic: dict[str, Any] | None = None


class WireKey(msgspec.Struct, omit_defaults=True):
    """A constraint by topology as it is written."""

    key: str | None = None


class WireConstraints(msgspec.Struct, omit_defaults=True):
    """``schedulingConstraints`` as it is written."""

    topology: list[WireKey] | None = None


class WirePodGroupSpec(msgspec.Struct, rename="camel", omit_defaults=True):
    """``spec`` of a PodGroup as it is written: of scheduler-plugins, then of Kubernetes."""

    min_member: int | None = None
    min_resources: dict[str, Any] | None = None
    schedule_timeout_seconds: int | None = None
    scheduling_policy: WirePolicy | None = None
    scheduling_constraints: WireConstraints | None = None
    disruption_mode: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    resource_claims: list[WirePresent] | None = None


class WirePodGroup(_Wire, omit_defaults=True):
    """A PodGroup as it is written."""

    metadata: WireGroupMeta | None = None
    spec: WirePodGroupSpec | None = None


class WireGroupOfWorkload(msgspec.Struct, omit_defaults=True):
    """One of the ``podGroups`` of a Workload as it is written."""

    name: str | None = None
    policy: WirePolicy | None = None


class WireGroups(msgspec.Struct, rename="camel", omit_defaults=True):
    """``spec`` of a Workload as it is written."""

    pod_groups: list[WireGroupOfWorkload] | None = None


class WireGroupsObject(_Wire, omit_defaults=True):
    """A Workload of ``scheduling.k8s.io`` as it is written."""

    spec: WireGroups | None = None


class Reader(NamedTuple):
    """How a kind is written, and how it is read; ``read`` takes what is written, and the object's path."""

    wire: type[msgspec.Struct]
    read: Callable[[Any, str], Content]


def _namespace(wire: WireNamespace, path: str) -> Namespace:
    meta = wire.metadata or Labelled()
    name = check_dns_label(meta.name or "", f"{path}.metadata.name")
    labels = read_labels(meta.labels, f"{path}.metadata")
    return Namespace(labels={**labels, NAME_LABEL: name})  # the API server gives each one this label


def _of_map(selector: Mapping[str, Any] | None, path: str) -> LabelSelector | None:
    """Return the selector that a map of labels means, None where there is none."""
    if selector is None:
        return None
    labels = check_labels(selector, path)
    return selector_of(*(LabelRequirement(key, "In", (value,)) for key, value in labels.items()))


def _service(wire: WireService, path: str) -> Selecting:
    return Selecting(selector=_of_map((wire.spec or WireLabelMap()).selector, f"{path}.spec.selector"))


def _replication_controller(wire: WireReplicationController, path: str) -> Selecting:
    spec = wire.spec or WireReplicationControllerSpec()
    at = f"{path}.spec.selector"
    selector = spec.selector
    if not selector and spec.template is not None and spec.template.metadata is not None:
        selector, at = spec.template.metadata.labels, f"{path}.spec.template.metadata.labels"
    if not selector:
        raise FieldError(f"{path}.spec.selector", "is missing, and so are the labels of the pod template")
    return Selecting(selector=_of_map(selector, at))


def _workload(wire: WireWorkload, path: str) -> Selecting:
    found = _selected(wire, path)
    if found.selector is None:
        raise FieldError(f"{path}.spec.selector", "is missing; it says which pods are meant")
    if not found.selector.requirements:
        raise FieldError(f"{path}.spec.selector", "is empty; allowed is at least one label or expression")
    return found


def _selected(wire: WireWorkload, path: str) -> Selecting:
    """Return the selector; a Job as people write it has none, since its API server makes one."""
    spec = wire.spec or WireSelectorSpec()
    return Selecting(selector=read_label_selector(spec.selector, f"{path}.spec.selector"))


def _budget(wire: WireBudget, path: str) -> DisruptionBudget:
    spec, status = wire.spec or WireBudgetSpec(), wire.status or WireBudgetStatus()
    allowed = status.disruptions_allowed
    if allowed is not None and not 0 <= allowed <= _PODS_MAX:
        raise FieldError(f"{path}.status.disruptionsAllowed", f"{allowed} is not from 0 to {_PODS_MAX}")
    disrupted = sorted(status.disrupted_pods or ())
    for name in disrupted:
        check_subdomain(name, key_path(f"{path}.status.disruptedPods", name))
    path = f"{path}.spec"
    if spec.min_available is not None and spec.max_unavailable is not None:
        raise FieldError(f"{path}.maxUnavailable", "must be absent where minAvailable is given")
    return DisruptionBudget(
        selector=read_label_selector(spec.selector, f"{path}.selector"),
        min_available=_pods(spec.min_available, f"{path}.minAvailable"),
        max_unavailable=_pods(spec.max_unavailable, f"{path}.maxUnavailable"),
        disruptions_allowed=allowed,
        disrupted=tuple(disrupted),
    )


def _pods(value: int | str | None, path: str) -> int | str | None:
    fits = isinstance(value, int) and 0 <= value <= _PODS_MAX
    if value is None or fits or (isinstance(value, str) and _SHARE.fullmatch(value)):
        return value
    raise FieldError(
        path, f"{shown(value)} is no number of pods; allowed is an integer from 0, or 0% to 100%"
    )


def _pod_group(wire: WirePodGroup, path: str) -> PodGroup:
    """Return a pod group; one that names no minimum asks for nothing of all of its pods together.

    Those of Kubernetes have a policy, those of scheduler-plugins do not.
    """
    spec, meta = wire.spec or WirePodGroupSpec(), wire.metadata or WireGroupMeta()
    key, is_preferred = _topology(meta.annotations or WireTopology(), f"{path}.metadata.annotations")
    path = f"{path}.spec"
    if spec.scheduling_policy is not None or (wire.api_version or "").startswith(_KUBERNETES):
        least, own_key = _policy(spec, path)
        ignored = tuple(name for name, asks in _unread(spec) if asks)
        return PodGroup(
            min_member=least, topology_key=own_key or key, is_preferred=is_preferred, ignored=ignored
        )
    timeout = spec.schedule_timeout_seconds
    if timeout is not None:
        check_range(timeout, 0, _PODS_MAX, f"{path}.scheduleTimeoutSeconds")
    members = check_range(spec.min_member or 0, 0, _PODS_MAX, f"{path}.minMember")
    amounts = to_canonical(read_amounts(spec.min_resources, f"{path}.minResources"))
    return PodGroup(
        min_member=max(members, 1),
        min_resources={name: amount for name, amount in amounts.items() if amount},
        schedule_timeout_seconds=timeout,
        topology_key=key,
        is_preferred=is_preferred,
    )


def _policy(spec: WirePodGroupSpec, path: str) -> tuple[int, str]:
    """Return how many pods must have a node, and in one domain of which key all are to be."""
    least = _least(spec.scheduling_policy, f"{path}.schedulingPolicy")
    constraints = spec.scheduling_constraints
    keys = [] if constraints is None else constraints.topology or []
    at = f"{path}.schedulingConstraints.topology"
    if len(keys) > 1:
        raise FieldError(at, f"has {len(keys)} constraints; allowed is one")
    return least, check_label_key(keys[0].key or "", f"{at}[0].key") if keys else ""


def _least(policy: WirePolicy | None, path: str) -> int:
    """Return how many pods must have a node under a policy of Kubernetes."""
    gang, basic = (None, None) if policy is None else (policy.gang, policy.basic)
    if (gang is None) == (basic is None):
        raise FieldError(path, "has not exactly one policy; allowed is gang or basic")
    return 1 if gang is None else check_range(gang.min_count or 0, 1, _PODS_MAX, f"{path}.gang.minCount")


def _groups(wire: WireGroupsObject, path: str) -> Workload:
    """Return the pod groups of a Workload (v1alpha1 of Kubernetes 1.35, its types and validation)."""
    given, path = (wire.spec or WireGroups()).pod_groups or [], f"{path}.spec.podGroups"
    if not 1 <= len(given) <= _GROUPS_MAX:
        raise FieldError(path, f"has {len(given)} groups; allowed are 1 to {_GROUPS_MAX}")
    found: dict[str, int] = {}
    for i, each in enumerate(given):
        name = check_dns_label(each.name or "", f"{path}[{i}].name")
        if name in found:
            raise FieldError(f"{path}[{i}].name", f"{shown(name)} names a group before it, too")
        found[name] = _least(each.policy, f"{path}[{i}].policy")
    return Workload(pod_groups=found)


def _unread(spec: WirePodGroupSpec) -> Iterator[tuple[str, bool]]:
    """Yield fields of a PodGroup of Kubernetes that berth does not honour, and whether each asks for it."""
    yield "disruptionMode", spec.disruption_mode not in (None, "Pod")
    yield "priority", spec.priority is not None
    yield "priorityClassName", bool(spec.priority_class_name)
    yield "resourceClaims", bool(spec.resource_claims)


def _topology(given: WireTopology, path: str) -> tuple[str, bool]:
    """Return in one domain of which key the pods of a group are to be, and whether they only had better."""
    at = key_path(path, TOPOLOGY_KEY)
    if given.key is None and given.mode is not None:
        raise FieldError(key_path(path, TOPOLOGY_MODE), f"says nothing without {TOPOLOGY_KEY}")
    if given.key is None:
        return "", False
    if not isinstance(given.key, str):
        raise FieldError(at, f"{shown(given.key)} is no text")
    mode = "required" if given.mode is None else str(given.mode)
    check_choice(mode, ("required", "preferred"), key_path(path, TOPOLOGY_MODE))
    return check_label_key(given.key, at), mode == "preferred"


READERS: Mapping[str, Reader] = {
    "PriorityClass": Reader(WirePriorityClass, priority_class_from_wire),
    "Namespace": Reader(WireNamespace, _namespace),
    "PodDisruptionBudget": Reader(WireBudget, _budget),
    "PodGroup": Reader(WirePodGroup, _pod_group),
    "Workload": Reader(WireGroupsObject, _groups),
    "CoLocationPolicy": Reader(WireCoLocationPolicy, policy_from_wire),
    "HostedReplicas": Reader(WireHostedReplicas, hosted_from_wire),
    "Service": Reader(WireService, _service),
    "ReplicationController": Reader(WireReplicationController, _replication_controller),
    "ReplicaSet": Reader(WireWorkload, _workload),
    "StatefulSet": Reader(WireWorkload, _workload),
    "Deployment": Reader(WireWorkload, _workload),
    "Job": Reader(WireWorkload, _selected),
}
"""Every kind of configuration object but profiles."""
