"""Why: what an attempt of one group saw, in words and numbers that can be stored."""

from __future__ import annotations

import copy

import numpy as np

from domain.cycle.slots import Program
from domain.kernels import placing as kernel
from domain.model.decisions import Candidate
from domain.state.table import NodeTable


class Attempt:
    """One scheduling attempt of one group.

    ``reasons`` counts nodes per reason code as the attempt's first pod saw them; ``reasons_at_failure`` as
    its first pod without a node did (empty when all were placed). ``unresolvable`` says that at failure no
    node could have been made free by evicting.
    """

    __slots__ = (
        "bound_count",
        "candidates",
        "feasible_count",
        "generation",
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

    @classmethod
    def held(cls, signature: bytes, profile: str, held_by: tuple[str, ...], nodes_count: int) -> Attempt:
        """Make the attempt of a group that must not be tried: every node refuses it for that reason."""
        attempt = cls(signature, profile, 0, nodes_count)
        attempt.reasons = attempt.reasons_at_failure = dict.fromkeys(held_by, nodes_count)
        attempt.unresolvable = True
        attempt.unresolvable_count = nodes_count
        return attempt

    def again(self, pods_count: int) -> Attempt:
        """Return the same verdict for further pods: they are told what was found when it was found."""
        attempt = copy.copy(self)
        attempt.pods_count, attempt.bound_count = pods_count, 0
        return attempt


def explain(
    program: Program, placed: kernel.Placed, table: NodeTable, *, signature: bytes, generation: int
) -> Attempt:
    """Put into words what the kernel noted at a group's attempt.

    Must be called before rows are renumbered. Cost: O(candidates + reasons).
    """
    profile = program.plan.profile
    a = int(placed.attempt_of[program.slot])
    attempt = Attempt(signature, profile.name, profile.revision, table.count)
    attempt.generation = generation
    attempt.reasons, attempt.unresolvable_count = _reasons(program, placed, a, 0)
    attempt.feasible_count = table.count - sum(attempt.reasons.values())
    if placed.exhausted[a]:
        attempt.reasons_at_failure, unresolvable_count = _reasons(program, placed, a, 1)
        attempt.unresolvable = table.count > 0 and unresolvable_count == table.count
        if not table.count:
            attempt.reasons = attempt.reasons_at_failure = {"no-nodes": 0}
    attempt.candidates = _candidates(program, placed, table, a)
    return attempt


def _reasons(program: Program, placed: kernel.Placed, a: int, which: int) -> tuple[dict[str, int], int]:
    counts: dict[str, int] = {}
    unresolvable = 0
    codes, numbers = placed.reason_code[a, which].tolist(), placed.reason_count[a, which].tolist()
    for code, count in zip(codes, numbers, strict=True):
        if code < 0:
            break
        reason = program.reason(code)
        counts[reason.code] = counts.get(reason.code, 0) + count
        unresolvable += count if reason.unresolvable else 0
    return counts, unresolvable


def _candidates(program: Program, placed: kernel.Placed, table: NodeTable, a: int) -> tuple[Candidate, ...]:
    rows = placed.top_row[a]
    rows = rows[rows >= 0].astype(np.int64)
    if not len(rows):
        return ()
    parts: list[tuple[str, list[float]]] = [
        (score.name, score.rate(program.template, table, rows).tolist())
        for _, score in program.plan.static_scores
    ]
    parts += [
        (score.name, placed.top_terms[a, : len(rows), t].tolist())
        for t, (_, score) in enumerate(program.plan.resource_scores)
    ]
    return tuple(
        Candidate(
            node=table.names[row],
            score=float(placed.top_score[a, i]),
            parts={name: values[i] for name, values in parts},
        )
        for i, row in enumerate(rows.tolist())
    )
