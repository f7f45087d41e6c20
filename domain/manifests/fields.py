"""What becomes of each field of a Pod and a Node: honoured, held, ignored with a warning, or of no matter.

This is the only list. ``docs/manifests.md`` is made from it. A test compares it with the structs that read
manifests and with the codes. The fields are those of Kubernetes 1.36. A field matters if the default plugins
of its scheduler or the admission of its API server look at it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any, NamedTuple

from domain.manifests.between_pods import WireAffinityTerm, WirePodAffinity, WireSpread, WireWeightedTerm
from domain.manifests.codes import TOO_MANY_ANTI_AFFINITY_KEYS
from domain.manifests.constraints import WireAffinity, WireToleration
from domain.manifests.label_selectors import WireLabelSelector, WireRequirement
from domain.manifests.node import WireNodeSpec, WireNodeStatus
from domain.manifests.pod import WireContainer, WirePodSpec, WireResources
from domain.manifests.ports import WirePort
from domain.manifests.status import WireContainerStatus, WirePodStatus
from domain.manifests.volumes import WireVolume
from domain.model.limits import anti_affinity_keys_per_pod_max


class Treatment(enum.StrEnum):
    """What becomes of a field."""

    HONOURED = "honoured"
    HELD = "held"  # the pod waits, with the code as the reason
    IGNORED = "ignored"  # the code stands among the warnings of the decision
    NONE = "no matter"  # where the pod goes does not depend on it


class Field(NamedTuple):
    """A field of one shape. ``codes`` are its reasons or warnings, ``note`` says more."""

    name: str
    treatment: Treatment
    codes: tuple[str, ...] = ()
    note: str = ""


class Shape(NamedTuple):
    """An object inside a manifest: its place, the struct that reads it, and all of its fields."""

    path: str
    wire: type[Any]
    fields: tuple[Field, ...]

    def names(self) -> tuple[str, ...]:
        """Return the names of all fields."""
        return tuple(field.name for field in self.fields)


def _honoured(name: str, note: str = "") -> Field:
    return Field(name, Treatment.HONOURED, note=note)


def _held(name: str, code: str, note: str = "") -> Field:
    return Field(name, Treatment.HELD, (f"unsupported:{code}",), note)


def _ignored(name: str, code: str, note: str) -> Field:
    return Field(name, Treatment.IGNORED, (f"ignored:{code}",), note)


def _no_matter(names: str) -> Iterator[Field]:
    return (Field(name, Treatment.NONE) for name in names.split())


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_DISK = "a disk that only so many, or only one, of which a node can attach; its limits are not looked at"

POD_SPEC = Shape(
    "Pod: spec",
    WirePodSpec,
    (
        _honoured("containers"),
        _honoured("initContainers", "sidecars included"),
        _honoured("resources", "of the pod as a whole"),
        _honoured("overhead"),
        _honoured("nodeName", "the pod counts there: `adopted`"),
        _honoured("nodeSelector"),
        _honoured("affinity", "see below"),
        _honoured("tolerations"),
        _honoured("topologySpreadConstraints", "see below"),
        _honoured("hostNetwork", "each container's port is then a port of the node"),
        _honoured("hostUsers", "with `hostNetwork`: the node must declare that it can"),
        _honoured("priority", "in the queue, and in preemption"),
        _honoured("priorityClassName", "where `priority` is missing, as the class says when the pod comes"),
        _honoured("preemptionPolicy", "by preemption, where it is on"),
        _honoured("schedulerName", "names a profile"),
        _honoured("schedulingGates"),
        _honoured("volumes", "in part, see below"),
        _held("resourceClaims", "resource-claims", "devices by dynamic resource allocation"),
        _honoured("schedulingGroup", "names the PodGroup of its gang; before the label"),
        _honoured("workloadRef", "names the group of a Workload of Kubernetes 1.35; before the label"),
        _ignored(
            "runtimeClassName",
            "runtime-class",
            "where `overhead` is missing: what the RuntimeClass adds to the pod is not known here",
        ),
        *_no_matter(
            "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks "
            "ephemeralContainers hostAliases hostIPC hostPID hostname hostnameOverride "
            "imagePullSecrets os readinessGates restartPolicy securityContext serviceAccount "
            "serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
            "terminationGracePeriodSeconds"
        ),
    ),
)

CONTAINER = Shape(
    "Pod: spec.containers[], spec.initContainers[]",
    WireContainer,
    (
        _honoured("name", "finds the container's status"),
        _honoured("image", "by profiles with the score ImageLocality"),
        _honoured("resources"),
        _honoured("ports", "`hostPort`"),
        _honoured("restartPolicy", "`Always` makes an init container a sidecar"),
        _honoured("restartPolicyRules", "`RestartAllContainers`: the node must declare that it can"),
        *_no_matter(
            "args command env envFrom imagePullPolicy lifecycle livenessProbe readinessProbe "
            "resizePolicy securityContext startupProbe stdin stdinOnce "
            "terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir"
        ),
    ),
)

RESOURCES = Shape(
    "Pod: resources",
    WireResources,
    (_honoured("requests"), _honoured("limits"), _held("claims", "resource-claims")),
)

PORT = Shape(
    "Pod: ports[]",
    WirePort,
    (
        *map(_honoured, ("containerPort", "hostIP", "hostPort", "protocol")),
        *_no_matter("name"),
    ),
)

VOLUME = Shape(
    "Pod: spec.volumes[]",
    WireVolume,
    (
        _held("persistentVolumeClaim", "volume-claims", "a claim decides on which nodes its volume can be"),
        _held("ephemeral", "volume-claims", "the same, by a claim that is made for the pod"),
        *(
            _ignored(name, "disks", _DISK)
            for name in (
                "awsElasticBlockStore",
                "azureDisk",
                "cinder",
                "gcePersistentDisk",
                "iscsi",
                "portworxVolume",
                "rbd",
                "vsphereVolume",
            )
        ),
        _honoured("image", "by profiles with the score ImageLocality"),
        *_no_matter(
            "azureFile cephfs configMap csi downwardAPI emptyDir fc flexVolume flocker gitRepo glusterfs "
            "hostPath name nfs photonPersistentDisk projected quobyte scaleIO secret storageos"
        ),
    ),
)

AFFINITY = Shape(
    "Pod: spec.affinity",
    WireAffinity,
    (
        _honoured("nodeAffinity"),
        _honoured("podAffinity", "see below"),
        _honoured("podAntiAffinity", "see below"),
    ),
)

_HELD_BY_KEYS = f"unsupported:{TOO_MANY_ANTI_AFFINITY_KEYS}"
_TOO_MANY_KEYS = (
    f"with more than {anti_affinity_keys_per_pod_max} topology keys in `podAntiAffinity` a pod is held "
    f"(`{_HELD_BY_KEYS}`), and one that runs already keeps no pod away"
)

POD_AFFINITY = Shape(
    "Pod: spec.affinity.podAffinity, podAntiAffinity",
    WirePodAffinity,
    (
        _honoured(_REQUIRED, f"by profiles with the filter InterPodAffinity; {_TOO_MANY_KEYS}"),
        _honoured(_PREFERRED, "by profiles with the score InterPodAffinity"),
    ),
)

WEIGHTED_TERM = Shape(
    f"Pod: spec.affinity.podAffinity, podAntiAffinity: {_PREFERRED}[]",
    WireWeightedTerm,
    (_honoured("weight"), _honoured("podAffinityTerm")),
)

AFFINITY_TERM = Shape(
    "Pod: terms of podAffinity and podAntiAffinity",
    WireAffinityTerm,
    (
        _honoured("labelSelector", "where it is missing, no pod matches; `{}` matches every pod"),
        _honoured("topologyKey"),
        _honoured("namespaces", "where it and `namespaceSelector` are missing, the pod's own"),
        _honoured("namespaceSelector", "beside `namespaces`; `{}` selects every namespace"),
        _honoured("matchLabelKeys", "added to the selector as `In`; of labels that the pod lacks, nothing"),
        _honoured("mismatchLabelKeys", "the same as `NotIn`"),
    ),
)

LABEL_SELECTOR = Shape(
    "Label selectors",
    WireLabelSelector,
    (_honoured("matchLabels"), _honoured("matchExpressions")),
)

REQUIREMENT = Shape(
    "Label selectors: matchExpressions[]",
    WireRequirement,
    tuple(map(_honoured, ("key", "operator", "values"))),
)

SPREAD = Shape(
    "Pod: spec.topologySpreadConstraints[]",
    WireSpread,
    (
        _honoured("whenUnsatisfiable", "by profiles with the filter and the score PodTopologySpread"),
        _honoured("labelSelector", "where it is missing, no pod counts; `{}` matches the pod itself only"),
        _honoured("matchLabelKeys", "added to the selector; of labels that the pod lacks, nothing"),
        _honoured("maxSkew"),
        _honoured("minDomains", "1 where it is missing"),
        _honoured("nodeAffinityPolicy", "`Honor` where it is missing"),
        _honoured("nodeTaintsPolicy", "`Ignore` where it is missing"),
        _honoured("topologyKey"),
    ),
)

TOLERATION = Shape(
    "Pod: spec.tolerations[]",
    WireToleration,
    (
        *map(_honoured, ("key", "value", "effect")),
        _ignored(
            "operator",
            "comparing-tolerations",
            "`Equal` and `Exists` are honoured; `Lt` and `Gt`, behind a gate that is off in Kubernetes 1.36, "
            "tolerate nothing",
        ),
        *_no_matter("tolerationSeconds"),
    ),
)

POD_STATUS = Shape(
    "Pod: status",
    WirePodStatus,
    (
        _honoured("phase", "`Succeeded` and `Failed` free what the pod held"),
        _honoured("qosClass"),
        _honoured("startTime"),
        _honoured("containerStatuses", "see below"),
        _honoured("initContainerStatuses", "of sidecars, see below"),
        _honoured("resources", "of a bound pod: the larger of asked, in force and allocated counts"),
        _honoured("allocatedResources", "beside `resources`"),
        _honoured(
            "conditions",
            "what is asked does not count while `PodResizePending` is `Infeasible`; a pod that is deleted "
            "with `DisruptionTarget` for `PreemptionByScheduler` leaves for a nominated one",
        ),
        _honoured("nominatedNodeName", "a pod does not preempt again while pods leave that node for it"),
        *_no_matter(
            "ephemeralContainerStatuses extendedResourceClaimStatus hostIP hostIPs message "
            "observedGeneration podIP podIPs reason resize resourceClaimStatuses"
        ),
    ),
)

CONTAINER_STATUS = Shape(
    "Pod: status.containerStatuses[], status.initContainerStatuses[]",
    WireContainerStatus,
    (
        _honoured("name"),
        _honoured("resources", "of a bound pod: the larger of asked, in force and allocated counts"),
        _honoured("allocatedResources", "beside `resources`"),
        *_no_matter(
            "allocatedResourcesStatus containerID image imageID lastState ready restartCount started state "
            "stopSignal user volumeMounts"
        ),
    ),
)

NODE_SPEC = Shape(
    "Node: spec",
    WireNodeSpec,
    (
        _honoured("unschedulable"),
        _honoured("taints", "`PreferNoSchedule` by profiles with the score TaintToleration"),
        *_no_matter("configSource externalID podCIDR podCIDRs providerID"),
    ),
)

NODE_STATUS = Shape(
    "Node: status",
    WireNodeStatus,
    (
        _honoured("allocatable"),
        _honoured("capacity"),
        _honoured("images", "by profiles with the score ImageLocality"),
        _honoured("conditions", "`Ready` is shown; taints decide about placing, as in kube-scheduler"),
        _honoured("declaredFeatures", "by profiles with the filter NodeDeclaredFeatures"),
        *_no_matter(
            "addresses config daemonEndpoints features nodeInfo phase "
            "runtimeHandlers volumesAttached volumesInUse"
        ),
    ),
)

SHAPES = (
    POD_SPEC,
    CONTAINER,
    RESOURCES,
    PORT,
    VOLUME,
    AFFINITY,
    POD_AFFINITY,
    WEIGHTED_TERM,
    AFFINITY_TERM,
    LABEL_SELECTOR,
    REQUIREMENT,
    SPREAD,
    TOLERATION,
    POD_STATUS,
    CONTAINER_STATUS,
    NODE_SPEC,
    NODE_STATUS,
)

BY_PROFILE = (
    ("ignored:node-selector", "`spec.nodeSelector`", "filter NodeAffinity"),
    ("ignored:required-node-affinity", f"`nodeAffinity.{_REQUIRED}`", "filter NodeAffinity"),
    ("ignored:preferred-node-affinity", f"`nodeAffinity.{_PREFERRED}`", "score NodeAffinity"),
    ("ignored:host-ports", "`hostPort`", "filter NodePorts"),
    ("ignored:topology-spread", "`topologySpreadConstraints[]`, `DoNotSchedule`", "filter PodTopologySpread"),
    (
        "ignored:preferred-topology-spread",
        "`topologySpreadConstraints[]`, `ScheduleAnyway`",
        "score PodTopologySpread",
    ),
    ("ignored:pod-affinity", f"`podAffinity.{_REQUIRED}`", "filter InterPodAffinity"),
    ("ignored:pod-anti-affinity", f"`podAntiAffinity.{_REQUIRED}`", "filter InterPodAffinity"),
    ("ignored:preferred-pod-affinity", f"`podAffinity.{_PREFERRED}`", "score InterPodAffinity"),
    ("ignored:preferred-pod-anti-affinity", f"`podAntiAffinity.{_PREFERRED}`", "score InterPodAffinity"),
)
"""What is ignored if the pod's profile lacks a plugin: the code, the field, and the plugin."""


def codes() -> set[str]:
    """Return every code that the fields of a manifest can give a pod as a reason or a warning."""
    of_fields = {code for shape in SHAPES for field in shape.fields for code in field.codes}
    return of_fields | {code for code, *_ in BY_PROFILE} | {_HELD_BY_KEYS}
