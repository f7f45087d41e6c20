"""Pods as the scheduler sees them: a template that equal pods share, and what belongs to each pod."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from domain.model.selectors import PodAffinity, SpreadConstraint

DEFAULT_PROFILE, COLOCATION_PROFILE = "default-scheduler", "colocation"
PREEMPTING_PROFILES = frozenset((DEFAULT_PROFILE, COLOCATION_PROFILE))
"""The profiles whose pods may have others evicted."""

CLUSTER_LABEL = "berth.io/cluster"
ROLE_LABEL = "berth.io/role"
MASTER = "master"
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""The label that names the PodGroup of a gang's members, as the coscheduling plugin of Kubernetes has it."""

LABELS_READ = frozenset((CLUSTER_LABEL, POD_GROUP_LABEL))
"""Labels of a pod without which no other label matters for placing it."""


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """What lets a pod onto a tainted node; an empty ``key`` with ``Exists`` tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(msgspec.Struct, frozen=True):
    """One ``matchExpressions`` or ``matchFields`` entry: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(msgspec.Struct, frozen=True):
    """Requirements that must all hold; a term without any requirement matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class PreferredTerm(msgspec.Struct, frozen=True):
    """A term that adds ``weight`` (1..100) to the score of a node that matches it."""

    weight: int
    term: NodeSelectorTerm


class NodeAffinity(msgspec.Struct, frozen=True):
    """``required`` terms are alternatives (any must match; None: no demand)."""

    required: tuple[NodeSelectorTerm, ...] | None = None
    preferred: tuple[PreferredTerm, ...] = ()


class HostPort(msgspec.Struct, frozen=True, gc=False, order=True):
    """A port of the node itself that the pod occupies."""

    host_port: int
    protocol: str = "TCP"
    host_ip: str = "0.0.0.0"


class CpuClaim(msgspec.Struct, frozen=True, gc=False):
    """What the containers of a pod say of the cpu that they will use, in thousandths of a core.

    ``fixed_milli`` sums the limits of the containers that have one, and the pod's overhead;
    ``requested_milli`` the requests of the others; ``silent_count`` containers give neither.
    """

    fixed_milli: int = 0
    requested_milli: int = 0
    silent_count: int = 0


class MemoryClaim(msgspec.Struct, frozen=True, gc=False):
    """What the containers of a pod say of the memory that they will use, in bytes: see ``CpuClaim``."""

    fixed_bytes: int = 0
    requested_bytes: int = 0
    silent_count: int = 0


class PodTemplate(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """Everything of a pod that matters for placing it: pods with equal templates are one equivalence group.

    ``requests`` holds the effective request per resource in canonical units (cpu in thousandths of a core,
    the rest in its own unit), zero requests left out, the ``pods`` resource (always 1) left out.
    ``scoring_cpu_milli`` and ``scoring_memory_bytes`` are the same request with the scheduler's defaults
    for containers that ask for nothing (100m and 200 MiB; kube-scheduler's non-zero request).
    ``limits`` holds the effective limit of cpu and memory, left out where there is none.
    ``cluster`` (as ``namespace/name``) and ``role`` say what the pod is part of, and as what: the labels
    ``berth.io/cluster`` and ``berth.io/role``, both "" where either is missing.
    ``unsupported`` names what the pod demands and berth does not honour: such a pod waits. ``ignored`` names
    what it only prefers, or what berth takes no notice of; ``ProfilePlan.ignores`` adds what the profile
    leaves out. ``priority_class`` is the class by which the pod has its priority, "" where it has it by a
    number or by the default class. ``missing`` names what the pod waits for because it is not there.
    ``images`` are those of the containers, ``volume_images`` those that are mounted as volumes. ``features``
    names what a node must declare that it can do. ``gang`` is the PodGroup (as ``namespace/name``) with whose
    other pods this one is placed, "" where it is placed alone. ``excluded`` are nodes to which it could not
    be bound a moment ago; no manifest says them. ``memory_claim`` is None where ``memory_claim_of`` finds the
    same from requests and limits, as of nearly all pods. Fields from ``ignored`` on came later: see
    ``signature.template_to_json``.
    """

    requests: dict[str, int] = {}
    scoring_cpu_milli: int = 0
    scoring_memory_bytes: int = 0
    node_selector: dict[str, str] = {}
    node_affinity: NodeAffinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    node_name: str = ""
    priority: int = 0
    preemption_policy: str = "PreemptLowerPriority"
    qos_class: str = "BestEffort"
    profile: str = DEFAULT_PROFILE
    images: tuple[str, ...] = ()
    limits: dict[str, int] = {}
    cpu_claim: CpuClaim = CpuClaim()
    cluster: str = ""
    role: str = ""
    gates: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    priority_class: str = ""
    missing: tuple[str, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None
    volume_images: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    gang: str = ""
    excluded: tuple[str, ...] = ()
    memory_claim: MemoryClaim | None = None


def memory_claim_of(template: PodTemplate) -> MemoryClaim:
    """Return what the containers of a pod say of the memory that they will use.

    Where the template does not say it: its limit; without one its request; without either as many silent
    containers as say nothing of cpu, one at least.
    """
    if template.memory_claim is not None:
        return template.memory_claim
    if limit := template.limits.get("memory", 0):
        return MemoryClaim(fixed_bytes=limit)
    if request := template.requests.get("memory", 0):
        return MemoryClaim(requested_bytes=request)
    return MemoryClaim(silent_count=max(template.cpu_claim.silent_count, 1))


def is_master(template: PodTemplate) -> bool:
    """Say whether a pod is one of the masters of its cluster."""
    return template.role == MASTER


def with_labels(template: PodTemplate, labels: Mapping[str, str], namespace: str) -> PodTemplate:
    """Return the template of a pod that has these labels: itself, or what they make of it.

    A cluster is one of its namespace, so that no pod counts among the masters of another's; likewise a gang.
    """
    cluster, role = labels.get(CLUSTER_LABEL, ""), labels.get(ROLE_LABEL, "")
    if cluster and role:
        template = msgspec.structs.replace(template, cluster=f"{namespace}/{cluster}", role=role)
    if gang := template.gang or labels.get(POD_GROUP_LABEL):  # the first as its spec has it, by name alone
        template = msgspec.structs.replace(template, gang=f"{namespace}/{gang}")
    return template


CONTROLLERS: Mapping[str, str] = {
    "ReplicationController": "v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
}
"""The kinds by whose selector kube-scheduler spreads the pods that they control, with their apiVersion."""


class Controller(msgspec.Struct, frozen=True, gc=False):
    """The object that made a pod: the entry of ``ownerReferences`` with ``controller: true``."""

    kind: str
    name: str
    uid: str


SAFE_TO_EVICT_KEY = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""Annotation of a pod: with "false" it must not be evicted so that it goes elsewhere."""

_OF_NODES = ("DaemonSet", "Node")


class PodLife(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What is known of a pod's life, as the ledger keeps it: see ``PodSpec``."""

    start_time: str = ""
    terminating: bool = False
    controller: Controller | None = None
    nominated_node: str = ""
    preempted: bool = False
    devices: tuple[int, ...] = ()
    pinned: bool = False

    def waiting(self) -> PodLife | None:
        """Return the life of a pod that waits again: without devices; None where nothing else is known."""
        life = msgspec.structs.replace(self, devices=())
        return None if life == NO_LIFE else life


NO_LIFE = PodLife()


class PodSpec(msgspec.Struct, frozen=True, gc=False):
    """One v1 Pod: identity, what it needs, and what is known of its life.

    ``key`` is ``namespace/name``, the key of the pod's records in the log; it is kept whole, since every step
    of a pod's way asks for it, and a million pods are kept. ``node_name`` is where the log says that the pod
    is bound ("" when it is not). ``finished`` is true for phase Succeeded or Failed. ``signature`` is 16
    bytes, equal exactly when the templates are. ``terminating`` is true from its ``deletionTimestamp`` on,
    and ``preempted`` where a scheduler deleted it so that another pod finds room. ``nominated_node`` is the
    node for which a scheduler nominated a waiting pod. ``devices`` are those of its node that a placed pod
    has, by their indices (``domain.model.devices``). One that is ``pinned`` must not be evicted so that it
    goes elsewhere, as its annotation ``SAFE_TO_EVICT_KEY`` says.
    """

    uid: str
    key: str
    resource_version: int | None
    template: PodTemplate
    signature: bytes
    labels: dict[str, str] = {}
    node_name: str = ""
    finished: bool = False
    start_time: str = ""
    terminating: bool = False
    controller: Controller | None = None
    nominated_node: str = ""
    preempted: bool = False
    devices: tuple[int, ...] = ()
    pinned: bool = False

    @property
    def namespace(self) -> str:
        """The part of the key before the slash."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """The part of the key behind the slash."""
        return self.key.partition("/")[2]

    def living(self, life: PodLife | None) -> PodSpec:
        """Return the pod with this life; None: nothing is known of it."""
        return msgspec.structs.replace(self, **msgspec.structs.asdict(life or NO_LIFE))

    @property
    def life(self) -> PodLife | None:
        """What is known of its life; None for a pod without devices, not made, started or deleted."""
        known = self.start_time or self.controller or self.nominated_node or self.devices
        if not (known or self.terminating or self.pinned):
            return None
        return PodLife(
            start_time=self.start_time,
            terminating=self.terminating,
            controller=self.controller,
            nominated_node=self.nominated_node,
            preempted=self.preempted,
            devices=self.devices,
            pinned=self.pinned,
        )

    def share_texts(self, known: PodSpec) -> None:
        """Refer to the uid and key of an older spec of the same pod, so that they are kept once."""
        msgspec.structs.force_setattr(self, "uid", known.uid)
        msgspec.structs.force_setattr(self, "key", known.key)


def why_it_stays(pod: PodSpec, *, bare: bool = False) -> str:
    """Return why a placed pod must not be evicted so that it goes elsewhere, "" where it may be.

    With ``bare`` also a pod without a controller may move, which nothing makes anew.
    """
    if pod.terminating:
        return "being deleted"
    if pod.controller is None and not bare:
        return "without a controller, which nothing makes anew"
    if pod.controller is not None and pod.controller.kind in _OF_NODES:
        return "of a DaemonSet, or of the node itself"
    if pod.pinned:
        return "with the annotation safe-to-evict: false"
    return "of a gang" if pod.template.gang else ""
