"""The cache of equivalence groups: one slot per group holds what the placing kernel knows of it.

What is kept per group is small, so thousands of groups that take turns keep their slots. Large are the static
parts, which groups share, and the trees, which the kernel gives to the groups that profit from one: both hold
every row, so there are as many as fit a bound of memory, and the least recently used goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from domain.counting.counted import NOTHING, PodsKnown, counted_of, write_counted
from domain.counting.counters import CounterTable
from domain.counting.nominated_counts import Version
from domain.engine.bases import Bases, empty_bases
from domain.engine.bounds import empty_bounds, empty_row_bounds, empty_trees
from domain.engine.homes import Domain, Homes
from domain.engine.program import (
    OTHER_DOMAIN,
    Program,
    StaticKey,
    StaticPart,
    Where,
    compile_program,
    find_constants,
)
from domain.kernels import arrays as kernel
from domain.kernels.totals import whole_column
from domain.model.limits import group_cache_bytes_max, groups_cached_max
from domain.model.pods import PodTemplate
from domain.plugins.base import Reason, Term
from domain.plugins.counting import Incoming
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.state.cluster import ClusterState
from domain.state.pod_classes import PodClass
from domain.state.snapshot import Snapshot

if TYPE_CHECKING:
    from domain.queue.groups import WaitingGroup

_SLOTS_FIRST = 64
"""Begin with 64 slots: their arrays grow with the groups that there are."""
_SLOTS_GROWTH = 4
_CACHED_MIN = 16
_CACHED_MAX = 1_024
_TREE_ROW_BYTES = 2 + 8 + 2 * 4  # a code, a score, two nodes of the tree
_STATIC_ROW_BYTES = 2 + 8 + 4 + 4  # a code, a score, a base, the evenness
_RAW_BYTES = 8


class GroupSlots:
    """Compiles groups into slots and keeps them while there is room; the least recently used goes first.

    ``bytes_max`` bounds the trees, which take up to a sixth of it, and the static parts.
    """

    def __init__(
        self,
        state: ClusterState,
        snapshot: Snapshot,
        *,
        slots_max: int = groups_cached_max,
        bytes_max: int = group_cache_bytes_max,
        view: NodeView | None = None,
        homes: Homes | None = None,
    ) -> None:
        self.homes = homes or Homes(state)
        self._state = state
        self._view = view or NodeView(state)
        self._snapshot = snapshot
        self._slots_max = slots_max
        self._bytes_max = bytes_max
        self._raws_count = 0
        self._call = 0
        self._is_first = True  # whether no program was asked for since the last call
        self._pods = PodsKnown(state)
        self.counters = CounterTable(state, snapshot.rows_width)
        self._programs: OrderedDict[Hashable, Program] = OrderedDict()  # in order of use, oldest first
        self._statics: dict[StaticKey, StaticPart] = {}
        self._in_arrays: OrderedDict[StaticKey, StaticPart] = OrderedDict()  # in order of use, oldest first
        self._free: list[int] = []
        self._free_statics: list[int] = []
        self.groups: kernel.Groups
        self._allocate()

    def _allocate(self) -> None:
        """Start again with empty slots."""
        for program in self._programs.values():
            self._release_counters(program)
        self._programs.clear()
        self._statics.clear()
        self._in_arrays.clear()
        slots, width = min(_SLOTS_FIRST, self._slots_max), self._snapshot.rows_width
        statics = self._fitting(self._bytes_max * 5 // 6, _STATIC_ROW_BYTES + _RAW_BYTES * self._raws_count)
        self.groups = kernel.Groups.allocate(
            np.zeros,
            {"G": slots, "S": statics, "K": max(self._raws_count, 1), "N": width},
            trees=self._empty_trees(slots),
            row_bounds=empty_row_bounds(width, slots),
            bases=empty_bases(width),
        )
        self.groups.tree_of[:] = -1
        self._bases = Bases(self.groups)
        self._allocate_bounds()
        self._free = list(range(slots - 1, -1, -1))
        self._free_statics = list(range(statics - 1, -1, -1))

    def _empty_trees(self, slots: int) -> kernel.Trees:
        """Return room for the trees of so many slots, as far as the memory bound allows."""
        count = min(self._fitting(self._bytes_max // 6, _TREE_ROW_BYTES), slots)
        return empty_trees(self._snapshot.rows_width, count)

    def _grow(self) -> bool:
        """Add slots behind those that there are; return False where there are as many as may be.

        What is kept per row of some groups alone is dropped: there is room for more groups now.
        """
        before = len(self.groups.salt)
        slots = min(before * _SLOTS_GROWTH, self._slots_max)
        if slots == before:
            return False
        wider: dict[str, np.ndarray] = {}
        for name, field in kernel.Groups.fields_by("G").items():
            wider[name] = field.allocate(np.zeros, {"G": slots})
            wider[name][:before] = getattr(self.groups, name)
        wider["tree_of"][:] = wider["base_of"][before:] = -1
        self.groups = self._bases.groups = self.groups.replace(
            **wider,
            trees=self._empty_trees(slots),
            row_bounds=empty_row_bounds(self._snapshot.rows_width, slots),
        )
        self._free = list(range(slots - 1, before - 1, -1))
        return True

    def _fitting(self, bytes_max: int, row_bytes: int) -> int:
        """Return how many arrays over all rows fit a bound."""
        return min(max(_CACHED_MIN, bytes_max // (self._snapshot.rows_width * row_bytes)), _CACHED_MAX)

    def _allocate_bounds(self) -> None:
        width, statics = self._snapshot.rows_width, len(self.groups.static_code)
        resources = self._snapshot.columns.allocatable.shape[0]
        self.bounds = empty_bounds(resources, width, statics)

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
        """Mark everything as stale, because the change log was started again."""
        self.groups.trees.synced[:] = -1
        self.groups.trees.used[:] = 0
        self.groups.row_bounds.owner[:] = -1
        self.groups.bases.synced[:] = -1
        if self.groups.static_code.shape[1] != self._snapshot.rows_width:
            self._allocate()
        else:
            self._allocate_bounds()

    def start_call(self) -> None:
        """Let go of the programs that the last call of the kernel used: they may give way to others now."""
        self._call += 1
        self._is_first = True
        self.counters.start_call()

    def program(
        self,
        key: Hashable,
        signature: bytes,
        template: PodTemplate,
        plan: ProfilePlan,
        pod_class: PodClass | None = None,
        *,
        is_home: bool = False,
        domain: Domain | None = None,
    ) -> Program | None:
        """Return the program of a group of equal pods of one class, compiled and up to date.

        ``key`` names the group. With ``is_home`` it is the program that refuses all nodes but those at home,
        with a domain all but those in it. None if there is no room beside the programs that this call uses.
        The first of a call has room.
        """
        key = (key, is_home, domain) if is_home or domain else key
        program = self._programs.get(key)
        if program is not None and (program.plan is not plan or self._has_other_images(program)):
            self._drop(key)
            program = None
        if program is None:
            if not (self._free or self._grow() or self._drop_oldest()) or not self._make_room_for_counters():
                return None
            terms = [use.plugin.term(template, self._state.resources) for use in plan.resource_scores]
            static = self._static_part(template, plan, terms, (is_home, domain))
            program = self._programs[key] = Program(self._free.pop(), template, plan, static, terms)
            program.pod_class = pod_class
            program.images_generation = self._state.table.last_images_generation
            adds = self._state.sums.vector_of(signature, template)
            compile_program(program, signature, self.groups, self._state.resources, adds)
        if not self._keep_in_arrays(program.static):
            return None
        self._programs.move_to_end(key)
        program.called = self._call
        self._refresh(program)
        if program.counters and not self.counters.load(program.counters, must=self._is_first):
            return None
        self._is_first = False
        return program

    def passing(self, group: WaitingGroup, rows: np.ndarray) -> np.ndarray:
        """Return which of some rows changed since a group's last attempt, or pass its static filters.

        The answer is the same whether the group's program is kept or not: a replay may keep others.
        """
        plan, table = group.plan, self._state.table
        assert plan is not None
        since = -1 if group.attempt is None else group.attempt.generation
        passes = table.respec_generation[rows] > since
        if plan.reads_usage:
            passes |= table.usage_generation[rows] > since
        unchanged = rows[~passes]
        program = self._programs.get(group.key)
        if program is None or program.plan is not plan or program.static.key not in self._in_arrays:
            passes[~passes] = self._passes(group.template, plan, unchanged)
        else:
            static = program.static
            if len(moved := unchanged[table.spec_generation[unchanged] > static.generation]):
                self._evaluate_static(program, moved)
            passes[~passes] = self.groups.static_code[static.index, unchanged] == 0
        return np.asarray(rows[passes])

    def _passes(self, template: PodTemplate, plan: ProfilePlan, rows: np.ndarray) -> np.ndarray:
        """Return bool[len(rows)]: which rows no static filter refuses, asked anew."""
        passes = np.ones(len(rows), dtype=np.bool_)
        for _, plugin in plan.static_filters:
            if (refused := plugin.refuse(template, self._view, rows)) is not None:
                passes &= refused == 0
            if (named := plugin.named(template, self._view, rows)) is not None:
                passes &= named
        return passes

    def _has_other_images(self, program: Program) -> bool:
        """Say whether nodes got or lost an image so that the program belongs to another static part."""
        newest = self._state.table.last_images_generation
        if not program.plan.reads_images or program.images_generation == newest:
            return False
        program.images_generation = newest
        return program.plan.static_key(program.template, self._view) != program.static.key[0]

    def _drop_oldest(self) -> bool:
        """Drop the program that was not used for longest; say whether there was one beside this call's."""
        key, oldest = next(iter(self._programs.items()), ("", None))
        if oldest is None or oldest.called == self._call:
            return False
        self._drop(key)
        return True

    def _make_room_for_counters(self) -> bool:
        """Drop programs while counters take too much; return False if those of this call alone do."""
        if self.counters.is_full:
            self.counters.drop_unused()
        while self._programs and self.counters.is_full:
            dropped_count = sum(self._drop_oldest() for _ in range(1 + len(self._programs) // 4))
            if not dropped_count:
                return False
            self.counters.drop_unused()
        return True

    def _drop(self, key: Hashable) -> None:
        program = self._programs.pop(key)
        self._release_tree(program.slot)
        self._release_counters(program)
        self.groups.base_of[program.slot] = -1
        self._free.append(program.slot)
        static = program.static
        static.users_count -= 1
        if static.users_count == 0:
            del self._statics[static.key]
            if self._in_arrays.pop(static.key, None) is not None:
                self._free_statics.append(static.index)

    def _release_tree(self, slot: int) -> None:
        owners = self.groups.row_bounds.owner
        owners[slot % len(owners)] = -1
        tree = self.groups.tree_of[slot]
        if tree >= 0:
            self.groups.trees.owner[tree] = self.groups.tree_of[slot] = -1

    def _release_counters(self, program: Program) -> None:
        for number in program.counters:
            self.counters.release_counter(number)

    def _keep_in_arrays(self, static: StaticPart) -> bool:
        """Give a static part an index if it has none; return False where this call uses all of them."""
        if static.key not in self._in_arrays:
            if not self._free_statics:
                key, oldest = next(iter(self._in_arrays.items()))
                if oldest.called == self._call:
                    return False
                del self._in_arrays[key]
                self._free_statics.append(oldest.index)
            static.move_to(self._free_statics.pop())
            self._in_arrays[static.key] = static
        self._in_arrays.move_to_end(static.key)
        static.called = self._call
        return True

    def _static_part(
        self, template: PodTemplate, plan: ProfilePlan, terms: Sequence[Term], where: Where
    ) -> StaticPart:
        shape = tuple((term.kind, part.column, part.weight) for term in terms for part in term.parts)
        key = (plan.static_key(template, self._view), shape, *where)
        static = self._statics.get(key)
        if static is None:
            static = self._statics[key] = StaticPart(key)
        static.users_count += 1
        return static

    def _refresh(self, program: Program) -> None:
        """Ask the plugins again as far as nodes or pods changed."""
        self._refresh_static(program)
        pod_class = program.pod_class
        if pod_class is not None and program.counted_version != self._counted_version(program, pod_class):
            self._refresh_counted(program, pod_class)
        if program.counted is not NOTHING and not program.is_whole:
            self._bases.give(program, self._call)
        groups, slot = self.groups, program.slot
        if program.static_version != program.static.version:
            program.static_version = program.static.version
            groups.static_part[slot] = program.static.index
            for k, extremes in program.static.extremes.items():
                groups.raw_low[slot, k], groups.raw_high[slot, k] = extremes
            self._release_tree(slot)

    def _counted_version(self, program: Program, pod_class: PodClass) -> tuple[int, int, int, Version]:
        """Return what moves when plugins are to be asked again about a program."""
        labels = self._state.table.last_spec_generation if program.counted.is_cut else 0
        version, masters = self._pods.version_for(program.template, pod_class)
        return version, masters, labels, self.counters.nominated.version_for(program.counted)

    def _refresh_counted(self, program: Program, pod_class: PodClass) -> None:
        """Ask the plugins again what the group's pods ask of others."""
        pod = Incoming(
            program.template, pod_class.namespace, pod_class.labels, pod_class.controller, self._pods
        )
        labels = self._state.table.labels
        asked = counted_of(program.plan, pod, lambda key: labels.entries(key) is not None)
        counted = self.counters.nominated.among(asked)
        if counted == program.counted:
            program.counted_version = self._counted_version(program, pod_class)
            return
        self._make_room_for_counters()
        before = program.counters
        program.counters = write_counted(
            counted, program.plan, program.slot, self.groups, self.counters.acquire_counter
        )
        program.counted = counted
        program.counted_version = self._counted_version(program, pod_class)
        program.base = None  # a program that asks for nothing must not keep one, as it would not be renewed
        self.groups.base_of[program.slot] = -1
        for number in before:
            self.counters.release_counter(number)

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
        unnamed: list[tuple[Reason, np.ndarray]] = []
        for position, plugin in plan.static_filters:
            refused = plugin.refuse(program.template, view, rows)
            base = len(reasons)
            for i in range(len(plugin.reasons)):
                groups.static_position[part, base + i + 1] = position
            reasons.extend(plugin.reasons)
            if refused is not None:
                first_to_refuse = (codes == 0) & (refused != 0)
                codes[first_to_refuse] = base + refused[first_to_refuse]
            named = plugin.named(program.template, view, rows)
            if named is not None:
                unnamed.append((plugin.reasons[0], ~named))
        if program.static.domain is not None:
            unnamed.append((OTHER_DOMAIN, ~program.static.domain.among(self._state, rows)))
        for reason, others in unnamed:
            reasons.append(reason)  # once more, since here it comes before all other filters
            codes[others] = len(reasons)
            groups.static_position[part, len(reasons)] = -1
        if program.static.is_home:
            codes[~self.homes.among(rows)] = kernel.NOT_HOME
            groups.static_position[part, kernel.NOT_HOME] = -1
        program.static.reasons = reasons
        groups.static_code[part, rows] = codes
        self.bounds.synced[part] = -1
        groups.static_score[part, rows] = 0
        for use in plan.static_scores:
            raw = use.plugin.raw(program.template, view, rows)
            groups.static_score[part, rows] += whole_column(raw, use.weight)
        for k, use in enumerate(plan.normalised_scores):
            groups.static_raw[part, k, rows] = use.plugin.raw(program.template, view, rows)
        find_constants(program, groups, self._state.table.count)
        for measuring, place in plan.measured_first.items():
            if measuring.measured_count:
                for i, column in enumerate(measuring.measured(view, rows), start=place):
                    groups.static_raw[part, i, rows] = column
