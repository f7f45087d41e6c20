"""Resource names as column numbers, fixed for the life of a state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from domain.model.pods import PodTemplate

CPU, MEMORY, EPHEMERAL_STORAGE, PODS, SCORING_CPU, SCORING_MEMORY = range(6)
"""Columns that every state has. The two scoring columns sum the scheduler's non-zero requests."""

CPU_BEYOND, MEMORY_BEYOND = range(6, 8)
"""What the pods' limits exceed their requests by. The allocatable side is the node's capacity."""

RECENT_FIXED, RECENT_REQUESTED, RECENT_SILENT = range(8, 11)
"""The cpu claims (``CpuClaim``) of the pods that the node's last measurement does not cover yet."""

RECENT = slice(RECENT_FIXED, RECENT_SILENT + 1)

_FIXED = ("cpu", "memory", "ephemeral-storage", "pods")
_HIDDEN = ("~cpu", "~memory", "~cpu-beyond", "~memory-beyond", "~fixed", "~requested", "~silent")


class ResourceVector:
    """What one pod of a template adds to a node: ``columns`` int32[K] and ``values`` int64[K].

    The last ``recent_count`` entries count only until the node is measured again.
    """

    __slots__ = ("columns", "recent_count", "values")

    def __init__(self, columns: np.ndarray, values: np.ndarray, recent_count: int) -> None:
        self.columns = columns
        self.values = values
        self.recent_count = recent_count


class ResourceIndex:
    """Interns resource names. A name keeps its column as long as the state lives."""

    def __init__(self) -> None:
        self._columns: dict[str, int] = {name: i for i, name in enumerate(_FIXED + _HIDDEN)}
        self._names: list[str] = list(_FIXED + _HIDDEN)
        self._visible = list(enumerate(_FIXED))

    def __len__(self) -> int:
        return len(self._names)

    def column(self, name: str) -> int:
        """Return the column of a name; a new one for a new name."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = len(self._names)
            self._names.append(name)
            self._visible.append((column, name))
        return column

    def with_new(self, names: Iterable[str]) -> int:
        """Return how many names there would be with these added."""
        return len(self._names) + sum(name not in self._columns for name in names)

    def name(self, column: int) -> str:
        """Return the name of a column. Hidden columns start with ``~``."""
        return self._names[column]

    def visible(self) -> list[tuple[int, str]]:
        """Return (column, name) of every real resource: the same list until a name is added."""
        return self._visible

    def named(self, values: Sequence[int]) -> dict[str, int]:
        """Return the values that are not zero, by name, of the values of all columns."""
        return {name: values[column] for column, name in self._visible if values[column]}

    def vector(self, template: PodTemplate) -> ResourceVector:
        """Return what a pod of this template occupies: requests, 1 of ``pods``, and the hidden columns."""
        items = [(self.column(name), value) for name, value in template.requests.items()]
        items.append((PODS, 1))
        items.append((SCORING_CPU, template.scoring_cpu_milli))
        items.append((SCORING_MEMORY, template.scoring_memory_bytes))
        for column, name in ((CPU_BEYOND, "cpu"), (MEMORY_BEYOND, "memory")):
            items.append((column, max(template.limits.get(name, 0) - template.requests.get(name, 0), 0)))
        lasting = sorted((column, value) for column, value in items if value)
        claim = template.cpu_claim
        recent = [
            (RECENT_FIXED, claim.fixed_milli),
            (RECENT_REQUESTED, claim.requested_milli),
            (RECENT_SILENT, claim.silent_count),
        ]
        recent = [(column, value) for column, value in recent if value]
        return ResourceVector(
            np.array([column for column, _ in lasting + recent], dtype=np.int32),
            np.array([value for _, value in lasting + recent], dtype=np.int64),
            len(recent),
        )
