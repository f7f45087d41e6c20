"""Why: what an attempt of one group saw, in words and numbers that can be stored."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import numpy as np

from domain.cycle.program import Program
from domain.kernels import arrays as kernel
from domain.model.decisions import Candidate
from domain.plugins.registry import ProfilePlan
from domain.plugins.view import NodeView


class Attempt:
    """One scheduling attempt of one group.

    ``reasons`` counts nodes per reason code as the attempt's first pod saw them; ``reasons_at_failure`` as
    its first pod without a node did (empty when all were placed). ``unresolvable`` says that at failure no
    node could have been made free by evicting.
    """

    __slots__ = (
        "bound_count",
        "candidates",
        "conflict_count",
        "feasible_count",
        "generation",
        "moved_count",
        "nodes_count",
        "pods_count",
        "profile",
        "profile_revision",
        "reasons",
        "reasons_at_failure",
        "signature",
        "unresolvable",
        "unresolvable_count",
    )

    def __init__(self, signature: bytes, profile: str, profile_revision: int, nodes_count: int) -> None:
        self.signature = signature
        self.profile = profile
        self.profile_revision = profile_revision
        self.generation = 0
        self.nodes_count = nodes_count
        self.feasible_count = 0
        self.unresolvable_count = 0
        self.reasons: dict[str, int] = {}
        self.reasons_at_failure: dict[str, int] = {}
        self.unresolvable = False
        self.candidates: tuple[Candidate, ...] = ()
        self.pods_count = 0
        self.bound_count = 0
        self.moved_count = 0
        self.conflict_count = 0

    @classmethod
    def held(
        cls, signature: bytes, profile: str, revision: int, held_by: tuple[str, ...], nodes_count: int
    ) -> Attempt:
        """Make the attempt of a group that must not be tried: every node refuses it for that reason.

        Revision 0: there is no such profile.
        """
        attempt = cls(signature, profile, revision, nodes_count)
        attempt.reasons = attempt.reasons_at_failure = dict.fromkeys(held_by, nodes_count)
        attempt.unresolvable = True
        attempt.unresolvable_count = nodes_count
        return attempt

    def again(self, pods_count: int) -> Attempt:
        """Return the same verdict for further pods: they are told what was found when it was found."""
        attempt = copy.copy(self)
        attempt.pods_count, attempt.bound_count = pods_count, 0
        attempt.moved_count = attempt.conflict_count = 0
        return attempt


class Noted:
    """What the kernel noted in one call, as lists: one number at a time out of arrays costs far more."""

    def __init__(self, placed: kernel.Placed, programs: Iterable[Program]) -> None:
        self.attempt_of: list[int] = placed.attempt_of.tolist()
        self.exhausted: list[int] = placed.exhausted.tolist()
        self.moved: list[int] = placed.moved.tolist()
        self.conflicts: list[int] = placed.conflicts.tolist()
        self.has_reasons: list[list[bool]] = (placed.reason_code[:, :, 0] >= 0).tolist()
        self.reason_code = placed.reason_code
        self.reason_count = placed.reason_count
        self.top_row: list[list[int]] = placed.top_row.tolist()
        self.top_score: list[list[float]] = placed.top_score.tolist()
        scores_count = max((_kernels_count(program.plan) for program in programs), default=0)
        self.top_parts: list[list[list[float]]] = placed.top_parts[:, :, :scores_count].tolist()
        self._places: dict[ProfilePlan, tuple[int, list[tuple[str, int]]]] = {}

    def places(self, plan: ProfilePlan) -> tuple[int, list[tuple[str, int]]]:
        """Return how many scores of a plan the kernel noted, and where each stands among all."""
        found = self._places.get(plan)
        if found is None:
            kinds = (plan.normalised_scores, plan.resource_scores, plan.variance_scores, plan.static_scores)
            at = {use.label: place for place, use in enumerate(use for kind in kinds for use in kind)}
            places = [(use.label, at[use.label]) for use in plan.scores]
            found = self._places[plan] = (_kernels_count(plan), places)
        return found


def _kernels_count(plan: ProfilePlan) -> int:
    return len(plan.normalised_scores) + len(plan.resource_scores) + len(plan.variance_scores)


def explain(program: Program, noted: Noted, view: NodeView, *, signature: bytes, generation: int) -> Attempt:
    """Put into words what the kernel noted at a group's attempt.

    Must be called before rows are renumbered. Cost: O(candidates + reasons).
    """
    profile, table = program.plan.profile, view.table
    a = noted.attempt_of[program.slot]
    attempt = Attempt(signature, profile.name, profile.revision, table.count)
    attempt.generation = generation
    attempt.moved_count, attempt.conflict_count = noted.moved[a], noted.conflicts[a]
    attempt.reasons, attempt.unresolvable_count = _reasons(program, noted, a, 0)
    attempt.feasible_count = table.count - sum(attempt.reasons.values())
    if noted.exhausted[a]:
        attempt.reasons_at_failure, unresolvable_count = _reasons(program, noted, a, 1)
        attempt.unresolvable = table.count > 0 and unresolvable_count == table.count
        if not table.count:
            attempt.reasons = attempt.reasons_at_failure = {"no-nodes": 0}
    attempt.candidates = _candidates(program, noted, view, a)
    return attempt


def _reasons(program: Program, noted: Noted, a: int, which: int) -> tuple[dict[str, int], int]:
    counts: dict[str, int] = {}
    if not noted.has_reasons[a][which]:
        return counts, 0
    unresolvable = 0
    codes, numbers = noted.reason_code[a, which].tolist(), noted.reason_count[a, which].tolist()
    for code, count in zip(codes, numbers, strict=True):
        if code < 0:
            break
        reason = program.reason(code)
        counts[reason.code] = counts.get(reason.code, 0) + count
        unresolvable += count if reason.unresolvable else 0
    return counts, unresolvable


def _candidates(program: Program, noted: Noted, view: NodeView, a: int) -> tuple[Candidate, ...]:
    rows = [row for row in noted.top_row[a] if row >= 0]
    if not rows:
        return ()
    plan, names = program.plan, view.table.names
    kernels_count, places = noted.places(plan)
    where = np.array(rows, dtype=np.int64)
    asked = [use.plugin.raw(program.template, view, where).tolist() for use in plan.static_scores]
    candidates = []
    for i, row in enumerate(rows):
        values = noted.top_parts[a][i][:kernels_count] + [column[i] for column in asked]
        parts = {label: values[place] for label, place in places}
        candidates.append(Candidate(node=names[row], score=noted.top_score[a][i], parts=parts))
    return tuple(candidates)
