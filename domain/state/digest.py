"""One hash of everything that decides what happens next."""

from __future__ import annotations

from domain.state.cluster import ClusterState
from domain.state.versions import digest


def digest_of(state: ClusterState) -> str:
    """Return a hash of everything that decides what happens next; equal states have equal digests."""
    nodes = {name: entry for name, entry in sorted(state.nodes.items()) if entry.spec is not None}
    return digest(
        nodes={name: (e.ordinal, e.deleted, e.spec, state.requested_of(name)) for name, e in nodes.items()},
        recent={name: sorted(entry.recent or ()) for name, entry in nodes.items()},
        pods={key: entry.known() for key, entry in sorted(state.pods.items())},
        gone={" ".join(which): version for which, version in sorted(state.tombstones.items())},
        usage=state.usage.known(),
        config={"/".join(key): each for key, each in sorted(state.config.known.items())},
    )
