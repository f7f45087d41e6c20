"""What filters and scores count over placed pods: counters by domain, rules that refuse, values that score.

A *counter* sums a weight over the placed pods of each domain of a topology key. A *rule* refuses nodes by one
counter, a *value* is one summand of a score. Both are handed to the placing kernel, which keeps the counters
right while it places pods.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from typing import ClassVar, NamedTuple, Protocol

import msgspec
import numpy as np

from domain.kernels import arrays as kernel
from domain.model.pods import Controller, NodeSelectorTerm, PodTemplate, Toleration
from domain.plugins.base import Plugin, Reason, Score
from domain.plugins.view import NodeView


class CountedPod(Protocol):
    """Pods that no live selector tells apart: the class of a placed pod, or of the one to be placed.

    ``labels`` are those that some live selector mentions. ``template`` is that of the first such pod: all of
    them agree in what they carry (terms, host ports, the cluster of a master).
    """

    @property
    def namespace(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def terminating(self) -> bool: ...
    @property
    def controller(self) -> Controller | None: ...
    @property
    def template(self) -> PodTemplate | None: ...


class NamespaceLabels(Protocol):
    """The labels of Namespace objects."""

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace; none where its object is not known."""
        ...


class Weigher(Protocol):
    """How much one placed pod counts: a frozen, hashable value."""

    def weigh(self, pod: CountedPod, namespaces: NamespaceLabels) -> int:
        """Return what a placed pod of the class adds to the counter in its domain."""
        ...

    def anchors(self) -> Iterable[Hashable]:
        """Return marks of which a pod must have one to weigh anything.

        A mark is a namespace, or a tuple (namespace, label, value).
        """
        ...


class Eligible(msgspec.Struct, frozen=True):
    """The nodes whose pods count, and whose domains exist for a minimum.

    A node has all ``keys`` as labels, matches ``node_selector`` and one of the ``required`` terms (None: no
    demand), and where ``tolerations`` is not None, no taint ``NoSchedule`` or ``NoExecute`` is left
    untolerated.
    """

    keys: tuple[str, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    required: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] | None = None


class CounterSpec(msgspec.Struct, frozen=True):
    """A counter: the sum of ``weigher`` over placed pods on ``eligible`` nodes (None: all), by domain.

    Domains are the values of the label ``topology_key``; a node without it is in none. With ``by_row`` each
    node that has the key is a domain of its own, whatever its value; the key "" stands for any node.
    """

    topology_key: str
    weigher: Weigher
    eligible: Eligible | None = None
    by_row: bool = False


class Rule(NamedTuple):
    """A demand on the count of a node's domain.

    ``kind`` is ``kernel.AT_MOST`` (count <= bound), ``kernel.SPREAD`` (count - minimum <= bound, where the
    minimum is over the domains with an eligible node, and 0 where these are fewer than ``min_domains``), or
    ``kernel.NEEDED`` (count >= 1; with ``bootstraps`` also where no counter of the pod's ``NEEDED`` rules
    counts anything anywhere). ``missing`` is the reason where the node has no domain; None: it passes.
    ``text`` names the demand in an explanation.
    """

    kind: int
    counter: CounterSpec
    bound: int
    reason: Reason
    missing: Reason | None = None
    min_domains: int = 1
    bootstraps: bool = False
    text: str = ""


class Value(NamedTuple):
    """One summand of a score: the count of a node's domain.

    With ``sized`` (spread) it is count x ln(size + 2) + max_skew - 1, where size is the number of domains
    among the feasible nodes, or with ``CounterSpec.by_row`` the number of these nodes. Otherwise it is the
    count itself. A node without a domain adds nothing; with ``is_required`` it has no score at all: 0, and no
    say in the extremes.
    """

    counter: CounterSpec
    max_skew: int = 1
    sized: bool = False
    is_required: bool = False


class PodsSeen(Protocol):
    """What a plugin may ask about all pods and the objects that own them (``domain.state``)."""

    @property
    def version(self) -> int:
        """Moves whenever any rule or value of any waiting pod may be another."""
        ...


class Incoming(NamedTuple):
    """The pod to be placed: ``labels`` are those of its class, ``pods`` what is known of all others."""

    template: PodTemplate
    namespace: str
    labels: Mapping[str, str]
    controller: Controller | None
    pods: PodsSeen


class CountFilter(Plugin):
    """Refuses nodes by what pods in their domains count."""

    @abstractmethod
    def rules(self, pod: Incoming) -> list[Rule]:
        """Return the rules in the order in which they are asked; the first that refuses decides.

        They may change only with ``PodsSeen.version``. One pod has at most ``kernel.RULES_MAX`` of them.
        """


class CountScore(Score):
    """Rates nodes by what pods in their domains count.

    ``kind`` is ``kernel.SPREAD_SCORE`` or ``kernel.AFFINITY_SCORE``: how the sum is rounded and normalised.
    """

    kind: ClassVar[int] = kernel.SPREAD_SCORE

    @abstractmethod
    def values(self, pod: Incoming) -> list[Value]:
        """Return the summands in order; none: the score is 0 on all nodes. At most ``kernel.VALUES_MAX``."""

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``: the kernel alone computes it."""
        raise NotImplementedError(f"{self.name} is computed by the placing kernel alone")
