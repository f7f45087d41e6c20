"""A program: a group compiled into the kernel's numbers, and the way back from codes to reasons."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec
import numpy as np

from domain.counting.counted import NOTHING
from domain.engine.homes import Domain
from domain.kernels import arrays as kernel
from domain.kernels.normalising import normal
from domain.kernels.totals import whole_column
from domain.model.pods import PodTemplate
from domain.model.signature import tie_salt
from domain.plugins.base import Demand, Limit, Reason, Term, TermPart
from domain.plugins.registry import ProfilePlan
from domain.state.pod_classes import PodClass
from domain.state.resources import (
    CPU,
    CPU_BEYOND,
    MEMORY,
    MEMORY_BEYOND,
    NOWHERE,
    ResourceIndex,
    ResourceVector,
)

_MEASURED_OF = (CPU, MEMORY, CPU_BEYOND, MEMORY_BEYOND)
"""Columns that scores by measured usage read besides their terms: what a node offers, and its capacity."""
_DEMANDED_MAX = 1_000
"""Sets of requested resources for which the columns read are remembered, per static part."""

_WHOLE_MAX = kernel.TOTAL_ONE << 14
"""Totals of whole scores below 2^14 fit int16, with what resource terms add to them."""

OTHER_DOMAIN = Reason("gang-domain", unresolvable=True)
"""The reason of nodes that are in another domain than that in which a gang is tried."""

OTHERS = "others"
"""The reason of nodes whose own codes are too many, or too long, to be told."""


Where = tuple[bool, Domain | None]
"""Of which nodes programs are: those at home alone, those of a domain alone."""
StaticKey = tuple[bytes, Hashable, bool, Domain | None]
"""What finds a static part: what plugins read of a template, the shape of its terms, ``is_home``, domain."""


class StaticPart:
    """What a profile's static plugins say of every node, for all templates that they cannot tell apart.

    The terms of these templates have the same resources and weights, so they share upper bounds.

    ``generation`` is the table's at the last refresh. ``version`` counts the refreshes after which everything
    normalised over all nodes must be computed again. ``extremes`` are those of normalised scores, by their
    place, that are the same on all rows. ``called`` is the last call of the kernel that used it.
    ``is_home``: it refuses all nodes but those at home, ``domain``: all but those in it.
    ``refuses_all``: no node passes its filters. ``prefers``: its static scores differ between nodes, whether
    these pass or not. ``index`` is its place in the arrays; one that another part
    took before is computed again. ``columns`` remembers ``Program.columns`` by the names of the resources
    that must be free.
    """

    __slots__ = (
        "called",
        "columns",
        "domain",
        "extremes",
        "generation",
        "images_generation",
        "index",
        "is_home",
        "key",
        "prefers",
        "reasons",
        "refuses_all",
        "users_count",
        "version",
    )

    def __init__(self, key: StaticKey) -> None:
        self.key = key
        self.is_home, self.domain = key[2:]
        self.refuses_all = self.prefers = False
        self.index = -1
        self.called = 0
        self.columns: dict[tuple[str, ...], tuple[int, ...]] = {}
        self.generation = -1
        self.images_generation = -1
        self.version = 0
        self.reasons: list[Reason] = []
        self.extremes: dict[int, tuple[float, float]] = {}
        self.users_count = 0

    def move_to(self, index: int) -> None:
        """Take a new place in the arrays, with nothing of it written yet."""
        self.index = index
        self.generation = self.images_generation = -1
        self.version += 1


class Base:
    """A base: its place in the arrays (-1: another took it), what it was computed from, its last call."""

    __slots__ = ("called", "index", "key", "static", "version")

    def __init__(self, key: Hashable, index: int) -> None:
        self.key = key
        self.index = index
        self.static: StaticPart | None = None
        self.version = -1
        self.called = 0


class Program:
    """What a slot was compiled from, and the reasons for its codes.

    ``columns`` are the resource columns that its filters and scores read, in ascending order. ``called`` is
    the last call of the kernel that used it. ``is_whole``: its resource scores are whole numbers, so it needs
    no base. ``counted`` is what its pods, of ``pod_class``, ask of others; ``counters`` are the numbers of
    the counters of that. ``warnings`` are those of its attempts.
    """

    __slots__ = (
        "base",
        "called",
        "columns",
        "counted",
        "counted_version",
        "counters",
        "demands",
        "firm_count",
        "images_generation",
        "is_whole",
        "limits",
        "plan",
        "pod_class",
        "slot",
        "static",
        "static_version",
        "template",
        "terms",
        "warnings",
    )

    def __init__(
        self, slot: int, template: PodTemplate, plan: ProfilePlan, static: StaticPart, terms: Sequence[Term]
    ) -> None:
        self.slot = slot
        self.template = template
        self.plan = plan
        self.static = static
        self.terms = terms
        self.is_whole = bool(terms) and all(term.kind >= kernel.WHOLE for term in terms)
        self.static_version = -1
        self.images_generation = -1
        self.called = 0
        self.columns: tuple[int, ...] = ()
        self.demands: list[Demand] = []
        self.firm_count = 0
        self.limits: list[Limit] = []
        self.pod_class: PodClass | None = None
        self.counted = NOTHING
        self.counted_version = (-1, -1, -1, (0, 0))  # when plugins were last asked for rules and values
        self.counters: list[int] = []
        self.base: Base | None = None
        self.warnings = warnings_of(plan, template)

    @property
    def is_strict(self) -> bool:
        """Whether room on a node is not enough once it changed: filters saw its pods or its usage."""
        return bool(self.counted.rules or self.limits or self.firm_count or self.plan.filters_by_usage)

    def reason(self, code: int) -> Reason:
        """Return the reason for a failure code of the kernel."""
        if code <= kernel.STATIC_MAX:
            return self.static.reasons[code - 1]
        if code < kernel.RULE:
            which, is_hopeless = divmod(code - kernel.LIMIT, 2)
            return Reason(self.limits[which].reason, unresolvable=bool(is_hopeless))
        if code < kernel.GONE:
            which, lacks_domain = divmod(code - kernel.RULE, 2)
            _, rule = self.counted.rules[which]
            return rule.missing or rule.reason if lacks_domain else rule.reason
        if code >= kernel.OTHERS:
            return Reason(OTHERS, unresolvable=code > kernel.OTHERS)
        assert self.plan.fit is not None
        bits, is_hopeless = divmod(code - kernel.FIT, 2)
        plain_count = len(self.demands) - self.firm_count
        short = [demand.name for d, demand in enumerate(self.demands) if bits >> d & 1]
        if not bits & (1 << plain_count) - 1:
            assert self.plan.firm is not None
            return self.plan.firm.reason(short)
        if bits >> plain_count:
            short = [demand.name for d, demand in enumerate(self.demands[:plain_count]) if bits >> d & 1]
        return self.plan.fit[1].reason(short, unresolvable=bool(is_hopeless))


def warnings_of(plan: ProfilePlan | None, template: PodTemplate) -> tuple[str, ...] | msgspec.UnsetType:
    """Return a code for each thing that a pod asks for and nothing looks at; unset where there is none."""
    ignored = template.ignored if plan is None else plan.ignores(template)
    return tuple(f"ignored:{what}" for what in ignored) if ignored else msgspec.UNSET


def compile_program(
    program: Program,
    signature: bytes,
    groups: kernel.Groups,
    resources: ResourceIndex,
    adds: ResourceVector,
) -> None:
    """Write everything of a slot that depends on no node. ``adds`` is what one pod occupies."""
    slot = program.slot
    groups.salt[slot] = tie_salt(signature)
    groups.rule_count[slot] = groups.counted_count[slot] = 0
    groups.add_count[slot] = len(adds.columns)
    groups.add_column[slot, : len(adds.columns)] = adds.columns
    groups.add_value[slot, : len(adds.columns)] = adds.values
    groups.ask_number[slot], groups.ask_milli[slot] = adds.ask
    _compile_filters(program, groups, resources)
    parts_count = _compile_terms(program, groups)
    groups.raw_count[slot] = len(program.plan.normalised_scores)
    for k, static in enumerate(program.plan.normalised_scores):
        assert static.plugin.normaliser is not None
        groups.raw_kind[slot, k] = static.plugin.normaliser.flags
        groups.raw_weight[slot, k] = static.weight
    relative = [use.plugin.parts(program.template, resources) for use in program.plan.relative_scores]
    _compile_relative(program, groups, relative, parts_count)
    program.columns = _columns_read(program, relative, resources)


def _columns_read(
    program: Program, relative: Sequence[Sequence[TermPart]], resources: ResourceIndex
) -> tuple[int, ...]:
    """Return the columns that are read, computed once for all templates that request the same resources."""
    known, names = program.static.columns, tuple(demand.name for demand in program.demands)
    found = known.get(names)
    if found is None:
        read = {resources.column(name) for name in names}
        read.update(demand.column for demand in program.demands[len(names) - program.firm_count :])
        for limit in program.limits:
            read.update(limit.columns, (limit.capacity,))
        for parts in (*(term.parts for term in program.terms), *relative):
            read.update([part.column for part in parts])
        if program.plan.reads_usage:
            read.update(_MEASURED_OF)
        if len(known) >= _DEMANDED_MAX:
            known.clear()
        found = known[names] = tuple(sorted(read - {NOWHERE}))
    return found


def _compile_filters(program: Program, groups: kernel.Groups, resources: ResourceIndex) -> None:
    slot, template, plan = program.slot, program.template, program.plan
    for position, plugin in plan.limits:
        limits = plugin.limits(template, resources)
        assert len(limits) <= plugin.limits_max, plugin.name
        for limit in limits:
            m = len(program.limits)
            groups.limit_position[slot, m] = position
            groups.limit_width[slot, m] = len(limit.columns)
            groups.limit_column[slot, m, : len(limit.columns)] = limit.columns
            groups.limit_value[slot, m] = limit.value
            groups.limit_capacity[slot, m] = limit.capacity
            groups.limit_percent[slot, m] = limit.percent
            groups.limit_measured[slot, m] = -1
            if limit.measured >= 0:
                groups.limit_measured[slot, m] = plan.measured_first[plugin] + limit.measured
            program.limits.append(limit)
    groups.limit_count[slot] = len(program.limits)
    groups.fit_position[slot] = kernel.NEVER if plan.fit is None else plan.fit[0]
    demands, program.firm_count = plan.demands(template, resources)
    groups.demand_count[slot] = len(demands)
    groups.firm_count[slot] = program.firm_count
    groups.demand_column[slot, : len(demands)] = [demand.column for demand in demands]
    groups.demand_value[slot, : len(demands)] = [demand.value for demand in demands]
    program.demands = demands


def _compile_terms(program: Program, groups: kernel.Groups) -> int:
    slot, parts, numbers = program.slot, 0, 0
    groups.term_count[slot] = len(program.plan.resource_scores)
    for t, (use, term) in enumerate(zip(program.plan.resource_scores, program.terms, strict=True)):
        assert len(term.parts) <= use.plugin.parts_max, use.label
        assert len(term.numbers) <= use.plugin.numbers_max, use.label
        groups.term_kind[slot, t] = term.kind
        groups.term_weight[slot, t] = use.weight
        groups.term_measured[slot, t] = program.plan.measured_first[use.plugin]
        parts = _compile_parts(term.parts, groups, slot, parts)
        if term.numbers:
            groups.number[slot, numbers : numbers + len(term.numbers)] = term.numbers
            numbers += len(term.numbers)
        groups.term_first[slot, t + 1], groups.term_number[slot, t + 1] = parts, numbers
    return parts


def _compile_relative(
    program: Program, groups: kernel.Groups, parts: Sequence[Sequence[TermPart]], parts_count: int
) -> None:
    slot, plan = program.slot, program.plan
    groups.variance_count[slot], groups.metric_count[slot] = len(plan.relative_scores), plan.metrics_count
    groups.variance_first[slot, 0] = parts_count
    for v, (use, of_each) in enumerate(zip(plan.relative_scores, parts, strict=True)):
        assert len(of_each) <= use.plugin.parts_max, use.label
        is_measured = use.plugin.measured_count > 0
        groups.variance_kind[slot, v] = use.plugin.kind
        groups.variance_flags[slot, v] = use.plugin.normaliser.flags
        groups.variance_weight[slot, v] = use.weight
        groups.variance_measured[slot, v] = plan.measured_first[use.plugin] if is_measured else -1
        parts_count = _compile_parts(of_each, groups, slot, parts_count)
        groups.variance_first[slot, v + 1] = parts_count


def _compile_parts(parts: Sequence[TermPart], groups: kernel.Groups, slot: int, first: int) -> int:
    """Write parts from place ``first`` on; return the place behind them."""
    for place, part in enumerate(parts, first):
        groups.part_column[slot, place] = part.column
        groups.part_weight[slot, place] = part.weight
        groups.part_value[slot, place] = part.value
    return first + len(parts)


def find_constants(program: Program, groups: kernel.Groups, count: int) -> None:
    """Find the normalised scores that are the same on all rows: they cost nothing per row or pod.

    Those are the plugins that upstream skips, and more.
    """
    part = program.static.index
    groups.raw_constant[part] = np.nan
    groups.static_constant[part] = 0
    program.static.extremes = {}
    for k, use in enumerate(program.plan.normalised_scores):
        raw, normaliser = groups.static_raw[part, k, :count], use.plugin.normaliser
        assert normaliser is not None
        if count and raw.min() == raw.max() and abs(raw[0]) <= kernel.KNOWN_MAX:
            low, high = (0.0, max(0.0, raw[0])) if normaliser.from_zero else (raw[0], raw[0])
            program.static.extremes[k] = (low, high)
            constant = normal.py_func(raw[0], low, high, normaliser.flags)
            groups.raw_constant[part, k] = constant
            groups.static_constant[part] += whole_column(np.array(constant), use.weight)
    program.static.refuses_all = bool(groups.static_code[part, :count].all())
    totals = groups.static_score[part, :count] + groups.static_constant[part]
    is_whole = not (totals & (kernel.TOTAL_ONE - 1)).any() and totals.min(initial=0) >= 0
    groups.static_whole[part] = is_whole and totals.max(initial=0) < _WHOLE_MAX
    varying = len(program.plan.normalised_scores) - len(program.static.extremes)
    groups.raws_varying[part] = varying
    program.static.prefers = bool(varying or (totals != totals[:1]).any())
