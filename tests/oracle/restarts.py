"""A scheduler that starts anew from what the ledger would hold of another one's state."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from domain.cycle.schedule import Scheduler
from domain.model.profiles import Profile


def restarted(old: Scheduler, profiles: Mapping[str, Profile]) -> Scheduler:
    """Return a scheduler made from what the ledger would hold of another one's state."""
    new, state = Scheduler(profiles, seed=old.seed), old.state
    known = [(name, entry) for name, entry in state.nodes.items() if entry.spec is not None]
    for name, entry in sorted(known, key=lambda item: item[1].ordinal):
        assert entry.spec is not None
        spec = msgspec.structs.replace(entry.spec, resource_version=entry.resource_version)
        new.state.restore_node(
            name=name, ordinal=entry.ordinal, version=entry.version, spec=spec, deleted=entry.deleted
        )
    for thing in state.config.known.values():
        new.state.restore_config(thing)
    placed = sorted((key, pod) for key, pod in state.pods.items() if pod.node)
    for _, pod in placed:
        spec_of_pod = msgspec.structs.replace(pod.spec, node_name=pod.node if pod.adopted else "")
        new.state.restore_pod(spec_of_pod, node=pod.node, adopted=pod.adopted)
    for pod in sorted((pod for pod in state.pods.values() if not pod.node), key=lambda pod: pod.arrival):
        new.restore_pod(pod.spec, arrival=pod.arrival)
    new.state.tombstones = state.tombstones
    return new
