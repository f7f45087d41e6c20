"""The roll-up in memory: counts and samples of a ``MemoryDatabase``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from domain.model.resources import CPU, MEMORY, PODS
from services.adapters.memory.database import MemoryDatabase
from services.ports.nodes import NodeRow
from services.ports.rollups import (
    OF,
    ROWS_MAX,
    STEP_MS,
    By,
    Figure,
    UsageFilter,
    UsagePoint,
    figures_of,
)
from services.ports.store import Rows


class MemoryRollups:
    """The ``Rollups`` port over a ``MemoryDatabase``."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def count(self, rows_max: int = ROWS_MAX) -> int:
        """See ``Rollups.count``: nothing else runs meanwhile."""
        tables, counted = self._database.rollups, 0
        for shard, made in self._database.decisions.items():
            seen = tables.cursors.get(shard, 0)
            slice_of_it = [each for each, _ in made if each.seq > seen][:rows_max]
            for each in slice_of_it:
                step_ms = each.decided_at_ms - each.decided_at_ms % STEP_MS
                tables.counts[step_ms, By.NAMESPACE, each.namespace, each.outcome] += 1
                if each.node is not None:
                    tables.counts[step_ms, By.NODE, each.node, each.outcome] += 1
                tables.cursors[shard] = each.seq
            counted += len(slice_of_it)
        return counted

    async def sample(self) -> bool:
        """See ``Rollups.sample``."""
        at_ms = max((row.log_time_ms for row in self._database.shards.values()), default=0)
        step_ms = at_ms - at_ms % STEP_MS
        if at_ms == 0 or step_ms in self._database.rollups.samples:
            return False
        self._database.rollups.samples[step_ms] = at_ms
        for (by, name, figure), amount in (
            *_of_namespaces(self._database),
            *_of_nodes(self._database, step_ms),
        ):
            self._database.rollups.gauges[step_ms, by, name, figure] = amount
        return True

    async def aclose(self) -> None:
        """See ``Rollups.aclose``: there is nothing to release."""


_Gauge = tuple[tuple[By, str, Figure], int]


def _of_namespaces(database: MemoryDatabase) -> Iterator[_Gauge]:
    seen = [*(row.opened for row in database.open_placements.values()), *database.pending.values()]
    sums = dict.fromkeys(
        ((By.NAMESPACE, pod.namespace, figure) for pod in seen for figure in OF[By.NAMESPACE]), 0
    )
    for row in database.open_placements.values():
        template = database.templates.get(row.opened.signature)
        requests = {} if template is None else template.requests
        sums[By.NAMESPACE, row.opened.namespace, Figure.PODS] += 1
        sums[By.NAMESPACE, row.opened.namespace, Figure.REQUESTED_CPU] += requests.get(CPU, 0)
        sums[By.NAMESPACE, row.opened.namespace, Figure.REQUESTED_MEMORY] += requests.get(MEMORY, 0)
    for pod in database.pending.values():
        sums[By.NAMESPACE, pod.namespace, Figure.PENDING_PODS] += 1
    yield from sums.items()


def _of_nodes(database: MemoryDatabase, step_ms: int) -> Iterator[_Gauge]:
    for row in database.nodes.values():
        if row.deleted or row.spec is None:
            continue
        offered = row.spec.allocatable
        plain = {
            Figure.PODS: row.requested.get(PODS, 0),
            Figure.REQUESTED_CPU: row.requested.get(CPU, 0),
            Figure.REQUESTED_MEMORY: row.requested.get(MEMORY, 0),
            Figure.ALLOCATABLE_CPU: offered.get(CPU, 0),
            Figure.ALLOCATABLE_MEMORY: offered.get(MEMORY, 0),
        }
        yield from (((By.NODE, row.name, figure), amount) for figure, amount in plain.items())
        yield from _measured(database, row, step_ms)


def _measured(database: MemoryDatabase, row: NodeRow, step_ms: int) -> Iterator[_Gauge]:
    usage = database.measured.usage.get(row.name)
    if usage is None or usage.record.at_ms < step_ms - STEP_MS:
        return
    assert row.spec is not None
    for resource, figure in ((CPU, Figure.MEASURED_CPU), (MEMORY, Figure.MEASURED_MEMORY)):
        series = usage.record.series.get(resource)
        has = row.spec.capacity.get(resource, row.spec.allocatable.get(resource))
        if series is not None and series.percent and has is not None:
            yield (By.NODE, row.name, figure), round(has * series.percent[-1] / 100)


class MemoryOverTime:
    """The ``OverTime`` port over a ``MemoryDatabase``."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def points(self, which: UsageFilter, limit: int, after: tuple[int, str] | None) -> Rows[UsagePoint]:
        """See ``OverTime.points``."""
        decisions = defaultdict[tuple[int, str], Counter[str]](Counter)
        sums = defaultdict[tuple[int, str], dict[str, tuple[int, int]]](dict)
        samples = Counter(_at(which, step) for step in self._database.rollups.samples if _inside(which, step))
        for (step_ms, by, name, outcome), count in self._database.rollups.counts.items():
            if _inside(which, step_ms) and _is_counted(which, by, name):
                decisions[_key(which, step_ms, name)][outcome] += count
        for (step_ms, by, name, figure), amount in self._database.rollups.gauges.items():
            if _inside(which, step_ms) and _is_sampled(which, by, name):
                found = sums[_key(which, step_ms, name)]
                if by is By.NAMESPACE and which.by is By.CLUSTER and figure is not Figure.PENDING_PODS:
                    continue  # what is requested of nodes is said by nodes
                before = found.get(figure, (0, 0))
                found[figure] = before[0] + amount, before[1] + 1
        rows = [
            UsagePoint(
                at_ms,
                name,
                samples[at_ms],
                figures_of(which.by, sums.get((at_ms, name), {}), samples[at_ms]),
                dict(sorted(decisions[at_ms, name].items())) if (at_ms, name) in decisions else {},
            )
            for at_ms, name in sorted(decisions.keys() | sums.keys())
            if after is None or (at_ms, name) > after
        ]
        return Rows(rows[:limit], more=len(rows) > limit)


def _inside(which: UsageFilter, step_ms: int) -> bool:
    return which.since_ms <= step_ms < which.until_ms


def _at(which: UsageFilter, step_ms: int) -> int:
    return step_ms - (step_ms - which.since_ms) % which.span_ms


def _key(which: UsageFilter, step_ms: int, name: str) -> tuple[int, str]:
    return _at(which, step_ms), "" if which.by is By.CLUSTER else name


def _is_seen(which: UsageFilter, name: str) -> bool:
    return which.seen is None or name in which.seen


def _is_counted(which: UsageFilter, by: By, name: str) -> bool:
    if which.by is By.NODE:
        return by is By.NODE and which.seen is None
    return by is By.NAMESPACE and _is_seen(which, name)


def _is_sampled(which: UsageFilter, by: By, name: str) -> bool:
    if by is By.NAMESPACE:
        return which.by is not By.NODE and _is_seen(which, name)
    return which.by is not By.NAMESPACE
