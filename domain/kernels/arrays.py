"""What the kernels work on: tuples of arrays, the lengths of their axes, and the failure codes.

Failure codes per (group, row)::

    0                   feasible
    1 .. 39             a static filter's reason, in the order of the group's reason table
    NOT_HOME            home nodes alone are looked at. It comes before all others, and need not be counted
    LIMIT + 2 * l       limit l is passed; one more where evicting could not help
    RULE + 2 * r        rule r refuses the count of the row's domain; one more where the row has no domain
    FIT + 2 * bits      resources: bit d is set when demand d does not fit what is free; one more where some
                        demand exceeds even an empty node, or is firm: no eviction frees anything for it
    GONE                there is no such row
"""

from __future__ import annotations

import numpy as np

from domain.kernels.count_arrays import Bases as Bases
from domain.kernels.count_arrays import Counters as Counters
from domain.kernels.count_arrays import Effects as Effects
from domain.kernels.count_arrays import RowBounds as RowBounds
from domain.kernels.tables import Table, array, table
from domain.model.limits import devices_per_node_max

DEMANDS_MAX = 13
ADDS_MAX = 23
TERMS_MAX = 8
PARTS_MAX = 64
NUMBERS_MAX = 1024
RAWS_MAX = 8
VARIANCES_MAX = 4
STATIC_MAX = 40
NOT_HOME = STATIC_MAX
LIMIT = STATIC_MAX + 1
LIMITS_MAX = 8
LIMIT_COLUMNS_MAX = 4

LEAST_ALLOCATED, MOST_ALLOCATED, CAPACITY_RATIO, BALANCED, BALANCED_CHANGE, TARGET_LOAD, LOW_RISK = range(7)
BALANCED_PAIR, SEARCH, DEVICES = range(7, 10)
ROOM, LOAD_VARIATION = range(14, 16)
"""Kinds of resource terms. ``DEVICES`` is the first of five, in the order of ``device_arrays``."""

WHOLE = 16
"""Added to the kind of a term in upstream's whole-number arithmetic (``arithmetic: integer``)."""

RULES_MAX = 48
VALUES_MAX = 32
COUNTED_MAX = 4
SCORES_MAX = RAWS_MAX + TERMS_MAX + VARIANCES_MAX + COUNTED_MAX
RULE = LIMIT + 2 * LIMITS_MAX
GONE = RULE + 2 * RULES_MAX
FIT = GONE + 1
CODES = FIT + (2 << DEMANDS_MAX)
EXTREMES_MAX = RAWS_MAX + VARIANCES_MAX + COUNTED_MAX

OTHERS = CODES
"""Code of the last lines of a reason table: rows short of resources in ways for which no line was left.
One more where evicting cannot help."""

AT_MOST, SPREAD, NEEDED, NEEDED_NOMINATED = range(4)
"""Kinds of rules. The last is ``NEEDED`` of a counter in which nominated pods count, too."""

SPREAD_SCORE, AFFINITY_SCORE = range(2)
"""Kinds of scores by counts: how their sums are rounded and normalised."""

REQUIRED, SIZED, BY_ROW = 1, 2, 4
"""Flags of a value: a row without a domain has no score; the count is weighted by the number of domains; each
row is a domain of its own."""

REVERSED, FROM_ZERO, EQUAL_FULL, ZERO_FULL, CUT = 1, 2, 4, 8, 16
"""Flags of a normaliser (``domain.plugins.normaliser``)."""

BY_VARIANCE, BY_CLOSENESS, BY_POWER = range(3)
"""Kinds of scores that compare all rows (``variance.py``, ``closeness.py``, ``power.py``)."""

CLOSENESS_ONE = 1 << 30  # how far a row is from the best of all is a whole number of 2^-30

POWER_ONE = 1 << 30
POWER_MAX = 1 << 62
"""The growth of a power draw is a whole number of 2^-30. One beyond 2^62 of these counts as unknown."""

KNOWN_MAX = 1e300
"""A raw score beyond this counts as unknown: the difference of two such would not be a number."""

METRIC_ONE = 1 << 20
METRIC_MAX = 4 * METRIC_ONE
"""The metric of GlobalVariance is a whole number of 2^-20. It is cut off at 4, so that no sum overflows."""

METRICS_MAX = 2 * METRIC_ONE
"""The same where the variances of up to four metrics are summed up."""

TOTAL_ONE = 1 << 20
"""A total is a whole number of 2^-20: each score times its weight is rounded to one (``totals.py``)."""

INFEASIBLE, UNKNOWN = -1, -2
"""Stand for the total of a row that is not feasible, and for a best total that a search cannot tell."""

UNCOUNTED = -(1 << 63)
"""Stands for a whole number of a row that does not count."""

NEVER = 1 << 30
"""Position of a filter that the profile does not have."""

TOP = 5
REASONS = 160
"""Lines of a reason table: one per code below ``FIT``, and as many of the others as find room."""

assert FIT + 2 <= REASONS

COUNT_MAX = (1 << 31) - 1
"""The highest count of a domain."""

DOMAINS_EXPLAINED = 8
"""Domains per rule whose counts are stored with a reason table."""

BLOCK = 512

SPAN = 64
"""Rows per block of the upper bounds; a power of two."""

RECENT_MAX = 1 << 12
"""Changes of rows of which it is kept what the row looks like; a power of two."""

EQUAL_ROWS_FROM = 256
"""A search that scores more rows than this asks for the equal rows to be taken out of the blocks."""


class Columns(Table):
    """The snapshot's columns.

    ``tie`` decides between equal rows, ``rows_count`` is how many rows are in use. ``devices``: see
    ``devices.py``.
    """

    allocatable: np.ndarray = array(np.int64, "R", "N")
    requested: np.ndarray = array(np.int64, "R", "N")
    tie: np.ndarray = array(np.uint64, "N")
    rows_count: np.ndarray = array(np.int64, 1)
    devices: np.ndarray = array(np.int32, devices_per_node_max + 2)


class Trees(Table):
    """Tournament trees. A tree holds every row of one group, so there are few; the first axis is the tree T.

    ``owner`` is the slot of the tree's group, or -1. ``used`` is the change log's length at its last use, and
    ``synced`` the position in the log up to which it is right; -1: nothing in it is. ``code`` and ``score``,
    a total or ``INFEASIBLE``, are of each row; ``winner`` holds rows (node 1 is the root, leaf P + row is a
    row). ``histogram`` counts rows per code.
    """

    owner: np.ndarray = array(np.int32, "T")
    used: np.ndarray = array(np.int64, "T")
    synced: np.ndarray = array(np.int64, "T")
    code: np.ndarray = array(np.int16, "T", "N")
    score: np.ndarray = array(np.int64, "T", "N")
    winner: np.ndarray = array(np.int32, "T", "2P")
    histogram: np.ndarray = array(np.int32, "T", CODES)


class Groups(Table):
    """Slots of equivalence groups. The first axis is the slot G, or the static part S.

    Nothing has an entry per group and row, so thousands of groups keep their slots.

    What static plugins say is the same for many groups, so it is kept once per static part: ``static_part``
    is the part of a slot. ``static_code`` says why it refuses a row, 0 if it does not. ``static_score`` is
    the total of the scores that are not normalised. ``static_raw`` holds first the scores that are
    normalised, then what was measured for terms and variances. ``static_position`` is the position in the
    profile of each static reason's filter.

    A normalised score that is the same on all rows ranks none of them, so it is skipped: ``raw_constant`` is
    its value, 0..100, NaN where it varies; ``raws_varying`` how many vary; ``static_constant`` what the
    others add to every total.

    ``tree_of`` is the tree of a slot, or -1. ``raw_low`` and ``raw_high`` are the extremes over the feasible
    rows, ``raw_low_count`` and ``raw_high_count`` how many rows have them.
    """

    static_part: np.ndarray = array(np.int32, "G")
    static_code: np.ndarray = array(np.int16, "S", "N")
    static_score: np.ndarray = array(np.int64, "S", "N")
    static_raw: np.ndarray = array(np.float64, "S", "K", "N")
    static_position: np.ndarray = array(np.int32, "S", STATIC_MAX + 1)
    static_constant: np.ndarray = array(np.int64, "S")
    static_whole: np.ndarray = array(np.uint8, "S")  # its totals are whole scores
    raw_constant: np.ndarray = array(np.float64, "S", RAWS_MAX)
    raws_varying: np.ndarray = array(np.int32, "S")
    trees: Trees = table(Trees)
    tree_of: np.ndarray = array(np.int32, "G")
    row_bounds: RowBounds = table(RowBounds)
    bases: Bases = table(Bases)
    base_of: np.ndarray = array(np.int32, "G")  # the base of a slot with rules or values, or -1
    salt: np.ndarray = array(np.uint64, "G")
    limit_count: np.ndarray = array(np.int32, "G")
    limit_position: np.ndarray = array(np.int32, "G", LIMITS_MAX)
    limit_width: np.ndarray = array(np.int32, "G", LIMITS_MAX)  # number of columns
    limit_column: np.ndarray = array(np.int32, "G", LIMITS_MAX, LIMIT_COLUMNS_MAX)
    limit_value: np.ndarray = array(np.int64, "G", LIMITS_MAX)
    limit_capacity: np.ndarray = array(np.int32, "G", LIMITS_MAX)  # a column
    limit_percent: np.ndarray = array(np.float64, "G", LIMITS_MAX)
    limit_measured: np.ndarray = array(np.int32, "G", LIMITS_MAX)  # -1, or in static_raw: what may be used
    fit_position: np.ndarray = array(np.int32, "G")
    demand_count: np.ndarray = array(np.int32, "G")
    demand_column: np.ndarray = array(np.int32, "G", DEMANDS_MAX)
    demand_value: np.ndarray = array(np.int64, "G", DEMANDS_MAX)
    firm_count: np.ndarray = array(np.int32, "G")  # so many of the last demands are firm
    add_count: np.ndarray = array(np.int32, "G")
    add_column: np.ndarray = array(np.int32, "G", ADDS_MAX)
    add_value: np.ndarray = array(np.int64, "G", ADDS_MAX)
    ask_number: np.ndarray = array(np.int32, "G")  # devices
    ask_milli: np.ndarray = array(np.int32, "G")  # thousandths of each
    raw_count: np.ndarray = array(np.int32, "G")  # static_raw[part, :raw_count] is normalised
    raw_kind: np.ndarray = array(np.int32, "G", RAWS_MAX)  # flags
    raw_weight: np.ndarray = array(np.float64, "G", RAWS_MAX)
    raw_low: np.ndarray = array(np.float64, "G", RAWS_MAX)
    raw_high: np.ndarray = array(np.float64, "G", RAWS_MAX)
    raw_low_count: np.ndarray = array(np.int32, "G", RAWS_MAX)
    raw_high_count: np.ndarray = array(np.int32, "G", RAWS_MAX)
    term_count: np.ndarray = array(np.int32, "G")
    term_kind: np.ndarray = array(np.int32, "G", TERMS_MAX)
    term_weight: np.ndarray = array(np.float64, "G", TERMS_MAX)
    term_first: np.ndarray = array(np.int32, "G", TERMS_MAX + 1)  # parts first[t] .. first[t + 1] - 1
    term_number: np.ndarray = array(np.int32, "G", TERMS_MAX + 1)  # the same for its numbers
    term_measured: np.ndarray = array(np.int32, "G", TERMS_MAX)  # its first column in static_raw
    part_column: np.ndarray = array(np.int32, "G", PARTS_MAX)
    part_weight: np.ndarray = array(np.float64, "G", PARTS_MAX)
    part_value: np.ndarray = array(np.int64, "G", PARTS_MAX)
    number: np.ndarray = array(np.float64, "G", NUMBERS_MAX)
    variance_count: np.ndarray = array(np.int32, "G")
    variance_kind: np.ndarray = array(np.int32, "G", VARIANCES_MAX)
    variance_flags: np.ndarray = array(np.int32, "G", VARIANCES_MAX)  # with which it is normalised
    variance_first: np.ndarray = array(np.int32, "G", VARIANCES_MAX + 1)  # parts first[v] .. first[v + 1] - 1
    variance_measured: np.ndarray = array(np.int32, "G", VARIANCES_MAX)  # -1, or its first in static_raw
    metric_count: np.ndarray = array(np.int32, "G")  # over all variances
    variance_weight: np.ndarray = array(np.float64, "G", VARIANCES_MAX)
    variance_low: np.ndarray = array(np.int64, "G", VARIANCES_MAX)
    variance_high: np.ndarray = array(np.int64, "G", VARIANCES_MAX)
    rule_count: np.ndarray = array(np.int32, "G")
    rule_kind: np.ndarray = array(np.int32, "G", RULES_MAX)
    rule_position: np.ndarray = array(np.int32, "G", RULES_MAX)
    rule_counter: np.ndarray = array(np.int32, "G", RULES_MAX)
    rule_bound: np.ndarray = array(np.int32, "G", RULES_MAX)
    rule_min_domains: np.ndarray = array(np.int32, "G", RULES_MAX)
    rule_bootstraps: np.ndarray = array(np.int32, "G", RULES_MAX)  # 0 or 1
    rule_missing: np.ndarray = array(np.int32, "G", RULES_MAX)  # 1 where a row without a domain is refused
    rule_low: np.ndarray = array(np.int32, "G", RULES_MAX)  # the lowest count that passes now
    rule_high: np.ndarray = array(np.int32, "G", RULES_MAX)
    counted_count: np.ndarray = array(np.int32, "G")  # scores by counts that have any value
    counted_kind: np.ndarray = array(np.int32, "G", COUNTED_MAX)
    counted_weight: np.ndarray = array(np.float64, "G", COUNTED_MAX)
    counted_first: np.ndarray = array(np.int32, "G", COUNTED_MAX + 1)  # values first[s] .. first[s + 1] - 1
    counted_low: np.ndarray = array(np.int64, "G", COUNTED_MAX)  # over the feasible rows that have a score
    counted_high: np.ndarray = array(np.int64, "G", COUNTED_MAX)
    value_counter: np.ndarray = array(np.int32, "G", VALUES_MAX)
    value_extra: np.ndarray = array(np.int32, "G", VALUES_MAX)  # maxSkew - 1
    value_flags: np.ndarray = array(np.int32, "G", VALUES_MAX)


class EqualRows(Table):
    """Rows that are equal in everything that the scores of one static part read: ties alone decide.

    ``row`` and ``tie`` hold ``kept`` rows in any order. ``at`` is the place of a row among them, or -1.
    ``part`` is the static part. ``free_low`` and ``free_high`` are the extremes of what is free on them.
    ``least``: a search that scores more rows than this asks for a new set. ``rest``: how many more searches
    must ask before one is made.
    """

    row: np.ndarray = array(np.int32, "N")
    tie: np.ndarray = array(np.uint64, "N")
    at: np.ndarray = array(np.int32, "N")
    kept: np.ndarray = array(np.int64, 1)
    part: np.ndarray = array(np.int64, 1)
    free_low: np.ndarray = array(np.int64, "R")
    free_high: np.ndarray = array(np.int64, "R")
    least: np.ndarray = array(np.int64, 1)
    rest: np.ndarray = array(np.int64, 1)


class Bounds(Table):
    """What branch and bound knows of rows, and of blocks of ``SPAN`` rows.

    Per resource column, for all groups: ``free_low`` and ``free_high``, the extremes of what is free in a
    block (the high one may be too high); ``free``, the free share in percent, -1 without capacity; ``loss``,
    100 / capacity, or 0 without capacity; ``loss_low``, the smallest of a block.
    Per static part: ``base``, the score of a pod that asks for nothing, -inf where a static filter refuses
    the row or it is among the equal rows; ``even``, the whole score of BalancedAllocation without the pod,
    before what it changes; ``best``, the highest base of a block; ``refused``, how many of those that are
    looked at static filters refuse.
    Per recent change of a row, i in the change log: ``recent_free``, ``recent_loss``, the row's free share
    and loss, at i modulo ``RECENT_MAX``. ``recent``: from which i on they are known, and before which;
    ``free`` is right up to there, too. ``blocks_synced`` and ``synced`` are the positions in the change log
    up to which the former and the latter are right; -1: nothing is.
    ``scanned_max``: so few rows are scanned, and need neither bounds nor trees.
    """

    scanned_max: np.ndarray = array(np.int64, 1)
    free_low: np.ndarray = array(np.int64, "R", "B")
    free_high: np.ndarray = array(np.int64, "R", "B")
    free: np.ndarray = array(np.float32, "R", "N")
    loss: np.ndarray = array(np.float32, "R", "N")
    loss_low: np.ndarray = array(np.float32, "R", "B")
    base: np.ndarray = array(np.float32, "S", "N")
    even: np.ndarray = array(np.float32, "S", "N")
    best: np.ndarray = array(np.float32, "S", "B")
    refused: np.ndarray = array(np.int32, "S", "B")
    recent_free: np.ndarray = array(np.float32, "R", RECENT_MAX)
    recent_loss: np.ndarray = array(np.float32, "R", RECENT_MAX)
    recent: np.ndarray = array(np.int64, 2)
    blocks_synced: np.ndarray = array(np.int64, 1)
    synced: np.ndarray = array(np.int64, "S")
    equal_rows: EqualRows = table(EqualRows)


class ChangeLog(Table):
    """Rows changed, in order: the first ``length`` of ``rows``."""

    rows: np.ndarray = array(np.int32, "L")
    length: np.ndarray = array(np.int64, 1)


class Placed(Table):
    """The kernel's output of one call: P pods, at most A attempts (an attempt is a slot's first use).

    Per pod: ``row``, -1 for no node; ``score``, its total; ``devices``, as bits.
    Per slot: ``attempt_of``, -1 for none yet, of ``attempts_count``. ``stops`` is input: 1 where the call
    ends with the first pod of the slot that finds no node. ``done``: how many pods were tried.
    The best rows of an attempt: ``top_row``, ``top_score``, and ``top_parts`` (normalised scores, terms,
    variances, scores by counts; without weights).
    What the parts were computed from: ``top_requested``, the columns ``explained_columns`` of the best rows;
    ``extremes`` over the feasible rows; ``metrics``, how many rows count in a metric, and their sum.
    Two reason tables, 0 as of the first pod and 1 as of the first pod without a node: ``reason_code`` and
    ``reason_count``, filled from the front, code -1 behind.
    ``exhausted``: some pod of the attempt found no node, when the counters of its rules had the versions
    ``version`` in sum (``counting.version_of``). ``hopeless``: whether on all rows some filter refused the
    first of these whatever pods leave.
    What the rules saw with a reason table: ``rule_high``, the highest count that passes; up to
    ``DOMAINS_EXPLAINED`` domains with more, ``rule_domain``, filled from the front, -1 behind, with their
    counts ``rule_sum``. R is the highest number of rules of a slot.
    """

    row: np.ndarray = array(np.int32, "P")
    score: np.ndarray = array(np.int64, "P")
    devices: np.ndarray = array(np.int32, "P")
    attempt_of: np.ndarray = array(np.int32, "G")
    top_row: np.ndarray = array(np.int32, "A", TOP)
    top_score: np.ndarray = array(np.int64, "A", TOP)
    top_parts: np.ndarray = array(np.float64, "A", TOP, SCORES_MAX)
    reason_code: np.ndarray = array(np.int32, "A", 2, REASONS)
    reason_count: np.ndarray = array(np.int32, "A", 2, REASONS)
    explained_columns: np.ndarray = array(np.int32, "C")
    top_requested: np.ndarray = array(np.int64, "A", TOP, "C")
    extremes: np.ndarray = array(np.float64, "A", EXTREMES_MAX, 2)
    metrics: np.ndarray = array(np.int64, "A", VARIANCES_MAX, 2)
    exhausted: np.ndarray = array(np.uint8, "A")
    version: np.ndarray = array(np.int64, "A")
    rule_high: np.ndarray = array(np.int32, "A", 2, "R")
    rule_domain: np.ndarray = array(np.int32, "A", 2, "R", DOMAINS_EXPLAINED)
    rule_sum: np.ndarray = array(np.int32, "A", 2, "R", DOMAINS_EXPLAINED)
    hopeless: np.ndarray = array(np.uint8, "A")
    attempts_count: np.ndarray = array(np.int64, 1)
    stops: np.ndarray = array(np.uint8, "G")
    done: np.ndarray = array(np.int64, 1)


class Scratch(Table):
    """Memory of one call, as the kernel allocates none. V is the number of metrics, B of blocks."""

    fits: np.ndarray = array(np.uint8, BLOCK)  # which rows of a block are feasible
    total: np.ndarray = array(np.int64, BLOCK)  # totals of a block
    value: np.ndarray = array(np.float64, BLOCK)  # one score of a block
    one_fits: np.ndarray = array(np.uint8, 1)  # a block of one row
    one_total: np.ndarray = array(np.int64, 1)
    work: np.ndarray = array(np.float64, 5 + PARTS_MAX, BLOCK)
    ties: np.ndarray = array(np.uint64, TOP)  # tie values of the best rows
    row: np.ndarray = array(np.int64, 1)  # the row that was found
    feasible: np.ndarray = array(np.uint8, "N")
    ranked: np.ndarray = array(np.uint8, "N")  # feasible rows that a score by counts rates
    amount: np.ndarray = array(np.float64, "N")  # such a score before it is rounded
    counted: np.ndarray = array(np.int64, "S", "N")  # raw scores by counts
    seen: np.ndarray = array(np.uint8, "N + 1")  # domains that occur
    own: np.ndarray = array(np.int64, "V", "N")  # the metric of each row
    sums: np.ndarray = array(np.int64, "V", 4)  # int64[V, 4] (``variance.py``); the first is -1 at first
    growth: np.ndarray = array(np.int64, "V", "N")  # what a pod on each row would add to the variance
    uses: np.ndarray = array(np.int64, "G")  # how often each slot is in the rest of the sequence
    histogram: np.ndarray = array(np.int32, CODES)  # rows per code
    upper_bound: np.ndarray = array(np.float64, "B")
    marks: np.ndarray = array(np.uint8, "B")  # uint8[B], all 0 between two uses
    estimate: np.ndarray = array(np.float32, BLOCK)  # estimated scores of a block
    share: np.ndarray = array(np.float32, 3, BLOCK)
    doubtful: np.ndarray = array(np.int32, BLOCK)  # rows that may lack room
    flags: np.ndarray = array(np.uint8, "N")
    flag_words: np.ndarray = array(np.uint64, "N / 8")  # the same memory
    touched: np.ndarray = array(np.int32, "N")  # rows with a raw score by counts other than 0
    bound: np.ndarray = array(np.int16, "N")  # the upper bound of each row, in whole scores; -1: refused
    block_highest: np.ndarray = array(np.int16, "B")
    block_tie: np.ndarray = array(np.uint64, "B")  # the smallest tie among the highest bounds; 0: unknown
    rated: np.ndarray = array(np.int32, PARTS_MAX)  # columns of which the pod asks
    rate: np.ndarray = array(np.float64, PARTS_MAX)  # what it loses per unit of ``loss`` in each
