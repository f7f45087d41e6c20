"""How much a placed pod counts: by its labels, and by what it carries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property
from operator import mul
from typing import Protocol

import msgspec

from domain.model.anchors import EVERY, anchors_of_selector
from domain.model.marks import Mark
from domain.model.pods import Controller
from domain.model.selectors import LabelSelector

NamespaceLabels = Mapping[str, Mapping[str, str]]
"""Name of a namespace -> labels of its Namespace object; without one it is missing."""


class SelectedPod(Protocol):
    """What a selector may look at. ``labels`` are at least those that some live selector mentions."""

    @property
    def namespace(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def controller(self) -> Controller | None: ...


class CountedPod(SelectedPod, Protocol):
    """Placed pods that no live selector tells apart: their class."""

    @property
    def terminating(self) -> bool: ...
    @property
    def marks(self) -> Mapping[Mark, int]: ...


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """Pods by namespace and labels, and where ``controller_uid`` is not "", by what made them.

    ``namespace_selector`` adds to ``namespaces`` those whose Namespace object it matches. One that no label
    at all would match adds all, whether they have an object or not: as kube-scheduler 1.36 reads the pod's
    own terms, ``NotIn`` and ``DoesNotExist`` select every namespace.
    """

    selector: LabelSelector
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    controller_uid: str = ""

    def matches(self, pod: SelectedPod, namespaces: NamespaceLabels) -> bool:
        """Say whether a pod is one of them."""
        return (
            (pod.namespace in self.namespaces or self._selects(pod.namespace, namespaces))
            and self.selector.matches(pod.labels)
            and self.controller_uid in ("", "" if pod.controller is None else pod.controller.uid)
        )

    def _selects(self, namespace: str, namespaces: NamespaceLabels) -> bool:
        if self.namespace_selector is None:
            return False
        if self.namespace_selector.matches({}):
            return True
        labels = namespaces.get(namespace)
        return labels is not None and self.namespace_selector.matches(labels)

    def anchors(self) -> Iterator[Hashable]:
        """Yield anchors of which every pod that matches has one: see ``domain.model.anchors``."""
        namespaces = self.namespaces if self.namespace_selector is None else (EVERY,)
        return anchors_of_selector(namespaces, self.selector)


class Weigher(msgspec.Struct, frozen=True, cache_hash=True, dict=True):
    """How much one placed pod adds to a counter.

    Attributes
    ----------
    matches : tuple
        A weight for each pod that every one of some matches matches.
    marks : frozenset
        A weight for each time that a pod carries a mark.
    with_terminating : bool
        Pods that are being deleted count, too.
    """

    matches: tuple[tuple[tuple[Match, ...], int], ...] = ()
    marks: frozenset[tuple[Mark, int]] = frozenset()
    with_terminating: bool = True

    def weigh(self, pod: CountedPod, namespaces: NamespaceLabels) -> int:
        """Return what a pod adds to the counter in its domain."""
        if pod.terminating and not self.with_terminating:
            return 0
        weight = 0
        for all_of, more in self.matches:  # no generators: this is asked of each class for each counter
            for each in all_of:
                if not each.matches(pod, namespaces):
                    break
            else:
                weight += more
        if self.marks:
            weights, carried = self.weights, pod.marks
            # Without a step of Python for each: a pod may hold, and be asked for, hundreds of ports.
            common = self.asked.intersection(carried)
            weight += sum(map(mul, map(carried.__getitem__, common), map(weights.__getitem__, common)))
        return weight

    @cached_property
    def weights(self) -> Mapping[Mark, int]:
        """The weight of each mark. A pod carries few of them, where very many may be asked for."""
        found: Counter[Mark] = Counter()
        for mark, weight in self.marks:
            found[mark] += weight
        return found

    @cached_property
    def asked(self) -> frozenset[Mark]:
        """The marks that weigh anything."""
        return frozenset(self.weights)

    def anchors(self) -> set[Hashable]:
        """Return anchors of which every pod that weighs anything has one: see ``domain.model.anchors``."""
        found: set[Hashable] = {mark for mark, _ in self.marks}
        for all_of, _ in self.matches:
            found.update(all_of[0].anchors())
        return found
