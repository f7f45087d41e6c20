"""The field of a ``MemoryDatabase``."""

from __future__ import annotations

from domain.model.devices import DEVICE_NAMES, DEVICE_ONE, GPU
from domain.state.usage import window_of
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.past import as_of
from services.ports.field import Column, Field, FieldFilter, groups_of
from services.ports.nodes import NodeRow
from services.ports.past import Moment


class MemoryFields:
    """The ``Fields`` port over a ``MemoryDatabase``."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def field(self, which: FieldFilter, moment: Moment | None) -> Field:
        """See ``Fields.field``."""
        database = self._database if moment is None else as_of(self._database, moment)
        live = [
            (row, row.spec) for row in database.nodes.values() if not row.deleted and row.spec is not None
        ]
        labelled = [(spec.labels.get(which.by) if which.by else None, row, spec) for row, spec in live]
        labelled.sort(key=lambda each: (each[0] is None, each[0] or "", each[1].name))
        rows = [row for _, row, _ in labelled]
        specs = [spec for _, _, spec in labelled]
        measured = database if which.measured and moment is None else None
        return Field(
            groups=groups_of([label for label, _, _ in labelled]),
            names=[row.name for row in rows],
            columns={
                resource: Column(
                    offered=[_units(resource) * spec.allocatable.get(resource, 0) for spec in specs],
                    taken=[_taken(row, resource) for row in rows],
                    measured=[_latest(measured, row.name, resource) for row in rows]
                    if which.measured
                    else [],
                )
                for resource in which.resources
            },
            unschedulable=[at for at, spec in enumerate(specs) if spec.unschedulable],
            not_ready=[at for at, spec in enumerate(specs) if spec.ready is False],
            repelling=[
                at
                for at, spec in enumerate(specs)
                if any(taint.effect != "PreferNoSchedule" for taint in spec.taints)
            ],
            hot=[at for at, row in enumerate(rows) if measured is not None and _is_hot(measured, row.name)],
        )


def _units(resource: str) -> int:
    return DEVICE_ONE if resource == GPU else 1


def _taken(row: NodeRow, resource: str) -> int:
    taken = row.requested.get(resource, 0)
    if resource != GPU:
        return taken
    return max(DEVICE_ONE * taken, sum(row.requested.get(name, 0) for name in DEVICE_NAMES))


def _latest(database: MemoryDatabase | None, node: str, resource: str) -> float | None:
    usage = None if database is None else database.measured.usage.get(node)
    series = None if usage is None else window_of(usage.record).series.get(resource)
    if usage is None or series is None:
        return None
    latest = series.measured(0).latest
    return None if latest is None else round(latest, 1)


def _is_hot(database: MemoryDatabase, node: str) -> bool:
    usage = database.measured.usage.get(node)
    return usage is not None and usage.record.quality is not None and usage.record.quality.heat.is_hot
