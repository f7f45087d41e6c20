"""Configuration objects in force, and what they make of the pods that name them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from domain.model.config import (
    CO_LOCATION_POLICY,
    HOSTED_REPLICAS,
    PRIORITY_CLASS,
    ConfigObject,
    Content,
    PodGroup,
    gang_object,
    gang_spec,
)
from domain.model.events import ConfigDeleted, ConfigEvent, ConfigUpserted, PodUpserted
from domain.model.limits import (
    config_gone_max,
    config_objects_max,
    config_objects_of_namespace_max,
    hosted_objects_max,
    hosted_objects_of_namespace_max,
    policies_max,
    priority_classes_max,
    signatures_cached_max,
)
from domain.model.pods import PodSpec, PodTemplate
from domain.model.priorities import NEVER, SYSTEM_CLASSES, PriorityClass
from domain.model.signature import signature
from domain.state.changes import Change, ConfigChanged, PodResolved, Refused, Skipped
from domain.state.pod_index import PodIndex
from domain.state.pods import PodEntry
from domain.state.policies import Policies
from domain.state.remembering import Remembered
from domain.state.selecting import Selectors
from domain.state.versions import is_older, is_stale, newer_of, skip_reason

_MOST = {
    PRIORITY_CLASS: ("priority_classes_max", priority_classes_max),
    CO_LOCATION_POLICY: ("policies_max", policies_max),
    HOSTED_REPLICAS: ("hosted_objects_max", hosted_objects_max),
}
"""Of which kinds fewer objects may be in force than of others, and by which limit."""
_MOST_OF_NAMESPACE = {HOSTED_REPLICAS: ("hosted_objects_of_namespace_max", hosted_objects_of_namespace_max)}
"""The same of those in one namespace."""


class Config:
    """The configuration objects that were seen. Also those that are gone: a late duplicate stays late.

    Attributes
    ----------
    known : dict
        Kind, namespace and name -> the latest of the object.
    priorities : Priorities
        What the priority classes say.
    policies : Policies
        Which co-location policy holds on a node.
    selectors : Selectors
        What the objects say that select pods.
    """

    def __init__(self, index: PodIndex) -> None:
        self.known: dict[tuple[str, str, str], ConfigObject] = {}
        self.priorities = Priorities()
        self.policies = Policies()
        self.selectors = Selectors(index)
        self._hosted = index.hosted
        self._counts: Counter[tuple[str, str]] = Counter()  # of those in force, by kind and namespace
        self._totals: Counter[str] = Counter()  # by kind
        self._gone = Remembered[tuple[str, str, str], None]()

    def fold(self, event: ConfigEvent, pods: Mapping[str, PodEntry]) -> tuple[Change, ...]:
        """Take an event whose object was checked; pods that waited for it have what they were missing.

        Cost: O(1), and O(pods) where a priority class comes or changes, which is rare.
        """
        changes = self._upsert(event) if isinstance(event, ConfigUpserted) else self._delete(event)
        is_refused = not isinstance(changes[0], ConfigChanged)
        if is_refused or event.kind != PRIORITY_CLASS or isinstance(event, ConfigDeleted):
            return changes
        waiting = [each for each in pods.values() if not each.node and each.spec.template.missing]
        return (
            *changes,
            *(self._resolve(e) for e in waiting if e.spec.template.priority_class == event.name),
        )

    def with_priority(self, event: PodUpserted, pods: Mapping[str, PodEntry]) -> PodSpec:
        """Return the pod of an event, with the priority of its class where it says none itself."""
        pod, asked = event.pod, event.priority_class
        if asked is None:  # as nearly all do
            return pod
        known = pods.get(pod.key)
        return self.priorities.with_priority(pod, asked, None if known is None else known.spec)

    def gang(self, gang: str) -> PodGroup | None:
        """Return what holds for a gang (as ``namespace/name``); None: nothing says so."""
        namespace, _, name = gang.partition("/")
        kind, of = gang_object(name)
        known = self.known.get((kind, namespace, of))
        return None if known is None else gang_spec(known.content, name)

    def _resolve(self, entry: PodEntry) -> Change:
        before = entry.spec
        entry.spec = self.priorities.with_priority(before, before.template.priority_class, None)
        return PodResolved(entry.spec, entry.arrival, before)

    def _upsert(self, event: ConfigUpserted) -> tuple[Change, ...]:
        known = self.known.get((event.kind, event.namespace, event.name))
        if known is not None and is_stale(event.resource_version, known.resource_version):
            return (Skipped(skip_reason(event.resource_version, known.resource_version)),)
        is_new = known is None or known.content is None
        if is_new and (why := self._why_too_many(event.kind, event.namespace)):
            return (Refused("object.metadata.name", why),)
        before = None if known is None else known.resource_version
        newest = newer_of(event.resource_version, before)
        return self._change(event, event.content, newest)

    def _why_too_many(self, kind: str, namespace: str) -> str:
        """Say why there may be no further object, "" where there may: each namespace has its own bound."""
        in_namespace, total = self._counts[kind, namespace], self._totals[kind]
        other = ("config_objects_of_namespace_max", config_objects_of_namespace_max)
        name, most = _MOST_OF_NAMESPACE.get(kind, other)
        if namespace and in_namespace >= most:
            bound = f"{most} ({name})"
            return f"{in_namespace} of kind {kind} are in force in namespace {namespace}; allowed are {bound}"
        name, most = _MOST.get(kind, ("config_objects_max", config_objects_max))
        return f"{total} of kind {kind} are in force; allowed are {most} ({name})" if total >= most else ""

    def _delete(self, event: ConfigDeleted) -> tuple[Change, ...]:
        known = self.known.get((event.kind, event.namespace, event.name))
        if known is None:
            return (Skipped(),)
        if is_older(event.resource_version, known.resource_version):
            return (Skipped("older"),)
        # Without a version it forgets the known one: nothing else lets a name go on after a wrong version.
        return self._change(event, None, event.resource_version)

    def _change(self, event: ConfigEvent, content: Content | None, newest: int | None) -> tuple[Change, ...]:
        thing = ConfigObject(
            kind=event.kind,
            namespace=event.namespace,
            name=event.name,
            content=content,
            resource_version=newest,
        )
        if thing == self.known.get(thing.key):
            return (Skipped(),)
        self.put(thing)
        changes = [ConfigChanged(thing)]
        if len(self._gone) > config_gone_max:
            for kind, namespace, name in sorted(self._gone.make_room(config_gone_max)):
                forgotten = ConfigObject(kind=kind, namespace=namespace, name=name, content=None)
                self.put(forgotten)
                changes.append(ConfigChanged(forgotten))
        return tuple(changes)

    def put(self, thing: ConfigObject) -> None:
        """Know an object as it is now. From the ledger what is gone comes in the order in which it went."""
        before = self.known.pop(thing.key, None)
        change = (thing.content is not None) - (before is not None and before.content is not None)
        self._totals[thing.kind] += change
        self._counts[thing.kind, thing.namespace] += change
        if not self._counts[thing.kind, thing.namespace]:
            del self._counts[thing.kind, thing.namespace]
        self._gone.forget_entry(thing.namespace, thing.key)
        if not thing.is_forgotten:
            self.known[thing.key] = thing
            if thing.content is None:
                self._gone.put(thing.namespace, thing.key, None)
        if thing.kind == PRIORITY_CLASS:
            assert thing.content is None or isinstance(thing.content, PriorityClass)
            self.priorities.put(thing.name, thing.content)
        elif thing.kind == CO_LOCATION_POLICY:
            self.policies.put(thing)
        elif thing.kind == HOSTED_REPLICAS:
            self._hosted.put(thing)
        else:
            self.selectors.put(thing)


class Priorities:
    """The priority classes in force, and the priority that a pod has by one.

    As in a Kubernetes API server the class is looked up when the pod comes: what becomes of the class later
    does not change the pod.
    """

    def __init__(self) -> None:
        self._classes = dict(SYSTEM_CLASSES)
        self._default: PriorityClass | None = None
        self._settled: dict[tuple[bytes, str, PriorityClass | None], tuple[PodTemplate, bytes]] = {}

    def put(self, name: str, content: PriorityClass | None) -> None:
        """Let a class be in force, or no longer; the system's always are."""
        if content is not None:
            self._classes[name] = content
        elif name not in SYSTEM_CLASSES:
            self._classes.pop(name, None)
        # Of several defaults Kubernetes takes the one of the lowest value.
        defaults = [each for each in self._classes.values() if each.global_default]
        self._default = min(defaults, key=lambda each: (each.value, each.name), default=None)

    def value_of(self, template: PodTemplate, asked: str) -> int:
        """Return the priority that pods of a template have that come now, by a class, "" the default one."""
        found = self._classes.get(asked) if asked else self._default
        return template.priority if found is None else found.value

    def with_priority(self, pod: PodSpec, asked: str, known: PodSpec | None) -> PodSpec:
        """Return a pod with the priority that it has by a class, "" for the default one.

        A pod that is ``known`` keeps what it has, unless it names another class or its class was not there.
        One whose class is not there waits for it.
        """
        found: PriorityClass | None
        if known is not None and known.uid == pod.uid and _is_settled(known.template, asked):
            kept = known.template
            found = PriorityClass(name=asked, value=kept.priority, preemption_policy=kept.preemption_policy)
        elif asked:
            found = self._classes.get(asked)
        elif self._default is None:
            return pod
        else:
            found = self._default
        if found is not None and not asked and not found.value and found.preemption_policy != NEVER:
            return pod
        key = (pod.signature, asked, found)
        settled = self._settled.get(key)
        if settled is None:
            if len(self._settled) >= signatures_cached_max:
                self._settled.clear()
            template = _with_class(pod.template, asked, found)
            settled = self._settled[key] = (template, signature(template))
        return msgspec.structs.replace(pod, template=settled[0], signature=settled[1])


def _is_settled(template: PodTemplate, asked: str) -> bool:
    return template.priority_class == asked and not template.missing


def _with_class(template: PodTemplate, asked: str, found: PriorityClass | None) -> PodTemplate:
    if found is None:
        missing = (f"unknown-priority-class:{asked}",)
        return msgspec.structs.replace(template, priority_class=asked, missing=missing)
    policy = (
        NEVER if NEVER in (template.preemption_policy, found.preemption_policy) else found.preemption_policy
    )
    return msgspec.structs.replace(
        template, priority=found.value, preemption_policy=policy, priority_class=asked, missing=()
    )
