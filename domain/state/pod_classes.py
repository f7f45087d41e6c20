"""A class of pods: those that no other pod tells apart, but for what each of them asks for itself."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from domain.model.anchors import anchors_of_pod
from domain.model.marks import Mark
from domain.model.pods import Controller
from domain.model.selectors import LabelSelector

_NO_MARKS: Mapping[Mark, int] = {}


@dataclass(slots=True, eq=False, weakref_slot=True)
class Carried:
    """What pods of some templates carry, each such thing once: two are equal where they are the same.

    ``marks`` says how often each mark; ``spread`` are the selectors of the constraints.
    """

    marks: Mapping[Mark, int]
    spread: frozenset[LabelSelector]


@dataclass(slots=True, eq=False)
class PodClass:
    """Pods that no other pod tells apart, but for what each of them asks for itself.

    Attributes
    ----------
    number : int
        Its name; never used again.
    labels : dict
        The labels that selectors mention; ``ANOTHER`` stands for a value that none does.
    marks : mapping
        What each of the pods carries, with how often.
    pods_count : int
        How many pods exist, placed or waiting.
    placed_count : int
        How many of them count on a node.
    by_node : dict
        Name of a node -> how many of the pods count there.
    """

    number: int
    key: Hashable
    namespace: str
    labels: Mapping[str, str]
    carried: Carried | None
    terminating: bool
    controller: Controller | None
    pods_count: int = 0
    placed_count: int = 0
    by_node: dict[str, int] = field(default_factory=dict)

    @property
    def marks(self) -> Mapping[Mark, int]:
        """What each pod carries."""
        return _NO_MARKS if self.carried is None else self.carried.marks

    def anchors(self) -> Iterator[Hashable]:
        """Yield every anchor of its pods."""
        yield from self.marks
        yield from anchors_of_pod(self.namespace, self.labels)
