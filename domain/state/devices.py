"""The devices of nodes in the table: what is taken of each, and two sums by which a pod fits or does not.

What a pod takes of its devices is added to columns of their own, as all that it asks for. How many devices
are in use (``BUSY``), and what is taken of the emptiest (``SHARED``), are no sums over pods: they are derived
from these columns whenever they change. ``kernels/devices.py`` does the same for a row.
"""

from __future__ import annotations

import msgspec
import numpy as np

from domain.model.devices import BUSY, DEVICE_ONE, GPU, SHARED, Ask, asked
from domain.model.pods import PodSpec
from domain.state.resources import NOWHERE, ResourceIndex

NO_DEVICE = np.iinfo(np.int64).min
"""Stands for what is free on a device that there is not."""


def free_milli(
    allocatable: np.ndarray, requested: np.ndarray, resources: ResourceIndex, rows: np.ndarray
) -> np.ndarray:
    """Return int64[len(rows), devices_per_node_max]: thousandths free, ``NO_DEVICE`` where there is none.

    ``allocatable`` and ``requested`` int64[R, N] are a table's. Where more is taken than there is, what is
    free is negative.
    """
    columns = resources.device_columns[:, None]
    offered = allocatable[columns, rows[None, :]]
    free: np.ndarray = np.where(offered > 0, offered - requested[columns, rows[None, :]], NO_DEVICE).T
    return free


def rows_told_apart(allocatable: np.ndarray, resources: ResourceIndex, rows: np.ndarray) -> np.ndarray:
    """Return bool[len(rows)]: whether devices are told apart on a row. It has a first one then."""
    found: np.ndarray = allocatable[resources.device_columns[0], rows] > 0
    return found


def derive(
    allocatable: np.ndarray, requested: np.ndarray, resources: ResourceIndex, rows: np.ndarray
) -> None:
    """Write what follows from the devices of some rows; where they are not told apart, from their number."""
    busy_column, shared_column = resources.column(BUSY), resources.column(SHARED)
    if busy_column == NOWHERE:
        return
    free = free_milli(allocatable, requested, resources, rows)
    most = free.max(axis=1)
    has_devices = most != NO_DEVICE
    busy = ((free != NO_DEVICE) & (free < DEVICE_ONE)).sum(axis=1)
    requested[busy_column, rows] = np.where(has_devices, busy, requested[resources.column(GPU), rows])
    if shared_column != NOWHERE:
        requested[shared_column, rows] = np.where(has_devices, DEVICE_ONE - most, 0)


def kept_free(ask: Ask, resources: ResourceIndex) -> tuple[list[int], list[int]]:
    """Return what a nomination keeps free of devices beside the sums of its pod, as columns and values.

    Which devices the pod will get is not known before its victims have left. So a share is kept free on the
    emptiest device, and that device from pods that want it whole; whole devices are kept from all shares.
    """
    is_whole = ask.milli == DEVICE_ONE
    kept = [(BUSY, 0 if is_whole else ask.number), (SHARED, ask.milli)]
    there = [
        (column, value) for name, value in kept if value and (column := resources.column(name)) != NOWHERE
    ]
    return [column for column, _ in there], [value for _, value in there]


def with_known_devices(pod: PodSpec, known: PodSpec) -> PodSpec:
    """Return a placed pod with the devices that it is known to have, unless it asks for others now."""
    same = asked(pod.template.requests) == asked(known.template.requests)
    return msgspec.structs.replace(pod, devices=known.devices) if same else pod
