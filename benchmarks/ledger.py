"""How long one batch takes to become durable: 2,000 decisions over 1,500 nodes, one connection.

Run ``python -m benchmarks.ledger DSN`` on a database that may be emptied. The clock starts when ``commit`` is
called with a finished batch, and stops when it returns.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

import msgspec

from domain.model.decisions import Attempt, Candidate, Decision, Outcome
from domain.model.nodes import NodeSpec
from domain.model.pods import PodTemplate
from services import bootstrap
from services.codec.effects import journal_row
from services.ports.journal import JournalRow
from services.ports.ledger import (
    AttemptRows,
    BatchCluster,
    BatchDecisions,
    BatchJournal,
    BatchOffsets,
    BatchPods,
    CommitBatch,
    Committed,
    Lease,
    NodeClaim,
    NodeFact,
    OffsetAdvance,
    PlacementOpened,
)
from services.ports.log import TopicPartition

DECISIONS = 2_000
NODES = 1_500
GROUPS = 100
BATCHES = 30
WARM_UP = 5
PAYLOAD = b"x" * 600


def nodes_batch(lease: Lease) -> CommitBatch:
    """Return the batch that adds all nodes."""
    allocatable = {"cpu": 64_000, "memory": 1 << 38, "pods": 256, "nvidia.com/gpu": 8, "gpu-milli": 8000}
    facts = [
        NodeFact(
            id=i + 1,
            name=f"openb-node-{i:04}",
            version_seen=0,
            changes=1,
            delta={},
            spec_count=1,
            spec=NodeSpec(
                name=f"openb-node-{i:04}",
                uid=str(i),
                resource_version=1,
                labels={"gpu": "V100M32", "kubernetes.io/hostname": f"openb-node-{i:04}"},
                allocatable=allocatable,
            ),
        )
        for i in range(NODES)
    ]
    advance = OffsetAdvance(lease.shard, "berth.nodes", 0, lease.epoch, 0, NODES)
    offsets = BatchOffsets(advances=[advance], log_time_ms=1)
    return CommitBatch(offsets=offsets, cluster=BatchCluster(facts=facts))


def decisions_batch(lease: Lease, number: int) -> CommitBatch:
    """Return batch ``number`` (from 0) of pods bound to all nodes in turn."""
    first = number * DECISIONS + 1
    at_ms = 1_700_000_000_000 + number
    signatures = [group.to_bytes(16, "big") for group in range(GROUPS)]
    delta = {"cpu": 4_000, "memory": 1 << 33, "pods": 1, "gpu-milli": 500}
    ids = [
        (seq, f"openb-pod-{seq:07}", f"5c1f4f0e-0000-4000-8000-{seq:012}")
        for seq in range(first, first + DECISIONS)
    ]
    batch = CommitBatch(
        offsets=BatchOffsets(
            advances=[
                OffsetAdvance(lease.shard, "berth.nodes", 0, lease.epoch, NODES, NODES),
                OffsetAdvance(lease.shard, "berth.pods", 0, lease.epoch, first - 1, first - 1 + DECISIONS),
            ],
            seq_next={lease.shard: first + DECISIONS},
            log_time_ms=at_ms,
        ),
        cluster=BatchCluster(
            claims=[
                NodeClaim(
                    id=i + 1,
                    name=f"openb-node-{i:04}",
                    version_seen=number + 1,
                    spec_count_seen=1,
                    changes=1,
                    delta=delta,
                )
                for i in range(NODES)
            ],
        ),
        pods=BatchPods(
            templates={signature: PodTemplate(requests={"cpu": 4000}) for signature in signatures},
            opened=[
                PlacementOpened(
                    pod_uid=uid,
                    name=name,
                    resource_version=1,
                    signature=signatures[seq % GROUPS],
                    labels={"qos": "LS"},
                    node=f"openb-node-{seq % NODES:04}",
                    adopted=False,
                    seq=seq,
                    at_ms=at_ms,
                    shard=lease.shard,
                    namespace="openb",
                )
                for seq, name, uid in ids
            ],
        ),
        decisions=BatchDecisions(
            made=[
                (
                    Decision(
                        epoch=lease.epoch,
                        seq=seq,
                        pod_uid=uid,
                        name=name,
                        resource_version=1,
                        outcome=Outcome.BOUND,
                        node=f"openb-node-{seq % NODES:04}",
                        decided_at_ms=at_ms,
                        profile="default-scheduler",
                        signature=signatures[seq % GROUPS],
                        cycle_seq=first + seq % GROUPS,
                        shard=lease.shard,
                        namespace="openb",
                    ),
                    PAYLOAD,
                )
                for seq, name, uid in ids
            ],
            attempts=[
                AttemptRows(
                    Attempt(
                        signature=signature,
                        profile="default-scheduler",
                        profile_revision=1,
                        seed=0,
                        generation=number,
                        nodes_count=NODES,
                        feasible_count=NODES,
                        unresolvable_count=0,
                        reasons={},
                        candidates=tuple(
                            Candidate(node=f"openb-node-{k:04}", score=91.5, parts={"NodeResourcesFit": 91.5})
                            for k in range(5)
                        ),
                        pods_count=DECISIONS // GROUPS,
                        bound_count=DECISIONS // GROUPS,
                    ),
                    {lease.shard: first + i},
                )
                for i, signature in enumerate(signatures)
            ],
        ),
    )
    sources = [(lease.shard, "berth.pods", 0)] * DECISIONS
    row = journal_row(batch, sources, JournalRow(shard=lease.shard, batch=number + 1), None)
    return msgspec.structs.replace(batch, journal=BatchJournal(row=row))


async def measure(dsn: str) -> None:
    """Print the time per batch and the rate."""
    place = bootstrap.Place(dsn, None)
    await bootstrap.initialise(place, shards=1)
    ledger = bootstrap.open_ledger(place)
    (lease,) = await ledger.acquire("benchmark", 60)
    at = {TopicPartition("berth.nodes", 0): 0, TopicPartition("berth.pods", 0): 0}
    await ledger.ensure_offsets(lease, at)
    assert await ledger.commit(nodes_batch(lease)) == Committed()
    times, cpu = [], []
    for number in range(BATCHES):
        batch = decisions_batch(lease, number)
        started, started_cpu = time.perf_counter(), time.process_time()
        assert await ledger.commit(batch) == Committed()
        times.append(time.perf_counter() - started)
        cpu.append(time.process_time() - started_cpu)
    await ledger.release([lease])
    await ledger.aclose()
    times, cpu = times[WARM_UP:], cpu[WARM_UP:]
    median = statistics.median(times)
    print(
        f"{DECISIONS} decisions, {NODES} nodes, {GROUPS} cycles a batch; {len(times)} batches: "
        f"median {median * 1e3:.1f} ms, worst {max(times) * 1e3:.1f} ms, "
        f"of it this process {statistics.median(cpu) * 1e3:.1f} ms; {DECISIONS / median:,.0f} decisions/s"
    )


if __name__ == "__main__":
    asyncio.run(measure(sys.argv[1]))
