"""Resource names become column numbers, once and for ever within one state."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from domain.model.pods import PodTemplate

CPU, MEMORY, EPHEMERAL_STORAGE, PODS, SCORING_CPU, SCORING_MEMORY = range(6)
"""Columns that every state has; the two scoring columns sum the scheduler's non-zero requests."""

_FIXED = ("cpu", "memory", "ephemeral-storage", "pods")
_HIDDEN = ("~cpu", "~memory")


class ResourceVector:
    """What one pod of a template adds to a node: ``columns`` int32[K] and ``values`` int64[K]."""

    __slots__ = ("columns", "values")

    def __init__(self, columns: np.ndarray, values: np.ndarray) -> None:
        self.columns = columns
        self.values = values


class ResourceIndex:
    """Interns resource names; a name keeps its column as long as the state lives."""

    def __init__(self) -> None:
        self._columns: dict[str, int] = {name: i for i, name in enumerate(_FIXED + _HIDDEN)}
        self._names: list[str] = list(_FIXED + _HIDDEN)
        self._visible = list(enumerate(_FIXED))

    def __len__(self) -> int:
        return len(self._names)

    def column(self, name: str) -> int:
        """Return the column of a name, a new one if it was never seen."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = len(self._names)
            self._names.append(name)
            self._visible.append((column, name))
        return column

    def with_new(self, names: Iterable[str]) -> int:
        """Return how many names there would be with these."""
        return len(self._names) + sum(name not in self._columns for name in names)

    def name(self, column: int) -> str:
        """Return the name of a column; hidden scoring columns start with ``~``."""
        return self._names[column]

    def visible(self) -> list[tuple[int, str]]:
        """Return (column, name) of every real resource; the same list until a name is added."""
        return self._visible

    def vector(self, template: PodTemplate) -> ResourceVector:
        """Return what a pod of this template occupies: its requests, one of ``pods``, the scoring sums."""
        items = [(self.column(name), value) for name, value in template.requests.items()]
        items.append((PODS, 1))
        if template.scoring_cpu_milli:
            items.append((SCORING_CPU, template.scoring_cpu_milli))
        if template.scoring_memory_bytes:
            items.append((SCORING_MEMORY, template.scoring_memory_bytes))
        items.sort()
        return ResourceVector(
            np.array([c for c, _ in items], dtype=np.int32),
            np.array([v for _, v in items], dtype=np.int64),
        )
