"""All units, in the order in which an installation needs them."""

from __future__ import annotations

from collections.abc import Iterable

from domain.kernels import (
    bases,
    branch_and_bound,
    counted_bounds,
    counting,
    devices,
    evaluating,
    explain,
    nominated,
    placing,
    preempting,
    row_bounds,
    scanning,
    scoring,
    terms,
    tournament,
    variance,
    whole_bounds,
)
from domain.kernels.compiling import Unit

FIRST: tuple[Unit, ...] = (
    whole_bounds.search_whole,
    row_bounds.sync_row_bounds,
    scoring.rate_block,
    placing.place,
    scanning.scan,
    branch_and_bound.sync_base,
    tournament.sync,
    placing.explain_failure,
    explain.write_parts,
    evaluating.evaluate,
    placing.could_fit,
)
"""What plain pods and their plans need under the default profile, the longest first."""

LATER: tuple[Unit, ...] = (
    counted_bounds.add_counts,
    counting.set_counted,
    preempting.nominate,
    preempting.plan_victims,
    preempting.rule_out,
    preempting.sum_below,
    nominated.place_nominated,
    devices.free_devices,
    branch_and_bound.search,
    bases.sync_base,
    variance.grow_variances,
    terms.rate_other_term,
)
"""What other pods and profiles need: rules over pods, preemption, then scores in real numbers."""

UNITS = FIRST + LATER

PLANNING: tuple[Unit, ...] = (
    scanning.scan,
    scoring.rate_block,
    placing.place,
    placing.explain_failure,
    evaluating.evaluate,
    preempting.plan_victims,
    explain.write_parts,
    preempting.rule_out,
    preempting.sum_below,
)
"""What a plan of a few nodes needs under the default profile, the longest first."""


def prepare_all(units: Iterable[Unit] = UNITS) -> None:
    """Read kernels from disk, or compile those that are not there, so that no call has to."""
    for each in units:
        each.prepare()
