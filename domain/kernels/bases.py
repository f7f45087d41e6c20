"""Bases: what groups with rules or values share of each row, kept between their pods.

The demands, limits and scores of a row that do not depend on what pods count are the same for all groups that
ask for the same of it, such as deployments with one request and a selector each. A base holds them for all
rows. As a tournament tree does, it learns from the change log which rows to look at again.
"""

from __future__ import annotations

from domain.kernels.arrays import BLOCK, ChangeLog, Columns, Groups, Scratch
from domain.kernels.compiling import helper, unit
from domain.kernels.filtering import filter_row, fit_block
from domain.kernels.scoring import add_scores, first_counted, set_static

_RENEWED_SHARE = 16
"""Look at all rows again when more than 1 in 16 changed since the last use: a row by itself costs more."""


@helper
def has_base(groups, g):  # type: ignore[no-untyped-def]
    """Say whether a group has a base, and all that is in it depends on the row alone."""
    return groups.base_of[g] >= 0 and groups.raws_varying[groups.static_part[g]] == 0


@helper
def _copy_flags(source, target):  # type: ignore[no-untyped-def]
    for i in range(len(source)):
        target[i] = source[i]


@helper
def _score(columns, groups, g, first, fits, total, scratch):  # type: ignore[no-untyped-def]
    """Write the totals of rows, int64[n], by the scores that do not depend on counts or variances."""
    set_static(groups, g, first, total)
    add_scores(columns, groups, g, 0, first_counted(groups, g), first, fits, total, scratch)


@unit
def sync_base(columns: Columns, groups: Groups, changes: ChangeLog, g: int, scratch: Scratch) -> None:
    """Bring a group's base up to date with the change log.

    Cost: O(rows changed), or O(N) where these are many.
    """
    b = groups.base_of[g]
    known = groups.bases.synced[b]
    length = changes.length[0]
    count = columns.rows_count[0]
    base_fits = groups.bases.fits[b]
    base_total = groups.bases.total[b]
    if known < 0 or (length - known) * _RENEWED_SHARE > count:
        for first in range(0, count, BLOCK):
            end = min(first + BLOCK, count)
            fit_block(columns, groups, g, first, end - first, scratch)
            fits = scratch.fits[: end - first]
            _copy_flags(fits, base_fits[first:end])
            _score(columns, groups, g, first, fits, base_total[first:end], scratch)
    else:
        for i in range(known, length):
            row = changes.rows[i]
            base_fits[row] = filter_row(columns, groups, g, row) == 0
            _score(columns, groups, g, row, scratch.one_fits, base_total[row : row + 1], scratch)
    groups.bases.synced[b] = length
