"""What a plugin is: a small class with a name, the pod fields that it reads, and one question it answers.

A *static filter* and a *static score* depend on the node's spec alone (and, where they say so, on measured
usage). They are asked once per equivalence group, and again only for rows where that changed. A *limit
filter*, a *resource filter* and a *resource score* depend on what is requested. They hand numbers to the
placing kernel, which evaluates a row again whenever a pod is placed on it. A *relative score* compares all
nodes, so it changes on all of them with each pod. What counts other pods is in ``counting.py``.

A plugin may be of several kinds: then its static answer counts first, its limits second.
Every score has two forms with the same answer to the last bit: ``raw``, in numpy, which
``engine/evaluate.py`` asks, and the numbers that it hands to the kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import IntFlag
from typing import Any, ClassVar, NamedTuple

import numpy as np

from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.plugins.normaliser import Normaliser
from domain.plugins.view import NodeView
from domain.state.resources import ResourceIndex


class Cure(IntFlag):
    """What may happen to a node that was refused, so that it passes."""

    NODE = 1  # it came, or changed its spec
    ROOM = 2  # pods left it, or ask for less
    USAGE = 4  # it was measured
    COUNTS = 8  # pods came or left in its domains, or in those that are compared with them


CURES_ALL = Cure.NODE | Cure.ROOM | Cure.USAGE | Cure.COUNTS


class Reason(NamedTuple):
    """Why a filter refuses a node. ``unresolvable``: evicting other pods could not change it."""

    code: str
    unresolvable: bool


class Plugin(ABC):
    """What all plugins have in common. A plugin is made once per profile revision, from its arguments.

    Attributes
    ----------
    name : str
        As in ``KubeSchedulerConfiguration`` where the plugin exists there.
    reads : frozenset of str
        Fields of ``PodTemplate`` that the answer depends on: the signature contract. Groups that agree in
        them share what a static plugin says. Nothing else rests on it, as pods are grouped by their whole
        template. A plugin that does not declare it is not registered.
    reads_usage : bool
        The answer also depends on measured usage, with the arguments that the plugin has.
    measured_count : int
        How many columns ``measured`` returns.
    phrases : mapping
        Of a filter: reason code, up to a colon, -> what nodes with it do, in the plural: "are cordoned". What
        follows the colon is added to it.
    """

    name: ClassVar[str]
    reads: ClassVar[frozenset[str]]
    phrases: ClassVar[Mapping[str, str]] = {}
    reads_usage: bool = False
    measured_count: int = 0

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        """Take the profile's arguments. Errors name ``path``, where they stand."""
        if args:
            raise FieldError(f"{path}.{next(iter(args))}", f"unknown argument; {self.name} takes none")

    def measured(self, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """Return float64[measured_count, len(rows)]: figures of each node that the kernel reads.

        They are the same for every pod, and are asked for again where a node or its usage changed.
        """
        return np.empty((0, len(rows)))

    def cures(self, code: str) -> Cure:
        """Return, of a filter, what may cure a node that it refused with a reason code.

        A group is not tried again by anything else. A node that came or changed its spec may cure any.
        """
        return CURES_ALL


class StaticFilter(Plugin):
    """Refuses nodes by their spec, or by their measured usage.

    ``reasons`` are all reasons that it may give with its arguments.
    """

    reasons: tuple[Reason, ...]

    def cures(self, code: str) -> Cure:
        """See ``Plugin``."""
        return Cure.NODE | Cure.USAGE if self.reads_usage else Cure.NODE

    @property
    def static_reads(self) -> frozenset[str]:
        """Fields that ``refuse`` depends on: fewer than ``reads`` if the plugin is of two kinds."""
        return self.reads

    @abstractmethod
    def refuse(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """Return uint8[len(rows)]: 0 where the node passes, i where ``reasons[i - 1]`` holds.

        None when every node passes.
        """

    def named(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray | None:
        """Return bool[len(rows)]: the nodes that the pod names; None where it names none.

        All others are refused by the first of ``reasons`` before any filter is asked.
        """
        return None


class Limit(NamedTuple):
    """``value`` more of some columns together must not exceed ``percent`` of another column of the node.

    A node is refused where (sum of requested[columns] + value) * 100 > percent * allocatable[capacity]; it is
    unresolvable where value alone exceeds that. ``reason`` is the code. The product keeps a whole number of
    percent exact: 29 of 100 are not more than 29 %, though 0.29 * 100 is less than 29 in binary.

    With ``measured``, which is 0 or more, the right side is that one of the plugin's ``measured`` columns.
    What is counted beside a measurement is no longer there when the pods leave, nor before the next one: a
    refusal is always unresolvable.
    """

    columns: tuple[int, ...]
    value: int
    capacity: int
    percent: float
    reason: str
    measured: int = -1


class LimitFilter(Plugin):
    """Refuses nodes where sums over their pods pass a limit.

    ``limits_max`` is the highest number of limits that it sets for one template.
    """

    limits_max: int = 1

    def cures(self, code: str) -> Cure:
        """See ``Plugin``."""
        return Cure.NODE | Cure.ROOM

    @abstractmethod
    def limits(self, template: PodTemplate, resources: ResourceIndex) -> list[Limit]:
        """Return the limits in the order in which they are reported. The first that is exceeded counts."""


class Demand(NamedTuple):
    """``value`` of a resource must be free; ``column`` is its column, ``name`` what reasons call it."""

    column: int
    value: int
    name: str


class ResourceFilter(Plugin):
    """Refuses nodes without room."""

    def cures(self, code: str) -> Cure:
        """See ``Plugin``."""
        return Cure.NODE | Cure.ROOM

    @abstractmethod
    def demands(self, template: PodTemplate, resources: ResourceIndex) -> list[Demand]:
        """Return what must be free on a node, in the order in which shortages are reported.

        The first demand is the pod itself. A node that takes no pods is full of them: that is resolvable.
        """

    @abstractmethod
    def reason(self, short: list[str], *, unresolvable: bool) -> Reason:
        """Return the reason for a shortage of the named resources."""


class FirmFilter(Plugin):
    """Refuses nodes that lack what no eviction frees. It stands right behind the filter of resources.

    Both hand the kernel demands, and are asked together.
    """

    demands_max: int = 2

    def cures(self, code: str) -> Cure:
        """See ``Plugin``: what is firm follows from what was measured, and from pods that come and go."""
        return Cure.NODE | Cure.ROOM | Cure.USAGE

    @abstractmethod
    def demands(self, template: PodTemplate, resources: ResourceIndex) -> list[Demand]:
        """Return what must be free on a node, in the order in which shortages are reported."""

    @abstractmethod
    def reason(self, short: list[str]) -> Reason:
        """Return the reason for a shortage of the named demands; it is unresolvable."""


class Score(Plugin):
    """Rates nodes.

    ``normaliser`` brings scores to 0..100 over the feasible nodes; None: they are 0..100 already. What is not
    known of the columns that ``measured`` returns is NaN.
    """

    normaliser: Normaliser | None = None


class StaticScore(Score):
    """Rates nodes by their spec, or by their measured usage. A node's score depends on that node alone.

    Only with ``reads_images`` may it depend on the images of all nodes.
    """

    reads_images: ClassVar[bool] = False

    @abstractmethod
    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """Return float64[len(rows)]: the scores before normalisation."""


class TermPart(NamedTuple):
    """One resource of a term: its column, weight, and what the pod adds to the column."""

    column: int
    weight: float
    value: int


class Term(NamedTuple):
    """A resource score as numbers for the kernel. ``kind`` is a constant of ``domain.kernels.arrays``."""

    kind: int
    parts: tuple[TermPart, ...]
    numbers: tuple[float, ...] = ()


class ResourceScore(Score):
    """Rates nodes by what is requested of them, by a formula of the kernel (``domain.kernels.terms``).

    ``parts_max`` and ``numbers_max`` bound the term of any template.
    """

    parts_max: int = 0
    numbers_max: int = 0

    @abstractmethod
    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """Return the kernel's numbers for a template."""


class RelativeScore(Score):
    """Rates nodes by a figure that follows from all of them, so that a pod on one node changes it on others.

    ``kind`` says by which formula of the kernel (``domain.kernels.variance``), a constant of
    ``domain.kernels.arrays``. ``metrics_count`` is how many metrics it keeps of every node, ``parts_max``
    bounds the parts of any template.
    """

    normaliser: Normaliser = Normaliser(reverse=True, equal_full=True, zero_full=True)
    kind: int
    metrics_count: int = 1
    parts_max: int = 0

    @abstractmethod
    def parts(self, template: PodTemplate, resources: ResourceIndex) -> tuple[TermPart, ...]:
        """Return the resources with their weights, and what the pod adds to them, as the formula needs."""
