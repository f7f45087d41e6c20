"""Pods that are nominated for a node: each is tried there, alone, before all others."""

from __future__ import annotations

from domain.kernels.arrays import Bounds, ChangeLog, Columns, Counters, Effects, Groups
from domain.kernels.blocks import record_placement
from domain.kernels.compiling import unit
from domain.kernels.counting import rule_code, set_rules
from domain.kernels.filtering import filter_row
from domain.kernels.placing import count_pod
from domain.kernels.tables import Flags, Ints


@unit
def place_nominated(
    columns: Columns,
    groups: Groups,
    bounds: Bounds,
    changes: ChangeLog,
    counters: Counters,
    effects: Effects,
    sequence: Ints,
    rows: Ints,
    placed: Flags,
    devices: Ints,
) -> None:
    """Place each pod on its own row where every filter lets it, in order, without a score.

    Parameters
    ----------
    columns, groups, bounds, changes, counters, effects
        As of ``placing.place``. What is kept free for these pods is not in ``columns.requested``.
    sequence : int32[P]
        Slot of each pod.
    rows : int32[P]
        Row of the node for which it is nominated.
    placed : uint8[P]
        Written: 1 where the pod was placed.
    devices : int32[P]
        Written: its devices, as bits.

    Cost: O(filters) per pod.
    """
    for i in range(len(sequence)):
        g = sequence[i]
        set_rules(groups, counters, g)
        placed[i] = rule_code(groups, counters, g, rows[i], filter_row(columns, groups, g, rows[i])) == 0
        if placed[i] != 0:
            devices[i] = count_pod(columns, groups, changes, counters, effects, g, rows[i])
            record_placement(columns, groups, bounds, changes, g, rows[i])
