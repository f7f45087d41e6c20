"""What disruption budgets allow now, and which of them match a pod.

A budget matches the pods of its namespace that its selector matches, found class by class. As for
kube-scheduler (``filterPodsWithPDBViolation`` of v1.36), a pod without labels is matched by no budget, a
budget without a selector or with an empty one matches no pod, and a pod that the budget's status names as
disrupted does not count against it.

What a budget allows stands in its status, where a controller writes one. Otherwise it is computed from
``minAvailable`` or ``maxUnavailable`` as the disruption controller of Kubernetes does, shares rounded up, but
over the pods that are known here: all that the selector matches are expected, whatever made them, and those
that are placed and are not terminating are healthy.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable

import numpy as np

from domain.model.anchors import anchors_of_pod, anchors_of_selector
from domain.model.config import DisruptionBudget
from domain.model.limits import signatures_cached_max
from domain.model.selectors import LabelSelector
from domain.state.cluster import ClusterState
from domain.state.pod_classes import PodClass
from domain.state.pods import PodEntry

_NONE: tuple[int, ...] = ()


class Budgets:
    """The budgets in force, by number, as of the latest ``sync``.

    Parameters
    ----------
    state : ClusterState
        Has the budgets and the pods.
    evicted : collection of str
        Keys of pods that were decided to go. Each counts against its budgets until it is gone.

    Attributes
    ----------
    names : list of (str, str)
        Number -> namespace and name of the budget, sorted.
    allowed : int32[B]
        How many more of its pods each budget lets go, by number; never below 0.
    version : int
        Moves when ``of`` may answer otherwise for a pod that stayed as it is.
    """

    def __init__(self, state: ClusterState, evicted: Collection[str] = ()) -> None:
        self._state = state
        self._evicted = evicted
        self.names: list[tuple[str, str]] = []
        self.allowed = np.zeros(0, dtype=np.int32)
        self.version = 0
        self._seen = 0  # ``budgets_version`` of the latest sync
        self._budgets: list[DisruptionBudget] = []
        self._selectors: list[LabelSelector | None] = []
        self._anchored: dict[Hashable, list[int]] = {}
        self._matched: dict[PodClass, tuple[int, ...]] = {}
        self._disrupted: dict[int, frozenset[str]] = {}  # names of pods, by number
        self._stated = np.zeros(0, dtype=np.int64)  # what they allow by their status or their pods
        self._computed: set[int] = set()  # numbers of those without a status
        self._changed: set[PodClass] | None = None  # that of the index, while it is followed
        self._counted: dict[PodClass, tuple[int, int]] = {}  # healthy and expected
        self._healthy = self._expected = self._stated
        self.sync()

    def __len__(self) -> int:
        return len(self.names)

    def sync(self) -> None:
        """Follow the state. Every selector must tell pods apart already (``Reclassify``).

        Cost: O(classes with pods that came or went, and pods that were decided to go); O(classes) besides
        where budgets came or went. Nothing where there are none.
        """
        index, selectors = self._state.index, self._state.config.selectors
        if self._seen != selectors.budgets_version:
            self._seen = selectors.budgets_version
            self._read(selectors.budgets)
        if not self.names:
            return
        assert index.is_settled, "budgets match pods by classes that are settled"
        if self._computed:
            self._count()
        claimed = np.zeros(len(self.names), dtype=np.int64)
        for key in self._evicted:
            entry = self._state.pods.get(key)
            if entry is not None and entry.node:
                for number in self.of(entry):
                    # A terminating pod is not healthy, and counts against a computed budget by that alone.
                    claimed[number] += not (entry.spec.terminating and number in self._computed)
        self.allowed = np.maximum(self._stated - claimed, 0).astype(np.int32)

    def of(self, pod: PodEntry) -> tuple[int, ...]:
        """Return the numbers of the budgets against which an eviction of a pod would count. Cost: O(1)."""
        pod_class = pod.pod_class
        if pod_class is None or not self.names or not pod.spec.labels:
            return _NONE
        found = self._of_class(pod_class)
        if found and self._disrupted:
            name = pod.spec.name
            found = tuple(n for n in found if name not in self._disrupted.get(n, _NONE))
        return found

    def names_of(self, pods: Iterable[PodEntry]) -> tuple[str, ...]:
        """Return the budgets against which the eviction of any of these pods would count, by name."""
        numbers = {number for pod in pods for number in self.of(pod)} if self.names else ()
        return tuple("/".join(self.names[number]) for number in sorted(numbers))

    def _of_class(self, pod_class: PodClass) -> tuple[int, ...]:
        found = self._matched.get(pod_class)
        if found is None:
            if len(self._matched) >= signatures_cached_max:
                self._matched.clear()
            anchors = anchors_of_pod(pod_class.namespace, pod_class.labels)
            near = sorted({number for anchor in anchors for number in self._anchored.get(anchor, ())})
            found = tuple(n for n in near if self._matches(n, pod_class))
            self._matched[pod_class] = found
        return found

    def _matches(self, number: int, pod_class: PodClass) -> bool:
        selector = self._selectors[number]
        return selector is not None and selector.matches(pod_class.labels)

    # ----------------------------------------------------------------------------------------- reading

    def _read(self, budgets: dict[tuple[str, str], DisruptionBudget]) -> None:
        names = sorted(budgets)
        self._budgets = [budgets[name] for name in names]
        selectors = [each.selector for each in self._budgets]
        if names != self.names or selectors != self._selectors:
            self.names, self._selectors = names, selectors
            self.version += 1
            self._match_anew()
        disrupted = {n: frozenset(b.disrupted) for n, b in enumerate(self._budgets) if b.disrupted}
        if disrupted != self._disrupted:
            self._disrupted = disrupted
            self.version += 1
        self._stated = np.array([each.disruptions_allowed or 0 for each in self._budgets], dtype=np.int64)
        self.allowed = self._stated.astype(np.int32)
        computed = {n for n, each in enumerate(self._budgets) if each.disruptions_allowed is None}
        if computed != self._computed:
            self._computed = computed
            self._stop_counting()
        self._compute(self._computed)

    def _match_anew(self) -> None:
        self._matched.clear()
        self._stop_counting()
        self._anchored = {}
        for number, ((namespace, _), selector) in enumerate(zip(self.names, self._selectors, strict=True)):
            for anchor in anchors_of_selector((namespace,), selector) if selector is not None else ():
                self._anchored.setdefault(anchor, []).append(number)

    # ---------------------------------------------------------------------------------------- counting

    def _stop_counting(self) -> None:
        """Forget how many pods there are, and follow them no more."""
        if self._changed is not None and self._state.index.changed is self._changed:
            self._state.index.changed = None
        self._changed = None
        self._counted.clear()
        self._healthy = np.zeros(len(self.names), dtype=np.int64)
        self._expected = np.zeros(len(self.names), dtype=np.int64)

    def _count(self) -> None:
        """Count the pods of classes that changed, and compute what their budgets allow."""
        index = self._state.index
        classes: Iterable[PodClass]
        touched: set[int] = set()
        if self._changed is not None and index.changed is self._changed:
            classes = self._changed
        else:
            self._stop_counting()
            self._changed = index.changed = set()
            classes, touched = index, set(self._computed)
        for each in classes:
            numbers = self._of_class(each)
            if numbers:
                now = (0 if each.terminating else each.placed_count, each.pods_count)
                before = self._counted.pop(each, (0, 0))
                if each.pods_count:
                    self._counted[each] = now
                for number in numbers:
                    self._healthy[number] += now[0] - before[0]
                    self._expected[number] += now[1] - before[1]
                touched.update(numbers)
            if not each.pods_count:
                self._matched.pop(each, None)
        self._changed.clear()
        self._compute(touched & self._computed)

    def _compute(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            healthy, expected = int(self._healthy[number]), int(self._expected[number])
            self._stated[number] = allowed_by(self._budgets[number], healthy, expected)


def allowed_by(budget: DisruptionBudget, healthy_count: int, expected_count: int) -> int:
    """Return how many pods a budget lets go, as the disruption controller of Kubernetes 1.36 computes it.

    A budget that says neither how many must stay nor how many may go lets none go, nor does one that no pod
    has anything to do with.
    """
    if budget.max_unavailable is not None:
        desired = max(0, expected_count - _pods(budget.max_unavailable, expected_count))
    elif budget.min_available is not None:
        desired = _pods(budget.min_available, expected_count)
    else:
        return 0
    return max(0, healthy_count - desired) if expected_count else 0


def _pods(value: int | str, of_count: int) -> int:
    """Return a number of pods; a share of them is rounded up."""
    return value if isinstance(value, int) else -(-int(value.removesuffix("%")) * of_count // 100)
