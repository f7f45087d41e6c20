"""Does every ledger keep nodes, pods and offset rows alike, and write a batch wholly or not at all?"""

from __future__ import annotations

import msgspec
import pytest

from domain.model.decisions import Outcome
from domain.model.errors import Fenced, LedgerMismatch
from domain.model.pods import Controller, PodLife, PodTemplate
from services.ports.ledger import (
    Committed,
    Lease,
    Ledger,
    NodeFact,
    NotCommitted,
    PendingGroup,
    PlacementClosed,
    PlacementRefreshed,
    PodTombstone,
)
from services.ports.log import NODES_TOPIC, PODS_TOPIC, TICKS_TOPIC, USAGE_TOPIC, TopicPartition
from services.ports.positions import LogFault, Position, Unmentioned
from tests.batches import batch_of, changed
from tests.contract.batches import (
    AT_MS,
    LENT,
    SIGNATURE,
    advance,
    bind,
    change_node,
    config,
    dead_letter,
    decision,
    load_node,
    new_node,
    node_spec,
    opened,
    profile,
    record,
    usage,
    waiting,
)
from tests.contract.ledgers import LEASE_SECONDS, SHARDS, Backend, loaded, start

COMMITTED, FENCED = Committed(), NotCommitted.FENCED


# ----------------------------------------------------------------------------------------------------- nodes


async def test_node_versions_form_a_chain(ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    assert await ledger.commit(bind(lease, [1], 0, nodes=[new_node(1), new_node(2)])) == COMMITTED
    for version in (1, 2, 3):
        loads = [load_node(1, version, cpu=version)]
        assert await ledger.commit(bind(lease, [version + 1], version, nodes=loads)) == COMMITTED
    for at, claim in enumerate([load_node(1, 3, cpu=9), load_node(1, 5, cpu=9), load_node(7, 1, cpu=9)]):
        outcome = await ledger.commit(bind(lease, [5 + at], 4 + at, node=claim.name, nodes=[claim]))
        lost = {f"ns/p0-{5 + at}": f"uid-p0-{5 + at}"}
        assert outcome == Committed(lost_pods=lost, lost_nodes=frozenset({claim.id}))
    state = await loaded(ledger, [lease])
    assert [(n.version, n.requested) for n in state.nodes] == [(4, {"cpu": 6}), (1, {})]


@pytest.mark.parametrize("fact", [new_node(1, name="other"), new_node(2, name="n1"), change_node(7, 1)])
async def test_a_new_node_that_is_known_or_a_known_one_that_is_not_there_is_a_contradiction(
    backend: Backend, ledger: Ledger, fact: NodeFact
) -> None:
    lease, _ = await start(ledger, SHARDS)
    assert await ledger.commit(bind(lease, [1], 0, nodes=[new_node(1)])) == COMMITTED
    before = await backend.dump()
    with pytest.raises(LedgerMismatch):
        await ledger.commit(bind(lease, [2], 1, nodes=[fact]))
    assert await backend.dump() == before


async def test_a_node_is_changed_deleted_and_comes_back(ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    gone = node_spec("n1", resource_version=7)
    back = node_spec("n1", resource_version=9, allocatable={"cpu": 1, "fpga": 3})
    writes = [
        new_node(1, delta={"cpu": 5}),
        change_node(1, 1, spec=gone, deleted=True, spec_count=2),
        change_node(1, 2, {"cpu": -3}),
        change_node(1, 3, spec=back, spec_count=3),
    ]
    seen = []
    for at, write in enumerate(writes):
        assert await ledger.commit(bind(lease, [at + 1], at, nodes=[write])) == COMMITTED
        (row,) = (await loaded(ledger, [lease])).nodes
        seen.append((row.version, row.deleted, row.spec, row.requested))
    assert seen == [
        (1, False, node_spec("n1"), {"cpu": 5}),
        (2, True, gone, {"cpu": 5}),
        (3, True, gone, {"cpu": 2}),
        (4, False, back, {"cpu": 2}),
    ]


# --------------------------------------------------------------------------------------------- all or nothing


async def test_a_batch_that_fails_late_leaves_no_trace(backend: Backend, ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    assert await ledger.commit(bind(lease, [1], 0, nodes=[new_node(1)])) == COMMITTED
    twice = decision(lease, 2, "p0-1", "n1")  # this pod is placed already
    failing = bind(
        lease,
        [2],
        1,
        nodes=[load_node(1, 1, cpu=7), new_node(2, delta={"tpu": 4})],
        opened=[opened(twice)],
        templates={b"new-template-16b": PodTemplate(priority=3)},
    )
    before = await backend.dump()
    with pytest.raises(LedgerMismatch, match="placements_open"):
        await ledger.commit(failing)
    assert await backend.dump() == before
    assert await ledger.resolve(failing) is NotCommitted.ABSENT
    good = bind(lease, [2], 1, nodes=[load_node(1, 1, tpu=1, cpu=7), new_node(2, delta={"tpu": 4})])
    assert await ledger.commit(good) == COMMITTED
    requested = [node.requested for node in (await loaded(ledger, [lease])).nodes]
    assert requested == [{"tpu": 1, "cpu": 7}, {"tpu": 4}]


async def test_what_is_not_open_cannot_be_closed(backend: Backend, ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    before = await backend.dump()
    with pytest.raises(LedgerMismatch, match="not open"):
        await ledger.commit(bind(lease, [1], 0, closed=[PlacementClosed("nobody", AT_MS)]))
    assert await backend.dump() == before


# ------------------------------------------------------------------------------------------------------ pods


async def test_a_pod_has_at_most_one_open_placement(ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    assert await ledger.commit(bind(lease, [1], 0)) == COMMITTED
    again = decision(lease, 2, "p0-1", "n2")
    moving = bind(lease, [2], 1, made=[record(again)], opened=[opened(again)])
    with pytest.raises(LedgerMismatch):
        await ledger.commit(moving)
    closing = [PlacementClosed("uid-p0-1", AT_MS + 1)]
    assert await ledger.commit(changed(moving, closed=closing)) == COMMITTED
    (placement,) = (await loaded(ledger, [lease])).placements
    assert (placement.node, placement.seq) == ("n2", 2)


async def test_a_pod_waits_again_whose_placement_could_not_be_bound(ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    assert await ledger.commit(bind(lease, [1], 0)) == COMMITTED
    failed = record(decision(lease, 2, "p0-1", "n1", outcome=Outcome.BIND_FAILED))
    undone = bind(
        lease,
        [2],
        1,
        made=[failed],
        opened=[],
        closed=[PlacementClosed("uid-p0-1", AT_MS + 1)],
        pending_added=[waiting(lease, "p0-1", 9)],
    )
    assert await ledger.commit(undone) == COMMITTED
    state = await loaded(ledger, [lease])
    assert ([p.pod_uid for p in state.pending], list(state.placements)) == (["uid-p0-1"], [])


async def test_a_placement_gets_a_newer_resource_version_and_labels(ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    assert await ledger.commit(bind(lease, [1, 2], 0)) == COMMITTED
    life = PodLife(terminating=True, controller=Controller("ReplicaSet", "web", "u-1"))
    newer = [PlacementRefreshed("uid-p0-2", 77, {"app": "x"}, life), PlacementRefreshed("uid-nobody", 5, {})]
    assert await ledger.commit(bind(lease, [3], 2, refreshed=newer)) == COMMITTED
    placements = (await loaded(ledger, [lease])).placements
    assert [p.resource_version for p in placements] == [1, 77, 1]
    assert placements[1].labels == {"app": "x"}
    assert [p.life for p in placements] == [None, life, None]
    bare = [PlacementRefreshed("uid-p0-2", None, {})]
    assert await ledger.commit(bind(lease, [4], 3, refreshed=bare)) == COMMITTED
    known = (await loaded(ledger, [lease])).placements[1]
    assert (known.resource_version, known.labels, known.life) == (None, {}, None)


async def test_pending_pods_come_change_and_go_with_their_groups(backend: Backend, ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)

    def group(signature: bytes, cpu: int) -> PendingGroup:
        return PendingGroup(
            shard=0,
            signature=signature,
            reasons={"cpu": cpu},
            unresolvable=False,
            cycle_seq=1,
            at_ms=AT_MS,
        )

    async def groups() -> int:
        return len((await backend.dump())["pending_groups"])

    other = b"other-signature!"
    pods = [waiting(lease, "b", 2), waiting(lease, "a", 1), waiting(lease, "c", 3, signature=other)]
    batch = bind(lease, [1], 0, pending_added=pods, pending_groups=[group(SIGNATURE, 1), group(SIGNATURE, 2)])
    assert await ledger.commit(batch) == COMMITTED
    assert [pod.name for pod in (await loaded(ledger, [lease])).pending] == ["a", "b", "c"]
    assert await groups() == 1
    changed = waiting(lease, "b", 9, resource_version=4, life=PodLife(start_time="2026-01-01T00:00:00Z"))
    batch = bind(
        lease,
        [2],
        1,
        pending_removed=["uid-b", "uid-c", "uid-nobody"],
        pending_added=[changed],
        pending_groups=[group(other, 3)],
    )
    assert await ledger.commit(batch) == COMMITTED
    assert (await loaded(ledger, [lease])).pending == [waiting(lease, "a", 1), changed]
    assert await groups() == 1  # the other one has no pods left
    batch = bind(lease, [3], 2, pending_removed=["uid-a", "uid-b"])
    assert await ledger.commit(batch) == COMMITTED
    assert await groups() == 0


async def test_a_pod_cannot_wait_twice(backend: Backend, ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    assert await ledger.commit(bind(lease, [1], 0, pending_added=[waiting(lease, "a", 1)])) == COMMITTED
    before = await backend.dump()
    with pytest.raises(LedgerMismatch, match="pending_pkey"):
        await ledger.commit(bind(lease, [2], 1, pending_added=[waiting(lease, "a", 2)]))
    assert await backend.dump() == before


async def test_the_latest_tombstone_of_each_uid_counts(ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)

    def gone(name: str, uid: str, version: int, at_ms: int) -> PodTombstone:
        return PodTombstone(
            namespace="ns", name=name, uid=uid, resource_version=version, shard=0, at_ms=at_ms
        )

    first = [gone("a", "1", 1, 30), gone("a", "1", 2, 30), gone("a", "0", 9, 30), gone("b", "2", 1, 20)]
    assert await ledger.commit(bind(lease, [1], 0, tombstones=first)) == COMMITTED
    assert await ledger.commit(bind(lease, [2], 1, tombstones=[gone("b", "2", 9, 40)])) == COMMITTED
    expected = [gone("a", "0", 9, 30), gone("a", "1", 2, 30), gone("b", "2", 9, 40)]
    assert (await loaded(ledger, [lease])).tombstones == expected


async def test_dead_letters_are_kept_whatever_they_quote(ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    letters = [
        dead_letter(lease, 1, raw=bytes(range(256)), key=None, path="labels[\0]", message="NUL \0 here"),
        dead_letter(lease, 2, raw=b"", key=b"\xff"),
    ]
    batch = batch_of(advances=[advance(lease, 0, 2)], dead_letters=letters, dead_seq_next={0: 3})
    assert await ledger.commit(batch) == COMMITTED
    assert (await loaded(ledger, [lease])).dead_seq_next == {0: 3}


async def test_every_revision_of_a_profile_is_kept_and_the_last_one_loaded(
    backend: Backend, ledger: Ledger
) -> None:
    lease, _ = await start(ledger, SHARDS)
    batches = [
        [profile("b", 1, resource_version=5), profile("a", 1)],
        [profile("b", 2, spec=None), profile("a", 10, at_ms=AT_MS + 1)],
        [profile("b", 2, spec=None, resource_version=9, at_ms=AT_MS + 5)],  # only the version is newer
        [profile("a", 9)],
    ]
    for at, rows in enumerate(batches):
        assert await ledger.commit(bind(lease, [at + 1], at, profiles=rows)) == COMMITTED
    known = [profile("a", 10, at_ms=AT_MS + 1), profile("b", 2, spec=None, resource_version=9)]
    assert sorted((await loaded(ledger, [lease])).profiles, key=lambda row: row.name) == known
    assert len((await backend.dump())["profiles"]) == 5


async def test_of_a_configuration_object_the_latest_is_kept(backend: Backend, ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    elsewhere = config("a", namespace="ns", kind="PodDisruptionBudget", object={})
    batches = [
        [config("b", resource_version=5), config("a"), elsewhere],
        [config("b", object=None, resource_version=6, at_ms=AT_MS + 1), config("c"), config("d")],
        [config("c", object=None), config("d", object=None), config("e", object=None)],
        [config("a", object={"value": 1}), config("a", object={"value": 2}, resource_version=9)],
    ]
    for at, rows in enumerate(batches):
        assert await ledger.commit(bind(lease, [at + 1], at, config=rows)) == COMMITTED
    assert (await loaded(ledger, [lease])).config == [elsewhere, batches[3][1], batches[1][0]]
    assert len((await backend.dump())["config_objects"]) == 3


async def test_a_revision_cannot_be_written_twice_at_once(backend: Backend, ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    before = await backend.dump()
    with pytest.raises(ValueError, match="profile revision"):
        await ledger.commit(bind(lease, [1], 0, profiles=[profile("a", 1), profile("a", 1)]))
    assert await backend.dump() == before


async def test_usage_is_replaced_node_by_node_and_forgotten_where_nothing_is_left(ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    gone = usage("b", series={})
    batches = [
        [usage("b"), usage("a"), usage("B")],
        [usage("a", at_ms=AT_MS + 5, quality=LENT), gone, usage("never", series={})],
        [],
    ]
    for at, rows in enumerate(batches):
        assert await ledger.commit(bind(lease, [at + 1], at, usage=rows)) == COMMITTED
    known = [usage("B"), usage("a", at_ms=AT_MS + 5, quality=LENT)]
    assert (await loaded(ledger, [lease])).usage == known


async def test_usage_of_a_node_cannot_be_written_twice_at_once(backend: Backend, ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    before = await backend.dump()
    with pytest.raises(ValueError, match="node's usage"):
        await ledger.commit(bind(lease, [1], 0, usage=[usage("a"), usage("a")]))
    assert await backend.dump() == before


async def test_log_time_never_goes_back(ledger: Ledger) -> None:
    lease, _ = await start(ledger, SHARDS)
    assert await ledger.commit(bind(lease, [1], 0, log_time_ms=500)) == COMMITTED
    assert await ledger.commit(bind(lease, [2], 1, log_time_ms=400)) == COMMITTED
    assert (await loaded(ledger, [lease])).log_time_ms == 500


# -------------------------------------------------------------------------------------------- offset rows


async def test_offset_rows_are_made_once(ledger: Ledger) -> None:
    first, _ = await start(ledger, SHARDS)
    at = TopicPartition(PODS_TOPIC, 0)
    assert await ledger.commit(bind(first, [1], 0)) == COMMITTED
    await ledger.ensure_offsets(first, {at: 0, TopicPartition("berth.nodes", 0): 42})
    await ledger.ensure_offsets(first, {})
    offsets = (await loaded(ledger, [first])).offsets
    assert offsets == {(0, PODS_TOPIC, 0): 1, (0, "berth.nodes", 0): 42}


async def test_offset_rows_are_not_made_by_a_stale_epoch(backend: Backend, ledger: Ledger) -> None:
    first, _ = await start(ledger, SHARDS)
    before = await backend.dump()
    with pytest.raises(Fenced):
        await ledger.ensure_offsets(Lease(0, first.epoch - 1), {TopicPartition("x", 0): 0})
    assert await backend.dump() == before


async def test_what_the_log_lost_is_noted_and_the_offsets_move(backend: Backend, ledger: Ledger) -> None:
    leases = await ledger.acquire("w", LEASE_SECONDS)
    lease, at = leases[0], TopicPartition(NODES_TOPIC, 0)
    await ledger.ensure_offsets(lease, {at: 7})
    assert (await ledger.positions(leases))[lease.shard, at] == Position(7, None)
    await ledger.ensure_offsets(lease, {at: 9}, {NODES_TOPIC: "first"})
    await ledger.ensure_offsets(lease, {at: 9}, {NODES_TOPIC: "second"})
    assert (await ledger.positions(leases))[lease.shard, at] == Position(7, "first")
    fault = LogFault(
        shard=lease.shard,
        epoch=lease.epoch,
        at=at,
        code="recreated",
        next_offset=7,
        first=2,
        end=5,
        goes_on_at=2,
        topic_id="second",
        resync_below=5,
        unmentioned=[Unmentioned("a"), Unmentioned("ns/p", "uid", "b")],
    )
    with pytest.raises(Fenced):
        await ledger.note_log_faults([msgspec.structs.replace(fault, epoch=lease.epoch - 1)])
    await ledger.note_log_faults([fault])
    with pytest.raises(LedgerMismatch, match="log_faults_pkey"):  # who rests begins anew with its epochs
        await ledger.note_log_faults([fault])
    assert (await ledger.positions(leases))[lease.shard, at] == Position(2, "second", 5)
    state = await loaded(ledger, leases)
    assert state.offsets[lease.shard, *at] == 2


@pytest.mark.parametrize("topic", [USAGE_TOPIC, TICKS_TOPIC])
async def test_what_goes_on_at_the_first_record_is_not_told_as_read_again(
    backend: Backend, ledger: Ledger, topic: str
) -> None:
    """A replay refuses what was read again: of each key only the latest record counted."""
    leases = await ledger.acquire("w", LEASE_SECONDS)
    at = TopicPartition(topic, 0)
    await ledger.ensure_offsets(leases[0], {at: 7})
    fault = LogFault(
        shard=0,
        epoch=leases[0].epoch,
        at=at,
        code="truncated",
        next_offset=7,
        first=9,
        end=12,
        goes_on_at=9,
        topic_id=None,
        resync_below=None,
    )
    await ledger.note_log_faults([fault])
    assert list(await backend.history().log_faults()) == [fault]
