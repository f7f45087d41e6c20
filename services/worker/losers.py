"""Pods that lost: berth had placed them, and another worker had changed the node first."""

from __future__ import annotations

from domain.model.errors import BerthError
from services.codec.settling import doubt
from services.ports.ledger import CommitBatch, Committed

LOSSES_MAX = 16
"""After so many losses of a node in a row, what this worker knows of it is not believed any more."""


class LoserTouched(BerthError):
    """A batch says something of a pod whose placement was lost after the batch had been planned."""

    code = "loser-touched"
    retriable = True


class Moved(BerthError):
    """A node of the ledger is not as this worker knows it, and stays so."""

    code = "node-moved"
    retriable = True


class Losers:
    """What was lost by the last commit, until the planner has taken it back.

    While a batch commits, the next one is planned on what the first one assumed. So that one is judged by
    what the first one lost, and the planner takes the pods back before the batch after it.
    """

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.raised: list[tuple[str, ...]] = []  # of each batch since the planner was told last
        self._last = Committed()
        self._unsure: set[str] = set()  # keys of the last batch whose pods lost
        self._is_guarded = True  # whether keys say all that the losers counted in
        self._times: dict[int, int] = {}  # node id -> losses in a row

    def note(self, batch: CommitBatch, committed: Committed) -> None:
        """Take note of a commit. Raises ``Moved`` where a node's claims are lost again and again."""
        self.keys += committed.lost
        self._last = committed
        self.raised.append(committed.raised)
        raising = [guard for guard in batch.guards if guard.raises]
        self._is_guarded = not committed.lost or bool(batch.guards)
        self._unsure = {each.key for each in raising if not each.nodes.isdisjoint(committed.lost_nodes)}
        if self._times:
            for claim in batch.claims:
                self._times.pop(claim.id, None) if claim.id not in committed.lost_nodes else None
        for node in committed.lost_nodes - committed.refused:
            self._times[node] = self._times.get(node, 0) + 1
            if self._times[node] >= LOSSES_MAX:
                raise Moved(f"{LOSSES_MAX} claims in a row on node {node} were lost")

    @property
    def is_unsure(self) -> bool:
        """Whether pods lost by which others count: what is planned on the next batch would lose again."""
        return bool(self._unsure) or not self._is_guarded

    def take_raised(self) -> list[tuple[str, ...]]:
        """Return what batches raised since the planner was told last, once."""
        raised, self.raised = self.raised, []
        return raised

    def take(self) -> list[str]:
        """Return the pods to be taken back, once."""
        keys, self.keys = self.keys, []
        return keys

    def judge(self, batch: CommitBatch) -> CommitBatch:
        """Return the batch that was planned while the last one was committed, as far as it may be believed.

        Raises
        ------
        LoserTouched
            It says something of a pod that lost.
        """
        uids = set(self._last.lost.values())
        if uids:
            touched = {decision.pod_uid for decision, _ in batch.decisions}
            touched.update(placed.pod_uid for placed in batch.placements_refreshed)
            touched.update(pod.pod_uid for pod in batch.pending_added)
            if found := sorted(uids & touched):
                raise LoserTouched(
                    f"pods {found[:3]} lost their nodes, and the next batch was planned with them"
                )
        nodes = self._last.lost_nodes
        if uids and not (self._is_guarded and batch.guards):
            nodes |= {claim.id for claim in batch.claims}
        return doubt(batch, nodes, self._unsure)
