"""Pods by class: what other pods can tell apart of a pod, so that what spans pods is counted class by class.

Only labels that some selector mentions tell pods apart, and what a pod carries: terms of affinity, host
ports, being a master. A pod has no class where nobody could ask for it: nothing is kept of it here.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

from domain.model.anchors import EVERY, anchors_of_pod, anchors_of_term
from domain.model.limits import signatures_cached_max
from domain.model.marks import Mark, TermMark, marks_of, terms_of
from domain.model.pods import PodSpec, PodTemplate
from domain.model.selectors import LabelSelector
from domain.state.pod_classes import Carried, PodClass
from domain.state.pods import PodEntry
from domain.state.watching import Watching

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_SPREAD_KINDS = ("ReplicationController", "ReplicaSet", "StatefulSet")
"""Kinds of controllers whose pods kube-scheduler spreads by default."""


class _Asked(NamedTuple):
    """What a template carries, and the label keys it mentions: in its own namespace, and by its terms."""

    carried: Carried | None
    own_keys: tuple[str, ...] | None
    terms: tuple[TermMark, ...]


class PodIndex:
    """The classes of all pods that exist, and where their pods count.

    Attributes
    ----------
    namespaces : dict
        Name -> labels of its Namespace object; without an object it is missing.
    journal : list or None
        Class, node and ±1 for each pod that came to a node or left it, but for those that a cycle placed;
        None while nobody reads it. ``CounterTable`` empties it.
    version : int
        Moves when a term comes to be carried that nobody carried before, and when the labels of a namespace
        change.
    """

    def __init__(self) -> None:
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.journal: list[tuple[PodClass, str, int]] | None = None
        self.version = 0
        self.terms_version = 0  # the part of ``version`` that is about terms: these refuse more, never less
        self.namespaces_version = 0
        self._next_number = 0
        self._classes: dict[Hashable, PodClass] = {}
        self._anchored: dict[Hashable, dict[PodClass, None]] = {}
        self._carried: WeakValueDictionary[frozenset[tuple[Mark, int]], Carried] = WeakValueDictionary()
        self._asked: dict[bytes, _Asked | None] = {}
        self._plain: set[bytes] = set()  # signatures of templates that carry and mention nothing
        self._watched_for: set[tuple[bytes, str]] = set()
        self._watching = Watching()
        self._terms: dict[Hashable, dict[TermMark, int]] = {}  # by anchor; how many classes carry it
        self._pods: dict[str, set[str]] | None = None  # keys by namespace, once a selector has asked

    # ----------------------------------------------------------------------------------------- pods

    def enter(self, entry: PodEntry) -> None:
        """Take a pod that begins to exist."""
        pod = entry.spec
        if self._pods is not None:
            self._pods.setdefault(pod.namespace, set()).add(pod.key)
        if pod.signature not in self._plain or pod.controller is not None or self._watching.has_any:
            entry.pod_class = self._take(pod)

    def leave(self, entry: PodEntry) -> None:
        """Forget a pod, which counts on no node any more."""
        if self._pods is not None:
            keys = self._pods[entry.spec.namespace]
            keys.discard(entry.spec.key)
            if not keys:
                del self._pods[entry.spec.namespace]
        if entry.pod_class is not None:
            self._drop(entry.pod_class)

    def renew(self, entry: PodEntry) -> bool:
        """Give a pod whose spec changed its class, and say whether it is another one."""
        before, after = entry.pod_class, self._take(entry.spec)
        if entry.node and before is not after:
            if before is not None:
                self.count(before, entry.node, -1)
            if after is not None:
                self.count(after, entry.node, 1)
        if before is not None:
            self._drop(before)
        entry.pod_class = after
        return before is not after

    def count(self, pod_class: PodClass, node: str, change: int) -> None:
        """Count a pod of a class on a node, or no longer."""
        self.assume(pod_class, node, change)
        if self.journal is not None:
            self.journal.append((pod_class, node, change))

    def assume(self, pod_class: PodClass, node: str, change: int = 1) -> None:
        """Count a pod that a cycle placed, and counted on its own."""
        count = pod_class.by_node.get(node, 0) + change
        if count:
            pod_class.by_node[node] = count
        else:
            del pod_class.by_node[node]

    # -------------------------------------------------------------------------------------- watching

    def watch(self, namespaces: Iterable[str], keys: Iterable[str]) -> None:
        """Tell pods of some namespaces (``EVERY``: of all) apart by these label keys, from ``settle`` on."""
        asked = tuple(keys)
        for namespace in namespaces:
            self._watching.mention(namespace, asked)

    def watch_selector(self, namespace: str, selector: LabelSelector | None) -> None:
        """Tell pods of a namespace apart as far as a selector does."""
        if selector is not None:
            self.watch((namespace,), keys_of(selector))

    def name(self, namespace: str, labels: Mapping[str, str] | None) -> None:
        """Take the labels of a Namespace object; None: there is none any more."""
        if labels is None:
            self.namespaces.pop(namespace, None)
        else:
            self.namespaces[namespace] = labels
        self.version += 1
        self.namespaces_version += 1

    @property
    def is_settled(self) -> bool:
        """Whether all that selectors mention tells pods apart already."""
        return self._watching.is_settled

    def settle(self, pods: Mapping[str, PodEntry]) -> list[PodEntry]:
        """Give pods other classes as far as new selectors demand it; return those that have one now.

        Cost: O(pods of the namespaces in which selectors mention keys that none mentioned before).
        """
        if self.is_settled:
            return []
        if self._pods is None:
            self._pods = {}
            for entry in pods.values():
                self._pods.setdefault(entry.spec.namespace, set()).add(entry.spec.key)
        changed = []
        for namespace, keys in self._watching.settle(self._pods).items():
            for key in sorted(self._pods.get(namespace, ())):
                entry = pods[key]
                if (keys is None or not keys.isdisjoint(entry.spec.labels)) and self.renew(entry):
                    changed.append(entry)
        return changed

    # ----------------------------------------------------------------------------------------- asking

    def __iter__(self) -> Iterator[PodClass]:
        return iter(self._classes.values())

    def classes_with(self, anchors: Iterable[Hashable]) -> Iterator[PodClass]:
        """Yield once each class that has one of some anchors."""
        found: dict[PodClass, None] = {}
        for anchor in anchors:
            if isinstance(anchor, tuple) and anchor[0] == EVERY:
                _, key, value = anchor
                found.update((c, None) for c in self if not key or c.labels.get(key) == value)
            else:
                found.update(self._anchored.get(anchor, {}))
        return iter(found)

    def pods_with(self, mark: Mark) -> int:
        """Return how many pods with a mark exist, placed or waiting."""
        return sum(each.pods_count for each in self._anchored.get(mark, ()))

    def nodes_with(self, mark: Mark) -> dict[str, int]:
        """Return how often a mark is carried on each node, by name."""
        found: dict[str, int] = {}
        for each in self._anchored.get(mark, ()):
            for node, count in each.by_node.items():
                found[node] = found.get(node, 0) + count * each.marks[mark]
        return found

    def terms_near(self, namespace: str, labels: Mapping[str, str]) -> Collection[TermMark]:
        """Return carried terms, once each: those of them that could match a pod, and few that do not."""
        found: dict[TermMark, None] = {}
        for anchor in anchors_of_pod(namespace, labels) if self._terms else ():
            found.update(dict.fromkeys(self._terms.get(anchor, ())))
        return found.keys()

    # ---------------------------------------------------------------------------------------- classes

    def _take(self, pod: PodSpec) -> PodClass | None:
        asked, controller = self._asked.get(pod.signature, _UNKNOWN), pod.controller
        if asked is _UNKNOWN:
            asked = self._ask(pod)
        if controller is not None and controller.kind not in _SPREAD_KINDS:
            controller = None
        if asked is None and controller is None and not self._watching.has_any:
            return None
        namespace, carried = pod.namespace, None
        if asked is not None:
            self._watch_for(asked, pod.signature, namespace)
            carried = asked.carried
        keys = self._watching.keys_of(namespace)
        if keys is None and carried is None and controller is None:
            return None
        labels = {key: pod.labels[key] for key in keys or () if key in pod.labels}
        key = (namespace, tuple(labels.items()), carried, pod.terminating, controller)
        found = self._classes.get(key)
        if found is None:
            self._next_number += 1
            found = PodClass(self._next_number, key, namespace, labels, carried, pod.terminating, controller)
            self._show(found)
        found.pods_count += 1
        return found

    def _drop(self, pod_class: PodClass) -> None:
        pod_class.pods_count -= 1
        if not pod_class.pods_count:
            del self._classes[pod_class.key]
            for anchor in _own_anchors(pod_class):
                _discard(self._anchored, anchor, pod_class)
            for mark in pod_class.marks:
                if isinstance(mark, TermMark):
                    self._count_term(mark, -1)

    def _show(self, pod_class: PodClass) -> None:
        self._classes[pod_class.key] = pod_class
        for anchor in _own_anchors(pod_class):
            self._anchored.setdefault(anchor, {})[pod_class] = None
        for mark in pod_class.marks:
            if isinstance(mark, TermMark):
                self._count_term(mark, 1)

    def _count_term(self, mark: TermMark, change: int) -> None:
        for anchor in anchors_of_term(mark.term):
            counts = self._terms.setdefault(anchor, {})
            is_new = mark not in counts
            self.version += is_new
            self.terms_version += is_new
            counts[mark] = counts.get(mark, 0) + change
            if not counts[mark]:
                _discard(self._terms, anchor, mark)

    def _ask(self, pod: PodSpec) -> _Asked | None:
        if len(self._asked) >= signatures_cached_max:
            self._asked.clear()
            self._plain.clear()
            self._watched_for.clear()
        asked = self._asked[pod.signature] = self._asks(pod.template)
        if asked is None:
            self._plain.add(pod.signature)
        return asked

    def _asks(self, template: PodTemplate) -> _Asked | None:
        marks = marks_of(template)
        if not marks and not template.spread:
            return None
        selectors = [each.selector for each in template.spread if each.selector is not None]
        carried = None
        if marks:
            key = frozenset(marks.items())
            carried = self._carried.get(key)
            if carried is None:
                carried = self._carried[key] = Carried(marks, template)
        own_keys = tuple({key for each in selectors for key in keys_of(each)}) if template.spread else None
        return _Asked(carried, own_keys, tuple(terms_of(template)))

    def _watch_for(self, asked: _Asked, signature: bytes, namespace: str) -> None:
        """Watch what pods of a template ask of others; once each, as a million of them come."""
        if (signature, namespace) in self._watched_for:
            return
        self._watched_for.add((signature, namespace))
        if asked.own_keys is not None:
            self.watch((namespace,), asked.own_keys)
        for mark in asked.terms:
            term = mark.term
            if term.selector is not None:
                where = term.namespaces if term.namespace_selector is None else (EVERY,)
                self.watch(where, keys_of(term.selector))


_UNKNOWN = _Asked(None, None, ())


def keys_of(selector: LabelSelector) -> Iterator[str]:
    """Yield the label keys that a selector mentions."""
    return (each.key for each in selector.requirements)


def _own_anchors(pod_class: PodClass) -> Iterator[Hashable]:
    return (each for each in pod_class.anchors() if not (isinstance(each, tuple) and each[0] == EVERY))


def _discard(index: dict[Hashable, dict[K, V]], anchor: Hashable, member: K) -> None:
    """Remove a member of an index, and the anchor that has no other."""
    members = index[anchor]
    del members[member]
    if not members:
        del index[anchor]
