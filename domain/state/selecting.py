"""What Namespaces, Services, owners, budgets, PodGroups and Workloads say: which pods they mean."""

from __future__ import annotations

from domain.model.config import (
    DISRUPTION_BUDGET,
    NAMESPACE,
    POD_GROUP,
    SERVICE,
    WORKLOAD,
    ConfigObject,
    DisruptionBudget,
    Namespace,
    Selecting,
)
from domain.model.pods import CONTROLLERS, Controller
from domain.model.selectors import LabelSelector
from domain.state.pod_index import PodIndex


class Selectors:
    """The selectors that topology spread makes its default constraints of, budgets, and labels of namespaces.

    The index of pods keeps the labels, and is told by which keys to tell pods apart.

    Attributes
    ----------
    budgets : dict
        Namespace and name -> the budget. One without a selector, or with an empty one, is left out: for
        kube-scheduler it matches no pod.
    budgets_version : int
        Moves with each change of them.
    """

    def __init__(self, index: PodIndex) -> None:
        self._index = index
        self.budgets: dict[tuple[str, str], DisruptionBudget] = {}
        self.budgets_version = 0
        self._selectors: dict[tuple[str, str], dict[str, LabelSelector]] = {}  # by kind and namespace

    def services(self, namespace: str) -> list[LabelSelector]:
        """Return the selectors of the Services of a namespace, by name; a Service without one is left out."""
        return [selector for _, selector in sorted(self._selectors.get((SERVICE, namespace), {}).items())]

    def owner(self, namespace: str, controller: Controller) -> LabelSelector | None:
        """Return the selector of the object that made a pod, None where it is not known."""
        return self._selectors.get((controller.kind, namespace), {}).get(controller.name)

    def put(self, thing: ConfigObject) -> None:
        """Let an object be in force, or no longer. Cost: O(1), of a Workload O(its gangs)."""
        if thing.kind == NAMESPACE:
            self._put_namespace(thing)
        elif thing.kind == DISRUPTION_BUDGET:
            self._put_budget(thing)
        elif thing.kind in (POD_GROUP, WORKLOAD):
            gangs = self._index.gangs
            gangs.changed |= dict.fromkeys(gangs.of_object(f"{thing.namespace}/{thing.name}"))
        elif thing.kind == SERVICE or thing.kind in CONTROLLERS:
            self._put_selector(thing)

    def _put_namespace(self, thing: ConfigObject) -> None:
        content = thing.content
        assert content is None or isinstance(content, Namespace)
        labels = None if content is None else content.labels
        if self._index.namespaces.get(thing.name) != labels:
            self._index.label_namespace(thing.name, labels)

    def _put_budget(self, thing: ConfigObject) -> None:
        content, place = thing.content, (thing.namespace, thing.name)
        assert content is None or isinstance(content, DisruptionBudget)
        before = self.budgets.pop(place, None)
        if content is not None and content.selector is not None and content.selector.requirements:
            self.budgets[place] = content
            self._index.watch(thing.namespace, content.selector)
        if before is not None:
            self._index.watch(thing.namespace, before.selector, -1)
        self.budgets_version += 1

    def _put_selector(self, thing: ConfigObject) -> None:
        content, place = thing.content, (thing.kind, thing.namespace)
        assert content is None or isinstance(content, Selecting)
        selector = None if content is None else content.selector
        if content is not None and selector is None and thing.kind != SERVICE:
            selector = LabelSelector()  # the object is known: its pods are not selected by its uid
        known = self._selectors.setdefault(place, {})
        before = known.pop(thing.name, None)
        if selector is not None:
            known[thing.name] = selector
        self._index.watch(thing.namespace, selector)
        self._index.watch(thing.namespace, before, -1)
        if not known:
            del self._selectors[place]
        if before != selector:
            self._index.select_anew(thing.namespace)
