"""Gangs in memory: their PodGroups, with what waits and what is placed of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from domain.model.config import POD_GROUP, gang_object
from services.adapters.memory.database import MemoryDatabase
from services.ports.store import GangState

Name = tuple[str, str]
"""Namespace and name of a PodGroup."""


def gangs_of(database: MemoryDatabase, sees: Callable[[str], bool]) -> Iterator[GangState]:
    """Yield the gangs of the namespaces that are seen, as ``Store.gangs`` has them."""
    waiting: dict[Name, list[tuple[int, int, bytes]]] = {}
    for pod in database.pending.values():
        if pod.gang is not None:
            waiting.setdefault((pod.namespace, pod.gang), []).append((pod.since_ms, pod.shard, pod.signature))
    placed: dict[Name, int] = {}
    for row in database.open_placements.values():
        if row.opened.gang is not None:
            of = row.opened.namespace, row.opened.gang
            placed[of] = placed.get(of, 0) + 1
    objects = {
        (row.kind, row.namespace, row.name): row.object
        for row in database.config_objects.values()
        if row.object is not None
    }
    groups = {(namespace, name) for kind, namespace, name in objects if kind == POD_GROUP}
    for name in sorted(groups | waiting.keys()):
        if sees(name[0]):
            tried = {(shard, signature) for _, shard, signature in waiting.get(name, ())}
            known = [why for each in tried if (why := database.pending_groups.get(each))]
            why = min(known, key=lambda each: (each.unresolvable, -each.at_ms, each.signature), default=None)
            kind, named = gang_object(name[1])
            yield GangState(
                *name,
                object=objects.get((kind, name[0], named)),
                placed_count=placed.get(name, 0),
                waiting_count=len(waiting.get(name, ())),
                since_ms=min((since_ms for since_ms, _, _ in waiting.get(name, ())), default=None),
                reasons=None if why is None else why.reasons,
                at_ms=None if why is None else why.at_ms,
                shard=None if why is None else why.shard,
                cycle_seq=None if why is None else why.cycle_seq,
            )
