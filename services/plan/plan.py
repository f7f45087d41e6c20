"""Answers "where would these go, and why" from manifests alone: no server, nothing written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from domain.cycle.evaluate import Verdict, evaluate
from domain.manifests.node import DEFAULT_NODE_PODS
from domain.manifests.objects import convert_manifest, node_from_manifest, pod_from_manifest
from domain.manifests.profile import KIND as PROFILE_KIND
from domain.manifests.profile import profile_from_manifest
from domain.manifests.usage import WireNodeUsage, usage_from_wire
from domain.model.errors import FieldError
from domain.model.events import Event, NodeDeleted, NodeUpserted, NodeUsed, PodDeleted, PodUpserted
from domain.model.profiles import BUILT_IN_PROFILES, Profile
from domain.model.usage import Usage, usage_from_manifest
from domain.model.validation import key_path, shown
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.state.changes import Refused
from domain.state.cluster import Assumed, ClusterState
from domain.state.resources import RECENT_FIXED, RECENT_SILENT
from services.plan.spelling import ignored, meant, slips

KINDS_USED = ("Node", "NodeUsage", "Pod", PROFILE_KIND)
KINDS_IGNORED = (
    "Namespace",
    "PodDisruptionBudget",
    "PriorityClass",
    "ReplicaSet",
    "ReplicationController",
    "Service",
    "StatefulSet",
)
"""Kinds that may stand beside nodes and pods, and that no plugin reads yet."""

SCENARIO_KEYS = ("objects", "schedule", "profile", "usage")
SCENARIO_NOTES = frozenset(
    (
        "about", "article_claims", "article_error", "article_figures", "conventions", "derived",
        "description", "equation", "expect", "expect_detail", "function", "given", "given_in_seed", "id",
        "missing_in_seed", "name", "note", "notes", "origin", "origin_values", "published_figures", "rule",
        "schema", "source", "stage", "title", "tolerance", "topic",
    )
)  # fmt: skip
"""What may stand in a scenario for its readers: names, sources, and what a test expects of the answer."""


class Given(NamedTuple):
    """One object of the input: the event that it stands for, and what paths in errors begin with."""

    type: str
    manifest: Any
    path: str


class Plan:
    """A made-up cluster and the pods to place on it, in order.

    A pod that names a profile which does not exist waits, as with a worker.

    Parameters
    ----------
    seed : int
        Decides between nodes of equal score.
    profile : Profile, optional
        What all pods are placed with; without it each pod names a built-in profile or one of the objects.
    lenient : bool
        Take objects exactly as they are written; without it a node that does not say how many pods it takes
        takes as many as kubelet's default, and a node affinity with a mistake is an error.

    Raises
    ------
    FieldError
        The profile makes no sense.
    """

    def __init__(self, *, seed: int = 0, profile: Profile | None = None, lenient: bool = False) -> None:
        self.state = ClusterState(seed=seed)
        self.usage: Usage | None = None  # instead of what the objects say
        self._only = None if profile is None else ProfilePlan(profile)
        self._plans: dict[str, ProfilePlan] = {}
        self._lenient = lenient

    def add(self, given: Given) -> None:
        """Take one object.

        Raises
        ------
        FieldError
            With the path of the field, what is wrong and what is allowed.
        """
        if isinstance(given.manifest, Mapping) and given.manifest.get("kind") == PROFILE_KIND:
            self._add_profile(given)
            return
        event = self._event(given)
        if event is None:
            return
        for change in self.state.apply(event):
            if isinstance(change, Refused):
                raise FieldError(f"{given.path}.{change.path.removeprefix('object.')}", change.message)

    def _add_profile(self, given: Given) -> None:
        profile = profile_from_manifest(given.manifest, path=given.path)
        if given.type == "DELETED":
            self._plans.pop(profile.name, None)
            return
        try:
            self._plans[profile.name] = ProfilePlan(profile)
        except FieldError as error:
            raise FieldError(f"{given.path}.spec.{error.path}", error.message) from None

    def waiting(self) -> list[str]:
        """Return the pods without a node, in the order in which they came."""
        return [key for key, entry in self.state.pods.items() if not entry.node]

    def astray(self) -> list[tuple[str, str]]:
        """Return the pods that are bound to a node which does not exist, and that node."""
        nodes = self.state.table.rows
        return [(key, e.node) for key, e in self.state.pods.items() if e.node and e.node not in nodes]

    def place(self, schedule: Iterable[str], path: str = "schedule") -> list[Verdict]:
        """Evaluate pods in order, each one placed before the next is looked at.

        Raises
        ------
        FieldError
            A name that is no waiting pod.
        """
        verdicts: list[Verdict] = []
        self.state.table.requested[RECENT_FIXED : RECENT_SILENT + 1] = 0  # usage is that of all objects
        for i, name in enumerate(schedule):
            key = name if "/" in name else f"default/{name}"
            entry = self.state.pods.get(key)
            if entry is None or entry.node:
                problem = "is not among the objects" if entry is None else f"is on node {entry.node} already"
                raise FieldError(f"{path}[{i}]", f"pod {shown(key)} {problem}")
            pod = entry.spec
            view = NodeView(self.state, self.usage)
            verdict = evaluate(self.state, self._plan_of(pod.template.profile), pod, view)
            verdicts.append(verdict)
            if verdict.node is not None:
                self.state.apply(Assumed([key], np.array([self.state.table.rows[verdict.node]])))
        return verdicts

    def profiles(self) -> list[str]:
        """Return the names of the profiles that a pod may name."""
        return list(dict.fromkeys((*BUILT_IN_PROFILES, *self._plans)))

    def _plan_of(self, name: str) -> ProfilePlan | None:
        if self._only is not None:
            return self._only
        if name not in self._plans and name in BUILT_IN_PROFILES:
            self._plans[name] = ProfilePlan(BUILT_IN_PROFILES[name])
        return self._plans.get(name)

    def _event(self, given: Given) -> Event | None:
        manifest = given.manifest
        kind = manifest.get("kind") if isinstance(manifest, Mapping) else None
        if kind not in KINDS_USED:
            if kind in KINDS_IGNORED:
                return None
            raise FieldError(
                f"{given.path}.kind",
                f"{shown(kind)} is not planned with; allowed are {', '.join(KINDS_USED)} "
                f"(and, without effect, {', '.join(KINDS_IGNORED)})",
            )
        if kind == "Node":
            node = node_from_manifest(manifest, path=given.path, strict=False)
            if given.type == "DELETED":
                return NodeDeleted(node.name, resource_version=node.resource_version)
            if not self._lenient and node.allocatable and "pods" not in node.allocatable:
                room = {**node.allocatable, "pods": DEFAULT_NODE_PODS}
                node = msgspec.structs.replace(node, allocatable=room)
            return NodeUpserted(node)
        if kind == "NodeUsage":
            usage = convert_manifest(manifest, WireNodeUsage, given.path)
            return None if given.type == "DELETED" else NodeUsed(usage_from_wire(usage, 0, given.path))
        pod = pod_from_manifest(manifest, path=given.path, strict=False, lenient=self._lenient)
        if given.type == "DELETED":
            return PodDeleted(pod.namespace, pod.name, resource_version=pod.resource_version)
        return PodUpserted(pod)


def is_scenario(document: Any) -> bool:
    """Say whether a document is a scenario, if one with a slip in a key, and not a manifest or an event."""
    if not isinstance(document, dict) or "kind" in document or {"type", "object"} <= document.keys():
        return False
    return any(key in SCENARIO_KEYS or _meant(key) for key in document)


def unread(document: Mapping[str, Any]) -> list[str]:
    """Say what a scenario holds in vain: keys, fields and measured nodes that the plan takes no notice of."""
    known = ", ".join(SCENARIO_KEYS)
    found = [
        f"{_at(key)}: is no key of a scenario, so it is ignored; a scenario has {known}"
        for key in document
        if key not in SCENARIO_KEYS and key not in SCENARIO_NOTES
    ]
    for i, manifest in enumerate(document["objects"]):
        found += [ignored(*slip) for slip in slips(manifest, f"objects[{i}]")]
    nodes = {thing["metadata"]["name"] for thing in document["objects"] if thing["kind"] == "Node"}
    usage = document.get("usage") or {}
    return found + [
        f"{key_path('usage', node)}: no node of the objects has this name, so it is ignored"
        for node in usage
        if node not in nodes
    ]


def plan_scenario(
    document: Mapping[str, Any], *, seed: int = 0, profile: Profile | None = None
) -> list[Verdict]:
    """Return a verdict for every pod that a scenario schedules, in order.

    Parameters
    ----------
    document : mapping
        ``objects`` (manifests; a pod is bound when it has ``spec.nodeName``), ``schedule`` (names of the
        pods to place, in order; all waiting pods when it is missing), ``profile`` and optionally ``usage``
        (node -> resource -> ``avg``, ``std``, ``latest``, ``peak`` in percent). Other keys are ignored
        (``unread`` tells), but not those that look like a slip of one of these.
    seed : int
        Decides between nodes of equal score.
    profile : Profile, optional
        Instead of the scenario's own.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    for key in document:
        if meant := _meant(key):
            raise FieldError(_at(key), f"is no key of a scenario; did you mean {meant}?")
    own = document.get("profile")
    if profile is None and own is not None:
        profile = profile_from_manifest(own, path="profile")
    try:
        plan = Plan(seed=seed, profile=profile, lenient=True)
    except FieldError as error:
        raise FieldError(f"profile.{error.path}", error.message) from None
    if document.get("usage") is not None:
        plan.usage = usage_from_manifest(document["usage"])
    _add_objects(plan, _list(document, "objects"))
    if "schedule" not in document:
        return plan.place(plan.waiting())
    schedule = _list(document, "schedule")
    for i, name in enumerate(schedule):
        if not isinstance(name, str):
            raise FieldError(f"schedule[{i}]", f"expected the name of a pod, got {shown(name)}")
    return plan.place(schedule)


def _add_objects(plan: Plan, objects: list[Any]) -> None:
    first: dict[tuple[str, str, str], int] = {}
    for i, manifest in enumerate(objects):
        plan.add(Given("ADDED", manifest, f"objects[{i}]"))
        kind = manifest["kind"]
        if kind not in KINDS_USED or kind == "NodeUsage":
            continue
        meta = manifest.get("metadata") or {}
        namespace = (meta.get("namespace") or "default") if kind == "Pod" else ""
        at = first.setdefault((kind, namespace, meta.get("name") or ""), i)
        if at != i:
            raise FieldError(
                f"objects[{i}].metadata.name",
                f"{shown(meta.get('name'))} is the {kind} at objects[{at}] already; one of them is too many",
            )


def _meant(key: str) -> str | None:
    """Return the key of a scenario that a key looks like a slip of."""
    return None if key in SCENARIO_NOTES else meant(key, SCENARIO_KEYS)


def _at(key: str) -> str:
    return key_path("", key).removeprefix(".")


def _list(document: Mapping[str, Any], key: str) -> list[Any]:
    if key not in document:
        raise FieldError(key, "is missing; a scenario has objects, a list of manifests")
    value = document[key]
    if not isinstance(value, list):
        raise FieldError(key, f"expected a list, got {shown(value)}")
    return value
