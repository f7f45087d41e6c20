"""Pods by class: what other pods can tell apart of a pod, so that what spans pods is counted class by class.

Only labels that some selector mentions tell pods apart (``watching``), and what a pod carries: terms of
affinity, selectors of spread constraints, host ports, being a master. A pod has no class where no other pod
could ask for it: nothing is kept of it here.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from weakref import WeakValueDictionary

from domain.model.anchors import EVERY, anchors_of_pod, anchors_of_term
from domain.model.limits import signatures_cached_max
from domain.model.marks import Mark, TermMark, marks_of
from domain.model.pods import PodSpec
from domain.model.priorities import PRIORITY_MAX
from domain.model.selectors import LabelSelector
from domain.state.gang_members import GangMembers
from domain.state.hosted import Hosted
from domain.state.members import discard
from domain.state.pod_classes import Carried, PodClass
from domain.state.pods import PodEntry
from domain.state.watching import Watching
from domain.state.wide_terms import WideTerms

_SPREAD_KINDS = ("ReplicationController", "ReplicaSet", "StatefulSet")
"""Kinds of controllers whose pods kube-scheduler spreads by default."""


class PodIndex:
    """The classes of all pods that exist, and where their pods count.

    Attributes
    ----------
    gangs : GangMembers
        The pods of each gang.
    hosted : Hosted
        The pods of each hosted workload.
    namespaces : dict
        Name -> labels of its Namespace object; without an object it is missing.
    journal : list or None
        Class, node and ±1 for each pod that came to a node or left it, but for those that a cycle placed;
        None, a namespace and 0 where the labels of its Namespace object changed. None while it is not read.
        ``CounterTable`` empties it.
    changed : set of PodClass or None
        Classes that have other numbers of pods than when ``Budgets`` last emptied it; None while none asks,
        or once there are too many.
    renewed : set of str or None
        Names of nodes on which a pod became another without a change of what the node holds. None while
        it is not read. ``Victims`` empties it.
    moves : int
        Moves whenever a pod with a class comes to a node or leaves it.
    version : int
        Moves when a term comes to be carried that no pod carried before, and with ``selects_version``.
        ``version_for`` says whether it concerns a class.
    selects_version : int
        Moves when the labels of a namespace change, or what Services and owners select in it: with it rules
        may refuse less, while terms only refuse more. ``selects_of`` says in which namespace.
    """

    def __init__(self) -> None:
        self.gangs = GangMembers()
        self.hosted = Hosted()
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.journal: list[tuple[PodClass | None, str, int]] | None = None
        self.changed: set[PodClass] | None = None
        self.renewed: set[str] | None = None
        self.lowest_priority = PRIORITY_MAX  # of all pods that came since the last restart
        self.moves = 0
        self.version = 0
        self.selects_version = 0
        self._selects: dict[str, int] = {}  # by namespace
        self._selects_elsewhere = 0
        self._next_number = 0
        self._classes: dict[Hashable, PodClass] = {}
        self._anchored: dict[Hashable, dict[PodClass, None]] = {}
        self._carried: WeakValueDictionary[Hashable, Carried] = WeakValueDictionary()
        self._asked: dict[bytes, Carried | None] = {}
        self._plain: set[bytes] = set()  # signatures of templates that carry and mention nothing
        self._watching = Watching()
        self._wide: dict[str, WideTerms] = {}  # by the namespace of those that carry them
        self._terms: dict[Hashable, dict[TermMark, int]] = {}  # by anchor; how many classes carry it
        self._term_versions: dict[Hashable, int] = {}  # ``version`` when an anchor's latest term came
        self._pods: dict[str, set[str]] | None = None  # keys by namespace, once a selector has asked

    # ----------------------------------------------------------------------------------------- pods

    def add_pod(self, entry: PodEntry) -> None:
        """Take a pod that begins to exist."""
        pod = entry.spec
        key = pod.key
        if pod.template.priority < self.lowest_priority:
            self.lowest_priority = pod.template.priority
        if self._pods is not None:
            self._pods.setdefault(pod.namespace, set()).add(key)
        if pod.template.gang:
            self.gangs.add_pod(pod.template.gang, key)
        if pod.controller is not None:
            self.hosted.add_pod(pod)
        labels = None
        if self._watching.watched:
            labels = self._watching.add_pod(key, pod)
        elif pod.signature in self._plain and pod.controller is None:
            return
        entry.pod_class = self._count_in_class(pod, labels)

    def forget_pod(self, entry: PodEntry) -> None:
        """Forget a pod, which counts on no node any more."""
        key, namespace = entry.spec.key, entry.spec.namespace
        if entry.spec.template.gang:
            self.gangs.forget_pod(entry.spec.template.gang, key)
        if entry.spec.controller is not None:
            self.hosted.forget_pod(entry.spec)
        if self._watching.watched:
            self._watching.forget_pod(key, entry.spec)
        if self._pods is not None:
            keys = self._pods[namespace]
            keys.discard(key)
            if not keys:
                del self._pods[namespace]
        if entry.pod_class is not None:
            self._uncount_in_class(entry.pod_class)

    def update_pod(self, entry: PodEntry, pod: PodSpec) -> bool:
        """Give a pod its new spec and class, and say whether that is another class."""
        if entry.spec.template.gang or pod.template.gang:
            self.gangs.forget_pod(entry.spec.template.gang, pod.key)
            self.gangs.add_pod(pod.template.gang, pod.key)
        if entry.spec.controller != pod.controller:
            self.hosted.forget_pod(entry.spec)
            self.hosted.add_pod(pod)
        labels = None
        if self._watching.watched:
            self._watching.forget_pod(pod.key, entry.spec)
            labels = self._watching.add_pod(pod.key, pod)
        entry.spec = pod
        self.lowest_priority = min(self.lowest_priority, pod.template.priority)
        if self.renewed is not None and entry.node:
            self.renewed.add(entry.node)
        before, after = entry.pod_class, self._count_in_class(pod, labels)
        if entry.node and before is not after:
            if before is not None:
                self.count_pod(before, entry.node, -1)
            if after is not None:
                self.count_pod(after, entry.node, 1)
        if before is not None:
            self._uncount_in_class(before)
        entry.pod_class = after
        return before is not after

    def count_pod(self, pod_class: PodClass, node: str, change: int) -> None:
        """Count a pod of a class on a node, or no longer."""
        self.count_placed_pod(pod_class, node, change)
        if self.journal is not None:
            self.journal.append((pod_class, node, change))

    def count_placed_pod(self, pod_class: PodClass, node: str, change: int = 1) -> None:
        """Count a pod that a cycle placed, and counted on its own."""
        self.moves += 1
        pod_class.placed_count += change
        if self.changed is not None:
            self._note(pod_class)
        count = pod_class.by_node.get(node, 0) + change
        if count:
            pod_class.by_node[node] = count
        else:
            del pod_class.by_node[node]

    def _note(self, pod_class: PodClass) -> None:
        assert self.changed is not None
        self.changed.add(pod_class)
        if len(self.changed) > signatures_cached_max:
            self.changed = None

    # -------------------------------------------------------------------------------------- watching

    def watch(self, namespace: str, selector: LabelSelector | None, change: int = 1) -> None:
        """Tell pods of a namespace (``EVERY``: of all) apart as far as a selector does; ``-1``: no more."""
        if selector is not None:
            self._watching.mention(namespace, selector, change)

    def label_namespace(self, namespace: str, labels: Mapping[str, str] | None) -> None:
        """Take the labels of a Namespace object; None: there is none any more."""
        if labels is None:
            self.namespaces.pop(namespace, None)
        else:
            self.namespaces[namespace] = labels
        self.select_anew(namespace)
        self.moves += 1
        if self.journal is not None:
            self.journal.append((None, namespace, 0))

    def select_anew(self, namespace: str) -> None:
        """Record that pods of a namespace may be selected otherwise from now on."""
        self.version += 1
        self.selects_version += 1
        if len(self._selects) >= signatures_cached_max:
            self._selects.clear()
            self._selects_elsewhere = self.version
        self._selects[namespace] = self.version

    def selects_of(self, namespace: str) -> int:
        """Return what moves with each ``select_anew`` of a namespace."""
        return self._selects.get(namespace, self._selects_elsewhere)

    def version_for(self, pod_class: PodClass) -> int:
        """Return what moves when pods of a class may be meant by another term, or selected otherwise."""
        anchors = anchors_of_pod(pod_class.namespace, pod_class.labels) if self._term_versions else ()
        terms = (self._term_versions.get(anchor, 0) for anchor in anchors)
        return max(self.selects_of(pod_class.namespace), *terms, 0)

    @property
    def is_settled(self) -> bool:
        """Whether all that selectors mention tells pods apart already."""
        return self._watching.is_settled

    def reclassify(self, pods: Mapping[str, PodEntry]) -> list[PodEntry]:
        """Give pods other classes as far as selectors that came or went demand it; return those that have.

        Cost: see ``Watching.take_moved``.
        """
        if self.is_settled:
            return []
        if self._pods is None:
            self._pods = {}
            for entry in pods.values():
                self._pods.setdefault(entry.spec.namespace, set()).add(entry.spec.key)
        concerned = [pods[key] for key in self._watching.take_moved(self._pods, pods)]
        return [entry for entry in concerned if self.update_pod(entry, entry.spec)]

    # ----------------------------------------------------------------------------------------- asking

    def __iter__(self) -> Iterator[PodClass]:
        return iter(self._classes.values())

    def __len__(self) -> int:
        return len(self._classes)

    def classes_with(self, anchors: Collection[Hashable]) -> Iterator[PodClass]:
        """Yield once each class that has one of some anchors."""
        found: dict[PodClass, None] = {}
        if len(anchors) == 1:  # as nearly always
            (anchor,) = anchors
            if not (isinstance(anchor, tuple) and anchor[0] == EVERY):
                return iter(self._anchored.get(anchor, found))
        for anchor in anchors:
            if isinstance(anchor, tuple) and anchor[0] == EVERY:
                _, key, value = anchor
                found.update((c, None) for c in self if not key or c.labels.get(key) == value)
            else:
                found.update(self._anchored.get(anchor, {}))
        return iter(found)

    def crowd(self, anchors: Iterable[Hashable]) -> int:
        """Return about how many classes have one of some anchors. Cost: O(anchors)."""
        return sum(
            len(self._classes)
            if isinstance(anchor, tuple) and anchor[0] == EVERY
            else len(self._anchored.get(anchor, ()))
            for anchor in anchors
        )

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

    def admits(self, namespace: str, mark: TermMark) -> bool:
        """Say whether a term holds that pods of a namespace carry; see ``WideTerms``."""
        wide = self._wide.get(namespace)
        return wide is None or mark not in wide.waiting

    def terms_near(self, namespace: str, labels: Mapping[str, str]) -> Collection[TermMark]:
        """Return carried terms, once each: those of them that could match a pod, and few that do not."""
        found: dict[TermMark, None] = {}
        for anchor in anchors_of_pod(namespace, labels) if self._terms else ():
            found.update(dict.fromkeys(self._terms.get(anchor, ())))
        return found.keys()

    # ---------------------------------------------------------------------------------------- classes

    def _count_in_class(self, pod: PodSpec, labels: dict[str, str] | None) -> PodClass | None:
        """Count a pod in its class, given what tells it apart."""
        carried, controller = self._asked.get(pod.signature, _UNKNOWN), pod.controller
        if carried is _UNKNOWN:
            carried = self._read_carried(pod)
        if controller is not None and controller.kind not in _SPREAD_KINDS:
            controller = None
        namespace = pod.namespace
        if labels is None and carried is None and controller is None:
            return None
        key = (namespace, tuple((labels or {}).items()), carried, pod.terminating, controller)
        found = self._classes.get(key)
        if found is None:
            if carried is not None:  # first of all, as its own selectors may tell the pod apart
                self._mention(namespace, carried, 1)
                labels = self._watching.labels_of(namespace, pod.labels)
                key = (namespace, tuple((labels or {}).items()), carried, pod.terminating, controller)
            self._next_number += 1
            number = self._next_number
            found = PodClass(number, key, namespace, labels or {}, carried, pod.terminating, controller)
            self._add_class(found)
        found.pods_count += 1
        if self.changed is not None:
            self._note(found)
        return found

    def _uncount_in_class(self, pod_class: PodClass) -> None:
        pod_class.pods_count -= 1
        if self.changed is not None:
            self._note(pod_class)
        if not pod_class.pods_count:
            del self._classes[pod_class.key]
            for anchor in _own_anchors(pod_class):
                discard(self._anchored, anchor, pod_class)
            for mark in pod_class.marks:
                if isinstance(mark, TermMark):
                    self._drop_term(pod_class.namespace, mark)
            if pod_class.carried is not None:
                self._mention(pod_class.namespace, pod_class.carried, -1)

    def _add_class(self, pod_class: PodClass) -> None:
        self._classes[pod_class.key] = pod_class
        for anchor in _own_anchors(pod_class):
            self._anchored.setdefault(anchor, {})[pod_class] = None
        for mark in pod_class.marks:
            if isinstance(mark, TermMark) and self._admit(pod_class.namespace, mark):
                self._count_term(mark, 1)

    def _admit(self, namespace: str, mark: TermMark) -> bool:
        """Count one more class that carries a term; say whether it holds, as so many wide ones do."""
        return not _is_wide(namespace, mark) or self._wide.setdefault(namespace, WideTerms()).add_class(mark)

    def _drop_term(self, namespace: str, mark: TermMark) -> None:
        if not _is_wide(namespace, mark):
            self._count_term(mark, -1)
            return
        wide = self._wide[namespace]
        was_in, follows = wide.remove_class(mark)
        if was_in:
            self._count_term(mark, -1)
        if follows is not None:
            self._count_term(follows, wide.admitted[follows])
            self.select_anew(namespace)  # pods that carry it are tried again
        if not wide.admitted:
            del self._wide[namespace]

    def _count_term(self, mark: TermMark, change: int) -> None:
        for anchor in anchors_of_term(mark.term):
            counts = self._terms.setdefault(anchor, {})
            is_new = mark not in counts
            if is_new:
                self.version += 1
                self._term_versions[anchor] = self.version
            counts[mark] = counts.get(mark, 0) + change
            if not counts[mark]:
                discard(self._terms, anchor, mark)
            if not counts:
                del self._term_versions[anchor]

    def _read_carried(self, pod: PodSpec) -> Carried | None:
        if len(self._asked) >= signatures_cached_max:
            self._asked.clear()
            self._plain.clear()
        template, marks = pod.template, marks_of(pod.template)
        if not marks and not template.spread:
            self._plain.add(pod.signature)
            self._asked[pod.signature] = None
            return None
        spread = frozenset(each.selector for each in template.spread if each.selector is not None)
        key = (frozenset(marks.items()), spread)
        carried = self._carried.get(key)
        if carried is None:
            carried = self._carried[key] = Carried(marks, spread)
        self._asked[pod.signature] = carried
        return carried

    def _mention(self, namespace: str, carried: Carried, change: int) -> None:
        """Watch what pods ask of others, for as long as there are any that do."""
        for selector in carried.spread:
            self.watch(namespace, selector, change)
        for mark in carried.marks:
            if isinstance(mark, TermMark):
                term = mark.term
                for where in term.namespaces if term.namespace_selector is None else (EVERY,):
                    self.watch(where, term.selector, change)


_UNKNOWN = Carried({}, frozenset())


def _is_wide(namespace: str, mark: TermMark) -> bool:
    """Say whether a term looks at all pods of other namespaces, whatever the values of their labels."""
    term = mark.term
    if term.selector is None or (term.namespace_selector is None and term.namespaces == (namespace,)):
        return False
    return all(each.operator != "In" for each in term.selector.requirements)


def _own_anchors(pod_class: PodClass) -> Iterator[Hashable]:
    return (each for each in pod_class.anchors() if not (isinstance(each, tuple) and each[0] == EVERY))
