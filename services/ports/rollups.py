"""Roll-ups: what was decided and requested over time, in rows that are kept longer than what they count.

A roll-up has two sides: a process adds to it beside all others (``Rollups``), and the API reads it
(``OverTime``). What is decided is counted exactly once, by the log time of the decision. What is requested is
looked at once a step, at the log time of the ledger.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from services.ports.store import Rows

STEP_MS = 300_000
"""The length of a step: decisions are counted, and samples taken, by multiples of it."""

ROWS_MAX = 5_000
"""Decisions that are counted in one transaction, in some tens of milliseconds."""


class By(enum.StrEnum):
    """What a row of a roll-up is of."""

    NAMESPACE = "namespace"
    NODE = "node"
    CLUSTER = "cluster"


class Figure(enum.StrEnum):
    """What is sampled; of nodes all but pods that wait, of namespaces what their pods request."""

    PODS = "pods"
    PENDING_PODS = "pending_pods"
    REQUESTED_CPU = "requested_cpu_milli"
    REQUESTED_MEMORY = "requested_memory_bytes"
    ALLOCATABLE_CPU = "allocatable_cpu_milli"
    ALLOCATABLE_MEMORY = "allocatable_memory_bytes"
    MEASURED_CPU = "measured_cpu_milli"
    MEASURED_MEMORY = "measured_memory_bytes"


MEASURED = (Figure.MEASURED_CPU, Figure.MEASURED_MEMORY)
"""The figures that are not 0 where they are missing, but not known."""

OF: Mapping[By, Collection[Figure]] = {
    By.NAMESPACE: tuple(Figure)[:4],
    By.NODE: tuple(each for each in Figure if each is not Figure.PENDING_PODS),
    By.CLUSTER: tuple(Figure),
}
"""The figures that rows have."""


class UsageFilter(NamedTuple):
    """Which steps to read, from ``since_ms`` to before ``until_ms``, both multiples of ``STEP_MS``.

    Steps are joined into spans of ``span_ms`` from ``since_ms`` on. Of the namespaces ``seen`` (None: all)
    are the rows by namespace, and what others count of pods that wait and of decisions; decisions are not
    counted by node for who does not see all.
    """

    since_ms: int
    until_ms: int
    span_ms: int
    by: By
    seen: Collection[str] | None = None


class UsagePoint(NamedTuple):
    """What was in the span that begins ``at_ms``: means of the samples, and the decisions by outcome.

    ``samples_count`` is how many samples the means are of; where it is 0 there are no figures. The name of a
    cluster is "".
    """

    at_ms: int
    name: str
    samples_count: int
    figures: Mapping[Figure, int]
    decisions: Mapping[str, int]


def figures_of(by: By, sums: Mapping[str, tuple[int, int]], samples_count: int) -> dict[Figure, int]:
    """Return the means of sums, each with the number of its rows, over so many samples."""
    found: dict[Figure, int] = {}
    for figure in OF[by] if samples_count else ():
        amount, count = sums.get(figure, (0, 0))
        if figure not in MEASURED:
            found[figure] = round(amount / samples_count)
        elif count:
            found[figure] = round(amount / (samples_count if by is By.CLUSTER else count))
    return found


class Rollups(Protocol):
    """What adds to the roll-up. Several processes may, at once."""

    async def count(self, rows_max: int = ROWS_MAX) -> int:
        """Count some decisions of each shard that were not counted; return how many.

        A shard of which another process counts is passed over. What is counted, and up to where, becomes
        durable together.
        """

    async def sample(self) -> bool:
        """Take the sample of the present step; False: it is taken, or no log time has passed yet."""

    async def aclose(self) -> None:
        """Release what is held."""


class OverTime(Protocol):
    """Reads of the roll-up."""

    async def points(self, which: UsageFilter, limit: int, after: tuple[int, str] | None) -> Rows[UsagePoint]:
        """Return the points that are asked for by (time, name)."""
