"""Explain an attempt: reasons, candidates and score parts in names and numbers that can be stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from domain.counting.counters import CounterTable
from domain.engine.program import OTHERS, Program, StaticPart, warnings_of
from domain.kernels import arrays as kernel
from domain.model.decisions import (
    Attempt,
    Basis,
    Candidate,
    Extremes,
    GangSeen,
    RuleSeen,
    is_unresolvable,
)
from domain.model.limits import reason_codes_bytes_max
from domain.plugins.counting import Rule
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView
from domain.queue.groups import WaitingGroup
from domain.state.nodes import NodeEntry

_EXPLAINED = 2
"""Best nodes whose sums are stored where no score reads usage: the chosen one and the runner-up."""


def explain_held(
    group: WaitingGroup,
    codes: Sequence[str],
    gang: GangSeen | msgspec.UnsetType,
    *,
    seed: int,
    generation: int,
    at_ms: int,
    nodes_count: int,
) -> Attempt:
    """Return the attempt of a group that must not be tried: every node refuses it, for what holds the group.

    ``gang`` is set where that is its gang. The profile's revision is 0 where there is no such profile.
    """
    held = gang is msgspec.UNSET
    return Attempt(
        signature=group.signature,
        profile=group.template.profile,
        profile_revision=0 if group.plan is None else group.plan.profile.revision,
        seed=seed,
        generation=generation,
        looked_at_ms=at_ms,
        nodes_count=nodes_count,
        unresolvable_count=nodes_count if held else 0,
        reasons=dict.fromkeys(codes, nodes_count),
        reasons_at_failure=dict.fromkeys(codes, nodes_count),
        unresolvable=held,
        gang=gang,
        warnings=warnings_of(group.plan, group.template),
    )


def store_versions(attempt: Attempt, placed: Mapping[str, int], nodes: Mapping[str, NodeEntry]) -> None:
    """Store the candidates' versions. ``placed`` holds those of nodes that got a pod earlier in the cycle."""
    assert attempt.basis is not None
    names = [candidate.node for candidate in attempt.candidates]
    attempt.basis.node_versions = [placed.get(name) or nodes[name].version for name in names]


def scratch_for(
    sequence: np.ndarray, slots: int, *, blocks: int, width: int, metrics: int, counted: int
) -> kernel.Scratch:
    """Return memory for the kernel, which allocates none itself."""
    flags = np.empty(width, dtype=np.uint8)
    return kernel.Scratch.allocate(
        np.empty,
        {"N": width, "S": counted, "V": metrics, "B": blocks},
        one_fits=np.ones(1, dtype=np.uint8),
        seen=np.empty(width + 1, dtype=np.uint8),
        sums=np.full((metrics, 4), -1, dtype=np.int64),
        uses=np.bincount(sequence, minlength=slots),
        marks=np.zeros(blocks, dtype=np.uint8),
        flags=flags,
        flag_words=flags.view(np.uint64),
        block_highest=np.empty(width // kernel.SPAN + 1, dtype=np.int16),
        block_tie=np.empty(width // kernel.SPAN + 1, dtype=np.uint64),
    )


class KernelOutput:
    """The kernel's output of one call as Python lists: to read arrays number by number costs far more.

    What is alike for many attempts is made once for all of them, since groups that take turns have an attempt
    for nearly each pod.
    """

    def __init__(
        self,
        placed: kernel.Placed,
        programs: Iterable[Program],
        view: NodeView,
        counters: CounterTable,
    ) -> None:
        self.counters = counters
        self.rule_high = placed.rule_high
        self.rule_domain = placed.rule_domain
        self.rule_sum = placed.rule_sum
        programs = list(programs)
        slots = [program.slot for program in programs]
        self.attempt_of: dict[int, int] = dict(zip(slots, placed.attempt_of[slots].tolist(), strict=True))
        self.exhausted: list[int] = placed.exhausted.tolist()
        self.hopeless: list[int] = placed.hopeless.tolist()
        self.has_reasons: list[list[bool]] = (placed.reason_code[:, :, 0] >= 0).tolist()
        reasons_count = int((placed.reason_code >= 0).any(axis=(0, 1)).sum())
        self.reason_code: list[list[list[int]]] = placed.reason_code[:, :, :reasons_count].tolist()
        self.reason_count: list[list[list[int]]] = placed.reason_count[:, :, :reasons_count].tolist()
        self.top_row: list[list[int]] = placed.top_row.tolist()
        self.sums = self._sums(placed, programs, view)
        self.candidates: dict[int, tuple[Candidate, ...]] = {}
        self.extremes: dict[int, dict[str, Extremes]] = {}
        by_plan: dict[ProfilePlan, list[Program]] = {}
        for program in programs:
            by_plan.setdefault(program.plan, []).append(program)
        for plan, alike in by_plan.items():
            attempts = [self.attempt_of[program.slot] for program in alike]
            self.candidates.update(zip(attempts, self._candidates(placed, plan, alike, view), strict=True))
            if plan.normalised_scores or plan.relative_scores or plan.count_scores:
                self.extremes.update(zip(attempts, _extremes(placed, plan, alike, attempts), strict=True))

    def has_failed(self, a: int) -> bool:
        """Say whether a pod of an attempt found no node, even if a later one found one."""
        return bool(self.exhausted[a]) or self.has_reasons[a][1]

    def rows(self, a: int) -> list[int]:
        """Return an attempt's best rows, best first."""
        rows = self.top_row[a]
        return rows if rows[-1] >= 0 else [row for row in rows if row >= 0]

    def _sums(
        self, placed: kernel.Placed, programs: Iterable[Program], view: NodeView
    ) -> dict[int, tuple[tuple[str, ...], list[int], list[int]]]:
        """Return per attempt the names of resources, and what its best rows offer and hold of each.

        Attempts that read the same resources are read together.
        """
        alike: dict[tuple[tuple[int, ...], bool], list[int]] = {}
        for program in programs:
            key = (program.columns, program.plan.reads_usage)
            alike.setdefault(key, []).append(self.attempt_of[program.slot])
        place = {column: i for i, column in enumerate(placed.explained_columns.tolist())}
        found = {}
        for (columns, reads_usage), attempts in alike.items():
            by_name = sorted((view.resources.name(column), column) for column in columns)
            names, ordered = tuple(name for name, _ in by_name), [column for _, column in by_name]
            count = kernel.TOP if reads_usage else _EXPLAINED
            rows = placed.top_row[attempts, :count, None]
            offered = view.table.allocatable[np.array(ordered, dtype=np.int64), rows]
            held = placed.top_requested[attempts, :count][:, :, [place[column] for column in ordered]]
            flat = (len(attempts), -1)
            of_each = zip(attempts, offered.reshape(flat).tolist(), held.reshape(flat).tolist(), strict=True)
            for a, of_offered, of_held in of_each:
                found[a] = (names, of_offered, of_held)
        return found

    def _candidates(
        self, placed: kernel.Placed, plan: ProfilePlan, programs: Sequence[Program], view: NodeView
    ) -> Iterator[tuple[Candidate, ...]]:
        """Yield the candidates of attempts under one plan. Equal parts are shared."""
        attempts = [self.attempt_of[program.slot] for program in programs]
        labels = [use.label for use in plan.scores]
        of_each = _parts(placed, plan, programs, attempts, view)
        # To look a row up by its bytes costs far less than to read its numbers.
        keys = of_each.view(np.dtype((np.void, of_each[0, 0].nbytes)))[:, :, 0].tolist()
        scores = (placed.top_score[attempts] / kernel.TOTAL_ONE).tolist()
        names, known = view.table.names, dict[bytes, dict[str, float]]()
        for i, (a, of_rows, of_scores) in enumerate(zip(attempts, keys, scores, strict=True)):
            found = []
            for k, (row, score, key) in enumerate(zip(self.rows(a), of_scores, of_rows, strict=False)):
                parts = known.get(key)
                if parts is None:
                    parts = known[key] = dict(zip(labels, of_each[i, k].tolist(), strict=False))
                found.append(Candidate(names[row], score, parts))
            yield tuple(found)


def _parts(
    placed: kernel.Placed,
    plan: ProfilePlan,
    programs: Sequence[Program],
    attempts: Sequence[int],
    view: NodeView,
) -> np.ndarray:
    """Return float64[attempts, TOP, max(1, scores)]: each score of the best rows, in the order of the plan.

    What a static plugin says is asked once for all programs that it cannot tell apart.
    """
    kernels = list(plan.kernel_scores)
    parts = np.zeros((len(attempts), kernel.TOP, max(1, len(plan.scores))))
    for s, use in enumerate(plan.scores):
        if use in kernels:
            parts[:, :, s] = placed.top_parts[attempts, :, kernels.index(use)]
    asked = [(s, use) for s, use in enumerate(plan.scores) if use in plan.static_scores]
    by_static: dict[StaticPart, list[int]] = {}
    for i, program in enumerate(programs) if asked else ():
        by_static.setdefault(program.static, []).append(i)
    for alike in by_static.values():
        rows, where = np.unique(placed.top_row[[attempts[i] for i in alike]], return_inverse=True)
        known = rows[rows >= 0]  # where there are fewer than TOP, the first is -1
        for s, use in asked:
            raw = np.zeros(len(rows))
            raw[len(rows) - len(known) :] = use.plugin.raw(programs[alike[0]].template, view, known)
            parts[alike, :, s] = raw[where].reshape(len(alike), -1)
    return parts


def _extremes(
    placed: kernel.Placed, plan: ProfilePlan, programs: Sequence[Program], attempts: Sequence[int]
) -> Iterator[dict[str, Extremes]]:
    """Yield the extremes of attempts under one plan. Equal ones that follow each other are shared."""
    normalised, compared = (
        len(plan.normalised_scores),
        len(plan.normalised_scores) + len(plan.relative_scores),
    )
    labels = [use.label for use in (*plan.normalised_scores, *plan.relative_scores, *plan.count_scores)]
    numbers = placed.extremes[attempts, : len(labels)].tolist()
    metrics = placed.metrics[attempts, : plan.metrics_count].tolist()
    ends = np.cumsum([use.plugin.metrics_count for use in plan.relative_scores]).tolist()
    of_label = [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]
    before, extremes = None, dict[str, Extremes]()
    for program, of_numbers, of_metrics in zip(programs, numbers, metrics, strict=True):
        counts = [bool(values) for values in program.counted.scores]
        seen = (of_numbers, of_metrics, counts)
        if seen != before:
            before, extremes = seen, {}
            for k, (label, (low, high)) in enumerate(zip(labels, of_numbers, strict=True)):
                own = of_metrics[of_label[k - normalised]] if normalised <= k < compared else [(0, 0)]
                s = k - compared
                if s < 0 or (s < len(counts) and counts[s]):
                    # The lowest is above the highest where no feasible node has a value.
                    known = (low, high) if low <= high else (None, None)
                    extremes[label] = Extremes(
                        low=known[0],
                        high=known[1],
                        nodes_count=own[0][0],
                        metrics_sum=own[0][1],
                        further=tuple((count, total) for count, total in own[1:]),
                    )
        yield extremes


def explain(
    program: Program,
    output: KernelOutput,
    view: NodeView,
    *,
    signature: bytes,
    seed: int,
    generation: int,
    at_ms: int,
    nodes_home: int | msgspec.UnsetType = msgspec.UNSET,
) -> Attempt:
    """Return a group's attempt, with names in place of rows, columns and codes.

    ``nodes_home``: how many nodes were looked at, where not all were.
    Call it before rows are renumbered. Cost: O(candidates + reasons).
    """
    profile, table = program.plan.profile, view.table
    a = output.attempt_of[program.slot]
    reasons, unresolvable_count = _reasons(program, output, a, 0)
    candidates = output.candidates[a]
    attempt = Attempt(
        signature=signature,
        profile=profile.name,
        profile_revision=profile.revision,
        seed=seed,
        generation=generation,
        looked_at_ms=at_ms,
        nodes_count=table.count,
        nodes_home=nodes_home,
        feasible_count=(nodes_home or table.count) - sum(reasons.values()),
        unresolvable_count=unresolvable_count,
        reasons=reasons,
        candidates=candidates,
        warnings=program.warnings,
        basis=_basis(program, output, view, a) if candidates else None,
    )
    if output.has_failed(a):
        attempt.reasons_at_failure, _ = _reasons(program, output, a, 1)
        attempt.unresolvable = is_unresolvable(
            held=False, nodes_count=table.count, hopeless=bool(output.hopeless[a])
        )
        if not table.count:
            attempt.reasons = attempt.reasons_at_failure = {"no-nodes": 0}
    if program.counted.rules:
        attempt.rules = _rules_seen(program, output, a) or msgspec.UNSET
    return attempt


def _rules_seen(program: Program, output: KernelOutput, a: int) -> tuple[RuleSeen, ...]:
    """Return what each rule saw that refused nodes."""
    which, first, seen = int(output.has_failed(a)), kernel.RULE, []
    codes = output.reason_code[a][which]
    for r in sorted({(code - first) // 2 for code in codes if first <= code < kernel.GONE}):
        rule, domains = program.counted.rules[r][1], output.rule_domain[a, which, r]
        if rule.bound < 0:  # it refuses every node, whatever is counted there
            continue
        highest = int(output.rule_high[a, which, r])
        found = zip(domains.tolist(), output.rule_sum[a, which, r].tolist(), strict=True)
        name = output.counters.domain_name
        seen.append(
            rule_seen(rule, highest, {name(program.counters[r], d): count for d, count in found if d >= 0})
        )
    return tuple(seen)


def rule_seen(rule: Rule, highest: int, domains: dict[str, int]) -> RuleSeen:
    """Return what a rule saw: the highest count that passes, and counts of domains that it refused."""
    return RuleSeen(
        reason=rule.reason.code,
        text=rule.text,
        count_max=None if rule.kind in (kernel.NEEDED, kernel.NEEDED_NOMINATED) else highest,
        count_min=highest - rule.bound if rule.kind == kernel.SPREAD else None,
        domains=domains,
    )


def _reasons(program: Program, output: KernelOutput, a: int, which: int) -> tuple[dict[str, int], int]:
    counts: dict[str, int] = {}
    if not output.has_reasons[a][which]:
        return counts, 0
    unresolvable, bytes_left = 0, reason_codes_bytes_max
    for code, count in zip(output.reason_code[a][which], output.reason_count[a][which], strict=True):
        if code < 0:
            break
        if code == kernel.NOT_HOME:
            continue
        reason = program.reason(code)
        bytes_left -= len(reason.code)
        name = reason.code if bytes_left >= 0 else OTHERS
        counts[name] = counts.get(name, 0) + count
        unresolvable += count if reason.unresolvable else 0
    return counts, unresolvable


def _basis(program: Program, output: KernelOutput, view: NodeView, a: int) -> Basis:
    rows, plan = output.rows(a), program.plan
    names, allocatable, requested = output.sums[a]
    if len(rows) * len(names) < len(allocatable):
        del allocatable[len(rows) * len(names) :], requested[len(rows) * len(names) :]
    basis = Basis(resources=names, allocatable=allocatable, requested=requested)
    if plan.reads_usage:
        specs = view.table.specs
        basis.resource_versions = [specs[row].resource_version for row in rows]
        basis.usage, basis.usage_at_ms = view.usage_of(rows)
    if plan.normalised_scores or plan.relative_scores or program.counted.scores:
        basis.extremes = output.extremes[a]
    return basis
