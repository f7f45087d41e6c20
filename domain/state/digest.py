"""Hashes of everything that decides what happens next."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import numpy as np

from domain.state.cluster import ClusterState
from domain.state.resources import RECENT_FIXED, RECENT_SILENT

_encode = msgspec.json.Encoder(order="deterministic").encode


def digest_of(state: ClusterState) -> str:
    """Return a hash of everything that decides what happens next; equal states have equal digests.

    Cost: about 5 µs per pod.
    """
    nodes = {name: entry for name, entry in sorted(state.nodes.items()) if entry.spec is not None}
    parts = dict[str, object](
        nodes={name: (e.ordinal, e.deleted, e.spec, state.requested_of(name)) for name, e in nodes.items()},
        recent={name: sorted(entry.recent or ()) for name, entry in nodes.items()},
        pods={key: entry.known() for key, entry in sorted(state.pods.items())},
        gone=dict(state.tombstones.known()),
        uncounted=dict(sorted(state.uncounted.items())),
        orphaned=dict.fromkeys(sorted(state.orphaned)),
        usage=state.usage.known(),
        config={"/".join(key): each for key, each in sorted(state.config.known.items())},
        **_nominated(state),
        **_moving(state),
    )
    return hashlib.blake2b(_encode(parts), digest_size=16).hexdigest()


def _nominated(state: ClusterState) -> dict[str, Any]:
    """Return the nominations, and what is left of their victims; nothing where there are none."""
    known = state.nominations
    if not known.entries:
        return {}
    open_ = {key: (e.uid, e.node, e.expires_ms) for key, e in sorted(known.entries.items())}
    return {"nominations": open_, "evicted": dict(sorted(known.evicted.items()))}


def _moving(state: ClusterState) -> dict[str, Any]:
    """Return the reliefs, and the moves that are under way; nothing where there are none."""
    known = state.moves
    if not known.reliefs:
        return {}
    reliefs = {n: (r.shard, r.expires_ms, r.rests_until_ms) for n, r in sorted(known.reliefs.items())}
    return {"reliefs": reliefs, "moves": dict(sorted(known.under_way.items()))}


def sums_digest(state: ClusterState) -> str:
    """Return a hash of the same that costs nothing per pod; equal states have equal digests.

    Of nodes it has all that is counted: versions, what they offer, what their pods request. Of pods, of
    those that are gone and of usage it has how many there are. It does not see which of two equal pods is
    where. Cost: about 1 µs per node.
    """
    table = state.table
    rows = np.argsort(table.ordinal[: table.count])
    hashed = hashlib.sha256()
    columns = {name: column for column, name in state.resources.visible()}
    hashed.update(_encode(sorted(columns)))
    for column in (*(columns[name] for name in sorted(columns)), *range(RECENT_FIXED, RECENT_SILENT + 1)):
        hashed.update(table.requested[column, rows].tobytes())
        hashed.update(table.allocatable[column, rows].tobytes())
    nodes = [
        (e.ordinal, e.version, e.deleted, len(e.pods)) for e in state.nodes.values() if e.spec is not None
    ]
    hashed.update(np.array(sorted(nodes), dtype=np.int64).tobytes())
    measured = sorted((node, window.at_ms) for node, window in state.usage.windows.items())
    counts = [len(state.pods), len(state.tombstones), len(state.nodes)]
    told = [*_nominated(state).values(), *_moving(state).values()]
    hashed.update(_encode([counts, measured, sorted(state.config.known.items()), *told]))
    return hashed.hexdigest()[:32]
