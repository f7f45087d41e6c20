"""Resource names as column numbers: an extended resource has a column as long as some node offers it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from domain.colocation.estimate import ClaimSums, expected
from domain.model.colocation import DEFAULT_POLICY, QUALITY_OF, Amounts, EstimateRule, Quality
from domain.model.devices import BUSY, DEVICE_NAMES, DEVICE_ONE, SHARED, Ask, amounts, asked
from domain.model.pods import PodTemplate, memory_claim_of

CPU, MEMORY, EPHEMERAL_STORAGE, PODS, SCORING_CPU, SCORING_MEMORY = range(6)
"""Columns that every state has. The two scoring columns sum the scheduler's non-zero requests."""

CPU_BEYOND, MEMORY_BEYOND = range(6, 8)
"""What the pods' limits exceed their requests by. The allocatable side is the node's capacity."""

RECENT_FIXED, RECENT_REQUESTED, RECENT_SILENT = range(8, 11)
"""The cpu claims (``CpuClaim``) of the pods that the node's measurements do not cover yet: recent pods."""

ROOM_MID_CPU, ROOM_MID_MEMORY, ROOM_LOW_CPU, ROOM_LOW_MEMORY = range(11, 15)
"""What a node lends to further mid and low pods (``domain.state.lending``). The allocatable side is the room
as it was measured; the requested side sums the estimates of recent pods, for mid of those of high and mid,
for low of all."""

ROOM = slice(ROOM_MID_CPU, ROOM_LOW_MEMORY + 1)

RECENT = slice(RECENT_FIXED, ROOM_LOW_MEMORY + 1)
"""The columns of which the requested side counts recent pods."""

NOWHERE = 15
"""The column of every resource that no node offers: nothing is ever written there."""

_FIXED = ("cpu", "memory", "ephemeral-storage", "pods")
_HIDDEN = (
    *("~cpu", "~memory", "~cpu-beyond", "~memory-beyond", "~fixed", "~requested", "~silent"),
    *("~room-mid-cpu", "~room-mid-memory", "~room-low-cpu", "~room-low-memory", "~nowhere"),
)


def room_columns(quality: Quality) -> tuple[int, int]:
    """Return the columns of cpu and memory that a pod of a quality may borrow from; high as mid."""
    if quality is Quality.LOW:
        return ROOM_LOW_CPU, ROOM_LOW_MEMORY
    return ROOM_MID_CPU, ROOM_MID_MEMORY


@dataclass(slots=True, eq=False)
class ResourceVector:
    """What one pod of a template adds to a node: ``columns`` int32[K] and ``values`` int64[K].

    The last ``recent_count`` entries count only until measurements cover the pod. ``elsewhere`` are the
    requests that have no column, since no node offers such a resource. ``ask`` is what it asks of devices.
    """

    columns: np.ndarray
    values: np.ndarray
    recent_count: int
    elsewhere: Mapping[str, int]
    ask: Ask

    @property
    def lasting_count(self) -> int:
        """How many of the first entries count whatever measurements cover."""
        return len(self.columns) - self.recent_count


class Moved(NamedTuple):
    """A resource that got a column, or lost it (``added`` is false)."""

    name: str
    column: int
    added: bool


class ResourceIndex:
    """Gives columns to resource names: to a few always, to each other one while some node offers it.

    Whatever pods and profiles name takes no column. ``revision`` counts the changes: what was compiled with
    columns is void when it differs.
    """

    def __init__(self) -> None:
        self._columns: dict[str, int] = {name: i for i, name in enumerate(_FIXED + _HIDDEN)}
        self._names: list[str] = list(_FIXED + _HIDDEN)
        self._visible = list(enumerate(_FIXED))
        self._nodes_counts: Counter[str] = Counter()  # extended resource -> number of nodes that offer it
        self._free: list[int] = []
        self._moved: list[Moved] = []
        self.revision = 0
        self.estimate_rule = DEFAULT_POLICY.estimate
        self.device_columns = np.full(len(DEVICE_NAMES), NOWHERE)

    def __len__(self) -> int:
        return len(self._names)

    def column(self, name: str) -> int:
        """Return the column of a name, ``NOWHERE`` where no node offers it."""
        return self._columns.get(name, NOWHERE)

    def offer(self, names: Iterable[str]) -> None:
        """Count a node that offers these resources."""
        for name in names:
            if name in _FIXED:
                continue
            self._nodes_counts[name] += 1
            if name not in self._columns:
                column = self._free.pop() if self._free else len(self._names)
                self._names[column : column + 1] = [name]
                self._columns[name] = column
                self._move(Moved(name, column, added=True))

    def withdraw(self, names: Iterable[str]) -> None:
        """Undo ``offer``."""
        for name in names:
            if name in _FIXED:
                continue
            self._nodes_counts[name] -= 1
            if not self._nodes_counts[name]:
                del self._nodes_counts[name]
                column = self._columns.pop(name)
                self._names[column] = _HIDDEN[-1]
                self._free.append(column)
                self._move(Moved(name, column, added=False))

    def _move(self, moved: Moved) -> None:
        self._moved.append(moved)
        extended = sorted(name for name in self._nodes_counts if name not in (BUSY, SHARED))
        self._visible = [*enumerate(_FIXED), *((self._columns[name], name) for name in extended)]
        self.device_columns = np.array([self.column(name) for name in DEVICE_NAMES])
        self.revision += 1

    def order(self, name: str) -> tuple[int, str]:
        """Return by what names are listed: those that are always there first, the others by name."""
        return min(self.column(name), SCORING_CPU), name

    def drain_moved(self) -> list[Moved]:
        """Return what got or lost its column since the last call, in order."""
        moved, self._moved = self._moved, []
        return moved

    def count_with(self, names: Iterable[str], without: Iterable[str]) -> int:
        """Return how many columns there would be if a node offered some names instead of others."""
        offered, gone = set(names), set(without)
        counts = self._nodes_counts
        new = sum(name not in self._columns for name in offered)
        return len(self._columns) + new - sum(counts[name] == 1 for name in gone - offered)

    def name(self, column: int) -> str:
        """Return the name of a column. Hidden columns start with ``~``."""
        return self._names[column]

    def visible(self) -> list[tuple[int, str]]:
        """Return (column, name) of every real resource: the same list until a name is added."""
        return self._visible

    def named(self, values: Sequence[int]) -> dict[str, int]:
        """Return the values that are not zero, by name, of the values of all columns."""
        return {name: values[column] for column, name in self._visible if values[column]}

    def expect(self, rule: EstimateRule) -> None:
        """Estimate pods by another rule from now on: what was compiled with estimates is void."""
        self.estimate_rule = rule
        self.revision += 1

    def estimate(self, template: PodTemplate) -> Amounts:
        """Return what a pod of this template is expected to use, by the policy in force."""
        return Amounts(self.estimate_cpu_milli(template), self.estimate_memory_bytes(template))

    def estimate_cpu_milli(self, template: PodTemplate) -> int:
        """Return what a pod is expected to use of cpu alone."""
        rule, claim = self.estimate_rule, template.cpu_claim
        sums = ClaimSums(claim.fixed_milli, claim.requested_milli, claim.silent_count)
        return expected(sums, rule.cpu_percent, rule.cpu_milli)

    def estimate_memory_bytes(self, template: PodTemplate) -> int:
        """Return what a pod is expected to use of memory alone."""
        rule, claim = self.estimate_rule, memory_claim_of(template)
        sums = ClaimSums(claim.fixed_bytes, claim.requested_bytes, claim.silent_count)
        return expected(sums, rule.memory_percent, rule.memory_bytes)

    def vector(self, template: PodTemplate, devices: Sequence[int] = ()) -> ResourceVector:
        """Return what a pod of this template occupies: requests, 1 of ``pods``, and the hidden columns.

        With ``devices`` also what it takes of these. ``BUSY`` counts as if no pod shared any: see ``derive``.
        """
        ask, requests = asked(template.requests), template.requests
        if ask.number:
            requests = {**requests, **amounts(requests, devices)}
        items = [
            (PODS, 1),
            (SCORING_CPU, template.scoring_cpu_milli),
            (SCORING_MEMORY, template.scoring_memory_bytes),
        ]
        elsewhere: dict[str, int] = {}
        for name, value in requests.items():
            column = self._columns.get(name)
            if column is None:
                elsewhere[name] = value
            else:
                items.append((column, value))
        if ask.milli == DEVICE_ONE and BUSY in self._columns:
            items.append((self.column(BUSY), ask.number))
        if template.limits:
            for column, name in ((CPU_BEYOND, "cpu"), (MEMORY_BEYOND, "memory")):
                items.append((column, max(template.limits.get(name, 0) - template.requests.get(name, 0), 0)))
        items.sort()
        claim, estimate = template.cpu_claim, self.estimate(template)
        upper = Amounts() if QUALITY_OF[template.qos_class] is Quality.LOW else estimate
        recent = [
            (RECENT_FIXED, claim.fixed_milli),
            (RECENT_REQUESTED, claim.requested_milli),
            (RECENT_SILENT, claim.silent_count),
            (ROOM_MID_CPU, upper.cpu_milli),
            (ROOM_MID_MEMORY, upper.memory_bytes),
            (ROOM_LOW_CPU, estimate.cpu_milli),
            (ROOM_LOW_MEMORY, estimate.memory_bytes),
        ]
        found = [item for item in (*items, *recent) if item[1]]
        return ResourceVector(
            np.array([column for column, _ in found], dtype=np.int32),
            np.array([value for _, value in found], dtype=np.int64),
            sum(1 for _, value in recent if value),
            elsewhere,
            ask,
        )
