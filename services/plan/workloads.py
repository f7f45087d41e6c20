"""Turns Deployments, StatefulSets, DaemonSets, Jobs and the like into the pods that their controllers make.

Names are those of the controllers where they can be known (``db-0`` of a StatefulSet) and else the first free
ones of that form (``web-0``, ``web-1``). Pods that are among the objects already count: only what is missing
is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any, NamedTuple

import msgspec

from domain.engine.evaluate import evaluate
from domain.manifests.objects import node_from_manifest, pod_from_manifest
from domain.model.errors import FieldError
from domain.model.events import NodeUpserted
from domain.model.profiles import PluginUse, Profile
from domain.model.validation import shown
from domain.plugins.registry import ProfilePlan
from domain.state.cluster import ClusterState
from services.codec.envelope import KINDS
from services.plan.kinds import SELECTING, Use, use_of
from services.plan.objects import Given

Json = dict[str, Any]

REPLICAS_MAX = 1_000_000

_REPLICA_SET = ("apps/v1", "ReplicaSet")
_NODE = "node.kubernetes.io/"
_TOLERATED_BY_DAEMONS: tuple[tuple[str, str], ...] = (
    (f"{_NODE}not-ready", "NoExecute"),
    (f"{_NODE}unreachable", "NoExecute"),
    (f"{_NODE}disk-pressure", "NoSchedule"),
    (f"{_NODE}memory-pressure", "NoSchedule"),
    (f"{_NODE}pid-pressure", "NoSchedule"),
    (f"{_NODE}unschedulable", "NoSchedule"),
)
_RUNS_DAEMONS = Profile(
    name="daemons",
    filters=tuple(PluginUse(name=name) for name in ("NodeName", "TaintToleration", "NodeAffinity")),
)
"""What a node must pass for a DaemonSet to have a pod there."""


class _Pod(NamedTuple):
    """The parts of a pod that a controller looks at."""

    namespace: str
    name: str
    labels: Mapping[str, Any]
    owner: tuple[str, str]
    node: str


def expand(objects: Sequence[Given], replicas: int | None = None) -> list[Given]:
    """Return the objects with the missing pods of each workload in its place.

    Parameters
    ----------
    objects : sequence of Given
        All objects. Of repeated ones the last one counts.
    replicas : int, optional
        Number of new pods of each workload, instead of those that it lacks. A DaemonSet still gets one per
        node.

    Raises
    ------
    FieldError
        With the file, the path of the field, what is wrong and what is allowed.
    """
    workloads: dict[tuple[str, str, str], Given] = {}
    for each in objects:
        if use_of(each.manifest) is Use.WORKLOAD:
            workloads.pop(_identity(each), None)
            if each.type != "DELETED":
                workloads[_identity(each)] = each
    if not workloads:
        return list(objects)
    controllers = _Controllers(objects, workloads)
    expanded: list[Given] = []
    for each in objects:
        if use_of(each.manifest) is not Use.WORKLOAD:
            expanded.append(each)
        elif workloads.get(_identity(each)) is each:
            try:
                pods = controllers.pods_of(each, replicas)
            except FieldError as error:
                raise each.error(error.path, error.message) from None
            path = _template_path(each.manifest)
            expanded += _selecting(each)
            expanded += [each._replace(type="ADDED", manifest=pod, path=path) for pod in pods]
    return expanded


class _Controllers:
    """Knows the pods and nodes that are there, and makes pods that are missing."""

    def __init__(self, objects: Iterable[Given], workloads: Mapping[tuple[str, str, str], Given]) -> None:
        self._owners = {key: _owner(each.manifest) for key, each in workloads.items()}
        pods: dict[tuple[str, str, str], _Pod] = {}
        nodes: dict[str, Given] = {}
        for each in objects:
            if use_of(each.manifest) is not Use.EVENT or each.manifest["kind"] not in ("Node", "Pod"):
                continue
            kind, namespace, name = key = _identity(each)
            is_gone = each.type == "DELETED" or _get(each.manifest, "status", "phase") in (
                "Succeeded",
                "Failed",
            )
            if kind == "Node":
                nodes.pop(name, None)
                if not is_gone:
                    nodes[name] = each
            elif is_gone:
                pods.pop(key, None)
            else:
                labels = _get(each.manifest, "metadata", "labels") or {}
                node = _get(each.manifest, "spec", "nodeName") or ""
                pods[key] = _Pod(namespace, name, labels, _owner(each.manifest), node)
        self._pods = list(pods.values())
        self._names = {(pod.namespace, pod.name) for pod in self._pods}
        self._nodes = list(nodes.values())
        self._state: ClusterState | None = None

    def pods_of(self, given: Given, replicas: int | None) -> list[Json]:
        """Return the pods that a workload lacks."""
        kind, namespace, _ = key = _identity(given)
        owner_kind, owner = self._owners[key]
        if (owner_kind, namespace, owner) in self._owners:
            return []  # its owner decides how many
        existing = [pod for pod in self._pods if self._has(given.manifest, pod)]
        maker = _Maker(given)
        if kind == "DaemonSet":
            taken = {pod.node for pod in existing}
            return [maker.daemon(node) for node in self._nodes_for(given, maker) if node not in taken]
        if replicas is None:
            replicas = max(0, _wanted(given) - len(existing))
        start = _get(given.manifest, "spec", "ordinals", "start") or 0
        free = (i for i in count(start) if (namespace, f"{maker.name}-{i}") not in self._names)
        pods = [maker.pod(f"{maker.name}-{i}", ordinal=i) for i in islice(free, replicas)]
        self._names.update((namespace, pod["metadata"]["name"]) for pod in pods)
        return pods

    def _has(self, workload: Json, pod: _Pod) -> bool:
        """Return whether a pod belongs to a workload: by its owners, or else by the selector."""
        kind, namespace, name = _identity_of(workload)
        if pod.namespace != namespace:
            return False
        if pod.owner != ("", ""):
            middle = self._owners.get((pod.owner[0], namespace, pod.owner[1]))
            if (kind, name) in (pod.owner, middle):
                return True
            if middle is not None:
                return False
        selector = _get(workload, "spec", "selector") or {}
        wanted = (selector if kind == "ReplicationController" else selector.get("matchLabels")) or {}
        return bool(wanted) and all(pod.labels.get(key) == value for key, value in wanted.items())

    def _nodes_for(self, given: Given, maker: _Maker) -> list[str]:
        """Return the nodes that a DaemonSet has a pod on, by its node selector, affinity and tolerations."""
        if self._state is None:
            self._state = ClusterState(seed=0)
            for node in self._nodes:
                self._state.apply(NodeUpserted(node_from_manifest(node.manifest, strict=False)))
        pod = pod_from_manifest(maker.daemon(""), path=_template_path(given.manifest), strict=False)
        free = msgspec.structs.replace(pod.template, gates=(), unsupported=())
        asked = msgspec.structs.replace(pod, template=free)
        return evaluate(self._state, ProfilePlan(_RUNS_DAEMONS), asked).feasible


class _Maker:
    """Makes pods of one workload's template."""

    def __init__(self, given: Given) -> None:
        self._manifest = given.manifest
        self._kind, self._namespace, self.name = _identity(given)
        path = _template_path(given.manifest)
        template: Any = given.manifest
        for field in path.split(".")[1:]:
            template = template.get(field) if isinstance(template, dict) else None
        if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
            raise FieldError(path, "is missing; a workload needs a pod template with a spec")
        self._spec: Json = template["spec"]
        metadata = template.get("metadata") or {}
        self._labels = dict(metadata.get("labels") or {})
        self._annotations = metadata.get("annotations")

    def pod(self, name: str, *, ordinal: int) -> Json:
        """Return one pod as the controller writes it."""
        labels, spec = self._labels, self._spec
        if self._kind == "StatefulSet":
            index = {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(ordinal)}
            labels, spec = labels | index, self._with_claims(name)
        elif self._kind in ("CronJob", "Job"):
            labels = labels | {"batch.kubernetes.io/job-name": self.name, "job-name": self.name}
        return self._written(name, labels, spec)

    def daemon(self, node: str) -> Json:
        """Return a DaemonSet's pod that goes to one node; an empty name is any."""
        tolerated = list(_TOLERATED_BY_DAEMONS)
        if self._spec.get("hostNetwork"):
            tolerated.append((f"{_NODE}network-unavailable", "NoSchedule"))
        tolerations = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in tolerated]
        spec = {**self._spec, "tolerations": [*(self._spec.get("tolerations") or []), *tolerations]}
        if node:
            term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            affinity = spec.get("affinity") or {}
            spec["affinity"] = {
                **affinity,
                "nodeAffinity": {**(affinity.get("nodeAffinity") or {}), **required},
            }
        return self._written(f"{self.name}-{node}" if node else self.name, self._labels, spec)

    def _with_claims(self, name: str) -> Json:
        """Return a StatefulSet's spec with the claims of one pod among its volumes."""
        templates = _get(self._manifest, "spec", "volumeClaimTemplates") or []
        names = [claim for each in templates if (claim := _get(each, "metadata", "name"))]
        claims = [
            {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}} for claim in names
        ]
        others = [each for each in self._spec.get("volumes") or [] if _get(each, "name") not in names]
        return {**self._spec, "volumes": others + claims} if claims else self._spec

    def _written(self, name: str, labels: Json, spec: Json) -> Json:
        api_version, kind = self._manifest.get("apiVersion"), self._kind
        if kind == "Deployment":
            api_version, kind = _REPLICA_SET
        owner = {
            "apiVersion": api_version,
            "kind": kind,
            "name": self.name,
            "uid": _get(self._manifest, "metadata", "uid") or self.name,
            "controller": True,
        }
        metadata = {
            "name": name,
            "namespace": self._namespace,
            "labels": labels,
            "annotations": self._annotations,
            "ownerReferences": [owner],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _selecting(given: Given) -> list[Given]:
    """Return what selects the pods of a workload; of a Deployment, the ReplicaSet that it would make."""
    manifest = given.manifest
    kind, spec = manifest["kind"], _get(manifest, "spec") or {}
    if kind not in SELECTING or not (kind == "ReplicationController" or spec.get("selector")):
        return []
    selecting = {**manifest, "spec": {name: spec.get(name) for name in ("selector", "template")}}
    if kind == "Deployment":
        selecting["apiVersion"], selecting["kind"] = _REPLICA_SET
    selecting.setdefault("apiVersion", KINDS[kind][0])
    return [given._replace(type="ADDED", manifest=selecting)]


def _wanted(given: Given) -> int:
    """Return how many pods a workload wants at the same time."""
    manifest, kind = given.manifest, given.manifest["kind"]
    spec = _get(manifest, "spec") or {}
    if kind not in ("CronJob", "Job"):
        return _number(spec.get("replicas"), f"{given.path}.spec.replicas", 1)
    path = f"{given.path}.spec"
    if spec.get("suspend"):
        return 0
    if kind == "CronJob":  # one run of it
        path, spec = f"{path}.jobTemplate.spec", _get(spec, "jobTemplate", "spec") or {}
    conditions = _get(manifest, "status", "conditions") or []
    if any(
        _get(each, "type") in ("Complete", "Failed") and _get(each, "status") == "True" for each in conditions
    ):
        return 0
    parallelism = _number(spec.get("parallelism"), f"{path}.parallelism", 1)
    if spec.get("completions") is None:
        return parallelism
    left = _number(spec["completions"], f"{path}.completions", 1)
    left -= 0 if kind == "CronJob" else _number(_get(manifest, "status", "succeeded"), "status.succeeded", 0)
    return max(0, min(parallelism, left))


def _number(value: Any, path: str, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= REPLICAS_MAX:
        raise FieldError(path, f"expected an integer from 0 to {REPLICAS_MAX}, got {shown(value)}")
    return value


def _template_path(manifest: Json) -> str:
    is_cron = manifest["kind"] == "CronJob"
    return "object.spec.jobTemplate.spec.template" if is_cron else "object.spec.template"


def _identity(given: Given) -> tuple[str, str, str]:
    kind, namespace, name = _identity_of(given.manifest)
    if not name:
        raise given.error(f"{given.path}.metadata.name", "is missing; every object needs a name")
    return kind, namespace, name


def _identity_of(manifest: Json) -> tuple[str, str, str]:
    name, namespace = _get(manifest, "metadata", "name"), _get(manifest, "metadata", "namespace")
    return manifest["kind"], str(namespace or "default"), str(name or "")


def _owner(manifest: Json) -> tuple[str, str]:
    """Return kind and name of the controller that made an object, empty texts where there is none."""
    for each in _references(manifest):
        if each.get("controller"):
            return str(each.get("kind")), str(each.get("name"))
    return "", ""


def _references(manifest: Json) -> Iterator[Json]:
    found = _get(manifest, "metadata", "ownerReferences")
    yield from (each for each in found if isinstance(each, dict)) if isinstance(found, list) else ()


def _get(value: Any, *fields: str) -> Any:
    """Return a nested field, or None if it or a field on the way is missing."""
    for field in fields:
        value = value.get(field) if isinstance(value, dict) else None
    return value
