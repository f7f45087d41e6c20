"""Tournament tree: the best row of a group at the root, and one leaf to replay when a row changes.

Leaf P + row stands for a row, P a power of two. Node i holds the better row of nodes 2 i and 2 i + 1.
"""

from __future__ import annotations

from domain.kernels.arrays import GONE, INFEASIBLE
from domain.kernels.compiling import helper, inner
from domain.kernels.filtering import filter_row
from domain.kernels.normalising import reset_extremes, shift_extremes, widen_extremes
from domain.kernels.scoring import score_row
from domain.kernels.ties import better


@helper
def replay(columns, groups, g, row):  # type: ignore[no-untyped-def]
    """Play a row's matches again, up to the root. Cost: O(log N)."""
    leaves = groups.tree.shape[1] // 2
    i = (leaves + row) // 2
    while i >= 1:
        groups.tree[g, i] = better(columns, groups, g, groups.tree[g, 2 * i], groups.tree[g, 2 * i + 1])
        i //= 2


@helper
def rescore(columns, groups, g, row):  # type: ignore[no-untyped-def]
    """Filter and score one row again; return True where that makes the extremes of a score stale."""
    code = filter_row(columns, groups, g, row)
    old_code = groups.code[g, row]
    stale = False
    if code != old_code:
        groups.histogram[g, old_code] -= 1
        groups.histogram[g, code] += 1
        groups.code[g, row] = code
        if groups.raw_count[g] > 0 and (code == 0 or old_code == 0):
            stale = shift_extremes(groups, g, row, code == 0)
    score = INFEASIBLE
    if code == 0:
        score = score_row(columns, groups, g, row)
    # An equal score is played again too: the row may be another node now, with another tie value.
    if score >= 0 or groups.score[g, row] >= 0:
        groups.score[g, row] = score
        replay(columns, groups, g, row)
    return stale


@inner
def rebuild(columns, groups, g):  # type: ignore[no-untyped-def]
    """Filter every row, score the feasible ones, and play the whole tournament. Cost: O(N)."""
    rows = groups.score.shape[1]
    count = columns.rows_count[0]
    groups.histogram[g, :] = 0
    reset_extremes(groups, g)
    for row in range(count):
        code = filter_row(columns, groups, g, row)
        groups.code[g, row] = code
        groups.histogram[g, code] += 1
        if code == 0:
            widen_extremes(groups, g, row)
    for row in range(count):
        groups.score[g, row] = INFEASIBLE
        if groups.code[g, row] == 0:
            groups.score[g, row] = score_row(columns, groups, g, row)
    for row in range(count, rows):
        groups.code[g, row] = GONE
        groups.score[g, row] = INFEASIBLE
    groups.histogram[g, GONE] = rows - count
    leaves = groups.tree.shape[1] // 2
    for row in range(leaves):
        groups.tree[g, leaves + row] = row
    for i in range(leaves - 1, 0, -1):
        groups.tree[g, i] = better(columns, groups, g, groups.tree[g, 2 * i], groups.tree[g, 2 * i + 1])


@helper
def sync(columns, groups, changes, g):  # type: ignore[no-untyped-def]
    """Bring a slot up to date with the change log: row by row, or all when more than a quarter changed."""
    length = changes.length[0]
    known = groups.synced[g]
    stale = known < 0 or (length - known) * 4 > columns.rows_count[0]
    while not stale and known < length:
        stale = rescore(columns, groups, g, changes.rows[known])
        known += 1
    if stale:
        rebuild(columns, groups, g)
    groups.synced[g] = length
