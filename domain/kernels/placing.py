"""The placing kernel (START HERE): pods one after another, each onto the best node of the whole cluster.

There are four ways to the best node. All give the answer of a full re-score for every pod, which
``tests/oracle/placing.py`` is.

- *Tournament tree* (``tournament.py``): a group keeps a failure code and a score per row, and a tree over the
  scores. Placing a pod changes one row. A group learns from a shared change log which rows changed since it
  was last used, and scores those alone. This wins where the pods of one group follow each other.
- *Branch and bound* (``branch_and_bound.py``): groups with the same static part share an upper bound per
  block of rows, and a pod visits only the blocks that could hold a better row than the best one found. This
  wins where many groups take turns.
- *Bounds by the row* (``whole_bounds.py``): the same for whole scores, where nearly all rows tie, and for
  groups whose pods ask where others are.
- *Full scan* (``scanning.py``): all rows are scored anew, block by block. This is for scores without upper
  bounds.
"""

from __future__ import annotations

from domain.kernels.arrays import (
    INFEASIBLE,
    TOP,
    UNKNOWN,
    Bounds,
    ChangeLog,
    Columns,
    Counters,
    Effects,
    Groups,
    Placed,
    Scratch,
)
from domain.kernels.blocks import record_placement
from domain.kernels.branch_and_bound import has_upper_bounds, search
from domain.kernels.compiling import helper, unit
from domain.kernels.counting import count_effects, has_counts, version_of, write_rules
from domain.kernels.devices import take_devices
from domain.kernels.explain import write_failure, write_reasons, write_top
from domain.kernels.scanning import count_codes, scan
from domain.kernels.tables import Flags, IntLists, Ints, RowLists, Rows
from domain.kernels.tournament import sync, take_tree
from domain.kernels.whole_bounds import has_whole_bounds, search_whole

_REFRESHED_ROWS_MAX = 16
"""With upper bounds: refresh the tree, and do not search, when at most 16 rows changed since its last use."""

_REFRESHED_SHARE = 16
"""Without upper bounds: refresh the tree when at most 1 row in 16 changed since its last use."""

_ROWS_PER_POD = 64
"""With upper bounds: build a tree over N rows when a group has at least N / 64 pods in the call."""

_PODS_MIN = 4
"""Without upper bounds: build a tree when a group has at least 4 pods in the call."""


@helper
def count_pod(columns, groups, changes, counters, effects, g, row):  # type: ignore[no-untyped-def]
    """Count a pod of a group on a row, log the change, and return its devices as bits."""
    for a in range(groups.add_count[g]):
        columns.requested[groups.add_column[g, a], row] += groups.add_value[g, a]
    devices = take_devices(columns, groups, g, row)
    count_effects(counters, effects, g, row)
    changes.rows[changes.length[0]] = row
    changes.length[0] += 1
    return devices


@helper
def _prefers_tree(columns, groups, bounds, changes, g, uses, pods):  # type: ignore[no-untyped-def]
    """Say whether a group's tree is the quickest way: few rows change from one of its pods to the next.

    ``uses`` of the next ``pods`` pods are the group's.
    """
    count = columns.rows_count[0]
    bounded = has_upper_bounds(groups, g) or has_whole_bounds(groups, g)
    near = _REFRESHED_ROWS_MAX if bounded else count // _REFRESHED_SHARE
    repaid = count // _ROWS_PER_POD if bounded else _PODS_MIN
    synced = groups.trees.synced[groups.tree_of[g]] if groups.tree_of[g] >= 0 else -1
    up_to_date = synced >= 0 and changes.length[0] - synced <= near
    # A placement moves what other rows count, and the mean that a variance is about: the scores of all rows.
    fixed = groups.variance_count[g] == 0 and not has_counts(groups, g)
    return (
        count > bounds.scanned_max[0] and fixed and (up_to_date or (uses >= repaid and pods <= near * uses))
    )


@helper
def _find_in_tree(columns, groups, changes, placed, g, attempt, is_first, scratch):  # type: ignore[no-untyped-def]
    """Find the best row of a group that has a tree, and return its total."""
    sync(columns, groups, changes, g, scratch)
    tree = groups.tree_of[g]
    if is_first:
        write_top(columns, groups, placed, g, attempt, scratch)
        write_reasons(groups.trees.histogram[tree], groups, placed, g, attempt, 0)
    scratch.row[0] = groups.trees.winner[tree, 1]
    return groups.trees.score[tree, scratch.row[0]]


@helper
def _find_by_bounds(columns, groups, counters, bounds, changes, placed, g, attempt, wanted, scratch):  # type: ignore[no-untyped-def]
    """Find the best row of a group that has bounds, and return its total; ``UNKNOWN`` where it has none."""
    if columns.rows_count[0] <= bounds.scanned_max[0]:
        return UNKNOWN
    if has_upper_bounds(groups, g) and not has_counts(groups, g):
        return search(columns, groups, bounds, changes, placed, g, attempt, wanted, scratch)
    if has_whole_bounds(groups, g):
        return search_whole(columns, groups, counters, bounds, changes, placed, g, attempt, wanted, scratch)
    return UNKNOWN


@unit
def explain_failure(
    columns: Columns,
    groups: Groups,
    counters: Counters,
    placed: Placed,
    g: int,
    attempt: int,
    has_histogram: bool,
    scratch: Scratch,
) -> None:
    """Note that a pod of an attempt found no node, and of the first such pod why."""
    placed.exhausted[attempt] = 1
    placed.version[attempt] = version_of(groups, counters, g)
    if placed.reason_code[attempt, 1, 0] < 0:
        if not has_histogram:
            count_codes(columns, groups, counters, g, scratch.histogram)
        write_rules(groups, counters, placed, g, attempt, 1)
        write_failure(columns, groups, counters, placed, g, attempt, scratch)


@unit
def place(
    columns: Columns,
    groups: Groups,
    bounds: Bounds,
    changes: ChangeLog,
    counters: Counters,
    effects: Effects,
    sequence: Ints,
    placed: Placed,
    scratch: Scratch,
) -> None:
    """Place pods in order, each on the best row as its predecessors left it.

    Parameters
    ----------
    columns, groups, bounds, changes, counters, effects
        ``columns.requested``, slots, counters and change log, which has room for P more rows, are written.
    sequence : int32[P], slots
    placed : Placed
        The output: a row and a score per pod, an explanation per group, and where a pod that stops ended it.
    scratch : Scratch
        Memory. Of its content only ``uses`` matters: how often each slot is in the sequence.

    Cost per pod: O(log N) in a row of one group's; in turns O(N / SPAN) and a few blocks, or O(N).
    """
    uses = scratch.uses
    for i in range(len(sequence)):
        g = sequence[i]
        uses[g] -= 1
        attempt = placed.attempt_of[g]
        if attempt >= 0 and placed.exhausted[attempt]:
            # Placing takes room away, and opens some only by what it counts for a rule.
            if placed.version[attempt] == version_of(groups, counters, g):
                placed.row[i] = -1
                continue
            placed.exhausted[attempt] = 0
        is_first = attempt < 0
        if is_first:
            attempt = placed.attempts_count[0]
        wanted = TOP if is_first else 1
        left = len(sequence) - i
        has_tree = _prefers_tree(columns, groups, bounds, changes, g, uses[g] + 1, left) and take_tree(
            groups, g, uses
        )
        if has_tree:
            score = _find_in_tree(columns, groups, changes, placed, g, attempt, is_first, scratch)
        else:
            score = _find_by_bounds(
                columns, groups, counters, bounds, changes, placed, g, attempt, wanted, scratch
            )  # fmt: skip
        if score == UNKNOWN:
            score = scan(columns, groups, counters, bounds, changes, placed, g, attempt, wanted, scratch)
        if is_first:
            placed.attempts_count[0] += 1
            placed.attempt_of[g] = attempt
        if score == INFEASIBLE:
            placed.row[i] = -1
            explain_failure(
                columns, groups, counters, placed, g, attempt, is_first and not has_tree, scratch
            )  # fmt: skip
            if placed.stops[g] != 0:
                placed.done[0] = i + 1
                break
            continue
        placed.row[i] = scratch.row[0]
        placed.score[i] = score
        placed.devices[i] = count_pod(columns, groups, changes, counters, effects, g, scratch.row[0])
        record_placement(columns, groups, bounds, changes, g, scratch.row[0])


@unit
def could_fit(
    columns: Columns,
    rows: Rows,
    demand_count: Ints,
    demand_column: IntLists,
    demand_value: RowLists,
    out: Flags,
) -> None:
    """Say for each waiting group whether any of some rows has room for one of its pods.

    Parameters
    ----------
    columns : Columns
        The snapshot.
    rows : int64[K]
        Rows that gained room or changed their spec.
    demand_count : int32[W]
        Number of demands of each group.
    demand_column : int32[W, DEMANDS_MAX]
        Resource column of each demand.
    demand_value : int64[W, DEMANDS_MAX]
        What must be free, in the column's unit.
    out : uint8[W]
        Written: 1 where a row has room.

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
