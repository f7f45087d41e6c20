"""Do batches get smaller where many pods are lost to other workers, and larger again when few are?"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from services.ports.ledger import CommitBatch, Committed, Lease
from services.ports.nodes import NodeClaim
from services.worker.committing import CLAIMS_JUDGED, GROWING_COMMITS, RECORDS_MIN, Committer
from services.worker.lost_claims import LostClaims
from services.worker.metrics import WorkerMetrics
from services.worker.progress import Progress
from tests.batches import batch_of
from tests.contract.batches import decision

MOST = 1_000
PODS = 100


class _Ledger:
    """Grants all claims but those on some pods."""

    lost_count = 0

    async def commit(self, batch: CommitBatch) -> Committed:
        return Committed(lost_pods={f"default/p{i}": f"p{i}" for i in range(self.lost_count)})


def _batch() -> CommitBatch:
    claims = [
        NodeClaim(id=i, name=f"n{i}", version_seen=1, spec_count_seen=1, changes=10, delta={"cpu": 1})
        for i in range(PODS // 10)
    ]
    bound = [(decision(Lease(0, 1), i + 1, f"p{i}", f"n{i // 10}"), b"") for i in range(PODS)]
    return batch_of(advances=[], claims=claims, made=bound)


@pytest.mark.parametrize(("lost_count", "records_max"), [(0, MOST), (5, MOST), (6, MOST // 2)])
def test_a_batch_is_halved_beyond_one_conflict_in_twenty(lost_count: int, records_max: int) -> None:
    committer = _committed(lost_count, times=CLAIMS_JUDGED // PODS)
    assert committer.records_max == records_max


def test_conflicts_make_no_batch_too_small_and_it_grows_again_without_them() -> None:
    committer = _committed(PODS // 2, times=100)
    assert committer.records_max == RECORDS_MIN
    asyncio.run(_commit(committer, _Ledger(), GROWING_COMMITS * 20))
    assert committer.records_max == MOST


def _committed(lost_count: int, times: int) -> Committer:
    ledger: Any = _Ledger()
    ledger.lost_count = lost_count
    committer = Committer(ledger, WorkerMetrics(CollectorRegistry()), MOST)
    asyncio.run(_commit(committer, ledger, times))
    return committer


async def _commit(committer: Committer, ledger: _Ledger, times: int) -> None:
    committer._ledger.lost_count = ledger.lost_count  # type: ignore[attr-defined]
    for _ in range(times):
        await committer.commit(_batch(), Progress(10), LostClaims())
