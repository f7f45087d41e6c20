"""One call of the kernel: candidates are compiled, placed on the snapshot, or taken back from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from domain.cycle.record import refuse
from domain.cycle.run import CycleRun
from domain.engine.explanation import scratch_for
from domain.engine.homes import Domain
from domain.engine.picked import room_for
from domain.engine.program import Program
from domain.kernels import arrays as kernel
from domain.kernels import placing
from domain.kernels.nominated import place_nominated
from domain.model.devices import Ask
from domain.queue.groups import GroupKey, Tried

Compiled = tuple[list[Tried], dict[GroupKey, Program], int]
"""The candidates to try, the programs of their groups, and which candidate comes next."""


def compile_groups(
    run: CycleRun,
    candidates: Sequence[Tried],
    start: int,
    *,
    programs_max: int,
    is_home: bool = False,
    domain: Domain | None = None,
) -> Compiled:
    """Compile candidates from ``start`` on, as many as fit the slots and the change log.

    ``is_home``: they look at home nodes alone. ``domain``: at the nodes of that one alone. Candidates of a
    group that an earlier call of this cycle parked are refused.
    """
    programs: dict[GroupKey, Program] = {}
    tried: list[Tried] = []
    end = start
    run.slots.start_call()
    for key, group in candidates[start:]:
        if group.parked:
            refuse(run, group, [key] if run.queue.is_fresh(key) else [])
            run.queue.note_tried([key])
            end += 1
            continue
        if len(tried) == run.snapshot.changes_max:
            break
        if group.key not in programs:
            if len(programs) == programs_max:
                break
            assert group.plan is not None
            program = run.slots.program(
                group.key,
                group.signature,
                group.template,
                group.plan,
                group.pod_class,
                is_home=is_home,
                domain=domain,
            )
            if program is None:
                break
            programs[group.key] = program
        tried.append((key, group))
        end += 1
    return (_for_homes(run, tried, programs) if is_home else tried), programs, end


def _for_homes(run: CycleRun, tried: Sequence[Tried], programs: Mapping[GroupKey, Program]) -> list[Tried]:
    """Leave out groups that prefer some nodes, and those for which no home node has room.

    To be refused by each home node takes far longer than to be left out here.
    """
    groups, fits = run.slots.groups, np.zeros(len(programs), dtype=np.uint8)
    slots = [program.slot for program in programs.values()]
    placing.could_fit(
        run.snapshot.columns,
        run.slots.homes.rows,
        groups.demand_count[slots],
        groups.demand_column[slots],
        groups.demand_value[slots],
        fits,
    )
    found = zip(programs.items(), fits.tolist(), strict=True)
    left = {
        key
        for (key, program), fits_one in found
        if fits_one and not program.static.refuses_all and not program.static.prefers
    }
    return [each for each in tried if each[1].key in left]


def call_kernel(
    run: CycleRun,
    tried: Sequence[Tried],
    programs: Mapping[GroupKey, Program],
    *,
    changes: int = 1,
    stopping: Iterable[GroupKey] = (),
    is_explained: bool = True,
) -> kernel.Placed:
    """Let the kernel place pods on the snapshot; the change log gets room for so many changes of each.

    A call ends with the first pod of a ``stopping`` group that finds no node. ``is_explained``: the kernel
    says why pods find none.
    """
    run.make_room_for_changes(changes * len(tried))
    slots = run.slots
    sequence = np.array([programs[group.key].slot for _, group in tried], dtype=np.int32)
    metrics = max((program.plan.metrics_count for program in programs.values()), default=0)
    counted = max((len(program.plan.count_scores) for program in programs.values()), default=0)
    placed = room_for(len(tried), programs.values(), len(slots.groups.salt))
    if not is_explained:
        placed.reason_code[:, 1, 0] = 0  # the kernel takes this for explained, and looks no further
    for key in stopping:
        placed.stops[programs[key].slot] = 1
    placing.place(
        run.snapshot.columns,
        slots.groups,
        slots.bounds,
        run.snapshot.changes,
        slots.counters.arrays,
        _effects(run, programs),
        sequence,
        placed,
        scratch_for(
            sequence,
            len(slots.groups.salt),
            blocks=slots.bounds.free_low.shape[1],
            width=run.snapshot.rows_width,
            metrics=metrics,
            counted=counted,
        ),
    )
    return placed


def call_nominated(
    run: CycleRun, slots: Sequence[int], rows: Sequence[int], programs: Mapping[GroupKey, Program]
) -> tuple[np.ndarray, np.ndarray]:
    """Let the kernel place each pod on one row, given with the slot of its group.

    Returns uint8[P], 1 for each that is placed, and the devices int32[P] that the node gives it, as bits.
    """
    placed = np.zeros(len(slots), dtype=np.uint8)
    devices = np.zeros(len(slots), dtype=np.int32)
    place_nominated(
        run.snapshot.columns,
        run.slots.groups,
        run.slots.bounds,
        run.snapshot.changes,
        run.slots.counters.arrays,
        _effects(run, programs),
        np.array(slots, dtype=np.int32),
        np.array(rows, dtype=np.int32),
        placed,
        devices,
    )
    return placed, devices


def _effects(run: CycleRun, programs: Mapping[GroupKey, Program]) -> kernel.Effects:
    classes = [(program.slot, program.pod_class) for program in programs.values()]
    return run.slots.counters.effects.arrays(classes, len(run.slots.groups.salt))


def undo(
    run: CycleRun,
    placed: Iterable[tuple[GroupKey, int, int]],
    programs: Mapping[GroupKey, Program],
    versions: np.ndarray,
) -> None:
    """Take pods off the snapshot again: each with its group, the row it was on, and its devices (bits).

    The counters had these versions before. Cost: O(pods).
    """
    rows: dict[GroupKey, list[int]] = {}
    devices: dict[GroupKey, list[int]] = {}
    for key, row, bits in placed:
        rows.setdefault(key, []).append(row)
        devices.setdefault(key, []).append(bits)
    counters, groups = run.slots.counters, run.slots.groups
    for key, on in rows.items():
        program = programs[key]
        count = groups.add_count[program.slot]
        columns, values = groups.add_column[program.slot, :count], groups.add_value[program.slot, :count]
        run.snapshot.uncount_pods(np.array(on), columns, values)
        ask = Ask(int(groups.ask_number[program.slot]), int(groups.ask_milli[program.slot]))
        run.snapshot.free_devices(on, devices[key], ask)
        effects = counters.effects.of(program.pod_class) if program.pod_class is not None else {}
        counters.add([(number, row, -weight) for row in on for number, weight in effects.items()])
    counters.arrays.version[:] = versions
