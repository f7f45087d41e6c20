"""Pods that lost: berth had placed them, and another worker had changed the node first."""

from __future__ import annotations

from domain.model.errors import BerthError
from services.codec.settling import doubt
from services.ports.ledger import CommitBatch, Committed

LOSSES_MAX = 16
"""After so many losses of a node at one version, what this worker knows of the node is not believed any more.

Losses between which the node's version advanced are normal contention.
"""


class LostPodTouched(BerthError):
    """A batch says something of a pod whose placement was lost after the batch had been planned."""

    code = "loser-touched"
    retriable = True


class NodeMoved(BerthError):
    """A node of the ledger is not as this worker knows it, and stays so."""

    code = "node-moved"
    retriable = True


class LostClaims:
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
        self._losses: dict[int, tuple[int, int]] = {}  # node id -> version seen, losses at it

    def note(self, batch: CommitBatch, committed: Committed) -> None:
        """Take note of a commit. Raises ``NodeMoved`` where a node's claims are lost again and again.

        A claim that is doubtful, or refused by a guard, says nothing of its node's version.
        """
        self.keys += committed.lost_pods
        self._last = committed
        self.raised.append(committed.raised)
        raising = [guard for guard in batch.cluster.guards if guard.raises]
        self._is_guarded = not committed.lost_pods or bool(batch.cluster.guards)
        self._unsure = {each.key for each in raising if not each.nodes.isdisjoint(committed.lost_nodes)}
        for claim in batch.cluster.claims if self._losses or committed.lost_nodes else ():
            if claim.id not in committed.lost_nodes:
                self._losses.pop(claim.id, None)
            elif not claim.is_doubtful and claim.id not in committed.refused:
                seen, times = self._losses.get(claim.id, (claim.version_seen, 0))
                times = times + 1 if seen == claim.version_seen else 1
                self._losses[claim.id] = claim.version_seen, times
                if times >= LOSSES_MAX:
                    raise NodeMoved(f"{times} claims on node {claim.name} were lost at version {seen}")

    @property
    def is_unsure(self) -> bool:
        """Whether pods lost by which others count: what is planned on the next batch would lose again."""
        return bool(self._unsure) or not self._is_guarded

    def take_raised(self) -> list[tuple[str, ...]]:
        """Return what batches raised since the planner was told last, once."""
        raised, self.raised = self.raised, []
        return raised

    def take_pods(self) -> list[str]:
        """Return the pods to be taken back, once."""
        keys, self.keys = self.keys, []
        return keys

    def judge(self, batch: CommitBatch) -> CommitBatch:
        """Return the batch that was planned while the last one was committed, as far as it may be believed.

        Raises
        ------
        LostPodTouched
            It says something of a pod that lost.
        """
        uids = set(self._last.lost_pods.values())
        if uids:
            touched = {decision.pod_uid for decision, _ in batch.decisions.made}
            touched.update(placed.pod_uid for placed in batch.pods.refreshed)
            touched.update(pod.pod_uid for pod in batch.pods.pending_added)
            if found := sorted(uids & touched):
                raise LostPodTouched(
                    f"pods {found[:3]} lost their nodes, and the next batch was planned with them"
                )
        nodes = self._last.lost_nodes
        if uids and not (self._is_guarded and batch.cluster.guards):
            nodes |= {claim.id for claim in batch.cluster.claims}
        return doubt(batch, nodes, self._unsure, self._last.lost_gangs)
