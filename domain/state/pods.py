"""Pods in memory: one entry per pod, in one of three states.

::

    (event)        ┌────────────┐  assumed by a cycle   ┌─────────┐  finished, deleted
    ────────────►  │  waiting   │ ────────────────────► │ placed  │ ───────────────────► gone (tombstone)
                   └────────────┘                       └─────────┘
                         │   the log says it is bound        ▲
                         └───────────────────────────────────┘

A placement is assumed the moment a cycle makes it and confirmed when the ledger's transaction commits; if it
does not commit, the whole state is forgotten and read again from the ledger, so that every placement counts
exactly once.
"""

from __future__ import annotations

from domain.model.pods import PodSpec


class PodEntry:
    """A pod that exists: where it counts (``node`` "" while it waits) and its order of arrival.

    ``shard`` and ``since_ms`` (log time at which it began to wait) belong to whoever commits decisions.
    """

    __slots__ = ("adopted", "arrival", "node", "shard", "since_ms", "spec")

    def __init__(self, spec: PodSpec, *, node: str = "", adopted: bool = False, arrival: int = 0) -> None:
        self.spec = spec
        self.node = node
        self.adopted = adopted
        self.arrival = arrival
        self.shard = 0
        self.since_ms = 0


class Tombstone:
    """What is remembered of a pod that is gone."""

    __slots__ = ("resource_version", "uid")

    def __init__(self, uid: str, resource_version: int) -> None:
        self.uid = uid
        self.resource_version = resource_version
