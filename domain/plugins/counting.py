"""What filters and scores count over placed pods: counters by domain, rules that refuse, values that score.

A *counter* sums a weight over the placed pods of each domain of a topology key. A *rule* refuses nodes by one
counter, a *value* is one summand of a score. Both are handed to the placing kernel, which keeps the counters
right while it places pods.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple, Protocol

import msgspec
import numpy as np

from domain.kernels import arrays as kernel
from domain.model.marks import Mark, TermMark
from domain.model.pods import Controller, NodeSelectorTerm, PodTemplate, Toleration
from domain.model.selectors import LabelSelector
from domain.plugins.base import Cure, Plugin, Reason, Score
from domain.plugins.node_selectors import match_any_term, match_labels
from domain.plugins.tolerations import REPELLING, untolerated_counts
from domain.plugins.weighers import NamespaceLabels, Weigher
from domain.state.keyed_values import ABSENT
from domain.state.table import NodeTable


class Eligible(msgspec.Struct, frozen=True, cache_hash=True):
    """The nodes whose pods count, and whose domains exist for a minimum.

    A node has all ``keys`` as labels, matches ``node_selector`` and one of the ``required`` terms (None: no
    demand), and where ``tolerations`` is not None, no taint ``NoSchedule`` or ``NoExecute`` is left
    untolerated.
    """

    keys: tuple[str, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    required: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] | None = None

    def among(self, table: NodeTable, rows: np.ndarray) -> np.ndarray:
        """Return bool[len(rows)]: which of some rows are eligible. Cost: O(rows) per demand."""
        found = match_labels(dict(self.node_selector), table, rows)
        for key in self.keys:
            column = table.labels.column(key)
            found &= False if column is None else column[rows] != ABSENT
        if self.required is not None:
            found &= match_any_term(self.required, table, rows)
        if self.tolerations is not None:
            left = untolerated_counts(self.tolerations, REPELLING, table)
            found &= True if left is None else left[rows] == 0
        return found


class CounterSpec(msgspec.Struct, frozen=True, cache_hash=True):
    """A counter: the sum of ``weigher`` over placed pods on ``eligible`` nodes (None: all), by domain.

    Domains are the values of the label ``topology_key``; a node without it is in none. With ``by_row`` each
    node that has the key is a domain of its own, whatever its value; the key "" stands for any node. With
    ``missing_is_empty`` pods on nodes without the key count in the domain of the empty value. With
    ``nominated`` pods count, too, that are nominated for a node.
    """

    topology_key: str
    weigher: Weigher
    eligible: Eligible | None = None
    by_row: bool = False
    missing_is_empty: bool = False
    nominated: bool = False


_TEXT_MAX = 200


def selector_text(selector: LabelSelector | None) -> str:
    """Return a selector for an explanation: its beginning where it is long, as every attempt repeats it."""
    text = "nothing" if selector is None else str(selector)
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 3]}..."


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
    among the feasible nodes that have a score, or with ``CounterSpec.by_row`` the number of these nodes.
    Otherwise it is the count itself. A node without a domain adds nothing. With ``is_required`` it has no
    score at all: 0, no say in the extremes, none in the size of any value. Without, all nodes that lack the
    domain are one more domain in the size.
    """

    counter: CounterSpec
    max_skew: int = 1
    sized: bool = False
    is_required: bool = False


class PodsSeen(Protocol):
    """What a plugin may ask about all pods, and about the objects that select them (``domain.state``)."""

    @property
    def version(self) -> int:
        """Moves whenever a rule or value of a waiting pod may be another, but for ``pods_with`` masters."""
        ...

    @property
    def namespaces(self) -> NamespaceLabels:
        """Labels of all Namespace objects."""
        ...

    def terms_near(self, namespace: str, labels: Mapping[str, str]) -> Iterable[TermMark]:
        """Return the distinct terms that may mean such a pod, of all pods that are placed or waiting.

        All that do are among them, and few others.
        """
        ...

    def pods_with(self, mark: Mark) -> int:
        """Return how many pods carry a mark, placed or waiting."""
        ...

    def admits(self, namespace: str, mark: TermMark) -> bool:
        """Say whether a term holds that pods of a namespace carry: not all of those do that look too far."""
        ...

    def services(self, namespace: str) -> Iterable[LabelSelector]:
        """Return the selectors of the Services of a namespace, without those of Services that have none."""
        ...

    def owner(self, namespace: str, controller: Controller) -> LabelSelector | None:
        """Return the selector of the object that made a pod, None where the object is not known.

        An object without a selector has one without requirements.
        """
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

    def cures(self, code: str) -> Cure:
        """See ``Plugin``."""
        return Cure.NODE | Cure.COUNTS

    @abstractmethod
    def rules(self, pod: Incoming) -> list[Rule]:
        """Return the rules in the order in which they are asked; the first that refuses decides.

        They may change only with ``PodsSeen.version``, and those of a master with how many masters its
        cluster has. One pod has at most ``limits.rules_per_pod_max`` of them.
        """

    def grows(self, template: PodTemplate, pods: PodsSeen) -> bool:
        """Say whether one more master like this, wherever it runs, raises the bound of a rule.

        Masters that came before it are tried first, by the bound of then. Parked ones are tried again.
        """
        return False


class CountScore(Score):
    """Rates nodes by what pods in their domains count.

    ``kind`` is ``kernel.SPREAD_SCORE`` or ``kernel.AFFINITY_SCORE``: how the sum is rounded and normalised.
    """

    kind: ClassVar[int] = kernel.SPREAD_SCORE

    @abstractmethod
    def values(self, pod: Incoming) -> list[Value]:
        """Return the summands in order; none: the score is 0 on all nodes. At most ``kernel.VALUES_MAX``."""
