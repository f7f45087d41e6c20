"""Workloads of which berth says how many replicas there should be: their pods, and what was said last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from domain.model.config import ConfigObject
from domain.model.hosting import HostedChange, HostedReplicas, ReplicasSaid, WorkloadKey, controlled_by
from domain.model.pods import PodSpec
from domain.state.pods import PodEntry


class Hosted:
    """The objects in force, the pods of their workloads, and what workers said of them.

    Attributes
    ----------
    objects : dict
        Namespace and name of an object -> what it says.
    said : dict
        The same -> what was said of it last, in all batches that are folded.
    waits : dict
        Shard and workload -> log time since when a pod of it waits there, as the owner of the shard said.
    seq_next : int
        The number of the next change of what is wanted.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], HostedReplicas] = {}
        self.said: dict[tuple[str, str], ReplicasSaid] = {}
        self.waits: dict[tuple[int, WorkloadKey], int] = {}
        self.seq_next = 1
        self._pods: dict[WorkloadKey, dict[str, None]] = {}
        self._unknown: set[WorkloadKey] = set()  # workloads whose pods were not looked for yet

    @property
    def workloads(self) -> Iterable[WorkloadKey]:
        """The workloads that any object names, once each."""
        return self._pods.keys()

    def put(self, thing: ConfigObject) -> None:
        """Let an object be in force, or no longer."""
        at = thing.namespace, thing.name
        self.objects.pop(at, None)
        if thing.content is not None:
            assert isinstance(thing.content, HostedReplicas)
            self.objects[at] = thing.content
        named = {workload_of(namespace, each) for (namespace, _), each in self.objects.items()}
        for workload in self._pods.keys() - named:
            del self._pods[workload]
        self._unknown = (self._unknown & named) | (named - self._pods.keys())
        self._pods |= {workload: {} for workload in sorted(named - self._pods.keys())}

    def find_pods(self, pods: Iterable[PodEntry]) -> None:
        """Look for the pods of workloads that were not named before. Cost: O(pods) where there are such."""
        if self._unknown:
            for entry in pods:
                self.add_pod(entry.spec)
            self._unknown.clear()

    def add_pod(self, pod: PodSpec) -> None:
        """Take a pod, whichever object controls it."""
        if self._pods and (members := self._members(pod)) is not None:
            members[pod.key] = None

    def forget_pod(self, pod: PodSpec) -> None:
        """Forget a pod."""
        if self._pods and (members := self._members(pod)) is not None:
            members.pop(pod.key, None)

    def _members(self, pod: PodSpec) -> dict[str, None] | None:
        workload = controlled_by(pod)
        return None if workload is None else self._pods.get(workload)

    def pods_of(self, workload: WorkloadKey, pods: Mapping[str, PodEntry]) -> list[PodEntry]:
        """Return the pods of a workload that are not about to end. Cost: O(its pods)."""
        entries = (pods[key] for key in self._pods.get(workload, ()))
        return [entry for entry in entries if not entry.spec.terminating]

    def apply_change(self, change: HostedChange, seq: int) -> None:
        """Take what was said; ``seq`` is the last number that was given, where that is known."""
        self.seq_next = max(self.seq_next, seq + 1)
        for said in change.said:
            self.said[said.namespace, said.name] = said
            self.seq_next = max(self.seq_next, said.seq + 1)
        for at in change.gone:
            self.said.pop(at, None)
        for wait in change.waits:
            if wait.since_ms:
                self.waits[wait.shard, wait.key] = wait.since_ms
            else:
                self.waits.pop((wait.shard, wait.key), None)


def workload_of(namespace: str, hosted: HostedReplicas) -> WorkloadKey:
    """Return the workload that an object in a namespace names."""
    return WorkloadKey(namespace, hosted.kind, hosted.workload)
