"""What a worker says of hosted workloads: how long their pods wait, and how many of them there should be."""

from __future__ import annotations

from collections.abc import Mapping

from domain.cycle.schedule import Scheduler
from domain.model.hosting import HostedChange, WaitSaid, WorkloadKey
from domain.model.limits import timed_step_ms
from domain.state.steps import HostedSaid
from services.codec.encode import encode_scale
from services.ports.ledger import LedgerBase, LedgerPart, Scale
from services.worker.ledger_view import LedgerView


class HostedRows:
    """Looks at hosted workloads once a second of log time, at most; steps say when to decide.

    Each worker says of its own shards since when pods wait, as soon as that is another moment. The owner of
    the shard of usage says how many replicas there should be.
    """

    def __init__(self, scheduler: Scheduler, ledger_view: LedgerView, base: LedgerBase) -> None:
        self._scheduler, self._ledger_view = scheduler, ledger_view
        self._looked_ms = -1
        scheduler.fold(HostedSaid(HostedChange(list(base.replicas), [], list(base.waits))))
        scheduler.hosting.pass_to(base.log_time_ms)

    def resume_from(self, part: LedgerPart, now_ms: int) -> None:
        """Go on with the numbers of the ledger; steps that ended before are not made up for."""
        self._scheduler.fold(HostedSaid(HostedChange(), part.scale_seq))
        self.look_again(now_ms)

    def look_again(self, now_ms: int) -> None:
        """Look again with the next cycle, as behind a restart."""
        self._scheduler.hosting.pass_to(now_ms)
        self._looked_ms = -1

    def look(self, now_ms: int) -> tuple[HostedChange, list[Scale]]:
        """Return what is new behind a cycle, and what of it is to be published. It counts as said now.

        Cost: O(pods of hosted workloads) once a second of log time, and what it costs to decide once a step.
        """
        hosting, hosted = self._scheduler.hosting, self._scheduler.state.hosted
        is_time, second_ms = hosting.pass_to(now_ms), now_ms - now_ms % timed_step_ms
        is_seen = second_ms == self._looked_ms and not is_time
        if is_seen or not (hosted.objects or hosted.said or hosted.waits):
            return HostedChange(), []
        self._looked_ms = second_ms
        own = self._own_waits()
        waits = _news(own, hosted.waits, self._ledger_view.epochs)
        change = HostedChange(waits=waits)
        self._scheduler.fold(HostedSaid(change))
        seq_next = hosted.seq_next
        if is_time:
            oldest: dict[WorkloadKey, int] = {}
            for (_, workload), since_ms in hosted.waits.items():
                oldest[workload] = min(since_ms, oldest.get(workload, since_ms))
            found = self._scheduler.decide_replicas(now_ms, oldest)
            change = HostedChange(found.said, found.gone, waits)
            self._scheduler.fold(HostedSaid(HostedChange(found.said, found.gone)))
        return change, [
            Scale(said.seq, said.namespace, said.name, said.at_ms, encode_scale(said))
            for said in change.said
            if said.seq >= seq_next
        ]

    def _own_waits(self) -> dict[tuple[int, WorkloadKey], int]:
        """Return by shard and workload since when the pod of own shards waits that has waited longest."""
        state, since = self._scheduler.state, self._ledger_view.waits
        found: dict[tuple[int, WorkloadKey], int] = {}
        for workload in state.hosted.workloads:
            for pod in state.hosted.pods_of(workload, state.pods):
                if not pod.node and pod.spec.key in since:
                    at, since_ms = (pod.shard, workload), since[pod.spec.key][0]
                    found[at] = min(since_ms, found.get(at, since_ms))
        return found


def _news(
    own: Mapping[tuple[int, WorkloadKey], int],
    said: Mapping[tuple[int, WorkloadKey], int],
    shards: Mapping[int, int],
) -> list[WaitSaid]:
    """Return what is another moment than was said of these shards, in one fixed order."""
    known = {at: since_ms for at, since_ms in said.items() if at[0] in shards}
    return [
        WaitSaid(shard, *workload, own.get((shard, workload), 0))
        for shard, workload in sorted(own.keys() | known.keys())
        if own.get((shard, workload)) != known.get((shard, workload))
    ]
