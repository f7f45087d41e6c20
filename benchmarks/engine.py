"""`berth bench engine`: the engine alone, in this process, without any server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from benchmarks import machine
from benchmarks.flow import EngineReport, measure_flow
from benchmarks.parts import Part, measure_parts
from benchmarks.planning import measure_planning
from benchmarks.workloads import WORKLOADS, Workload
from domain.model.limits import batch_records_max

_WARM_UP = Workload(name="warm-up", about="what has to be compiled", nodes=4, pods=8, groups=2)


class EngineRun(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of the table, and the first cycle of the process, which compiles or loads the kernels."""

    first_cycle_seconds: float
    parts: list[Part]
    workloads: list[EngineReport]
    machine: dict[str, Any]
    versions: dict[str, str]


def measure(names: Sequence[str], *, parts: bool) -> EngineRun:
    """Measure workloads of the table by name, and with ``parts`` the single parts of the engine, too."""
    described = machine.describe()
    first = measure_flow(_WARM_UP, _WARM_UP.pods).report
    return EngineRun(
        first_cycle_seconds=round(first.cycle_ms["max"] / 1000, 3),
        parts=[*measure_parts(), *measure_planning()] if parts else [],
        workloads=[measure_flow(WORKLOADS[name], batch_records_max).report for name in names],
        machine=described,
        versions=machine.versions(),
    )
