"""Effects: what a placed pod of each class adds to which counters."""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from domain.kernels import arrays as kernel
from domain.model.limits import counted_weight_max
from domain.plugins.weighers import Weigher
from domain.state.nodes import NodeEntry
from domain.state.pod_classes import PodClass
from domain.state.pod_index import PodIndex

GONE_MAX = 1_000  # effects are kept of so many classes that are gone, and of as many as there are


class Effects:
    """The weights of classes of pods in counters, found by anchors and kept."""

    def __init__(self, index: PodIndex) -> None:
        self._index = index
        self._weighers: dict[int, Weigher] = {}  # by number of the counter
        self._anchors: dict[int, set[Hashable]] = {}
        self._anchored: dict[Hashable, dict[int, None]] = {}  # numbers of counters by their anchors
        self._reading_namespaces: set[int] = set()
        self._of: dict[int, dict[int, int]] = {}  # by number of the class; of some that are gone, too

    def add(self, number: int, weigher: Weigher) -> int:
        """Take a new counter, and return how many anchors it has. Cost: O(classes that have one of them)."""
        anchors = self._anchors[number] = weigher.anchors()
        self._weighers[number] = weigher
        if _reads_namespaces(weigher):
            self._reading_namespaces.add(number)
        for anchor in anchors:
            self._anchored.setdefault(anchor, {})[number] = None
        for pod_class in self._index.classes_with(anchors):
            if (
                effects := self._of.get(pod_class.number)
            ) is not None:  # else it is weighed when it is asked for
                self._weigh(pod_class, (number,), effects)
        return len(anchors)

    def remove(self, numbers: Collection[int]) -> None:
        """Forget some counters. Cost: O(counters) for each class that has an anchor of one."""
        gone, anchors = set(numbers), set[Hashable]()
        for number in numbers:
            of_counter = self._anchors.pop(number)
            anchors |= of_counter
            del self._weighers[number]
            for anchor in of_counter:
                del self._anchored[anchor][number]
                if not self._anchored[anchor]:
                    del self._anchored[anchor]
        self._reading_namespaces -= gone
        for pod_class in self._index.classes_with(anchors):
            if (effects := self._of.get(pod_class.number)) is not None:
                for number in effects.keys() & gone:
                    del effects[number]

    def of(self, pod_class: PodClass) -> dict[int, int]:
        """Return what a pod of a class adds to which counter."""
        found = self._of.get(pod_class.number)
        if found is None:
            found = self._of[pod_class.number] = {}
            self._weigh(pod_class, self._near(pod_class), found)
        return found

    def forget_gone(self) -> None:
        """Forget classes that are gone, where they are many. Nothing is to be taken out for them any more."""
        if len(self._of) > 2 * len(self._index) + GONE_MAX:
            present = {each.number for each in self._index}
            self._of = {number: each for number, each in self._of.items() if number in present}

    def counted_by(self, number: int) -> Iterator[tuple[PodClass, int]]:
        """Yield the classes with placed pods that count in a counter, each with what one of these adds."""
        for pod_class in self._index.classes_with(self._anchors[number]):
            weight = self.of(pod_class).get(number) if pod_class.by_node else 0
            if weight:
                yield pod_class, weight

    def on_node(self, nodes: Mapping[str, NodeEntry], name: str | None) -> Iterator[tuple[int, int]]:
        """Yield numbers of counters, and what the pods on a node add to them."""
        entry = None if name is None else nodes.get(name)
        if entry is not None:
            classes = Multiset(pod.pod_class for pod in entry.pods.values() if pod.pod_class is not None)
            for pod_class, count in classes.items():
                for number, weight in self.of(pod_class).items():
                    yield number, weight * count

    def weigh_anew(self, namespace: str) -> Iterator[tuple[PodClass, int, int]]:
        """Weigh the classes of a namespace that has other labels; yield what each adds more to a counter."""
        for pod_class in self._index.classes_with([(namespace, "", "")]):
            effects = self.of(pod_class)
            before = {n: effects.get(n, 0) for n in self._near(pod_class) if n in self._reading_namespaces}
            self._weigh(pod_class, before, effects)
            for number, weight in before.items():
                if effects.get(number, 0) != weight:
                    yield pod_class, number, effects.get(number, 0) - weight

    def arrays(self, classes: Sequence[tuple[int, PodClass | None]], slots: int) -> kernel.Effects:
        """Return for the kernel what the pods of slots add, given each with the class of its pods."""
        lengths = np.zeros(slots + 1, dtype=np.int32)
        found: dict[int, dict[int, int]] = {}
        for slot, pod_class in classes if self._weighers else ():
            of_class = self.of(pod_class) if pod_class is not None else None
            if of_class:
                found[slot] = of_class
                lengths[slot + 1] = len(of_class)
        pairs = [pair for slot in sorted(found) for pair in found[slot].items()]
        flat = np.array(pairs, dtype=np.int32).reshape(-1, 2)
        return kernel.Effects(np.cumsum(lengths, dtype=np.int32), flat[:, 0].copy(), flat[:, 1].copy())

    def _near(self, pod_class: PodClass) -> dict[int, None]:
        """Return the counters that have an anchor of a class."""
        found: dict[int, None] = {}
        for anchor in pod_class.anchors() if self._anchored else ():
            found.update(self._anchored.get(anchor, {}))
        return found

    def _weigh(self, pod_class: PodClass, numbers: Iterable[int], effects: dict[int, int]) -> None:
        for number in numbers:
            weight = self._weighers[number].weigh(pod_class, self._index.namespaces)
            if weight:
                effects[number] = max(-counted_weight_max, min(weight, counted_weight_max))
            else:
                effects.pop(number, None)


def _reads_namespaces(weigher: Weigher) -> bool:
    matches = (match for all_of, _ in weigher.matches for match in all_of)
    return any(m.namespace_selector is not None and m.namespace_selector.requirements for m in matches)
