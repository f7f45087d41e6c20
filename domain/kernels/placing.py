"""The placing kernel: pods one after another, each onto the best node of the whole cluster.

There are two ways to the best node, with the same answer. The *tree*: every equivalence group has a slot
with a failure code and a score per row and a tournament tree over the scores; placing a pod changes one row,
and a group learns of the rows that changed since it was last used from a shared change log and re-scores
those alone. The *scan*: all rows are scored anew, block by block over the columns, and nothing is kept. The
tree wins where a group's pods follow closely upon each other, the scan where many groups alternate. Either
way the answer is that of a full re-score for every pod (``tests/oracle/placing.py`` is that re-score).

Failure codes per (group, row)::

    0                   feasible
    1 .. 61             a static filter's reason, in the order of the group's reason table
    BLOCKED             occupied by another pod (host ports)
    FIT + bits          resources: bit d is set when demand d does not fit what is free
    FIT + UNRESOLVABLE + bits    as above, and some demand exceeds even an empty node
    GONE                there is no such row
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

DEMANDS_MAX = 11
ADDS_MAX = 13
TERMS_MAX = 8
PARTS_MAX = 32
STATIC_MAX = 61
BLOCKED = 62
GONE = 63
FIT = 64
UNRESOLVABLE = 1 << DEMANDS_MAX
CODES = FIT + 2 * UNRESOLVABLE

LEAST_ALLOCATED = 0
MOST_ALLOCATED = 1

NEVER = 1 << 30
"""Position of a filter that the profile does not have."""

TOP = 5
REASONS = 32

_BLOCK = 512
_TREE_USES_MIN = 4
"""A tree is built for a group that has at least so many pods in a call, and less than N / 4 rows change
between two of them."""

jit = numba.njit(nogil=True, cache=True, boundscheck=False)
# Helpers are inlined: handed over as an argument, a tuple of two dozen arrays costs more than the work.
helper = numba.njit(nogil=True, cache=True, boundscheck=False, inline="always")


class Columns(NamedTuple):
    """The snapshot's columns: int64[R, N] twice, uint64[N], and int64[1] with the number of rows."""

    allocatable: np.ndarray
    requested: np.ndarray
    tie: np.ndarray
    rows_count: np.ndarray


class Groups(NamedTuple):
    """Slots of equivalence groups; the first axis is the slot, but for the static part's.

    What static plugins say is the same for many groups and therefore kept apart: ``static_part`` int32[G]
    names the row of ``static_code`` int16[S, N], ``static_score`` float64[S, N] and ``static_position``
    int32[S, 64] (position in the profile of each static reason's filter) that holds for a slot.
    Per row: ``blocked`` int16, ``code`` int16, ``score`` float64, ``tree`` int32[2P] (node 1 is the root,
    leaf of a row is P + row; holds rows).
    ``histogram`` int32[G, CODES] counts rows per code. ``synced`` int64[G]: position in the change log up to
    which the slot is right, -1 if all of it must be made anew.
    """

    static_part: np.ndarray
    static_code: np.ndarray
    static_score: np.ndarray
    static_position: np.ndarray
    blocked: np.ndarray
    code: np.ndarray
    score: np.ndarray
    tree: np.ndarray
    histogram: np.ndarray
    synced: np.ndarray
    salt: np.ndarray  # uint64[G]
    blocked_position: np.ndarray  # int32[G]
    fit_position: np.ndarray  # int32[G]
    demand_count: np.ndarray  # int32[G]
    demand_column: np.ndarray  # int32[G, DEMANDS_MAX]
    demand_value: np.ndarray  # int64[G, DEMANDS_MAX]
    add_count: np.ndarray  # int32[G]
    add_column: np.ndarray  # int32[G, ADDS_MAX]
    add_value: np.ndarray  # int64[G, ADDS_MAX]
    term_count: np.ndarray  # int32[G]
    term_kind: np.ndarray  # int32[G, TERMS_MAX]
    term_weight: np.ndarray  # float64[G, TERMS_MAX]
    term_first: np.ndarray  # int32[G, TERMS_MAX + 1]: parts of term t are first[t] .. first[t + 1] - 1
    part_column: np.ndarray  # int32[G, PARTS_MAX]
    part_weight: np.ndarray  # float64[G, PARTS_MAX]
    part_value: np.ndarray  # int64[G, PARTS_MAX]


class ChangeLog(NamedTuple):
    """Rows changed, in order: ``rows`` int32[L], ``length`` int64[1]."""

    rows: np.ndarray
    length: np.ndarray


class Exclusions(NamedTuple):
    """Which slots' pods cannot share a node: slot ``g`` excludes ``slots[first[g]:first[g + 1]]``."""

    first: np.ndarray  # int32[G + 1]
    slots: np.ndarray  # int32[E]


class Placed(NamedTuple):
    """Where the kernel writes.

    ``row`` int32[P] (-1: no node), ``score`` float64[P]. Per attempt (a slot's first use in the call; at
    most A): ``attempt_of`` int32[G] (-1: none yet), ``top_row`` int32[A, TOP], ``top_score`` float64[A, TOP],
    ``top_terms`` float64[A, TOP, TERMS_MAX], and two reason tables (0: at the first pod, 1: at the first pod
    that found no node) ``reason_code`` int32[A, 2, REASONS], ``reason_count`` likewise, filled from the
    front, code -1 behind. ``exhausted`` uint8[A].
    """

    row: np.ndarray
    score: np.ndarray
    attempt_of: np.ndarray
    top_row: np.ndarray
    top_score: np.ndarray
    top_terms: np.ndarray
    reason_code: np.ndarray
    reason_count: np.ndarray
    exhausted: np.ndarray


@helper
def term_value(columns, groups, g, t, row):  # type: ignore[no-untyped-def]
    """Score 0..100 of one resource term for one row, with the pod on it."""
    total = 0.0
    weights = 0.0
    for p in range(groups.term_first[g, t], groups.term_first[g, t + 1]):
        column = groups.part_column[g, p]
        capacity = columns.allocatable[column, row]
        if capacity == 0:
            continue
        used = columns.requested[column, row] + groups.part_value[g, p]
        weight = groups.part_weight[g, p]
        if groups.term_kind[g, t] == LEAST_ALLOCATED:
            if used < capacity:
                total += weight * ((capacity - used) * 100.0 / capacity)
        else:
            total += weight * (min(used, capacity) * 100.0 / capacity)
        weights += weight
    return total / weights if weights > 0.0 else 0.0


@helper
def _evaluate(columns, groups, g, row):  # type: ignore[no-untyped-def]
    """Return (code, score) of one row."""
    if row >= columns.rows_count[0]:
        return GONE, -np.inf
    code = 0
    position = NEVER
    part = groups.static_part[g]
    static = groups.static_code[part, row]
    if static != 0:
        code = static
        position = groups.static_position[part, static]
    if groups.blocked[g, row] != 0 and groups.blocked_position[g] < position:
        code = BLOCKED
        position = groups.blocked_position[g]
    if groups.fit_position[g] < position:
        bits = 0
        hopeless = 0
        for d in range(groups.demand_count[g]):
            column = groups.demand_column[g, d]
            value = groups.demand_value[g, d]
            capacity = columns.allocatable[column, row]
            if value > capacity - columns.requested[column, row]:
                bits |= 1 << d
                if value > capacity:
                    hopeless = UNRESOLVABLE
        if bits != 0:
            code = FIT + hopeless + bits
    if code != 0:
        return code, -np.inf
    score = groups.static_score[groups.static_part[g], row]
    for t in range(groups.term_count[g]):
        score += groups.term_weight[g, t] * term_value(columns, groups, g, t, row)
    return 0, score


@helper
def _mix(value):  # type: ignore[no-untyped-def]
    """Finaliser of splitmix64: a bijection that scatters neighbouring values."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@helper
def _better(columns, groups, g, a, b):  # type: ignore[no-untyped-def]
    """Return the winner of two rows: the higher score, and of equals the smaller salted tie value."""
    score_a = groups.score[g, a]
    score_b = groups.score[g, b]
    if score_a != score_b:
        return a if score_a > score_b else b
    salt = groups.salt[g]
    tie_a = _mix(columns.tie[a] ^ salt)
    tie_b = _mix(columns.tie[b] ^ salt)
    return a if tie_a <= tie_b else b


@helper
def _lift(columns, groups, g, row):  # type: ignore[no-untyped-def]
    """Replay the row's matches up to the root."""
    leaves = groups.tree.shape[1] // 2
    i = (leaves + row) // 2
    while i >= 1:
        groups.tree[g, i] = _better(columns, groups, g, groups.tree[g, 2 * i], groups.tree[g, 2 * i + 1])
        i //= 2


@helper
def _rescore(columns, groups, g, row):  # type: ignore[no-untyped-def]
    code, score = _evaluate(columns, groups, g, row)
    old_code = groups.code[g, row]
    if code != old_code:
        groups.histogram[g, old_code] -= 1
        groups.histogram[g, code] += 1
        groups.code[g, row] = code
    # An equal score is played again too: the row may be another node now, with another tie value.
    if score > -np.inf or groups.score[g, row] > -np.inf:
        groups.score[g, row] = score
        _lift(columns, groups, g, row)


@helper
def _rebuild(columns, groups, g):  # type: ignore[no-untyped-def]
    """Score every row and play the whole tournament."""
    rows = groups.score.shape[1]
    count = columns.rows_count[0]
    groups.histogram[g, :] = 0
    for row in range(count):
        code, score = _evaluate(columns, groups, g, row)
        groups.code[g, row] = code
        groups.score[g, row] = score
        groups.histogram[g, code] += 1
    for row in range(count, rows):
        groups.code[g, row] = GONE
        groups.score[g, row] = -np.inf
    groups.histogram[g, GONE] = rows - count
    leaves = groups.tree.shape[1] // 2
    for row in range(leaves):
        groups.tree[g, leaves + row] = row
    for i in range(leaves - 1, 0, -1):
        groups.tree[g, i] = _better(columns, groups, g, groups.tree[g, 2 * i], groups.tree[g, 2 * i + 1])


@helper
def sync(columns, groups, changes, g):  # type: ignore[no-untyped-def]
    """Bring one slot up to date with the change log."""
    length = changes.length[0]
    known = groups.synced[g]
    if known < 0 or (length - known) * 4 > columns.rows_count[0]:
        _rebuild(columns, groups, g)
    else:
        for i in range(known, length):
            _rescore(columns, groups, g, changes.rows[i])
    groups.synced[g] = length


@helper
def _note_reason(groups, placed, g, attempt, which, written, code):  # type: ignore[no-untyped-def]
    """Write one line of the reason table; what is too much is added to its last line."""
    count = groups.histogram[g, code]
    if count == 0:
        return written
    if written == REASONS:
        placed.reason_count[attempt, which, REASONS - 1] += count
        return written
    placed.reason_code[attempt, which, written] = code
    placed.reason_count[attempt, which, written] = count
    return written + 1


@helper
def _note_reasons(groups, placed, g, attempt, which):  # type: ignore[no-untyped-def]
    written = 0
    for code in range(1, GONE):
        written = _note_reason(groups, placed, g, attempt, which, written, code)
    for bits in range(1, 1 << groups.demand_count[g]):
        written = _note_reason(groups, placed, g, attempt, which, written, FIT + bits)
        written = _note_reason(groups, placed, g, attempt, which, written, FIT + UNRESOLVABLE + bits)


@helper
def _note_top(columns, groups, placed, g, attempt):  # type: ignore[no-untyped-def]
    """Take the best rows out of the tree one by one, then put them back."""
    taken = 0
    while taken < TOP:
        row = groups.tree[g, 1]
        score = groups.score[g, row]
        if score == -np.inf:
            break
        placed.top_row[attempt, taken] = row
        placed.top_score[attempt, taken] = score
        for t in range(groups.term_count[g]):
            placed.top_terms[attempt, taken, t] = term_value(columns, groups, g, t, row)
        groups.score[g, row] = -np.inf
        _lift(columns, groups, g, row)
        taken += 1
    for i in range(taken):
        row = placed.top_row[attempt, i]
        groups.score[g, row] = placed.top_score[attempt, i]
        _lift(columns, groups, g, row)


class Scratch(NamedTuple):
    """Memory of the scan: uint8 and three float64 [_BLOCK], uint64[TOP], and the found row, int64[1]."""

    fits: np.ndarray
    total: np.ndarray
    weighted: np.ndarray
    weights: np.ndarray
    ties: np.ndarray
    row: np.ndarray


@helper
def _score_block(columns, groups, g, first, n, scratch):  # type: ignore[no-untyped-def]
    """Filter and score rows ``first .. first + n - 1`` into ``scratch.fits`` and ``scratch.total``.

    Every array is cut to the block first: an index that only counts up from 0 is what the compiler turns
    into vector instructions.
    """
    end = first + n
    fits = scratch.fits[:n]
    total = scratch.total[:n]
    weighted = scratch.weighted[:n]
    weights = scratch.weights[:n]
    static_code = groups.static_code[groups.static_part[g], first:end]
    blocked = groups.blocked[g, first:end]
    static_score = groups.static_score[groups.static_part[g], first:end]
    for i in range(n):
        fits[i] = (static_code[i] | blocked[i]) == 0
        total[i] = static_score[i]
    for d in range(groups.demand_count[g]):
        value = groups.demand_value[g, d]
        allocatable = columns.allocatable[groups.demand_column[g, d], first:end]
        requested = columns.requested[groups.demand_column[g, d], first:end]
        for i in range(n):
            fits[i] &= value <= allocatable[i] - requested[i]
    for t in range(groups.term_count[g]):
        for i in range(n):
            weighted[i] = 0.0
            weights[i] = 0.0
        for p in range(groups.term_first[g, t], groups.term_first[g, t + 1]):
            capacity_of = columns.allocatable[groups.part_column[g, p], first:end]
            requested = columns.requested[groups.part_column[g, p], first:end]
            _add_part(
                capacity_of, requested, groups.part_value[g, p], groups.part_weight[g, p],
                groups.term_kind[g, t] == LEAST_ALLOCATED, weighted, weights,
            )  # fmt: skip
        factor = groups.term_weight[g, t]
        for i in range(n):
            total[i] += factor * (weighted[i] / (weights[i] if weights[i] > 0.0 else 1.0))


@jit
def _add_part(capacity_of, requested, value, weight, least, weighted, weights):  # type: ignore[no-untyped-def]
    """Add one resource's share of a term for a block of rows."""
    if least:
        for i in range(len(capacity_of)):
            capacity = capacity_of[i]
            free = max(capacity - (requested[i] + value), 0)
            weighted[i] += weight * (free * 100.0 / max(capacity, 1))
            weights[i] += weight if capacity != 0 else 0.0
    else:
        for i in range(len(capacity_of)):
            capacity = capacity_of[i]
            used = min(requested[i] + value, capacity)
            weighted[i] += weight * (used * 100.0 / max(capacity, 1))
            weights[i] += weight if capacity != 0 else 0.0


@helper
def _offer(placed, ties, attempt, row, score, tie, kept):  # type: ignore[no-untyped-def]
    """Insert a row that belongs among the attempt's best rows; return how many there are."""
    at = min(kept, TOP - 1)
    while at > 0 and (
        score > placed.top_score[attempt, at - 1]
        or (score == placed.top_score[attempt, at - 1] and tie < ties[at - 1])
    ):
        placed.top_row[attempt, at] = placed.top_row[attempt, at - 1]
        placed.top_score[attempt, at] = placed.top_score[attempt, at - 1]
        ties[at] = ties[at - 1]
        at -= 1
    placed.top_row[attempt, at] = row
    placed.top_score[attempt, at] = score
    ties[at] = tie
    return min(kept + 1, TOP)


@helper
def _scan(columns, groups, placed, g, attempt, wanted, scratch):  # type: ignore[no-untyped-def]
    """Find the best ``wanted`` rows (1, or TOP with the reasons) into the attempt's top; return how many."""
    kept = 0
    last_score = -np.inf
    last_tie = np.uint64(0xFFFFFFFFFFFFFFFF)
    salt = groups.salt[g]
    noting = wanted == TOP
    if noting:
        groups.histogram[g, :] = 0
        groups.synced[g] = -1
    count = columns.rows_count[0]
    for first in range(0, count, _BLOCK):
        n = min(_BLOCK, count - first)
        _score_block(columns, groups, g, first, n, scratch)
        for i in range(n):
            if scratch.fits[i] == 0:
                if noting:
                    code, _ = _evaluate(columns, groups, g, first + i)
                    groups.histogram[g, code] += 1
                continue
            score = scratch.total[i]
            if score < last_score:
                continue
            tie = _mix(columns.tie[first + i] ^ salt)
            if score == last_score and tie >= last_tie:
                continue
            if wanted == 1:
                scratch.row[0] = first + i
                kept, last_score, last_tie = 1, score, tie
                continue
            kept = _offer(placed, scratch.ties, attempt, first + i, score, tie, kept)
            if kept == TOP:
                last_score = placed.top_score[attempt, TOP - 1]
                last_tie = scratch.ties[TOP - 1]
    if noting:
        for i in range(kept):
            for t in range(groups.term_count[g]):
                placed.top_terms[attempt, i, t] = term_value(
                    columns, groups, g, t, placed.top_row[attempt, i]
                )
        _note_reasons(groups, placed, g, attempt, 0)
        if kept > 0:
            scratch.row[0] = placed.top_row[attempt, 0]
            last_score = placed.top_score[attempt, 0]
    return last_score if kept > 0 else -np.inf


@helper
def _count_reasons(columns, groups, g):  # type: ignore[no-untyped-def]
    """Count the rows per code without keeping them."""
    groups.histogram[g, :] = 0
    groups.synced[g] = -1
    for row in range(columns.rows_count[0]):
        code, _ = _evaluate(columns, groups, g, row)
        groups.histogram[g, code] += 1


@jit
def place(columns, groups, changes, exclusions, sequence, placed):  # type: ignore[no-untyped-def]
    """Place pods in order; return the number of attempts.

    Parameters
    ----------
    columns, groups, changes, exclusions, placed
        As documented; ``requested``, the slots, the change log and ``placed`` are written. The change log
        must have room for ``len(sequence)`` more rows.
    sequence : int32[P]
        Slot of each pod.

    Cost per pod: O(log N) for a group's pods in a row, O(N) where many groups alternate.
    """
    scratch = Scratch(
        np.empty(_BLOCK, dtype=np.uint8),
        np.empty(_BLOCK),
        np.empty(_BLOCK),
        np.empty(_BLOCK),
        np.empty(TOP, dtype=np.uint64),
        np.empty(1, dtype=np.int64),
    )
    count = columns.rows_count[0]
    uses = np.zeros(len(groups.synced), dtype=np.int64)
    for i in range(len(sequence)):
        uses[sequence[i]] += 1
    attempts = 0
    for i in range(len(sequence)):
        g = sequence[i]
        attempt = placed.attempt_of[g]
        if attempt >= 0 and placed.exhausted[attempt]:
            # Placing only takes room away: what found no node finds none later in the sequence.
            placed.row[i] = -1
            continue
        is_first = attempt < 0
        if is_first:
            attempt = attempts
            attempts += 1
            placed.attempt_of[g] = attempt
        behind = groups.synced[g] < 0 or (changes.length[0] - groups.synced[g]) * 4 > count
        scanning = behind and (uses[g] < _TREE_USES_MIN or len(sequence) * 4 > count * uses[g])
        if scanning:
            score = _scan(columns, groups, placed, g, attempt, TOP if is_first else 1, scratch)
            row = scratch.row[0]
        else:
            sync(columns, groups, changes, g)
            if is_first:
                _note_top(columns, groups, placed, g, attempt)
                _note_reasons(groups, placed, g, attempt, 0)
            row = groups.tree[g, 1]
            score = groups.score[g, row]
        if score == -np.inf:
            placed.row[i] = -1
            placed.exhausted[attempt] = 1
            if scanning and not is_first:
                _count_reasons(columns, groups, g)
            _note_reasons(groups, placed, g, attempt, 1)
            continue
        placed.row[i] = row
        placed.score[i] = score
        for a in range(groups.add_count[g]):
            columns.requested[groups.add_column[g, a], row] += groups.add_value[g, a]
        for e in range(exclusions.first[g], exclusions.first[g + 1]):
            groups.blocked[exclusions.slots[e], row] += 1
        changes.rows[changes.length[0]] = row
        changes.length[0] += 1
    return attempts


@jit
def could_fit(columns, rows, demand_count, demand_column, demand_value, out):  # type: ignore[no-untyped-def]
    """Say for each waiting group whether any of some rows has room for one of its pods.

    Parameters
    ----------
    rows : int64[K]
        Rows that gained room or changed their spec.
    demand_count, demand_column, demand_value : int32[W], int32[W, DEMANDS_MAX], int64[W, DEMANDS_MAX]
    out : uint8[W]

    Cost: O(W x K) at worst, O(W) when the first row already fits.
    """
    for w in range(len(demand_count)):
        out[w] = 0
        for k in range(len(rows)):
            row = rows[k]
            fits = 1
            for d in range(demand_count[w]):
                column = demand_column[w, d]
                if demand_value[w, d] > columns.allocatable[column, row] - columns.requested[column, row]:
                    fits = 0
                    break
            if fits == 1:
                out[w] = 1
                break
