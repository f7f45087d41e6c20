"""Configuration objects: what berth keeps of each, by its kind."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from domain.model.colocation import CoLocationPolicy
from domain.model.hosting import HostedReplicas
from domain.model.priorities import PriorityClass
from domain.model.selectors import LabelSelector

PRIORITY_CLASS = "PriorityClass"
NAMESPACE = "Namespace"
SERVICE = "Service"
DISRUPTION_BUDGET = "PodDisruptionBudget"
POD_GROUP = "PodGroup"
WORKLOAD = "Workload"
CO_LOCATION_POLICY = "CoLocationPolicy"
HOSTED_REPLICAS = "HostedReplicas"

GROUP_MARK = ":"
"""Stands in a gang's name between its Workload, group and replica; no object has it in its own name."""


class Namespace(msgspec.Struct, frozen=True, kw_only=True):
    """A v1 Namespace: its labels, at which namespace selectors look."""

    labels: dict[str, str] = {}


class Selecting(msgspec.Struct, frozen=True, kw_only=True):
    """An object that selects pods of its namespace: a Service, or what a controller makes pods of.

    A Service without a selector has None, which matches nothing.
    """

    selector: LabelSelector | None


class DisruptionBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A policy/v1 PodDisruptionBudget: which pods, and how many must stay or may go, as written.

    A number is an ``int``, a share of the pods a text such as ``50%``. At most one of the two is given.
    ``disruptions_allowed`` is what a controller found last, None where none looks after the budget;
    ``disrupted`` are the names of pods whose eviction it has counted already.
    """

    selector: LabelSelector | None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    disruptions_allowed: int | None = None
    disrupted: tuple[str, ...] = ()


class PodGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A PodGroup: pods that are placed together or not at all.

    ``min_member``, at least 1, is how many of them must have a node. ``min_resources`` is what they need
    together, per resource in canonical units, without zeros. ``schedule_timeout_seconds`` is None where the
    default holds. ``topology_key`` is the node label of which all of them have nodes of one value, "" where
    they need not; ``is_preferred``: they may also go anywhere where no one value will do. ``ignored`` are
    fields of its spec that ask for what berth does not honour.
    """

    min_member: int = 1
    min_resources: dict[str, int] = {}
    schedule_timeout_seconds: int | None = None
    topology_key: str = ""
    is_preferred: bool = False
    ignored: tuple[str, ...] = ()


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A Workload of Kubernetes 1.35: by name of each of its pod groups, how many pods must have a node.

    Each group, and each replica of it that pods name, is a gang of its own.
    """

    pod_groups: dict[str, int] = {}


Content = (
    PriorityClass
    | Namespace
    | Selecting
    | DisruptionBudget
    | PodGroup
    | Workload
    | CoLocationPolicy
    | HostedReplicas
)

CONTENTS: Mapping[str, type[Content]] = {
    PRIORITY_CLASS: PriorityClass,
    NAMESPACE: Namespace,
    DISRUPTION_BUDGET: DisruptionBudget,
    POD_GROUP: PodGroup,
    WORKLOAD: Workload,
    CO_LOCATION_POLICY: CoLocationPolicy,
    HOSTED_REPLICAS: HostedReplicas,
    SERVICE: Selecting,
    "ReplicationController": Selecting,
    "ReplicaSet": Selecting,
    "StatefulSet": Selecting,
    "Deployment": Selecting,
    "Job": Selecting,
}
"""Every kind of configuration object but profiles, and what is kept of it."""

OF_CLUSTER = frozenset((PRIORITY_CLASS, NAMESPACE, CO_LOCATION_POLICY))
"""Kinds that are in no namespace."""

SEEN_BY_ALL = frozenset((PRIORITY_CLASS, CO_LOCATION_POLICY))
"""Kinds that a key with namespaces sees, too: its pods name them, or are told why by them."""


class ConfigObject(msgspec.Struct, frozen=True, kw_only=True):
    """The latest of one object; ``content`` is None from its deletion on.

    ``resource_version`` is the newest seen, so that a late duplicate stays late. With neither of them there
    is nothing to remember.
    """

    kind: str
    namespace: str
    name: str
    content: Content | None
    resource_version: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace ("" where the kind has none) and name."""
        return (self.kind, self.namespace, self.name)

    @property
    def is_forgotten(self) -> bool:
        """Whether nothing of it is to be remembered."""
        return self.content is None and self.resource_version is None


def gang_object(name: str) -> tuple[str, str]:
    """Return kind and name of the object that says of a gang, in the same namespace, what holds for it."""
    workload, mark, _ = name.partition(GROUP_MARK)
    return (WORKLOAD, workload) if mark else (POD_GROUP, name)


def gang_spec(content: Content | None, name: str) -> PodGroup | None:
    """Return what an object says of the gang of a name; None: there is no such object, or no such group."""
    if isinstance(content, Workload):
        least = content.pod_groups.get(name.split(GROUP_MARK)[1])
        return None if least is None else PodGroup(min_member=least)
    assert content is None or isinstance(content, PodGroup)
    return content
