"""Tournament tree: the best row of a group at the root, and one leaf to replay when a row changes.

Leaf P + row stands for a row, P a power of two. Node i holds the better row of nodes 2 i and 2 i + 1.

There are far fewer trees than groups. A group that wants one gets the tree that was not used for longest, of
those whose group has no further pod in the call.
"""

from __future__ import annotations

from domain.kernels.arrays import BLOCK, GONE, INFEASIBLE, ChangeLog, Columns, Groups, Scratch
from domain.kernels.compiling import helper, unit
from domain.kernels.filtering import clear_histogram, filter_row
from domain.kernels.normalising import reset_extremes, shift_extremes, widen_extremes
from domain.kernels.scoring import score_block, score_row
from domain.kernels.ties import better


@helper
def take_tree(groups, g, uses):  # type: ignore[no-untyped-def]
    """Give a group a tree if it has none; say whether it has one now. Cost: O(trees)."""
    trees = groups.trees
    found = groups.tree_of[g]
    if found >= 0:
        return True
    for t in range(len(trees.owner)):
        if trees.owner[t] < 0:
            found = t
            break
        if uses[trees.owner[t]] == 0 and (found < 0 or trees.used[t] < trees.used[found]):
            found = t
    if found < 0:
        return False
    if trees.owner[found] >= 0:
        groups.tree_of[trees.owner[found]] = -1
    trees.owner[found] = g
    trees.synced[found] = -1
    groups.tree_of[g] = found
    return True


@helper
def void_tree(groups, g):  # type: ignore[no-untyped-def]
    """Mark the tree of a group as stale, if it has one."""
    if groups.tree_of[g] >= 0:
        groups.trees.synced[groups.tree_of[g]] = -1


@helper
def replay(columns, groups, g, row):  # type: ignore[no-untyped-def]
    """Play a row's matches again, up to the root. Cost: O(log N)."""
    winner = groups.trees.winner[groups.tree_of[g]]
    score = groups.trees.score[groups.tree_of[g]]
    i = (len(winner) // 2 + row) // 2
    while i >= 1:
        winner[i] = better(columns, score, groups.salt[g], winner[2 * i], winner[2 * i + 1])
        i //= 2


@helper
def rescore(columns, groups, g, row, scratch):  # type: ignore[no-untyped-def]
    """Filter and score one row again; return True where that makes the extremes of a score stale."""
    trees = groups.trees
    t = groups.tree_of[g]
    code = filter_row(columns, groups, g, row)
    old_code = trees.code[t, row]
    stale = False
    if code != old_code:
        trees.histogram[t, old_code] -= 1
        trees.histogram[t, code] += 1
        trees.code[t, row] = code
        if groups.raws_varying[groups.static_part[g]] > 0 and (code == 0 or old_code == 0):
            stale = shift_extremes(groups, g, row, code == 0)
    score = INFEASIBLE
    if code == 0:
        score = score_row(columns, groups, g, row, scratch)
    # An equal score is played again too: the row may be another node now, with another tie value.
    if score >= 0 or trees.score[t, row] >= 0:
        trees.score[t, row] = score
        replay(columns, groups, g, row)
    return stale


@helper
def _fit(code, fits):  # type: ignore[no-untyped-def]
    for i in range(len(fits)):
        fits[i] = code[i] == 0


@helper
def _refuse(fits, score):  # type: ignore[no-untyped-def]
    for i in range(len(score)):
        score[i] = score[i] if fits[i] != 0 else INFEASIBLE


@helper
def rebuild(columns, groups, g, scratch):  # type: ignore[no-untyped-def]
    """Filter every row, score the feasible ones, and play the whole tournament. Cost: O(N)."""
    t = groups.tree_of[g]
    code = groups.trees.code[t]
    score = groups.trees.score[t]
    winner = groups.trees.winner[t]
    histogram = groups.trees.histogram[t]
    rows = len(score)
    count = columns.rows_count[0]
    clear_histogram(groups, g, histogram)
    reset_extremes(groups, g)
    for row in range(count):
        code[row] = filter_row(columns, groups, g, row)
        histogram[code[row]] += 1
        if code[row] == 0:
            widen_extremes(groups, g, row)
    for first in range(0, count, BLOCK):
        end = min(first + BLOCK, count)
        fits = scratch.fits[: end - first]
        _fit(code[first:end], fits)
        score_block(columns, groups, g, first, fits, score[first:end], scratch)
        _refuse(fits, score[first:end])
    for row in range(count, rows):
        code[row] = GONE
        score[row] = INFEASIBLE
    histogram[GONE] = rows - count
    leaves = len(winner) // 2
    for row in range(leaves):
        winner[leaves + row] = row
    for i in range(leaves - 1, 0, -1):
        winner[i] = better(columns, score, groups.salt[g], winner[2 * i], winner[2 * i + 1])


@unit
def sync(columns: Columns, groups: Groups, changes: ChangeLog, g: int, scratch: Scratch) -> None:
    """Bring a tree up to date with the change log: row by row, or all when more than a quarter changed."""
    trees = groups.trees
    t = groups.tree_of[g]
    length = changes.length[0]
    known = trees.synced[t]
    stale = known < 0 or (length - known) * 4 > columns.rows_count[0]
    while not stale and known < length:
        stale = rescore(columns, groups, g, changes.rows[known], scratch)
        known += 1
    if stale:
        rebuild(columns, groups, g, scratch)
    trees.synced[t] = length
    trees.used[t] = length
