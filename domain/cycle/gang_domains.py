"""The domains of a topology key in one of which all pods of a gang are to be, most room first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from domain.engine.homes import Domain
from domain.model.resources import PODS
from domain.queue.groups import Gang, Tried
from domain.state.cluster import ClusterState
from domain.state.keyed_values import ABSENT
from domain.state.resources import NOWHERE
from domain.state.snapshot import Snapshot

_SHARE_ONE = 1 << 20


def domains_of(
    gang: Gang,
    members: Sequence[Tried],
    state: ClusterState,
    snapshot: Snapshot,
    freed: np.ndarray | None = None,
) -> list[Domain]:
    """Return the domains that could hold the gang, as far as what is free in all of each tells.

    What is ``freed`` int64[R, N], if given, lets a domain hold it, too.

    A domain with more room, as of the resource of which it has least, comes first, then by value. Where pods
    of the gang have a node in a domain, the others go there.

    Cost: O(nodes) for each resource that a member asks for, O(members log members).
    """
    assert gang.spec is not None
    key, table = gang.spec.topology_key, state.table
    column, count = table.labels.column(key), int(snapshot.columns.rows_count[0])
    if column is None or not count:
        return []
    ids, of_row = np.unique(column[:count], return_inverse=True)
    there = {table.specs[table.rows[e.node]].labels.get(key) for e in gang.placed if e.node in table.rows}
    room = np.full(len(ids), np.iinfo(np.int64).max)
    for name, needed in _least(gang, members).items():
        free = np.zeros(len(ids), dtype=np.int64)
        could = np.zeros(len(ids), dtype=np.int64)
        if (at := state.resources.column(name)) != NOWHERE:
            columns = snapshot.columns
            left = columns.allocatable[at, :count] - columns.requested[at, :count]
            np.add.at(free, of_row, np.maximum(left, 0))
            np.add.at(could, of_row, np.maximum(left if freed is None else left + freed[at, :count], 0))
        room = np.minimum(
            room, np.where(could < needed, -1, (free / max(needed, 1) * _SHARE_ONE).astype(np.int64))
        )
    found = [
        (-share, table.labels.values.text(value))
        for value, share in zip(ids.tolist(), room.tolist(), strict=True)
        if value != ABSENT and share >= 0
    ]
    there.discard(None)
    return [Domain(key, value) for _, value in sorted(found) if not there or value in there]


def _least(gang: Gang, members: Sequence[Tried]) -> dict[str, int]:
    """Return what as many members as must find a node ask for at least."""
    count = max(gang.lacking_count, 0)
    requests = [group.template.requests for _, group in members]
    names = sorted(set().union(*requests))
    asked = {name: sum(sorted(each.get(name, 0) for each in requests)[:count]) for name in names}
    return {**asked, PODS: count}
