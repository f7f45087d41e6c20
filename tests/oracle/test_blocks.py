"""Are terms that are scored for a block of rows at once, bit for bit, what they are row by row?"""

from __future__ import annotations

import numpy as np
import pytest

from domain.kernels.arrays import (
    BALANCED,
    BALANCED_CHANGE,
    CAPACITY_RATIO,
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    PARTS_MAX,
    TOTAL_ONE,
    WHOLE,
)
from domain.kernels.terms import rate_term
from domain.kernels.totals import whole, whole_column
from tests.depth import some

ROWS = 300
KINDS = (LEAST_ALLOCATED, MOST_ALLOCATED, CAPACITY_RATIO, BALANCED, BALANCED_CHANGE)


def columns(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return offered and requested: some rows lack a resource, some hold more than they offer."""
    allocatable = random.integers(1, 1 << 40, (6, ROWS))
    allocatable[random.random((6, ROWS)) < 0.2] = 0
    requested = (allocatable * random.uniform(0, 1.3, (6, ROWS))).astype(np.int64)
    return allocatable, requested


@pytest.mark.parametrize("seed", some(range(20)))
@pytest.mark.parametrize("kind", [*KINDS, *(kind + WHOLE for kind in KINDS)])
def test_a_block_says_what_its_rows_say(kind: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    allocatable, requested = columns(random)
    parts = int(random.integers(0, 6))
    part_column = random.permutation(6)[:parts].astype(np.int32)
    part_weight = random.integers(1, 100, parts).astype(np.float64)
    part_value = random.integers(0, 1 << 36, parts)
    points = int(random.integers(1, 6))
    curve, spans = np.empty(2 * points), np.sort(random.permutation(102)[: 2 * random.integers(0, 4)])
    curve[::2] = np.sort(random.permutation(101)[:points])
    curve[1::2] = random.integers(0, 11, points) * 10.0
    number = np.array([points, *curve, *spans], dtype=np.float64)
    first = int(random.integers(0, ROWS // 2))
    rows = ROWS - first
    if kind == CAPACITY_RATIO + WHOLE:
        number = np.array(random.integers(0, 11, 101) * 10, dtype=np.float64)
    measured, fits = np.zeros((1, ROWS)), np.ones(rows, dtype=np.uint8)
    rest = (part_column, part_weight, part_value, number, np.full((5 + PARTS_MAX, rows), np.nan))
    block, one = np.full(rows, np.nan), np.full(1, np.nan)
    rate_term(kind, allocatable, requested, measured, fits, first, *rest, block)
    for i, score in enumerate(block.tolist()):
        rate_term(kind, allocatable, requested, measured, fits[:1], first + i, *rest, one)
        assert (score, 0 <= score <= 100) == (one[0], True)


@pytest.mark.parametrize("weight", [0.1, 1.0, 3.0, 1_000_000.0])
def test_totals_are_whole_numbers_whatever_the_order_of_their_scores(weight: float) -> None:
    """Sums of real numbers are not: in one order of these, a tie would become a lead of one last bit."""
    scores = np.random.default_rng(7).uniform(0, 100, (ROWS, 3))
    column = np.sum([whole_column(scores[:, k], weight) for k in range(3)], axis=0)
    for i, (a, b, c) in enumerate(scores.tolist()):
        assert whole(c, weight) + (whole(a, weight) + whole(b, weight)) == column[i]
        assert column[i] == sum(round(score * weight * TOTAL_ONE) for score in (b, c, a))
    assert any((a + b) + c != a + (b + c) for a, b, c in scores.tolist())
