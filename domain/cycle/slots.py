"""The cache of equivalence groups: what the placing kernel knows of each group, one slot per group."""

from __future__ import annotations

import numpy as np

from domain.kernels import placing as kernel
from domain.model.limits import group_cache_bytes_max
from domain.model.pods import PodTemplate
from domain.model.signature import tie_salt
from domain.plugins.base import Reason
from domain.plugins.registry import ProfilePlan
from domain.state.cluster import ClusterState
from domain.state.snapshot import Snapshot

_SLOTS_MIN = 16
_SLOTS_MAX = 4_096
_ROW_FIELDS = {
    "static_code": np.int16,
    "static_score": np.float64,
    "blocked": np.int16,
    "code": np.int16,
    "score": np.float64,
}
_SLOT_FIELDS: dict[str, tuple[tuple[int, ...], type]] = {
    "histogram": ((kernel.CODES,), np.int32),
    "synced": ((), np.int64),
    "static_part": ((), np.int32),
    "salt": ((), np.uint64),
    "static_position": ((64,), np.int32),
    "blocked_position": ((), np.int32),
    "fit_position": ((), np.int32),
    "demand_count": ((), np.int32),
    "demand_column": ((kernel.DEMANDS_MAX,), np.int32),
    "demand_value": ((kernel.DEMANDS_MAX,), np.int64),
    "add_count": ((), np.int32),
    "add_column": ((kernel.ADDS_MAX,), np.int32),
    "add_value": ((kernel.ADDS_MAX,), np.int64),
    "term_count": ((), np.int32),
    "term_kind": ((kernel.TERMS_MAX,), np.int32),
    "term_weight": ((kernel.TERMS_MAX,), np.float64),
    "term_first": ((kernel.TERMS_MAX + 1,), np.int32),
    "part_column": ((kernel.PARTS_MAX,), np.int32),
    "part_weight": ((kernel.PARTS_MAX,), np.float64),
    "part_value": ((kernel.PARTS_MAX,), np.int64),
}


class StaticPart:
    """What a profile's static plugins say of every node, for all templates that they cannot tell apart."""

    __slots__ = ("generation", "index", "key", "reasons", "users_count")

    def __init__(self, key: bytes, index: int) -> None:
        self.key = key
        self.index = index
        self.generation = -1
        self.reasons: list[Reason] = []
        self.users_count = 0


class Program:
    """What a slot was compiled from, and the words for its codes."""

    __slots__ = ("demand_names", "plan", "slot", "static", "template")

    def __init__(self, slot: int, template: PodTemplate, plan: ProfilePlan, static: StaticPart) -> None:
        self.slot = slot
        self.template = template
        self.plan = plan
        self.static = static
        self.demand_names: list[str] = []

    def reason(self, code: int) -> Reason:
        """Put a kernel code into words."""
        if code == kernel.BLOCKED:
            assert self.plan.occupancy is not None
            return self.plan.occupancy[1].reason
        if code < kernel.BLOCKED:
            return self.static.reasons[code - 1]
        assert self.plan.fit is not None
        bits = code - kernel.FIT
        short = [name for d, name in enumerate(self.demand_names) if bits >> d & 1]
        return self.plan.fit[1].reason(short, unresolvable=bool(bits & kernel.UNRESOLVABLE))


class GroupSlots:
    """Compiles groups into slots and keeps them while there is room, least recently used out first."""

    def __init__(
        self, state: ClusterState, snapshot: Snapshot, *, bytes_max: int = group_cache_bytes_max
    ) -> None:
        self._state = state
        self._snapshot = snapshot
        self._bytes_max = bytes_max
        self._programs: dict[bytes, Program] = {}  # in order of use, oldest first
        self._statics: dict[bytes, StaticPart] = {}
        self._free: list[int] = []
        self._free_statics: list[int] = []
        self._blocked_slots: set[int] = set()
        self._allocate()

    def _allocate(self) -> None:
        """Reserve every slot that the bound allows; memory that is not touched is not taken."""
        width = self._snapshot.rows_width
        shapes: dict[str, tuple[tuple[int, ...], type]] = {n: ((width,), t) for n, t in _ROW_FIELDS.items()}
        shapes["tree"] = ((2 * width,), np.int32)
        shapes |= _SLOT_FIELDS
        slots = self.slots_max
        arrays: dict[str, np.ndarray] = {
            name: np.zeros((slots, *shape), dtype=dtype) for name, (shape, dtype) in shapes.items()
        }
        self.groups = kernel.Groups(**arrays)
        self._programs.clear()
        self._statics.clear()
        self._blocked_slots.clear()
        self._free = list(range(slots - 1, -1, -1))
        self._free_statics = list(range(slots - 1, -1, -1))

    @property
    def slots_max(self) -> int:
        """How many groups fit the memory bound at the present number of nodes."""
        per_slot = self._snapshot.rows_width * 30 + kernel.CODES * 4 + 2_048
        return min(max(_SLOTS_MIN, self._bytes_max // per_slot), _SLOTS_MAX)

    def void(self) -> None:
        """Mark every slot as stale: the change log was started anew."""
        self.groups.synced[:] = -1
        if self.groups.tree.shape[1] != 2 * self._snapshot.rows_width:
            self._allocate()

    def program(self, signature: bytes, template: PodTemplate, plan: ProfilePlan) -> Program:
        """Return the group's slot, compiled and with its static part up to date.

        At most ``slots_max`` distinct groups may be asked for between two uses of the slots.
        """
        program = self._programs.pop(signature, None)
        if program is not None and program.plan is not plan:
            self._drop(program)
            program = None
        if program is None:
            program = self._compile(self._take_slot(), signature, template, plan)
        self._programs[signature] = program
        self._refresh(program)
        return program

    def _take_slot(self) -> int:
        if not self._free:
            oldest = next(iter(self._programs))
            self._drop(self._programs.pop(oldest))
        return self._free.pop()

    def _drop(self, program: Program) -> None:
        self._free.append(program.slot)
        static = program.static
        static.users_count -= 1
        if static.users_count == 0:
            del self._statics[static.key]
            self._free_statics.append(static.index)

    def _static_part(self, template: PodTemplate, plan: ProfilePlan) -> StaticPart:
        key = plan.static_key(template)
        static = self._statics.get(key)
        if static is None:
            static = self._statics[key] = StaticPart(key, self._free_statics.pop())
        static.users_count += 1
        return static

    def _compile(self, slot: int, signature: bytes, template: PodTemplate, plan: ProfilePlan) -> Program:
        program = Program(slot, template, plan, self._static_part(template, plan))
        groups, resources = self.groups, self._state.resources
        groups.synced[slot] = -1
        groups.static_part[slot] = program.static.index
        if slot in self._blocked_slots:
            self._blocked_slots.discard(slot)
            groups.blocked[slot, :] = 0
        groups.salt[slot] = tie_salt(signature)
        adds = resources.vector(template)
        groups.add_count[slot] = len(adds.columns)
        groups.add_column[slot, : len(adds.columns)] = adds.columns
        groups.add_value[slot, : len(adds.columns)] = adds.values
        groups.blocked_position[slot] = kernel.NEVER if plan.occupancy is None else plan.occupancy[0]
        demands = []
        groups.fit_position[slot] = kernel.NEVER
        if plan.fit is not None:
            groups.fit_position[slot] = plan.fit[0]
            demands = plan.fit[1].demands(template, resources)
        groups.demand_count[slot] = len(demands)
        for d, demand in enumerate(demands):
            groups.demand_column[slot, d] = demand.column
            groups.demand_value[slot, d] = demand.value
        program.demand_names = [resources.name(d.column) for d in demands]
        self._compile_terms(program)
        return program

    def _compile_terms(self, program: Program) -> None:
        groups, slot, first = self.groups, program.slot, 0
        groups.term_count[slot] = len(program.plan.resource_scores)
        for t, (weight, score) in enumerate(program.plan.resource_scores):
            term = score.term(program.template, self._state.resources)
            groups.term_kind[slot, t] = term.kind
            groups.term_weight[slot, t] = weight
            for part in term.parts:
                groups.part_column[slot, first] = part.column
                groups.part_weight[slot, first] = part.weight
                groups.part_value[slot, first] = part.value
                first += 1
            groups.term_first[slot, t + 1] = first

    def _refresh(self, program: Program) -> None:
        """Ask the static plugins again for rows whose spec changed, and look again at held ports."""
        table, static = self._state.table, program.static
        if static.generation < table.last_spec_generation:
            rows = np.flatnonzero(table.spec_generation[: table.count] > static.generation)
            if len(rows):
                self._evaluate_static(program, rows)
            static.generation = table.last_spec_generation
        occupancy = program.plan.occupancy
        if occupancy is not None and occupancy[1].concerns(program.template):
            self._blocked_slots.add(program.slot)
            blocked = self.groups.blocked[program.slot]
            blocked[:] = 0
            blocked[occupancy[1].blocked_rows(program.template, table, self._state.ports_held)] = 1

    def _evaluate_static(self, program: Program, rows: np.ndarray) -> None:
        groups, part, table = self.groups, program.static.index, self._state.table
        codes = np.zeros(len(rows), dtype=np.int16)
        reasons: list[Reason] = []
        for position, plugin in program.plan.static_filters:
            refused = plugin.refuse(program.template, table, rows)
            base = len(reasons)
            for i in range(len(plugin.reasons)):
                groups.static_position[part, base + i + 1] = position
            reasons.extend(plugin.reasons)
            if refused is not None:
                first_to_refuse = (codes == 0) & (refused != 0)
                codes[first_to_refuse] = base + refused[first_to_refuse]
        assert len(reasons) <= kernel.STATIC_MAX
        program.static.reasons = reasons
        groups.static_code[part, rows] = codes
        groups.static_score[part, rows] = 0.0
        for weight, score in program.plan.static_scores:
            groups.static_score[part, rows] += weight * score.rate(program.template, table, rows)
