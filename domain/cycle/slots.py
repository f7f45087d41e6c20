"""The cache of equivalence groups: one slot per group holds what the placing kernel knows of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from domain.cycle.program import ROW_FIELDS, SLOT_BYTES, SLOT_FIELDS, Program, StaticPart, compile_program
from domain.kernels import arrays as kernel
from domain.kernels.arrays import EQUAL_ROWS_FROM, SPAN
from domain.kernels.totals import whole_column
from domain.model.limits import group_cache_bytes_max, pods_per_node_max
from domain.model.pods import PodTemplate
from domain.plugins.base import Reason, Term
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.state.cluster import ClusterState
from domain.state.snapshot import Snapshot

_SLOTS_MIN = 16
_SLOTS_MAX = 4_096
_COUNT_MAX = int(np.iinfo(np.int16).max) - pods_per_node_max
_ROW_BYTES = sum(np.dtype(kind).itemsize for kind in ROW_FIELDS.values()) + 12 + 2 * kernel.OCCUPANCIES_MAX
_RAW_BYTES = 8


class GroupSlots:
    """Compiles groups into slots and keeps them while there is room; the least recently used goes first."""

    def __init__(
        self, state: ClusterState, snapshot: Snapshot, *, bytes_max: int = group_cache_bytes_max
    ) -> None:
        self._state = state
        self._view = NodeView(state)
        self._snapshot = snapshot
        self._bytes_max = bytes_max
        self._raws_count = 0
        self._programs: OrderedDict[bytes, Program] = OrderedDict()  # in order of use, oldest first
        self._statics: dict[Hashable, StaticPart] = {}
        self._free: list[int] = []
        self._free_statics: list[int] = []
        self.groups: kernel.Groups
        self._allocate()

    def _allocate(self) -> None:
        """Start again with empty slots. Memory is given to what is written, not to what is reserved."""
        self._programs.clear()
        self._statics.clear()
        slots, width = self.slots_max, self._snapshot.rows_width
        shapes: dict[str, tuple[tuple[int, ...], type]] = {n: ((width,), t) for n, t in ROW_FIELDS.items()}
        shapes["tree"] = ((2 * width,), np.int32)
        shapes["occupied"] = ((kernel.OCCUPANCIES_MAX, width), np.int16)
        shapes["static_raw"] = ((max(self._raws_count, 1), width), np.float64)
        shapes |= SLOT_FIELDS
        self.groups = kernel.Groups(
            **{name: np.zeros((slots, *shape), dtype=dtype) for name, (shape, dtype) in shapes.items()}
        )
        self._allocate_bounds()
        self._free = list(range(slots - 1, -1, -1))
        self._free_statics = list(range(slots - 1, -1, -1))

    def _allocate_bounds(self) -> None:
        width, statics = self._snapshot.rows_width, len(self.groups.synced)
        blocks = width // SPAN
        resources = self._snapshot.columns.allocatable.shape[0]
        self.bounds = kernel.Bounds(
            free_low=np.zeros((resources, blocks), dtype=np.int64),
            free_high=np.zeros((resources, blocks), dtype=np.int64),
            loss=np.zeros((resources, width), dtype=np.float32),
            loss_low=np.zeros((resources, blocks), dtype=np.float32),
            base=np.zeros((statics, width), dtype=np.float32),
            best=np.zeros((statics, blocks), dtype=np.float32),
            refused=np.zeros((statics, blocks), dtype=np.int32),
            blocks_synced=np.full(1, -1, dtype=np.int64),
            synced=np.full(statics, -1, dtype=np.int64),
            equal_rows=kernel.EqualRows(
                row=np.zeros(width, dtype=np.int32),
                tie=np.zeros(width, dtype=np.uint64),
                at=np.full(width, -1, dtype=np.int32),
                kept=np.zeros(1, dtype=np.int64),
                part=np.zeros(1, dtype=np.int64),
                free_low=np.zeros(resources, dtype=np.int64),
                free_high=np.zeros(resources, dtype=np.int64),
                least=np.full(1, EQUAL_ROWS_FROM, dtype=np.int64),
                rest=np.zeros(1, dtype=np.int64),
            ),
        )

    @property
    def slots_max(self) -> int:
        """How many groups fit the memory bound at the present number of nodes."""
        per_slot = self._snapshot.rows_width * (_ROW_BYTES + _RAW_BYTES * self._raws_count) + SLOT_BYTES
        return min(max(_SLOTS_MIN, self._bytes_max // per_slot), _SLOTS_MAX)

    def reserve(self, plans: Iterable[ProfilePlan]) -> None:
        """Make room for the columns that profiles need.

        Call it before the programs of a cycle are compiled.
        """
        raws_count = max((plan.raws_count for plan in plans), default=0)
        if raws_count > self._raws_count:
            self._raws_count = raws_count
            self._allocate()

    def forget(self) -> None:
        """Drop every program, since resources have other columns now."""
        self._allocate()

    def void(self) -> None:
        """Mark every slot as stale, because the change log was started again."""
        self.groups.synced[:] = -1
        if self.groups.tree.shape[1] != 2 * self._snapshot.rows_width:
            self._allocate()
        else:
            self._allocate_bounds()

    def program(self, signature: bytes, template: PodTemplate, plan: ProfilePlan) -> Program:
        """Return the group's slot, compiled and with its static part up to date.

        Ask for at most ``slots_max`` distinct groups between two uses of the slots.
        """
        program = self._programs.pop(signature, None)
        if program is not None and program.plan is not plan:
            self._drop(program)
            program = None
        if program is None:
            terms = [use.plugin.term(template, self._state.resources) for use in plan.resource_scores]
            slot = self._take_slot()
            program = Program(slot, template, plan, self._static_part(template, plan, terms), terms)
            adds = self._state.sums.vector_of(signature, template)
            compile_program(program, signature, self.groups, self._state.resources, adds)
        self._programs[signature] = program
        self._refresh(program)
        return program

    def _take_slot(self) -> int:
        if not self._free:
            _, oldest = self._programs.popitem(last=False)
            self._drop(oldest)
        return self._free.pop()

    def _drop(self, program: Program) -> None:
        self._free.append(program.slot)
        static = program.static
        static.users_count -= 1
        if static.users_count == 0:
            del self._statics[static.key]
            self._free_statics.append(static.index)

    def _static_part(self, template: PodTemplate, plan: ProfilePlan, terms: Sequence[Term]) -> StaticPart:
        shape = tuple((term.kind, part.column, part.weight) for term in terms for part in term.parts)
        key = (plan.static_key(template), shape)
        static = self._statics.get(key)
        if static is None:
            static = self._statics[key] = StaticPart(key, self._free_statics.pop())
        static.users_count += 1
        return static

    def _refresh(self, program: Program) -> None:
        """Ask the static plugins again about rows that changed, and count again what pods hold."""
        self._refresh_static(program)
        groups, slot = self.groups, program.slot
        if program.static_version != program.static.version:
            program.static_version = program.static.version
            groups.synced[slot] = -1
        for o, occupancy in enumerate(program.occupancies):
            rows, counts = occupancy.counts(program.template, self._view)
            groups.occupied[slot, o, :] = 0
            groups.occupied[slot, o, rows] = np.minimum(counts, _COUNT_MAX)
            allowed = min(occupancy.allowed(program.template, self._view), _COUNT_MAX)
            if groups.occupancy_allowed[slot, o] != allowed:
                groups.occupancy_allowed[slot, o] = allowed
                groups.synced[slot] = -1

    def _refresh_static(self, program: Program) -> None:
        table, static, plan = self._state.table, program.static, program.plan
        newest = max(table.last_spec_generation, table.last_usage_generation if plan.reads_usage else 0)
        if static.generation >= newest:
            return
        changed = table.spec_generation[: table.count] > static.generation
        if plan.reads_usage:
            changed |= table.usage_generation[: table.count] > static.generation
        if plan.reads_images and static.images_generation != table.last_images_generation:
            changed[:] = True
            static.version += 1
        elif plan.normalised_scores and changed.any():
            static.version += 1
        static.generation, static.images_generation = table.last_generation, table.last_images_generation
        rows = np.flatnonzero(changed)
        if len(rows):
            self._evaluate_static(program, rows)

    def _evaluate_static(self, program: Program, rows: np.ndarray) -> None:
        groups, part, plan, view = self.groups, program.static.index, program.plan, self._view
        codes = np.zeros(len(rows), dtype=np.int16)
        reasons: list[Reason] = []
        for position, plugin in plan.static_filters:
            refused = plugin.refuse(program.template, view, rows)
            base = len(reasons)
            for i in range(len(plugin.reasons)):
                groups.static_position[part, base + i + 1] = position
            reasons.extend(plugin.reasons)
            if refused is not None:
                first_to_refuse = (codes == 0) & (refused != 0)
                codes[first_to_refuse] = base + refused[first_to_refuse]
        program.static.reasons = reasons
        groups.static_code[part, rows] = codes
        self.bounds.synced[part] = -1
        groups.static_score[part, rows] = 0
        for use in plan.static_scores:
            raw = use.plugin.raw(program.template, view, rows)
            groups.static_score[part, rows] += whole_column(raw, use.weight)
        for k, use in enumerate(plan.normalised_scores):
            groups.static_raw[part, k, rows] = use.plugin.raw(program.template, view, rows)
        for measuring in (*plan.resource_scores, *plan.variance_scores):
            if measuring.plugin.measured_count:
                columns = measuring.plugin.measured(view, rows)
                for i, column in enumerate(columns, start=plan.measured_first[measuring.label]):
                    groups.static_raw[part, i, rows] = column
