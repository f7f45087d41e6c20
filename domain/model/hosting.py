"""Hosted replicas: workloads of which berth says how many replicas there should be, and what it said last."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from domain.model.pods import PodSpec


class WorkloadKey(NamedTuple):
    """What controls pods: its namespace, its kind (one of ``CONTROLLERS``) and its name."""

    namespace: str
    kind: str
    name: str


def controlled_by(pod: PodSpec) -> WorkloadKey | None:
    """Return the workload of a pod; None where no object of a known kind controls it."""
    by = pod.controller
    return None if by is None else WorkloadKey(pod.namespace, by.kind, by.name)


class HostedReplicas(msgspec.Struct, frozen=True, kw_only=True):
    """A berth/v1 HostedReplicas: of the pods of a workload there should be ``least`` to ``most``.

    ``kind`` and ``workload`` name what controls the pods, in the namespace of the object.
    """

    kind: str
    workload: str
    least: int
    most: int


class ReplicasSaid(msgspec.Struct, frozen=True, kw_only=True):
    """What was said last of an object: so many replicas are wanted, and why.

    Attributes
    ----------
    namespace, name : str
        Of the object.
    kind, workload, least, most
        As the object had them; see ``HostedReplicas``.
    wanted, running : int
        How many pods there should be, and how many had a node.
    waiting_since_ms : int or None
        Log time since when the pod waits that has waited longest; None: none waits.
    load_percent : float or None
        See ``domain.colocation.replicas.Observed``.
    reason : str
        Why, for people.
    at_ms : int
        Log time at which this was said.
    seq : int
        Counts the changes of what is wanted, of all objects together, from 1: that of the last one.
    """

    namespace: str
    name: str
    kind: str
    workload: str
    least: int
    most: int
    wanted: int
    running: int
    waiting_since_ms: int | None
    load_percent: float | None
    reason: str
    at_ms: int
    seq: int


class WaitSaid(NamedTuple):
    """Since when (log time) the pod of a workload waits that has waited longest in a shard; 0: none waits."""

    shard: int
    namespace: str
    kind: str
    workload: str
    since_ms: int

    @property
    def key(self) -> WorkloadKey:
        """The workload."""
        return WorkloadKey(self.namespace, self.kind, self.workload)


class HostedChange(msgspec.Struct, frozen=True, array_like=True):
    """What a batch says of hosted workloads that is new.

    ``said`` is by the owner of the shard of usage, ``gone`` are namespace and name of objects that are no
    more. ``waits`` says each worker of its own shards, one per shard and workload at most.
    """

    said: list[ReplicasSaid] = []
    gone: list[tuple[str, str]] = []
    waits: list[WaitSaid] = []

    @property
    def has_any(self) -> bool:
        """Whether anything is new."""
        return bool(self.said or self.gone or self.waits)
