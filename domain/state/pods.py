"""Pods in memory: one entry per pod, in one of three states.

::

    (event)        ┌────────────┐  assumed by a cycle   ┌─────────┐  finished, deleted
    ────────────►  │  waiting   │ ────────────────────► │ placed  │ ───────────────────► gone (tombstone)
                   └────────────┘                       └─────────┘
                         │   the log says it is bound        ▲
                         └───────────────────────────────────┘

A placement is assumed the moment a cycle makes it, and confirmed when the ledger's transaction commits. If
that fails, the whole state is dropped and read again from the ledger, so that every placement counts exactly
once.
"""

from __future__ import annotations

import datetime
from functools import lru_cache

import msgspec

from domain.model.pods import PodSpec
from domain.model.timestamps import to_ms
from domain.state.pod_classes import PodClass


class PodEntry(msgspec.Struct, eq=False, gc=False):
    """A pod that exists: the node on which it counts ("" while it waits), and its order of arrival.

    ``arrival`` is 0 for a placed pod, as after a restart. ``shard`` is the one that decides on it.
    ``placed_ms`` is the log time of its placement; 0: not known, as of one that no batch has written yet.
    ``pod_class`` is None where no other pod can ask for the pod. Entries refer to no other entries, so the
    garbage collector has nothing to look for in a million of them.
    """

    spec: PodSpec
    node: str = ""
    adopted: bool = False
    arrival: int = 0
    shard: int = 0
    pod_class: PodClass | None = None
    placed_ms: int = 0

    def known(self) -> tuple[object, ...]:
        """Return what must be equal in equal states."""
        spec = self.spec
        of = spec.uid, spec.resource_version, spec.labels, spec.signature, self.node, self.adopted
        return (*of, self.placed_ms if self.node else 0)


def started_ms(pod: PodEntry) -> int:
    """Return when a pod started: before its ``status.startTime`` is known, when it was placed, or 0."""
    return _moment_ms(pod.spec.start_time) if pod.spec.start_time else pod.placed_ms


@lru_cache(maxsize=1 << 16)
def _moment_ms(text: str) -> int:
    return to_ms(datetime.datetime.fromisoformat(text))
