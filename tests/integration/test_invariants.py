"""Each check of the ledger turns red when its invariant is broken by hand, and only then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from domain.model.decisions import Decision, Outcome
from domain.model.pods import PodTemplate
from domain.state.nominations import Victim
from services.adapters.postgres.audit import audit, check
from services.adapters.postgres.invariants import INVARIANTS
from services.adapters.postgres.migrate import init_shards
from services.codec.effects import journal_row
from services.codec.encode import Amount, Migrating, Preempting, encode_decision
from services.ports.journal import BATCHES, JournalRow
from services.ports.ledger import (
    CommitBatch,
    Committed,
    Lease,
    Ledger,
    MoveRow,
    NominationRow,
    OffsetAdvance,
    PlacementClosed,
)
from services.ports.log import PODS_TOPIC, TopicPartition
from tests.batches import batch_of, changed
from tests.contract.batches import (
    SIGNATURE,
    advance,
    bind,
    change_node,
    decision,
    everything,
    new_node,
    node_spec,
    opened,
    record,
    waiting,
)
from tests.contract.ledgers import SHARDS, PostgresBackend, start
from tests.servers import MakeDatabase


def _version_told(was: int, told: int) -> str:
    """Return the statement that lets decisions tell another version of their node."""
    what = f"""'"node_version":{was}}}', '"node_version":{told}}}'"""
    return (
        f"UPDATE decisions SET payload = convert_to(replace(convert_from(payload, 'UTF8'), {what}), 'UTF8')"
    )


# What an operator would have to do by hand to break each invariant, on the ledger that ``backend`` fills.
BROKEN = {
    "one-placement-per-pod": (
        "DROP INDEX placements_open",
        "UPDATE placements SET released_at_ms = NULL, released_recorded_at = NULL WHERE seq = 4",
    ),
    "released-after-bound": (
        "UPDATE placements SET released_at_ms = bound_at_ms - 1 WHERE released_at_ms IS NOT NULL",
    ),
    "requested-is-the-sum": ("UPDATE nodes SET requested[1] = requested[1] + 1 WHERE id = 1",),
    "device-given-twice": (
        "UPDATE templates SET spec = jsonb_set(spec::jsonb, '{requests,nvidia.com/gpu}', '1')",
        "UPDATE placements SET life = '{\"devices\": [0, 0]}'",
    ),
    "decisions-without-hole": ("DELETE FROM decisions WHERE seq = 3",),
    "dead-letters-without-hole": ("DELETE FROM dead_letters",),
    "scales-without-hole": (
        "INSERT INTO scales SELECT seq, 'ns', 'web', 7, '' FROM generate_series(1, 3) AS seq WHERE seq <> 2",
    ),
    "placement-has-decision": ("UPDATE decisions SET node = 'n2' WHERE seq = 1",),
    "placed-or-pending": ("UPDATE pending SET pod_uid = 'uid-placed'",),
    "uid-in-one-shard": ("UPDATE pending SET pod_uid = 'uid-placed', shard = 1",),
    "one-pod-per-name": ("UPDATE pending SET (namespace, name) = ('ns', 'placed')",),
    "groups-have-pods": ("DELETE FROM pending",),
    "templates-are-known": ("DELETE FROM templates WHERE signature = 'another-16-bytes'",),
    "offsets-under-epoch": ("UPDATE shard_offsets SET epoch = 9",),
    "epochs-in-order": ("UPDATE decisions SET epoch = 0 WHERE seq = 5",),
    "published-was-committed": ("UPDATE relay_cursor SET decisions_seq = 100 WHERE shard = 0",),
    "node-versions-chain": ("UPDATE nodes SET spec_version = 7 WHERE id = 2",),
    "profile-revisions-chain": ("INSERT INTO profiles (name, revision, at_ms) VALUES ('gone', 2, 0)",),
    "cycles-by-a-known-revision": ("""UPDATE cycles SET revisions = '[["batch", 1], ["batch", 9]]'""",),
    "journal-without-hole": (
        "UPDATE journal SET batch = 4 WHERE batch = 3",
        "UPDATE shard_offsets SET next_offset = 4 WHERE topic = '~batches'",
    ),
    "journal-ranges-chain": ("""UPDATE journal SET lanes = '[[0,"berth.pods",0,5,7]]' WHERE batch = 3""",),
    "decisions-have-a-batch": (
        "UPDATE journal SET seqs = '{}', decisions_hash = sha256('') WHERE batch = 2",
    ),
    "decision-has-placement": ("DELETE FROM placements WHERE seq = 5",),
    "released-is-over": ("UPDATE decisions SET outcome = 'released', pod_uid = 'uid-placed' WHERE seq = 3",),
    "decided-versions-chain": (_version_told(2, 9) + " WHERE seq = 5",),
    "offsets-are-the-journals": (
        "UPDATE shard_offsets SET next_offset = 99 WHERE topic = 'berth.pods' AND shard = 0",
    ),
    "checkpoints-are-whole": (
        "INSERT INTO checkpoints (shard, batch, start, head, parts_count, bytes_count)"
        " VALUES (0, 1, '{}', '{}', 1, 0)",
    ),
    "decisions-are-the-journals": ("UPDATE decisions SET payload = payload || 'x' WHERE seq = 5",),
    "inbox-without-hole": (
        "INSERT INTO shard_offsets (shard, topic, partition, epoch, next_offset)"
        " VALUES (0, '~handed/1', 0, 0, 1)",
    ),
    "allocatable-is-the-spec": ("UPDATE nodes SET deleted = true WHERE id = 2",),
    "never-over-allocatable": (
        "UPDATE node_specs SET spec = jsonb_set(spec, '{allocatable,cpu}', '50') WHERE node_id = 1",
        "UPDATE nodes SET allocatable[1] = 50 WHERE id = 1",
    ),
    "over-allocatable": (
        "INSERT INTO node_specs SELECT node_id, 9, jsonb_set(spec, '{allocatable,cpu}', '50'), deleted, at_ms"
        " FROM node_specs WHERE node_id = 1",
        "UPDATE nodes SET allocatable[1] = 50, version = 9, spec_version = 9 WHERE id = 1",
    ),
}
"""Some break another one with it: a node made smaller in the past is over its allocatable now, too."""

BROKEN_PROMISES = {
    "evicted-for-a-nomination": ("UPDATE decisions SET node = 'n2' WHERE outcome = 'evicted' AND seq = 5",),
    "nominations-end": ("DELETE FROM evictions", "DELETE FROM nominations"),
    "nominated-pods-wait": ("UPDATE nominations SET shard = 1", "UPDATE evictions SET preemptor_shard = 1"),
    "evictions-are-open": ("UPDATE evictions SET victim_shard = 1",),
    "evicted-once": ("UPDATE decisions SET outcome = 'evicted' WHERE outcome = 'spared'",),
}
"""The same, on the ledger that ``promised`` fills."""

BROKEN_MOVES = {
    "moved-from-its-node": ("UPDATE decisions SET node = 'n2' WHERE outcome = 'evicted'",),
    "moves-are-open": ("UPDATE moves SET node = 'n2'",),
    "evicted-for-a-nomination": (
        "UPDATE decisions SET payload = convert_to(replace(convert_from(payload, 'UTF8'), 'migration', "
        "'preemption'), 'UTF8') WHERE outcome = 'evicted'",
    ),
}
"""The same, on the ledger that ``relieved`` fills."""

ONE, LESS = {"cpu": 100, "pods": 1}, {"cpu": -100, "pods": -1}
"""What one pod of the tests adds to a node, and what it gives back."""

ALSO_BREAKS = {
    "uid-in-one-shard": {"groups-have-pods"},
    "decision-has-placement": {"requested-is-the-sum"},
    "device-given-twice": {"requested-is-the-sum"},
    "decided-versions-chain": {"decisions-are-the-journals"},
    "decisions-without-hole": {"decisions-are-the-journals"},
    "never-over-allocatable": {"over-allocatable"},
    "one-placement-per-pod": {"requested-is-the-sum"},
}


async def _commit(ledger: Ledger, batch: CommitBatch, number: int = 0) -> None:
    """Commit; with a number, as the batch of that number in the journal.

    The decisions tell the versions of their nodes, which count up to what is written.
    """
    versions: dict[int, int] = {}
    for fact in batch.cluster.facts:
        on_it = [made.seq for made, _ in batch.decisions.made if made.node == fact.name]
        last = fact.version_seen + fact.changes
        versions |= {seq: last - left for left, seq in enumerate(reversed(on_it))}
    told = [record(made, versions.get(made.seq)) for made, _ in batch.decisions.made]
    batch = changed(batch, made=told)
    if number:
        sources = [(a.shard, a.topic, a.partition) for a in batch.offsets.advances if a.topic != BATCHES]
        journal = journal_row(batch, sources, JournalRow(shard=0, batch=number), None)
        count = OffsetAdvance(0, BATCHES, 0, batch.offsets.advances[0].epoch, number - 1, number)
        batch = changed(batch, row=journal, advances=[*batch.offsets.advances, count])
    assert await ledger.commit(batch) == Committed()


@pytest_asyncio.fixture
async def empty(database: MakeDatabase, embedded_dsn: str) -> AsyncIterator[PostgresBackend]:
    """Return an empty ledger."""
    backend = PostgresBackend(await database(embedded_dsn))
    await init_shards(backend.dsn, SHARDS)
    yield backend
    await backend.aclose()


@pytest_asyncio.fixture
async def backend(empty: PostgresBackend) -> PostgresBackend:
    """Return a ledger with something in every table: one pod moved from a node to another."""
    ledger = empty.ledger()
    lease, _ = await start(ledger, SHARDS)
    await ledger.ensure_offsets(lease, {TopicPartition(BATCHES, 0): 0})
    spec = node_spec("n1", allocatable={"cpu": 8000, "pods": 110, "nvidia.com/gpu": 4})
    first = everything(lease)
    one = {"cpu": 100, "nvidia.com/gpu": 2, "pods": 1}
    facts = [new_node(1, spec=spec, delta=one), new_node(2, spec=spec, delta=one)]
    await _commit(ledger, changed(first, facts=facts), 1)
    loads = [change_node(1, 1, one)]
    await _commit(ledger, bind(lease, [4], 5, facts=loads), 2)
    moved = decision(lease, 5, "p0-4", "n2")
    await _commit(
        ledger,
        batch_of(
            advances=[advance(lease, 6, 7)],
            facts=[
                change_node(1, 2, {name: -value for name, value in one.items()}),
                change_node(2, 1, one),
            ],
            made=[record(moved)],
            closed=[PlacementClosed(moved.pod_uid, moved.decided_at_ms)],
            opened=[opened(moved)],
            seq_next={0: 6},
        ),
        3,
    )
    return empty


async def test_a_sound_ledger_has_no_violations(backend: PostgresBackend) -> None:
    assert await check(backend.dsn) == []


async def test_an_empty_ledger_has_no_violations(empty: PostgresBackend) -> None:
    assert await check(empty.dsn) == []


def test_every_invariant_has_a_broken_ledger() -> None:
    broken = {*BROKEN, *BROKEN_PROMISES, *BROKEN_MOVES}
    assert broken == {invariant.name for invariant in INVARIANTS}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_ledger_turns_its_check_red(backend: PostgresBackend, name: str) -> None:
    for statement in BROKEN[name]:
        await backend.execute(statement)
    violations = await check(backend.dsn)
    assert {violation.name for violation in violations} == {name} | ALSO_BREAKS.get(name, set())
    assert all(violation.rows for violation in violations)


async def _fill(ledger: Ledger, lease: Lease, **more: Any) -> None:
    """Fill node n1 with two pods of 100m of its 200m."""
    spec = node_spec("n1", allocatable={"cpu": 200, "pods": 9})
    node = new_node(1, spec=spec, delta={"cpu": 200, "pods": 2})
    await _commit(ledger, bind(lease, [1, 2], 0, facts=[node], **more))


async def test_a_decision_that_overcommits_is_found_even_when_it_is_over(empty: PostgresBackend) -> None:
    ledger = empty.ledger()
    lease, _ = await start(ledger, SHARDS)
    await _fill(ledger, lease)
    await _commit(ledger, bind(lease, [3], 2, facts=[change_node(1, 1, ONE)]))
    assert {violation.name for violation in await check(empty.dsn)} == {
        "never-over-allocatable",
        "over-allocatable",
    }
    gone = decision(lease, 4, "p0-1", outcome=Outcome.RELEASED)
    batch = batch_of(
        advances=[advance(lease, 3, 4)],
        facts=[change_node(1, 2, LESS)],
        closed=[PlacementClosed("uid-p0-1", gone.decided_at_ms)],
        made=[record(gone)],
        seq_next={0: 5},
    )
    await _commit(ledger, batch)
    (violation,) = await check(empty.dsn)
    assert violation.name == "never-over-allocatable"
    (row,) = violation.rows
    assert (row["pod_uid"], row["held"], row["allocatable"]) == ("uid-p0-3", 300, 200)


async def test_adopted_pods_and_shrunk_nodes_are_warnings(empty: PostgresBackend) -> None:
    ledger = empty.ledger()
    lease, _ = await start(ledger, SHARDS)
    await _fill(ledger, lease)
    adopted = decision(lease, 3, "foreign", "n1", outcome=Outcome.ADOPTED)
    batch = bind(
        lease,
        [3],
        2,
        facts=[change_node(1, 1, ONE)],
        made=[record(adopted)],
        opened=[opened(adopted, adopted=True)],
    )
    await _commit(ledger, batch)
    (violation,) = await check(empty.dsn)
    assert (violation.name, violation.warning) == ("over-allocatable", True)
    spec = node_spec("n1", allocatable={"cpu": 100, "pods": 9})
    shrunk = change_node(1, 2, spec=spec, spec_count=2)
    await _commit(ledger, bind(lease, [4], 3, made=[], opened=[], seq_next={}, facts=[shrunk]))
    (violation,) = await check(empty.dsn)
    assert (violation.name, violation.warning) == ("over-allocatable", True)


async def test_a_pod_that_asks_for_nothing_may_join_a_full_node(empty: PostgresBackend) -> None:
    ledger = empty.ledger()
    lease, _ = await start(ledger, SHARDS)
    await _fill(ledger, lease, templates={SIGNATURE: PodTemplate(requests={"cpu": 100})})
    light = decision(lease, 3, "light", "n1", signature=b"asks-for-nothing")
    batch = bind(
        lease,
        [3],
        2,
        facts=[change_node(1, 1, {"pods": 1})],
        made=[record(light)],
        opened=[opened(light)],
        templates={b"asks-for-nothing": PodTemplate()},
    )
    await _commit(ledger, batch)
    assert await check(empty.dsn) == []


async def test_a_pod_adopted_before_its_node_was_known_is_a_warning_and_who_came_before_it_counted_is_right(
    empty: PostgresBackend,
) -> None:
    ledger = empty.ledger()
    lease, other = await start(ledger, SHARDS)
    adopted = decision(other, 1, "foreign", "n1", outcome=Outcome.ADOPTED)
    early = opened(adopted, adopted=True, counted=False)
    await _commit(ledger, bind(other, [1], 0, facts=[], made=[record(adopted)], opened=[early]))
    await _fill(ledger, lease)
    counted = batch_of(
        advances=[advance(other, 1, 2)],
        facts=[change_node(1, 1, ONE)],
        counted=[early.pod_uid],
        log_time_ms=1,
    )
    await _commit(ledger, counted)
    (violation,) = await check(empty.dsn)
    assert (violation.name, violation.warning) == ("over-allocatable", True)


async def test_a_resized_pod_is_a_warning_and_one_placed_on_top_of_it_is_not(empty: PostgresBackend) -> None:
    ledger = empty.ledger()
    lease, _ = await start(ledger, SHARDS)
    await _fill(ledger, lease)
    resized = decision(lease, 3, "p0-1", "n1", outcome=Outcome.RESIZED, signature=b"asks-for-a-lot-0")
    batch = batch_of(
        advances=[advance(lease, 2, 3)],
        facts=[change_node(1, 1, {"cpu": 900})],
        templates={b"asks-for-a-lot-0": PodTemplate(requests={"cpu": 1_000})},
        closed=[PlacementClosed(resized.pod_uid, resized.decided_at_ms)],
        opened=[opened(resized)],
        made=[record(resized)],
        seq_next={0: 4},
    )
    await _commit(ledger, batch)
    (violation,) = await check(empty.dsn)
    assert (violation.name, violation.warning) == ("over-allocatable", True)
    await _commit(ledger, bind(lease, [4], 3, facts=[change_node(1, 2, ONE)]))
    red = {violation.name for violation in await check(empty.dsn) if not violation.warning}
    assert red == {"never-over-allocatable"}


async def _two_writers(backend: PostgresBackend, *, room_first: bool) -> set[str]:
    """Let one shard release a pod of a full node and another bind one there; return what is broken.

    The transaction of what came second began first, as that of a slow writer does.
    """
    ledger = backend.ledger()
    lease, other = await start(ledger, SHARDS)
    await _fill(ledger, lease)
    gone = decision(lease, 3, "p0-1", "n1", outcome=Outcome.RELEASED)

    def release(version: int) -> CommitBatch:
        return batch_of(
            advances=[advance(lease, 2, 3)],
            facts=[change_node(1, version, LESS)],
            closed=[PlacementClosed("uid-p0-1", gone.decided_at_ms)],
            made=[record(gone)],
            seq_next={0: 4},
        )

    def join(version: int) -> CommitBatch:
        return bind(other, [1], 0, facts=[change_node(1, version, ONE)])

    for batch in [release(1), join(2)] if room_first else [join(1), release(2)]:
        await _commit(ledger, batch)
    column, shard = ("recorded_at", 1) if room_first else ("released_recorded_at", 0)
    await backend.execute(
        f"UPDATE placements SET {column} = {column} - interval '1 hour' WHERE shard = {shard}"
    )
    return {violation.name for violation in await check(backend.dsn)}


async def test_a_slow_transaction_that_came_second_breaks_nothing(empty: PostgresBackend) -> None:
    assert await _two_writers(empty, room_first=True) == set()


async def test_a_slow_transaction_hides_no_overcommitment(empty: PostgresBackend) -> None:
    assert await _two_writers(empty, room_first=False) == {"never-over-allocatable"}


async def test_a_pod_that_is_placed_anew_by_a_transaction_that_began_first(empty: PostgresBackend) -> None:
    ledger = empty.ledger()
    lease, _ = await start(ledger, SHARDS)
    await _fill(ledger, lease)
    resized = decision(lease, 3, "p0-1", "n1", outcome=Outcome.RESIZED)
    batch = batch_of(
        advances=[advance(lease, 2, 3)],
        facts=[change_node(1, 1)],
        closed=[PlacementClosed(resized.pod_uid, resized.decided_at_ms)],
        opened=[opened(resized)],
        made=[record(resized)],
        seq_next={0: 4},
    )
    await _commit(ledger, batch)
    await empty.execute("UPDATE placements SET recorded_at = recorded_at - interval '1 hour' WHERE seq = 3")
    assert await check(empty.dsn) == []


@pytest.mark.parametrize("audited", [False, True])
@pytest.mark.parametrize("resized", [False, True])
@pytest.mark.parametrize("room_first", [False, True])
async def test_a_pod_whose_end_came_to_a_shard_that_was_added_counts_until_then(
    empty: PostgresBackend, room_first: bool, resized: bool, audited: bool
) -> None:
    ledger = empty.ledger()
    lease, added = await start(ledger, SHARDS)
    await _fill(ledger, lease)
    if audited:
        assert (await audit(empty.dsn)).ok
    await empty.execute("UPDATE placements SET home = 1 WHERE pod_uid = 'uid-p0-1'")
    steps = [Outcome.RELEASED, Outcome.BOUND] if room_first else [Outcome.BOUND, Outcome.RELEASED]
    for at, outcome in enumerate([Outcome.RESIZED, *steps] if resized else steps):
        if outcome is Outcome.BOUND:
            await _commit(ledger, bind(added, [at + 1], at, facts=[change_node(1, at + 1, ONE)]))
            continue
        told = decision(added, at + 1, "p0-1", "n1", outcome=outcome)
        batch = batch_of(
            advances=[advance(added, at, at + 1)],
            facts=[change_node(1, at + 1, *([] if outcome is Outcome.RESIZED else [LESS]))],
            closed=[PlacementClosed(told.pod_uid, told.decided_at_ms)],
            opened=[opened(told)] if outcome is Outcome.RESIZED else [],
            made=[record(told)],
            seq_next={1: at + 2},
        )
        await _commit(ledger, batch)
    found = (await audit(empty.dsn)).broken
    assert {each.name for each in found} == (set() if room_first else {"never-over-allocatable"})


async def test_two_decisions_that_led_to_one_version_are_found(empty: PostgresBackend) -> None:
    assert await _two_writers(empty, room_first=True) == set()
    await empty.execute(_version_told(3, 2) + " WHERE shard = 1")
    red = {violation.name: violation for violation in await check(empty.dsn)}
    assert "decided-versions-chain" in red
    (row,) = red["decided-versions-chain"].rows
    assert (row["node"], row["version"], row["version_before"]) == ("n1", 2, 2)


# ------------------------------------------------------------------------------------------- what came since


async def test_an_audit_goes_on_where_the_last_one_ended(backend: PostgresBackend) -> None:
    first = await audit(backend.dsn)
    assert (first.ok, first.remembered, first.seqs[0], first.batches[0]) == (True, True, (1, 6), (1, 3))
    await backend.execute("UPDATE decisions SET payload = payload || 'x' WHERE seq = 4")
    assert (await audit(backend.dsn)).ok, "what was audited is not read again"
    (found,) = (await audit(backend.dsn, everything=True)).broken
    assert found.name == "decisions-are-the-journals"
    assert (await audit(backend.dsn)).seqs[0] == (6, 6), "from the last audit in which all held"


_ROW = """INSERT INTO journal SELECT (json_populate_record(j, '%s')).*
FROM journal j WHERE shard = 0 AND batch = 2"""


async def test_a_partition_that_another_journal_took_and_that_is_quiet_since_breaks_nothing(
    backend: PostgresBackend,
) -> None:
    """An audit begins with the last row of each journal before it: of what another took since it is stale."""
    for statement in (
        "UPDATE journal SET position = 10 * position",
        _ROW % '{"shard": 1, "batch": 1, "position": 25, "seqs": {}, "feed": ""}',
        "UPDATE journal SET lanes = '[]' WHERE (shard, batch) = (0, 2)",
        _ROW % '{"batch": 4, "position": 40, "seqs": {}, "feed": ""}',
        "UPDATE journal SET decisions_hash = sha256('') WHERE position IN (25, 40)",
        "UPDATE shard_offsets SET next_offset = 4 WHERE topic = '~batches' AND shard = 0",
        "INSERT INTO shard_offsets (shard, topic, partition, epoch, next_offset)"
        " SELECT 1, '~batches', 0, epoch, 1 FROM shard_offsets WHERE topic = '~batches' AND shard = 0"
        " ON CONFLICT (shard, topic, partition) DO UPDATE SET next_offset = 1",
    ):
        await backend.execute(statement)
    assert [(await audit(backend.dsn)).broken for _ in range(2)] == [[], []]
    await backend.execute(BROKEN["offsets-are-the-journals"][0])
    (found,) = (await audit(backend.dsn)).broken
    assert found.name == "offsets-are-the-journals"


@pytest.mark.parametrize("name", BROKEN)
async def test_what_breaks_after_an_audit_is_found_by_the_next(backend: PostgresBackend, name: str) -> None:
    await backend.execute(
        "INSERT INTO audits (at, seconds, ok, seqs, batches, broken)"
        """ VALUES (now(), 0, true, '{"0": [1, 3]}', '{"0": [1, 0]}', '[]')"""
    )
    for statement in BROKEN[name]:
        await backend.execute(statement)
    result = await audit(backend.dsn)
    assert result.seqs[0] == (3, 6)
    red = {each.name for each in result.broken}
    of_old = {"placement-has-decision", "cycles-by-a-known-revision"}  # of decision 1
    assert red == {name} | ALSO_BREAKS.get(name, set()) or name in of_old


async def test_a_broken_invariant_stays_red_until_somebody_audits_from_later_on(
    backend: PostgresBackend,
) -> None:
    await backend.execute("UPDATE decisions SET payload = payload || 'x' WHERE seq = 5")
    for _ in range(2):
        assert not (await audit(backend.dsn)).ok
    later = (await audit(backend.dsn, remember=False)).at
    assert (await audit(backend.dsn, since=later)).ok
    assert (await audit(backend.dsn)).ok


async def test_a_node_that_is_full_takes_a_pod_when_another_could_not_be_bound_there(
    empty: PostgresBackend,
) -> None:
    ledger = empty.ledger()
    lease, _ = await start(ledger, SHARDS)
    await ledger.ensure_offsets(lease, {TopicPartition(BATCHES, 0): 0})
    one = {"cpu": 100, "nvidia.com/gpu": 2, "pods": 1}
    spec = node_spec("n1", allocatable={"cpu": 100, "pods": 1, "nvidia.com/gpu": 2})
    facts = [new_node(1, spec=spec, delta=one), new_node(2, delta=one)]
    await _commit(ledger, changed(everything(lease), facts=facts), 1)
    failed = decision(lease, 4, "placed", "n1", outcome=Outcome.BIND_FAILED)
    undone = batch_of(
        advances=[advance(lease, 5, 6)],
        facts=[change_node(1, 1, {resource: -amount for resource, amount in one.items()})],
        made=[record(failed)],
        closed=[PlacementClosed("uid-placed", failed.decided_at_ms)],
        pending_added=[waiting(lease, "placed", 9, tried=False)],
        seq_next={0: 5},
    )
    await _commit(ledger, undone, 2)
    other = decision(lease, 5, "other", "n1")
    bound = batch_of(
        advances=[advance(lease, 6, 7)],
        facts=[change_node(1, 2, one)],
        made=[record(other)],
        opened=[opened(other)],
        seq_next={0: 6},
    )
    await _commit(ledger, bound, 3)
    assert [each.name for each in await check(empty.dsn) if not each.warning] == []


@pytest_asyncio.fixture
async def promised(empty: PostgresBackend) -> PostgresBackend:
    """Return a ledger in which a node was promised, the promise cleared, and the node promised once more."""
    ledger = empty.ledger()
    lease, _ = await start(ledger, SHARDS)
    await ledger.ensure_offsets(lease, {TopicPartition(BATCHES, 0): 0})
    one = {"cpu": 100, "nvidia.com/gpu": 2, "pods": 1}
    spec = node_spec("n1", allocatable={"cpu": 8000, "pods": 110, "nvidia.com/gpu": 4})
    facts = [new_node(1, spec=spec, delta=one), new_node(2, spec=spec, delta=one)]
    await _commit(ledger, changed(everything(lease), facts=facts), 1)
    waits: dict[str, Any] = {"signature": b"another-16-bytes"}

    def nominate(seq: int) -> tuple[list[tuple[Decision, bytes]], NominationRow]:
        by = Preempting(preemptor="uid-waits", priority=1, nominated=f"0-{seq}")
        made = [
            record(decision(lease, seq, "waits", "n1", outcome=Outcome.NOMINATED, **waits)),
            told(decision(lease, seq + 1, "placed", "n1", outcome=Outcome.EVICTED), by),
        ]
        row = NominationRow(
            pod_uid="uid-waits",
            namespace="ns",
            name="waits",
            shard=0,
            node="n1",
            at_ms=0,
            expires_ms=1,
            victims=(Victim("ns/placed", "uid-placed", 0),),
            **waits,
        )
        return made, row

    first, row = nominate(4)
    cleared = record(decision(lease, 6, "waits", "n1", outcome=Outcome.CLEARED, **waits))
    spared = record(decision(lease, 7, "placed", "n1", outcome=Outcome.SPARED))
    second, _ = nominate(8)
    batches: list[tuple[list[tuple[Decision, bytes]], list[str]]] = [
        (first, []),
        ([cleared, spared, *second], ["uid-waits"]),
    ]
    for number, (decisions, ended) in enumerate(batches, 2):
        last = decisions[-1][0].seq
        offsets = [advance(lease, 3 + number, 4 + number)]
        batch = batch_of(
            advances=offsets, made=decisions, seq_next={0: last + 1}, unnominated=ended, nominated=[row]
        )
        journal = journal_row(batch, [(0, PODS_TOPIC, 0)], JournalRow(shard=0, batch=number), None)
        count = OffsetAdvance(0, BATCHES, 0, lease.epoch, number - 1, number)
        batch = changed(batch, row=journal, advances=[*offsets, count])
        assert await ledger.commit(batch) == Committed()
    return empty


def told(made: Decision, by: Preempting) -> tuple[Decision, bytes]:
    return made, encode_decision(made, b'{"requests":{}}', {}, None, None, preemption=by)


async def test_promises_that_are_kept_break_nothing(promised: PostgresBackend) -> None:
    assert await check(promised.dsn) == []


@pytest.mark.parametrize("name", BROKEN_PROMISES)
async def test_a_broken_promise_turns_its_check_red(promised: PostgresBackend, name: str) -> None:
    for statement in BROKEN_PROMISES[name]:
        await promised.execute(statement)
    assert name in {violation.name for violation in await check(promised.dsn)}


@pytest_asyncio.fixture
async def relieved(empty: PostgresBackend) -> PostgresBackend:
    """Return a ledger in which a pod has to leave a hot node."""
    ledger = empty.ledger()
    lease, _ = await start(ledger, SHARDS)
    await ledger.ensure_offsets(lease, {TopicPartition(BATCHES, 0): 0})
    one = {"cpu": 100, "nvidia.com/gpu": 2, "pods": 1}
    spec = node_spec("n1", allocatable={"cpu": 8000, "pods": 110, "nvidia.com/gpu": 4})
    facts = [new_node(1, spec=spec, delta=one), new_node(2, spec=spec, delta=one)]
    await _commit(ledger, changed(everything(lease), facts=facts), 1)
    why = Migrating(source="n1", why=["hot"], relief=Amount(cpu=100, memory=0), to="n2")
    evicted = decision(lease, 4, "placed", "n1", outcome=Outcome.EVICTED)
    payload = encode_decision(evicted, b'{"requests":{}}', {}, None, None, migration=why)
    row = MoveRow(
        node="n1",
        pod_uid="uid-placed",
        shard=0,
        namespace="ns",
        name="placed",
        target="n2",
        decided_by=0,
        at_ms=0,
        expires_ms=1,
        rests_until_ms=2,
    )
    offsets = [advance(lease, 5, 6)]
    batch = batch_of(advances=offsets, made=[(evicted, payload)], seq_next={0: 5}, moved=[row])
    journal = journal_row(batch, [(0, PODS_TOPIC, 0)], JournalRow(shard=0, batch=2), None)
    count = OffsetAdvance(0, BATCHES, 0, lease.epoch, 1, 2)
    assert await ledger.commit(changed(batch, row=journal, advances=[*offsets, count])) == Committed()
    return empty


async def test_moves_that_are_under_way_break_nothing(relieved: PostgresBackend) -> None:
    assert await check(relieved.dsn) == []


@pytest.mark.parametrize("name", BROKEN_MOVES)
async def test_a_broken_move_turns_its_check_red(relieved: PostgresBackend, name: str) -> None:
    for statement in BROKEN_MOVES[name]:
        await relieved.execute(statement)
    assert name in {violation.name for violation in await check(relieved.dsn)}
