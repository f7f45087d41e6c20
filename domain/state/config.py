"""Configuration objects in force, and what they make of the pods that name them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from domain.model.config import PRIORITY_CLASS, ConfigObject
from domain.model.events import ConfigDeleted, ConfigEvent, ConfigUpserted, PodUpserted
from domain.model.limits import priority_classes_max, signatures_cached_max
from domain.model.pods import PodSpec, PodTemplate
from domain.model.priorities import NEVER, SYSTEM_CLASSES, PriorityClass
from domain.model.signature import signature
from domain.state.changes import Change, ConfigChanged, PodResolved, Refused, Skipped
from domain.state.pods import PodEntry
from domain.state.versions import is_older, is_stale, newer_of, skip_reason


class Config:
    """Every configuration object that was seen, also those that are gone: a late duplicate stays late."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str, str], ConfigObject] = {}
        self.priorities = Priorities()

    def fold(self, event: ConfigEvent, pods: Mapping[str, PodEntry]) -> tuple[Change, ...]:
        """Take an event whose object was checked; pods that waited for it have what they were missing.

        Cost: O(pods) where an object comes or changes, which is rare.
        """
        change = self._upsert(event) if isinstance(event, ConfigUpserted) else self._delete(event)
        if not isinstance(change, ConfigChanged) or change.object.content is None:
            return (change,)
        waiting = [each for each in pods.values() if not each.node and each.spec.template.missing]
        named = change.object.name
        return (change, *(self._resolve(e) for e in waiting if e.spec.template.priority_class == named))

    def settled(self, event: PodUpserted, pods: Mapping[str, PodEntry]) -> PodSpec:
        """Return the pod of an event, with the priority of its class where it says none itself."""
        pod, asked = event.pod, event.priority_class
        if asked is None:
            return pod
        known = pods.get(pod.key)
        return self.priorities.settle(pod, asked, None if known is None else known.spec)

    def _resolve(self, entry: PodEntry) -> Change:
        before = entry.spec
        entry.spec = self.priorities.settle(before, before.template.priority_class, None)
        return PodResolved(entry.spec, entry.arrival, before)

    def restore(self, thing: ConfigObject) -> None:
        """Put an object back as the ledger has it."""
        self.known[thing.key] = thing
        self.priorities.put(thing.name, thing.content)

    def _upsert(self, event: ConfigUpserted) -> Change:
        known = self.known.get((PRIORITY_CLASS, "", event.content.name))
        if known is not None and is_stale(event.resource_version, known.resource_version):
            return Skipped(skip_reason(event.resource_version, known.resource_version))
        if known is None and len(self.known) >= priority_classes_max:
            in_force = sum(each.content is not None for each in self.known.values())
            if in_force >= priority_classes_max:
                message = (
                    f"{in_force} are in force; allowed are {priority_classes_max} (priority_classes_max)"
                )
                return Refused("object.metadata.name", message)
        before = None if known is None else known.resource_version
        newest = newer_of(event.resource_version, before)
        return self._change(event.content.name, event.content, newest)

    def _delete(self, event: ConfigDeleted) -> Change:
        known = self.known.get((event.kind, event.namespace, event.name))
        if known is None:
            return Skipped()
        if is_older(event.resource_version, known.resource_version):
            return Skipped("older")
        # Without a version it forgets the known one: nothing else lets a name go on after a wrong version.
        return self._change(event.name, None, event.resource_version)

    def _change(self, name: str, content: PriorityClass | None, newest: int | None) -> Change:
        known = self.known.get((PRIORITY_CLASS, "", name))
        thing = ConfigObject(
            kind=PRIORITY_CLASS,
            namespace="",
            name=name,
            content=content,
            resource_version=newest,
        )
        if thing == known:
            return Skipped()
        self.restore(thing)
        return ConfigChanged(thing)


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

    def settle(self, pod: PodSpec, asked: str, known: PodSpec | None) -> PodSpec:
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
