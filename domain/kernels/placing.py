"""The placing kernel: pods one after another, each onto the best node of the whole cluster.

There are three ways to the best node, with the same answer. The *tree*: every equivalence group has a slot
with a failure code and a score per row and a tournament tree over the scores; placing a pod changes one row,
and a group learns of the rows that changed since it was last used from a shared change log and re-scores
those alone. The *bounds*: groups that share what static plugins say share a limit per block of rows, and a
pod looks only at the blocks that could hold a better row than the best one found. The *scan*: all rows are
scored anew, block by block over the columns. The tree wins where a group's pods follow closely upon each
other, the bounds where many groups alternate; the scan is for scores that have no bounds.
Either way the answer is that of a full re-score for every pod (``tests/oracle/placing.py`` is that re-score).
"""

from __future__ import annotations

import numpy as np

from domain.kernels import (
    arrays,
    blocks,
    bounding,
    evaluating,
    noting,
    risk,
    scanning,
    terms,
    ties,
    tree,
    twins,
)
from domain.kernels.arrays import TOP
from domain.kernels.blocks import note_placed
from domain.kernels.bounding import is_bounded, seek
from domain.kernels.compiling import entry, helper
from domain.kernels.noting import note_reasons, note_top
from domain.kernels.scanning import scan
from domain.kernels.tree import rebuild, sync

_PARTS = (
    arrays, blocks, bounding, evaluating, noting, risk, scanning, terms, ties, tree, twins
)  # fmt: skip
"""What is compiled into the kernels."""

_NEAR = 16
"""A bounded group's tree is kept up to date where at most so many rows changed since its last use; any
other's where at most one of so many did."""

_REPAID = 64
"""A tree over N rows is built for at least N / so many pods of a bounded group, and 4 of any other."""


@helper
def _count(columns, groups, changes, exclusions, g, row):  # type: ignore[no-untyped-def]
    """Let a pod of a group count on a row."""
    for a in range(groups.add_count[g]):
        columns.requested[groups.add_column[g, a], row] += groups.add_value[g, a]
    for e in range(exclusions.first[g], exclusions.first[g + 1]):
        groups.occupied[exclusions.slots[e], exclusions.occupancies[e], row] += 1
    changes.rows[changes.length[0]] = row
    changes.length[0] += 1


@helper
def _follows_closely(columns, groups, changes, g, uses, pods):  # type: ignore[no-untyped-def]
    """Say whether a group's tree is the quickest way: few rows change from one of its pods to the next."""
    count = columns.rows_count[0]
    near = _NEAR if is_bounded(groups, g) else count // _NEAR
    repaid = count // _REPAID if is_bounded(groups, g) else 4
    up_to_date = groups.synced[g] >= 0 and changes.length[0] - groups.synced[g] <= near
    # Every placement moves the mean that a variance is about, and with it the score of all rows.
    return groups.variance_count[g] == 0 and (up_to_date or (uses >= repaid and pods <= near * uses))


@entry(*_PARTS)
def place(columns, groups, bounds, changes, exclusions, sequence, placed, scratch):  # type: ignore[no-untyped-def]
    """Place pods in order, each on the best row as its predecessors left it.

    Parameters
    ----------
    columns, groups, bounds, changes, exclusions, placed
        As documented; ``requested``, the slots, the change log and ``placed`` are written. The change log
        must have room for as many more rows.
    sequence : int32[P]
        Slot of each pod.
    scratch
        Memory; of it only ``uses`` matters, how often each slot is in the sequence.

    Cost per pod: O(log N) for a group's pods in a row; where many groups alternate O(N / SPAN) and what a few
    blocks cost if their scores are bounded and the rows differ, else O(N).
    """
    uses = scratch.uses
    for i in range(len(sequence)):
        g = sequence[i]
        attempt = placed.attempt_of[g]
        if attempt >= 0 and placed.exhausted[attempt]:
            # Placing only takes room away: what found no node finds none later in the sequence.
            placed.row[i] = -1
            continue
        is_first = attempt < 0
        if is_first:
            attempt = placed.attempts_count[0]
        wanted = TOP if is_first else 1
        score = np.nan
        counted = is_first  # whether the histogram is right for this pod
        if _follows_closely(columns, groups, changes, g, uses[g], len(sequence)):
            sync(columns, groups, changes, g)
            if is_first:
                note_top(columns, groups, placed, g, attempt, scratch)
                note_reasons(groups, placed, g, attempt, 0)
            scratch.row[0] = groups.tree[g, 1]
            score = groups.score[g, scratch.row[0]]
            counted = True
        elif is_bounded(groups, g):
            score = seek(columns, groups, bounds, changes, placed, g, attempt, wanted, scratch)
        if np.isnan(score):
            score = scan(columns, groups, bounds, changes, placed, g, attempt, wanted, scratch)
            counted = is_first
        if is_first:
            placed.attempts_count[0] += 1
            placed.attempt_of[g] = attempt
        if score == -np.inf:
            placed.row[i] = -1
            placed.exhausted[attempt] = 1
            if not counted:
                rebuild(columns, groups, g)
            note_reasons(groups, placed, g, attempt, 1)
            continue
        placed.row[i] = scratch.row[0]
        placed.score[i] = score
        _count(columns, groups, changes, exclusions, g, scratch.row[0])
        note_placed(columns, groups, bounds, changes, g, scratch.row[0])


@entry()
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
