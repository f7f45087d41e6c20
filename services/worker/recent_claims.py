"""What the last two batches claimed, of which the ledger may refuse a part, and how that is taken back."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from domain.cycle.schedule import Scheduler
from domain.state.changes import ClaimRefused
from domain.state.nominations import Nomination
from domain.state.steps import Forgotten, Unnominated, Unrelieved
from services.ports.ledger import BatchPods
from services.worker.ledger_view import LedgerView

BATCHES_PLANNED = 2
"""While one batch is planned, the one before it commits, and what that one lost comes with the next."""


class _Claimed(NamedTuple):
    """Of one batch: ``waited`` as of ``BatchPods``, ``kept`` nominations by uid, uids nominated, and by key
    which hot node a pod was to leave.
    """

    waited: Mapping[str, tuple[int, int, str | None]]
    kept: Mapping[str, Nomination]
    nominated: frozenset[str]
    moved: Mapping[str, str]


class RecentClaims:
    """Remembers the claims of the last batches."""

    def __init__(self, scheduler: Scheduler, ledger_view: LedgerView) -> None:
        self._scheduler, self._ledger_view = scheduler, ledger_view
        self._batches: deque[_Claimed] = deque(maxlen=BATCHES_PLANNED)

    def note(self, pods: BatchPods, kept: Mapping[str, Nomination]) -> None:
        """Take note of a planned batch; ``kept`` are nominations of the pods that it binds."""
        nominated = frozenset(row.pod_uid for row in pods.nominated)
        moved = {row.key: row.node for row in pods.moved}
        self._batches.append(_Claimed(pods.waited, kept, nominated, moved))

    def forget(self, keys: Sequence[str]) -> None:
        """Let pods wait again that the ledger did not grant.

        A pod that could not be bound to its nominated node is nominated there again. One that was to leave a
        hot node stays there.
        """
        keys = self._without_moved(keys)
        pods, waited = self._scheduler.state.pods, dict[str, tuple[int, int, str | None]]()
        kept, nominated = dict[str, Nomination](), set[str]()
        for batch in self._batches:
            waited |= batch.waited
            kept |= batch.kept
            nominated |= batch.nominated
        # Where the state was read after the batch that lost, it knows of the loss already.
        unnominated = [key for key in keys if pods[key].spec.uid in nominated and not pods[key].node]
        refused = self._scheduler.fold(Unnominated(unnominated))
        self._ledger_view.untried.update(each.pod.key for each in refused if isinstance(each, ClaimRefused))
        arrivals: dict[str, int] = {}
        nominations: list[Nomination] = []
        for key in keys:
            uid = pods[key].spec.uid
            if pods[key].node:
                arrivals[key], since_ms, sent_by = waited[uid]
                self._ledger_view.wait(key, since_ms, sent_by)
                if uid in kept:
                    nominations.append(kept[uid])
                else:
                    self._ledger_view.untried.add(key)
        self._scheduler.fold(Forgotten(arrivals, nominations))

    def _without_moved(self, keys: Sequence[str]) -> Sequence[str]:
        """Take back the moves of pods; return the others."""
        nodes = {key: node for key in keys if (node := self._left_node(key))}
        if nodes:
            self._scheduler.fold(Unrelieved(sorted(set(nodes.values()))))
        return [key for key in keys if key not in nodes]

    def _left_node(self, key: str) -> str:
        """Return the hot node that a pod was to leave, "" where the latest claim for it is another one.

        A pod that moves may have left since, and one that came in its place, under its name, may be placed.
        """
        pod = self._scheduler.state.pods.get(key)
        for batch in reversed(self._batches):
            if pod is not None and (pod.spec.uid in batch.waited or pod.spec.uid in batch.nominated):
                return ""
            if key in batch.moved:
                return batch.moved[key]
        return ""
