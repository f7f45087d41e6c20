"""Devices of a row while some of its pods are taken away on trial: what a pod can have of them then.

How many devices are in use, and what is taken of the emptiest, are no sums over pods: they follow from what
is taken of each device (``domain.state.devices``). What nominations hold of them comes on top.
"""

from __future__ import annotations

from domain.kernels.compiling import helper
from domain.kernels.devices import busy_count, emptiest
from domain.model.devices import DEVICE_ONE


@helper
def hold_nominated(columns, asked, row, plans):  # type: ignore[no-untyped-def]
    """Find what nominations hold of the devices of a row, beside all pods on it.

    Read: ``plans.used``, as of ``columns.requested`` less what is gone. Written: ``plans.nominated``.
    """
    if columns.allocatable[columns.devices[0], row] > 0:
        for j in range(len(asked.derived_at)):
            if asked.derived_at[j] >= 0:
                of_pods = busy_count(columns, row) if j == 0 else DEVICE_ONE - emptiest(columns, row)
                plans.nominated[j] = plans.used[asked.derived_at[j]] - of_pods


@helper
def derive_devices(columns, asked, row, plans):  # type: ignore[no-untyped-def]
    """Write into ``plans.used`` what follows from what it says of each device, and from the nominations.

    A row that does not tell its devices apart has a sum over its pods there already.
    """
    if columns.allocatable[columns.devices[0], row] > 0:
        busy = 0
        most = -(1 << 62)
        for d in range(len(asked.device_at)):
            at = asked.device_at[d]
            offered = columns.allocatable[asked.column[at], row]
            if offered > 0:
                busy += plans.used[at] > 0
                most = max(most, offered - plans.used[at])
        if asked.derived_at[0] >= 0:
            plans.used[asked.derived_at[0]] = plans.nominated[0] + busy
        if asked.derived_at[1] >= 0:
            plans.used[asked.derived_at[1]] = plans.nominated[1] + DEVICE_ONE - most
