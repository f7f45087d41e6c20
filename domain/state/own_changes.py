"""What a batch's own changes add to each node: what events said apart from what a cycle placed.

Events are facts: the ledger takes them whatever others did. What a cycle placed is a claim, and others may
have been faster. Within a batch the facts come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from domain.model.devices import amounts
from domain.model.pods import PodSpec
from domain.model.resources import PODS
from domain.state.nodes import NodeEntry
from domain.state.table import NodeTable


class NodeChange(NamedTuple):
    """``changes`` of a node since ``version``; ``delta`` is what they add per resource, without zeros.

    ``is_spec``: its spec changed; ``was_gone``: it was deleted.
    """

    name: str
    entry: NodeEntry
    version: int
    changes: int
    delta: dict[str, int]
    is_spec: bool = False
    was_gone: bool = False


def requests_of(pod: PodSpec) -> Mapping[str, int]:
    """Return what a pod requests, and what it takes of its devices."""
    requests = pod.template.requests
    return {**requests, **amounts(requests, pod.devices)} if pod.devices else requests


@dataclass(slots=True, eq=False)
class _Sum:
    """The changes of a node, and what they add per resource."""

    changes: int = 0
    delta: dict[str, int] = field(default_factory=dict)
    is_spec: bool = False
    was_gone: bool = False

    def add(self, amounts: Mapping[str, int], sign: int = 1) -> None:
        delta = self.delta
        for name, value in amounts.items():
            delta[name] = delta.get(name, 0) + sign * value


class Placed(NamedTuple):
    """What pods that a cycle placed add to nodes: pod i adds ``lengths[i]`` values to ``rows[i]``.

    ``columns`` and ``values`` are those of all pods one after another. ``elsewhere`` are requests without a
    column, each with its row.
    """

    rows: np.ndarray
    lengths: Sequence[int]
    columns: np.ndarray
    values: np.ndarray
    elsewhere: Sequence[tuple[int, Mapping[str, int]]]


class OwnChanges:
    """Sums the changes of nodes since the last batch.

    ``counted`` are the uids of pods on nodes that became known, whose rows count them from then on. ``told``
    says of uids of placed pods whether they were told that their node is gone, or is back. ``nominated`` are
    keys of pods for which a node was nominated, ``unnominated`` the uids of pods whose nomination ended.
    ``relieved`` are nodes that pods were told to leave, ``spared`` those whose moves are over, and ``rested``
    those whose reliefs are.
    """

    def __init__(self, table: NodeTable, nodes: Mapping[str, NodeEntry]) -> None:
        self._table, self._nodes = table, nodes
        self._facts: dict[str, _Sum] = {}
        self._claims: dict[str, _Sum] = {}
        self._placed: list[Placed] = []
        self.counted: list[str] = []
        self.told: dict[str, bool] = {}
        self.nominated: list[str] = []
        self.unnominated: list[str] = []
        self.relieved: list[str] = []
        self.spared: list[str] = []
        self.rested: list[str] = []

    def clear(self) -> None:
        """Begin anew: all of it is in a batch."""
        self._facts.clear()
        self._claims.clear()
        self._placed.clear()
        self.counted.clear()
        self.told.clear()
        self.nominated.clear()
        self.unnominated.clear()
        self.relieved.clear()
        self.spared.clear()
        self.rested.clear()

    @property
    def has_any(self) -> bool:
        """Whether there is anything for a batch."""
        counted = self._facts or self._claims or self._placed
        return bool(counted or self.unnominated or self.spared or self.rested)

    # ------------------------------------------------------------------------------------------- facts

    def _fact(self, node: str) -> _Sum:
        fact = self._facts.get(node)
        if fact is None:
            fact = self._facts[node] = _Sum()
        return fact

    def count_pod(self, node: str, pod: PodSpec, sign: int, changes: int = 1) -> None:
        """Take note that an event brought a pod to a node (1), or made it leave (-1)."""
        fact = self._facts.get(node) or self._fact(node)  # every release comes by: no call more than needed
        fact.changes += changes
        delta = fact.delta
        for name, value in requests_of(pod).items():
            delta[name] = delta.get(name, 0) + sign * value
        delta[PODS] = delta.get(PODS, 0) + sign

    def give_devices(self, node: str, pods: Iterable[PodSpec]) -> None:
        """Take note of one change by which pods that count on a node take devices of it."""
        fact = self._fact(node)
        fact.changes += 1
        for pod in pods:
            fact.add(amounts(pod.template.requests, pod.devices))

    def begin_to_count(self, node: str, pods: Iterable[PodSpec], changes: int) -> None:
        """Take note of so many changes by which a node counts pods that were on it, but not counted."""
        self._fact(node).changes += changes
        for pod in pods:
            self.count_pod(node, pod, 1, changes=0)
            self.counted.append(pod.uid)

    def change_spec(self, node: str) -> None:
        """Count the change of a node's spec, or its deletion, that an event brought."""
        entry, fact = self._nodes[node], self._fact(node)
        entry.version += 1
        entry.spec_count += 1
        fact.changes += 1
        fact.is_spec = True
        fact.was_gone |= entry.deleted

    def facts(self) -> Iterator[NodeChange]:
        """Yield what events changed, by name."""
        self.sum_claims()
        for name, fact in sorted(self._facts.items()):
            entry, claim = self._nodes[name], self._claims.get(name)
            before = entry.version - fact.changes - (claim.changes if claim else 0)
            delta = fact.delta
            if 0 in delta.values():
                delta = {resource: value for resource, value in delta.items() if value}
            yield NodeChange(name, entry, before, fact.changes, delta, fact.is_spec, fact.was_gone)

    # ------------------------------------------------------------------------------------------ claims

    def add_claim(self, placed: Placed) -> None:
        """Take note of what a cycle placed."""
        self._placed.append(placed)

    def add_nomination(self, key: str, node: str) -> None:
        """Take note that a cycle nominated a node."""
        self._claim_alone(node)
        self.nominated.append(key)

    def add_relief(self, node: str) -> None:
        """Take note that a cycle told pods to leave a node."""
        self._claim_alone(node)
        self.relieved.append(node)

    def _claim_alone(self, node: str) -> None:
        """Claim a change of a node that adds nothing: by it others see that they were too late."""
        self.sum_claims()
        self._claims.setdefault(node, _Sum()).changes += 1

    def sum_claims(self) -> None:
        """Sum the claims by name: rows and columns mean something else after the next change of a node.

        Cost: one pass over arrays, and a dict for each node.
        """
        if not self._placed:
            return
        rows = np.concatenate([placed.rows for placed in self._placed])
        found, which, counts = np.unique(rows, return_inverse=True, return_counts=True)
        lengths = [length for placed in self._placed for length in placed.lengths]
        columns = np.concatenate([placed.columns for placed in self._placed])
        values = np.concatenate([placed.values for placed in self._placed])
        delta = np.zeros((len(found), len(self._table.resources)), dtype=np.int64)
        np.add.at(delta.ravel(), np.repeat(which, lengths) * delta.shape[1] + columns, values)
        named, names = self._table.resources.named, self._table.names
        for row, count, here in zip(found.tolist(), counts.tolist(), delta.tolist(), strict=True):
            claim = self._claims.get(names[row])
            if claim is None:
                claim = self._claims[names[row]] = _Sum()
                claim.delta = named(here)
            else:
                claim.add(named(here))
            claim.changes += count
        for placed in self._placed:
            for row, requests in placed.elsewhere:
                self._claims[names[row]].add(requests)
        self._placed.clear()

    def claims(self) -> Iterator[NodeChange]:
        """Yield what cycles placed, by name."""
        self.sum_claims()
        for name, claim in sorted(self._claims.items()):
            entry = self._nodes[name]
            yield NodeChange(name, entry, entry.version - claim.changes, claim.changes, claim.delta)
