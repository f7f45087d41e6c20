"""What the kernels work on: tuples of arrays, the bounds of their axes, and the failure codes.

Failure codes per (group, row)::

    0                   feasible
    1 .. 40             a static filter's reason, in the order of the group's reason table
    LIMIT + 2 * l       limit l is passed; one more where evicting could not help
    OCCUPIED + o        the pods on the node hold too much of what occupancy o counts
    FIT + bits          resources: bit d is set when demand d does not fit what is free
    FIT + UNRESOLVABLE + bits    as above, and some demand exceeds even an empty node
    GONE                there is no such row
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

DEMANDS_MAX = 11
ADDS_MAX = 18
TERMS_MAX = 8
PARTS_MAX = 32
NUMBERS_MAX = 512
RAWS_MAX = 8
VARIANCES_MAX = 4
SCORES_MAX = RAWS_MAX + TERMS_MAX + VARIANCES_MAX
STATIC_MAX = 40
LIMIT = STATIC_MAX + 1
LIMITS_MAX = 8
LIMIT_COLUMNS_MAX = 4
OCCUPANCIES_MAX = 2
OCCUPIED = LIMIT + 2 * LIMITS_MAX
GONE = 63
FIT = 64
UNRESOLVABLE = 1 << DEMANDS_MAX
CODES = FIT + 2 * UNRESOLVABLE

OTHERS = CODES
"""In a reason table: rows short of resources in ways for which no line was left; one more where evicting
cannot help."""

LEAST_ALLOCATED, MOST_ALLOCATED, CAPACITY_RATIO, BALANCED, BALANCED_CHANGE, TARGET_LOAD, LOW_RISK = range(7)
"""Kinds of resource terms; the last two are always computed row by row."""

REVERSED, FROM_ZERO, EQUAL_FULL, ZERO_FULL = 1, 2, 4, 8
"""Flags of a normaliser (``domain.plugins.normalising``)."""

VARIANCE = REVERSED | EQUAL_FULL | ZERO_FULL
"""How the growth of a variance is normalised."""

KNOWN_MAX = 1e300
"""A raw score beyond is as good as none: a range of two such would not be a number."""

METRIC_ONE = 1 << 20
METRIC_MAX = 4 * METRIC_ONE
"""GlobalVariance's metric is a whole number of 2^-20; beyond 4 it is cut off, so that no sum overflows."""

UNCOUNTED = -(1 << 63)
"""In place of a whole number: the row does not count."""

NEVER = 1 << 30
"""Position of a filter that the profile does not have."""

TOP = 5
REASONS = 64
"""Lines of a reason table: one per code below ``FIT``, and as many of the others as find room."""

BLOCK = 512

SPAN = 64
"""Rows per block of the bounds; a power of two."""

TWINS_FROM = 256
"""Where a bounded search scores more rows than this, equal rows are looked at as one from then on."""


class Columns(NamedTuple):
    """The snapshot's columns: int64[R, N] twice, uint64[N], and int64[1] with the number of rows."""

    allocatable: np.ndarray
    requested: np.ndarray
    tie: np.ndarray
    rows_count: np.ndarray


class Groups(NamedTuple):
    """Slots of equivalence groups; the first axis is the slot, but for the static part's.

    What static plugins say is the same for many groups and therefore kept apart: ``static_part`` int32[G]
    names the row of ``static_code`` int16[S, N], ``static_score`` float64[S, N] (what is not normalised,
    weighted and summed), ``static_raw`` float64[S, K, N] (first what is normalised, then what was measured
    for terms and variances) and ``static_position`` int32[S, STATIC_MAX + 1] (position in the profile of each
    static reason's filter) that holds for a slot.
    Per row: ``occupied`` int16[G, OCCUPANCIES_MAX, N] (what counts against the group), ``code`` int16,
    ``score`` float64, ``tree`` int32[2P] (node 1 is the root, leaf of a row is P + row; holds rows).
    ``histogram`` int32[G, CODES] counts rows per code. ``synced`` int64[G]: position in the change log up to
    which the slot is right, -1 if all of it must be made anew.
    ``raw_low``, ``raw_high`` are the extremes over the feasible rows, and how many rows have them.
    """

    static_part: np.ndarray
    static_code: np.ndarray
    static_score: np.ndarray
    static_raw: np.ndarray
    static_position: np.ndarray
    occupied: np.ndarray
    code: np.ndarray
    score: np.ndarray
    tree: np.ndarray
    histogram: np.ndarray
    synced: np.ndarray
    salt: np.ndarray  # uint64[G]
    occupancy_count: np.ndarray  # int32[G]
    occupancy_position: np.ndarray  # int32[G, OCCUPANCIES_MAX]
    occupancy_allowed: np.ndarray  # int32[G, OCCUPANCIES_MAX]
    limit_count: np.ndarray  # int32[G]
    limit_position: np.ndarray  # int32[G, LIMITS_MAX]
    limit_width: np.ndarray  # int32[G, LIMITS_MAX]: number of columns
    limit_column: np.ndarray  # int32[G, LIMITS_MAX, LIMIT_COLUMNS_MAX]
    limit_value: np.ndarray  # int64[G, LIMITS_MAX]
    limit_capacity: np.ndarray  # int32[G, LIMITS_MAX]: a column
    limit_percent: np.ndarray  # float64[G, LIMITS_MAX]
    fit_position: np.ndarray  # int32[G]
    demand_count: np.ndarray  # int32[G]
    demand_column: np.ndarray  # int32[G, DEMANDS_MAX]
    demand_value: np.ndarray  # int64[G, DEMANDS_MAX]
    add_count: np.ndarray  # int32[G]
    add_column: np.ndarray  # int32[G, ADDS_MAX]
    add_value: np.ndarray  # int64[G, ADDS_MAX]
    raw_count: np.ndarray  # int32[G]: static_raw[part, :raw_count] is normalised
    raw_kind: np.ndarray  # int32[G, RAWS_MAX]: flags
    raw_weight: np.ndarray  # float64[G, RAWS_MAX]
    raw_low: np.ndarray  # float64[G, RAWS_MAX]
    raw_high: np.ndarray  # float64[G, RAWS_MAX]
    raw_low_count: np.ndarray  # int32[G, RAWS_MAX]
    raw_high_count: np.ndarray  # int32[G, RAWS_MAX]
    term_count: np.ndarray  # int32[G]
    term_kind: np.ndarray  # int32[G, TERMS_MAX]
    term_weight: np.ndarray  # float64[G, TERMS_MAX]
    term_first: np.ndarray  # int32[G, TERMS_MAX + 1]: parts of term t are first[t] .. first[t + 1] - 1
    term_number: np.ndarray  # int32[G, TERMS_MAX + 1]: the same for its numbers
    term_measured: np.ndarray  # int32[G, TERMS_MAX]: its first column in static_raw
    part_column: np.ndarray  # int32[G, PARTS_MAX]
    part_weight: np.ndarray  # float64[G, PARTS_MAX]
    part_value: np.ndarray  # int64[G, PARTS_MAX]
    number: np.ndarray  # float64[G, NUMBERS_MAX]
    variance_count: np.ndarray  # int32[G]
    variance_column: np.ndarray  # int32[G, VARIANCES_MAX]
    variance_value: np.ndarray  # int64[G, VARIANCES_MAX]: what the pod adds
    variance_measured: np.ndarray  # int32[G, VARIANCES_MAX]: its metric in static_raw, -1: what is requested
    variance_weight: np.ndarray  # float64[G, VARIANCES_MAX]
    variance_low: np.ndarray  # int64[G, VARIANCES_MAX]
    variance_high: np.ndarray  # int64[G, VARIANCES_MAX]


class Twins(NamedTuple):
    """Rows that are equal to each other in all that one static part's scores read, so that ties alone decide.

    ``row`` int32[N] and ``tie`` uint64[N], of which ``kept`` int64[1] are there, in any order; ``at``
    int32[N]: where a row is among them, or -1. ``part`` int64[1]: the static part. ``free_low``,
    ``free_high`` int64[R]: the extremes of what is free on them. ``least`` int64[1]: a search that scores
    more rows than this asks for twins; ``rest`` int64[1]: so many that ask must pass before they are made.
    """

    row: np.ndarray
    tie: np.ndarray
    at: np.ndarray
    kept: np.ndarray
    part: np.ndarray
    free_low: np.ndarray
    free_high: np.ndarray
    least: np.ndarray
    rest: np.ndarray


class Bounds(NamedTuple):
    """What is known of rows, and of blocks of ``SPAN`` of them, to pass over those that cannot be the best.

    Per resource column: ``free_low``, ``free_high`` int64[R, B], the extremes of what is free in a block (the
    high one may be too high), ``loss`` float32[R, N], 100 / capacity (0 where there is none), and
    ``loss_low`` float32[R, B], the smallest of a block. Per static part: ``base`` float32[S, N], the score of
    a pod that asks for nothing, -inf where a static filter refuses it or the row is a twin, ``best``
    float32[S, B], the highest of a block, ``refused`` int32[S, B], rows that static filters refuse.
    ``blocks_synced`` int64[1] and ``synced`` int64[S]: positions in the change log up to which the former and
    the latter are right, -1 if all must be made anew.
    """

    free_low: np.ndarray
    free_high: np.ndarray
    loss: np.ndarray
    loss_low: np.ndarray
    base: np.ndarray
    best: np.ndarray
    refused: np.ndarray
    blocks_synced: np.ndarray
    synced: np.ndarray
    twins: Twins


class ChangeLog(NamedTuple):
    """Rows changed, in order: ``rows`` int32[L], ``length`` int64[1]."""

    rows: np.ndarray
    length: np.ndarray


class Exclusions(NamedTuple):
    """Which slots' pods count against each other: a pod of slot ``g``, once placed, counts 1 on its node in
    ``occupied[slots[e], occupancies[e]]`` for every e in ``first[g] .. first[g + 1] - 1``.
    """

    first: np.ndarray  # int32[G + 1]
    slots: np.ndarray  # int32[E]
    occupancies: np.ndarray  # int32[E]


class Placed(NamedTuple):
    """Where the kernel writes.

    ``row`` int32[P] (-1: no node), ``score`` float64[P]. Per attempt (a slot's first use in the call; at
    most A): ``attempt_of`` int32[G] (-1: none yet), ``top_row`` int32[A, TOP], ``top_score`` float64[A, TOP],
    ``top_parts`` float64[A, TOP, SCORES_MAX] (normalised, terms, variances, without weights), and two reason
    tables (0: at the first pod, 1: at the first pod
    that found no node) ``reason_code`` int32[A, 2, REASONS], ``reason_count`` likewise, filled from the
    front, code -1 behind. What the parts were made of: ``top_requested`` int64[A, TOP, C], the columns
    ``noted_columns`` int32[C] of the best rows; ``extremes`` float64[A, RAWS_MAX + VARIANCES_MAX, 2], over
    the feasible rows; ``metrics`` int64[A, VARIANCES_MAX, 2], how many rows count in a variance, and their
    sum. ``exhausted`` uint8[A]. ``attempts_count`` int64[1].
    """

    row: np.ndarray
    score: np.ndarray
    attempt_of: np.ndarray
    top_row: np.ndarray
    top_score: np.ndarray
    top_parts: np.ndarray
    reason_code: np.ndarray
    reason_count: np.ndarray
    noted_columns: np.ndarray
    top_requested: np.ndarray
    extremes: np.ndarray
    metrics: np.ndarray
    exhausted: np.ndarray
    attempts_count: np.ndarray


class Scratch(NamedTuple):
    """Memory of one call: uint8 and three float64 [BLOCK], float64[4 + PARTS_MAX, BLOCK], uint64[TOP], the
    found row int64[1], which rows are feasible, uint8[N]; per variance the metric of each row, int64[V, N],
    its sums, int64[V, 4] (``scanning.py``; the first is -1 at first), and what the pod would add on each row,
    int64[V, N]; how often each slot is used, int64[G], all 0 at first; per block of the bounds its limit,
    float64[B], and a mark, uint8[B], all 0; estimates of a block's scores, float32[BLOCK]; and the columns
    of which a pod asks, int32[PARTS_MAX], with what it loses by that, float64[PARTS_MAX].
    """

    fits: np.ndarray
    total: np.ndarray
    weighted: np.ndarray
    weights: np.ndarray
    work: np.ndarray
    ties: np.ndarray
    row: np.ndarray
    feasible: np.ndarray
    own: np.ndarray
    sums: np.ndarray
    growth: np.ndarray
    uses: np.ndarray
    limit: np.ndarray
    marks: np.ndarray
    estimate: np.ndarray
    rated: np.ndarray
    rate: np.ndarray
