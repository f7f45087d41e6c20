"""Whatever batches come in whatever order: the ledger on Postgres ends where the one in memory does."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from domain.model.errors import LedgerMismatch
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.ledger import MemoryLedger
from services.adapters.postgres.connections import fresh
from services.adapters.postgres.ledger import PostgresLedger
from services.adapters.postgres.migrate import init_shards
from services.adapters.postgres.schema import metadata
from services.ports.ledger import (
    CommitBatch,
    Lease,
    Ledger,
    LedgerState,
    NodeClaim,
    NodeFact,
    PlacementClosed,
    PlacementOpened,
    PlacementRefreshed,
    PodTombstone,
)
from tests.batches import batch_of
from tests.contract.batches import (
    advance,
    change_node,
    dead_letter,
    decision,
    load_node,
    new_node,
    opened,
    record,
    waiting,
)
from tests.contract.ledgers import ManualClock, loaded, start
from tests.depth import examples
from tests.servers import MakeDatabase

SHARDS = 2
PODS = 6
NODES = 4


class Step(msgspec.Struct, frozen=True):
    """What one batch tries; most of it fits the ledger, some of it does not."""

    shard: int
    binds: list[int]
    closes: list[int]
    waits: list[int]
    places: list[int]
    nodes: list[tuple[int, int]]
    letters: int
    skew: int  # 1: wrong offset, 2: wrong epoch, 3: wrong node version, 4: sent twice


pods = st.lists(st.integers(0, PODS - 1), max_size=3, unique=True)
steps = st.builds(
    Step,
    shard=st.integers(0, SHARDS - 1),
    binds=pods,
    closes=pods,
    waits=pods,
    places=pods,
    nodes=st.lists(
        st.tuples(st.integers(1, NODES), st.integers(0, 3)), max_size=3, unique_by=lambda node: node[0]
    ),
    letters=st.integers(0, 2),
    skew=st.sampled_from([0, 0, 0, 0, 0, 1, 2, 3, 4]),
)


@dataclasses.dataclass
class Writer:
    """Makes batches of steps, keeping the counters that a worker would."""

    leases: list[Lease]
    offsets: list[int] = dataclasses.field(default_factory=lambda: [0] * SHARDS)
    seqs: list[int] = dataclasses.field(default_factory=lambda: [1] * SHARDS)
    dead: list[int] = dataclasses.field(default_factory=lambda: [1] * SHARDS)
    versions: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    at_ms: int = 0

    def batch(self, step: Step) -> CommitBatch:
        """Return the batch of a step."""
        lease = self.leases[step.shard]
        if step.skew == 2:
            lease = lease._replace(epoch=lease.epoch - 1)
        lo = self.offsets[step.shard] + (step.skew == 1)
        seq, dead = self.seqs[step.shard], self.dead[step.shard]
        made = [decision(lease, seq + i, f"pod{pod}", f"n{pod}") for i, pod in enumerate(step.binds)]
        self.at_ms += 1
        nodes = [self._node(*node, wrong=step.skew == 3) for node in step.nodes]
        return batch_of(
            advances=[advance(lease, lo, lo + 1)],
            facts=[each for each in nodes if isinstance(each, NodeFact)],
            claims=[each for each in nodes if isinstance(each, NodeClaim)],
            waited={one.pod_uid: (one.seq, self.at_ms, None) for one in made},
            made=[record(one) for one in made],
            opened=[self._opened(opened(one)) for one in made],
            closed=[PlacementClosed(f"uid-pod{pod}", self.at_ms) for pod in step.closes],
            refreshed=[
                PlacementRefreshed(f"uid-pod{pod}", self.at_ms, {"n": str(pod)}) for pod in step.waits
            ],
            pending_removed=[f"uid-pod{pod}" for pod in step.places],
            pending_added=[waiting(lease, f"pod{pod}", self.at_ms * 10 + pod) for pod in step.waits],
            tombstones=[
                PodTombstone(
                    namespace="ns",
                    name=f"pod{pod}",
                    uid="u",
                    resource_version=self.at_ms,
                    shard=step.shard,
                    at_ms=self.at_ms % 3,
                )
                for pod in step.closes
            ],
            dead_letters=[dead_letter(lease, dead + i) for i in range(step.letters)],
            seq_next={step.shard: seq + len(made)},
            dead_seq_next={step.shard: dead + step.letters},
            log_time_ms=self.at_ms,
        )

    def _opened(self, placement: PlacementOpened) -> PlacementOpened:
        return msgspec.structs.replace(placement, labels={"n": "1"} if self.at_ms % 2 else {})

    def _node(self, number: int, kind: int, *, wrong: bool) -> NodeFact | NodeClaim:
        version, spec_count = self.versions.get(number, (0, 0))
        if version == 0 and not wrong:
            return new_node(number, delta={f"r{kind}": kind} if kind else {})
        delta = {"cpu": version, **({f"r{kind}": kind} if kind else {})}
        if kind < 2:
            more = {"spec": new_node(number).spec, "deleted": kind == 1, "spec_count": spec_count + 1}
            return change_node(number, version + wrong, delta, **more)
        claim = load_node(number, version + wrong, **delta)
        return msgspec.structs.replace(claim, spec_count_seen=spec_count, resource_only=kind == 2)

    def committed(self, batch: CommitBatch) -> None:
        """Count on after a commit."""
        (at,) = batch.offsets.advances
        self.offsets[at.shard] = at.hi
        self.seqs[at.shard] = batch.offsets.seq_next[at.shard]
        self.dead[at.shard] = batch.offsets.dead_seq_next[at.shard]

    def know(self, state: LedgerState) -> None:
        """Know nodes as the ledger has them."""
        self.versions = {row.id: (row.version, row.spec_count) for row in state.nodes}


@pytest_asyncio.fixture
async def ledger_dsn(database: MakeDatabase, embedded_dsn: str) -> str:
    """Return a database that all examples of a test share; each empties it first."""
    return await database(embedded_dsn)


async def _lay_out(dsn: str) -> None:
    async with fresh(dsn, "empty") as connection:
        await connection.execute(";".join(f"DELETE FROM {table}" for table in metadata.tables))
    await init_shards(dsn, SHARDS)


async def _commit(ledger: Ledger, batch: CommitBatch) -> str:
    """Return what became of a batch, said by both. Batches without a journal forget what they lost."""
    try:
        outcome = str(await ledger.commit(batch))
    except LedgerMismatch:
        outcome = "mismatch"
    return f"{outcome} {await ledger.resolve(batch)}"


@pytest.mark.wide
@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(plan=st.lists(steps, min_size=5, max_size=30))
async def test_memory_and_postgres_end_equal(plan: list[Step], ledger_dsn: str) -> None:
    await _lay_out(ledger_dsn)
    memory = MemoryLedger(MemoryDatabase(SHARDS), ManualClock())
    postgres = PostgresLedger(ledger_dsn)
    try:
        leases = await start(postgres, SHARDS)
        assert await start(memory, SHARDS) == leases
        writer = Writer(leases)
        for step in plan:
            batch = writer.batch(step)
            outcome = await _commit(memory, batch)
            event(outcome)
            assert await _commit(postgres, batch) == outcome
            if outcome.startswith("Committed"):
                writer.committed(batch)
                writer.know(await loaded(memory, leases))
            if step.skew == 4:
                assert await _commit(postgres, batch) == await _commit(memory, batch)
        # Each ledger draws the secret of its seals by itself.
        states = [await loaded(ledger, leases) for ledger in (postgres, memory)]
        ended = [msgspec.structs.replace(state, seal_secret=None) for state in states]
        assert ended[0] == ended[1]
        await postgres.release(leases)
    finally:
        await postgres.aclose()
