"""What a plugin is: a small class with a name, the pod fields that it reads, and one question it answers.

A *static filter* and a *static score* depend on the node's spec alone; they are asked once per equivalence
group and again only for rows whose spec changed. An *occupancy filter* asks what the pods on a node hold
(host ports). A *resource filter* and a *resource score* depend on what is free; they hand numbers to the
placing kernel, which re-evaluates them for a row whenever a pod is placed on it. Any other *score* may read
all that a ``NodeView`` shows, and be normalised over the feasible nodes; only ``cycle/evaluate.py``, which
looks at every node for one pod, can ask it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from domain.model.errors import FieldError
from domain.model.pods import HostPort, PodTemplate
from domain.plugins.view import NodeView
from domain.state.resources import ResourceIndex
from domain.state.table import NodeTable


class Reason(NamedTuple):
    """Why a filter refuses a node; ``unresolvable``: evicting other pods could not change it."""

    code: str
    unresolvable: bool


class Plugin(ABC):
    """Common to all: made once per profile revision from its arguments.

    Attributes
    ----------
    name : str
        As in ``KubeSchedulerConfiguration`` where the plugin exists there.
    reads : frozenset of str
        Fields of ``PodTemplate`` that the answer depends on: the signature contract. Pods that agree in
        the fields that a profile's plugins read are interchangeable for it.
    """

    name: ClassVar[str]
    reads: ClassVar[frozenset[str]]

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        """Take the profile's arguments; ``path`` is where they stand, for errors."""
        if args:
            raise FieldError(f"{path}.{next(iter(args))}", f"unknown argument; {self.name} takes none")


class StaticFilter(Plugin):
    """Refuses nodes by their spec."""

    reasons: ClassVar[tuple[Reason, ...]]

    @abstractmethod
    def refuse(self, template: PodTemplate, table: NodeTable, rows: np.ndarray) -> np.ndarray | None:
        """Return uint8[len(rows)]: 0 where the node passes, i where ``reasons[i - 1]`` holds.

        None when every node passes.
        """


class OccupancyFilter(Plugin):
    """Refuses nodes by what pods on them hold exclusively."""

    reason: ClassVar[Reason]

    @abstractmethod
    def concerns(self, template: PodTemplate) -> bool:
        """Say whether the template asks for anything exclusive at all."""

    @abstractmethod
    def blocked(self, template: PodTemplate, held: Mapping[HostPort, int]) -> bool:
        """Say whether a node where ``held`` is in use refuses the template."""

    def blocked_rows(
        self, template: PodTemplate, table: NodeTable, ports_held: Mapping[str, Mapping[HostPort, int]]
    ) -> np.ndarray:
        """Return int64[K]: the rows of the nodes that refuse the template."""
        rows = [
            row
            for node, held in ports_held.items()
            if (row := table.rows.get(node)) is not None and self.blocked(template, held)
        ]
        return np.array(rows, dtype=np.int64)

    @abstractmethod
    def excludes(self, template: PodTemplate, other: PodTemplate) -> bool:
        """Say whether pods of two templates cannot share a node."""


class Demand(NamedTuple):
    """``value`` of resource ``column`` must be free."""

    column: int
    value: int


class ResourceFilter(Plugin):
    """Refuses nodes without room."""

    @abstractmethod
    def demands(self, template: PodTemplate, resources: ResourceIndex) -> list[Demand]:
        """Return what must be free, in the order in which shortages are reported."""

    @abstractmethod
    def reason(self, short: list[str], *, unresolvable: bool) -> Reason:
        """Return the reason for a shortage of the named resources."""


class Score(Plugin):
    """Rates nodes."""

    @abstractmethod
    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """Return float64[len(rows)]: the scores before normalisation; ``rows`` are the feasible nodes."""

    def normalise(self, raw: np.ndarray) -> np.ndarray:
        """Return the scores of all feasible nodes, each 0..100."""
        return raw


class StaticScore(Score):
    """Rates nodes by their spec."""

    @abstractmethod
    def rate(self, template: PodTemplate, table: NodeTable, rows: np.ndarray) -> np.ndarray:
        """Return float64[len(rows)], each 0..100."""

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        return self.rate(template, view.table, rows)


class TermPart(NamedTuple):
    """One resource of a term: its column, weight, and what the pod adds to the column."""

    column: int
    weight: float
    value: int


class Term(NamedTuple):
    """A resource score in numbers for the kernel: ``kind`` is a constant of ``domain.kernels.placing``."""

    kind: int
    parts: tuple[TermPart, ...]


class ResourceScore(Score):
    """Rates nodes by how full they would be; ``raw`` and the kernel's term give the same numbers."""

    @abstractmethod
    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """Return the kernel's numbers for a template."""
