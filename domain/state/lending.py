"""What each node lends to pods of weaker quality: the columns of room, by what was measured by quality.

Room follows from the latest measurement, the policy and the spec of the node, and from nothing else, so it is
the same in every worker and after a restart. It is written when a cycle begins: a measurement that is too old
by then lends nothing. What pods that came since may use is counted on the requested side, as for all columns.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress

import numpy as np

from domain.colocation.view import NO_REQUESTS, Requests, available, room_without_recent
from domain.model.colocation import QUALITY_OF, Amounts, Quality, UseByQuality, ViewRule
from domain.model.nodes import NodeSpec
from domain.model.resources import CPU, MEMORY
from domain.model.timestamps import NEVER_MS
from domain.model.usage import QualityRecord
from domain.state.nodes import NodeEntry
from domain.state.policies import Policies
from domain.state.resources import ROOM
from domain.state.table import NodeTable
from domain.state.usage import capacity_of

_NOTHING = (0, 0, 0, 0)


class Lending:
    """Writes what nodes lend.

    Parameters
    ----------
    measured : mapping
        Node -> what was measured by quality, nodes that are not known among them.
    """

    def __init__(
        self,
        table: NodeTable,
        nodes: Mapping[str, NodeEntry],
        measured: Mapping[str, QualityRecord],
        policies: Policies,
    ) -> None:
        self._table, self._nodes, self._measured, self._policies = table, nodes, measured, policies
        self._stale: set[str] = set()  # nodes that were measured, or are measured no more
        self._ends: list[tuple[int, str]] = []  # a heap: when a measurement is too old, and of which node
        self._generation = self._now_ms = 0
        self._policies_version = policies.version

    def measure(self, node: str) -> None:
        """Take note that a node was measured by quality, or that what was measured is gone."""
        self._stale.add(node)

    @property
    def has_news(self) -> bool:
        """Whether nodes were measured, or policies changed, since what they lend was written."""
        return bool(self._stale) or self._policies_version != self._policies.version

    @property
    def due_ms(self) -> int:
        """The log time at which a measurement becomes too old; ``NEVER_MS`` if there is none."""
        while self._ends and self._ends[0][0] != self._end_ms(self._ends[0][1]):
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else NEVER_MS

    def is_fresh(self, node: str) -> bool:
        """Say whether a node was measured by quality, and not too long before the latest ``write_room``."""
        return node in self._measured and self._now_ms < self._end_ms(node) < NEVER_MS

    def write_room(self, now_ms: int) -> None:
        """Write the room of all nodes for which it may have changed, as of no earlier log time than before.

        A row that is written counts as measured: groups wake by that.

        Cost: O(nodes that were measured, or whose spec changed, since the last call); O(nodes) where a policy
        changed.
        """
        self._now_ms = now_ms = max(self._now_ms, now_ms)
        table, stale = self._table, self._stale
        if self._policies_version != self._policies.version:
            self._policies_version = self._policies.version
            stale.update(self._measured)
        if not self._measured and not stale:
            self._generation = table.last_generation
            return
        stale.update(self._concerned())
        while self.due_ms <= now_ms:
            stale.add(heapq.heappop(self._ends)[1])
        self._write([name for name in sorted(stale) if name in table.rows], now_ms)
        stale.clear()
        self._generation = table.last_generation

    def _concerned(self) -> Iterator[str]:
        """Yield the measured nodes that may lend otherwise now, though nothing was measured."""
        table = self._table
        rows = table.changed_since(self._generation)
        rows = rows[rows < table.count]
        if not self._policies.reads_requests:
            rows = rows[table.respec_generation[rows] > self._generation]
        names = (table.names[row] for row in rows.tolist())
        return (name for name in names if name in self._measured)

    def _end_ms(self, node: str) -> int:
        record, entry = self._measured.get(node), self._nodes.get(node)
        if record is None or entry is None or entry.spec is None:
            return NEVER_MS
        return record.at_ms + self._rule(entry.spec).age_seconds_max * 1_000 + 1

    def _rule(self, spec: NodeSpec) -> ViewRule:
        return self._policies.of(spec.labels).policy.view

    def _write(self, nodes: Sequence[str], now_ms: int) -> None:
        """Write what some nodes lend, and stamp the rows of those that lend otherwise than before."""
        if not nodes:
            return
        table, found = self._table, []
        rows = [table.rows[node] for node in nodes]
        for node, row in zip(nodes, rows, strict=True):
            record, end_ms = self._measured.get(node), self._end_ms(node)
            if now_ms < end_ms < NEVER_MS:
                heapq.heappush(self._ends, (end_ms, node))
            found.append(_NOTHING if record is None or now_ms >= end_ms else self._room(node, record.use))
            is_hot = record is not None and record.heat.is_hot
            if is_hot != table.hot[row]:
                table.hot[row] = is_hot
                table.touch_spec(row)  # static filters look at it, and nothing else changes as rarely
        offered, room = table.allocatable[ROOM], np.array(found, dtype=np.int64).T
        differs = (offered[:, rows] != room).any(axis=0)
        offered[:, rows] = room
        for row in compress(rows, differs.tolist()):
            table.touch_usage(row)

    def _room(self, node: str, use: UseByQuality) -> tuple[int, int, int, int]:
        entry = self._nodes[node]
        assert entry.spec is not None
        rule, capacity = self._rule(entry.spec), capacity_of(entry.spec)
        requests = requests_of(entry) if rule.reads_requests else NO_REQUESTS
        room = room_without_recent(available(rule, capacity, use, requests), use)
        return (*room.mid, *room.low)


def requests_of(entry: NodeEntry) -> Requests:
    """Return what the high and the mid pods on a node request in sum. Cost: O(pods on it)."""
    sums = {quality: Counter[str]() for quality in Quality}
    for pod in entry.pods.values():
        sums[QUALITY_OF[pod.spec.template.qos_class]].update(pod.spec.template.requests)
    high, mid = (Amounts(sums[q][CPU], sums[q][MEMORY]) for q in (Quality.HIGH, Quality.MID))
    return Requests(high, mid)
