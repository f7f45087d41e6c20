"""Commits batches, one after another, each exactly once, however often the ledger fails meanwhile."""

from __future__ import annotations

import asyncio
import logging

from domain.model.errors import Fenced, Overdue, Unavailable
from services.backoff import Backoff
from services.log_limit import Outage
from services.ports.ledger import CommitBatch, Committed, Ledger, NotCommitted
from services.ports.log import TopicPartition
from services.worker.faults import CommitOverdue
from services.worker.lost_claims import LostClaims
from services.worker.metrics import WorkerMetrics
from services.worker.progress import Progress

_LOGGER = logging.getLogger(__name__)

OVERDUE_MAX = 3
"""After so many commits in a row that took the ledger too long, the batch is too large."""

GROWING_COMMITS = 20
"""After so many commits in a row, a batch may be a sixteenth larger again."""


CLAIMS_JUDGED = 500
"""After so many pods placed the worker looks how many of them were conflicts."""

CONFLICTS_SHARE_MAX = 0.05
"""Beyond this share, batches are halved: what others do is known sooner then."""

RECORDS_MIN = 64
"""Conflicts make no batch smaller than this: each costs a commit."""


class Committer:
    """Commits the batches of a worker, and says how large the next ones may be.

    Attributes
    ----------
    records_max : int
        Records of a batch at most: ``records_most``, with which a worker begins, and less after trouble.
    folded : dict of TopicPartition to int
        Next offset of each partition, as committed.
    """

    def __init__(self, ledger: Ledger, metrics: WorkerMetrics, records_max: int) -> None:
        self._ledger, self._metrics = ledger, metrics
        self.records_most = self.records_max = records_max
        self._commits_count = 0  # since the size of a batch last changed
        self._claimed_count = self._lost_count = 0  # since the last judgement
        self.folded: dict[TopicPartition, int] = {}
        self.decided_count = self.moved_count = self.conflicts_count = 0
        metrics.batch_records_max.set(records_max)

    def halve(self) -> None:
        """Let batches be half as large from now on."""
        self._resize(max(1, self.records_max // 2))
        _LOGGER.warning("batches have %d records at most from now on", self.records_max)

    def _resize(self, records_max: int) -> None:
        self._commits_count = 0
        self.records_max = records_max
        self._metrics.batch_records_max.set(records_max)

    async def commit(self, batch: CommitBatch, progress: Progress, lost_claims: LostClaims) -> None:
        """Write one batch."""
        backoff, unknown, overdue_count = Backoff(), False, 0
        outage = Outage(_LOGGER, "commit a batch", asyncio.get_running_loop().time)
        while True:
            try:
                with self._metrics.commit_seconds.time():
                    outcome = await self._once(batch, unknown=unknown)
                outage.over()
                progress.step()
                break
            except Unavailable as error:
                unknown = True
                outage.failed(error)
                overdue_count = overdue_count + 1 if isinstance(error, Overdue) else 0
                if overdue_count:
                    progress.step()
                if overdue_count == OVERDUE_MAX:
                    raise CommitOverdue(f"the ledger ended a commit {OVERDUE_MAX} times: {error}") from error
                await backoff.wait()
        if isinstance(outcome, NotCommitted):
            raise Fenced("another worker took a shard over for which a batch was planned")
        self._metrics.committed(batch, outcome)
        lost_claims.note(batch, outcome)
        for a in batch.offsets.advances:
            self.folded[TopicPartition(a.topic, a.partition)] = a.hi
        self._note(batch, outcome)

    def _note(self, batch: CommitBatch, outcome: Committed) -> None:
        """Count, and let the next batches be smaller or larger."""
        self.decided_count += len(batch.decisions.made)
        self.moved_count += outcome.moved_count
        self.conflicts_count += len(outcome.lost_pods)
        self._commits_count += 1
        most = self.records_most
        if self.records_max < most and self._commits_count == GROWING_COMMITS:
            self._resize(min(most, self.records_max + max(1, most // 16)))
        self._lost_count += len(outcome.lost_pods)
        self._claimed_count += sum(claim.changes for claim in batch.cluster.claims)
        if self._claimed_count >= CLAIMS_JUDGED:
            if self._lost_count > CONFLICTS_SHARE_MAX * self._claimed_count:
                self._resize(max(min(RECORDS_MIN, most), self.records_max // 2))
            self._claimed_count = self._lost_count = 0

    async def _once(self, batch: CommitBatch, *, unknown: bool) -> Committed | NotCommitted:
        """Commit. If the outcome of the last try is unknown, first ask what became of it."""
        if unknown and (outcome := await self._ledger.resolve(batch)) is not NotCommitted.ABSENT:
            return outcome
        return await self._ledger.commit(batch)
