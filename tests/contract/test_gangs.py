"""Does every store find the pods of a gang, and say why they wait, on Postgres as in memory?"""

from __future__ import annotations

import pytest_asyncio

from domain.model.pods import PodTemplate
from services.ports.ledger import Committed, Ledger, PendingGroup, PlacementClosed
from services.ports.store import PodFilter, Store
from tests.batches import batch_of
from tests.contract.batches import (
    AT_MS,
    SIGNATURE,
    advance,
    bind,
    config,
    decision,
    new_node,
    opened,
    waiting,
)
from tests.contract.ledgers import SHARDS, Backend, start

GANG, GATED = b"of-a-gang-16byte", b"with-a-gate-16by"


@pytest_asyncio.fixture
async def store(backend: Backend, ledger: Ledger) -> Store:
    """Return a store of gangs: two pods run and three wait, one has no PodGroup, one is of a Workload."""
    first, *_ = await start(ledger, SHARDS)
    made = [decision(first, seq, f"run-{seq}", "n1", signature=GANG) for seq in (1, 2)]
    pods = [waiting(first, f"wait-{i}", i, signature=GANG, gang="team", since_ms=AT_MS + i) for i in (1, 2)]
    gated = waiting(first, "gated", 3, signature=GATED, gang="team", since_ms=AT_MS + 3)
    reasons = {GANG: {"insufficient:cpu": 3}, GATED: {"scheduling-gated:later": 3}}
    of_workload = waiting(first, "replica", 5, gang="train:w:r")
    batch = bind(
        first,
        [1, 2],
        0,
        facts=[new_node(1, delta={"cpu": 2000, "pods": 2})],
        templates={each: PodTemplate(gang="ns/team") for each in reasons} | {SIGNATURE: PodTemplate()},
        made=[(each, b"{}") for each in made],
        opened=[opened(each, gang="team") for each in made],
        pending_added=[*pods, gated, waiting(first, "lost", 4, gang="none"), of_workload],
        pending_groups=[
            PendingGroup(
                shard=first.shard,
                signature=signature,
                reasons=why,
                unresolvable=signature == GATED,
                cycle_seq=7,
                at_ms=AT_MS + (signature == GATED),
            )
            for signature, why in reasons.items()
        ],
        config=[
            config(name, kind="PodGroup", namespace="ns", object={"min_member": 4})
            for name in ("idle", "team")
        ]
        + [config("train", kind="Workload", namespace="ns", object={"pod_groups": {"w": 2}})],
    )
    assert await ledger.commit(batch) == Committed()
    ended = batch_of(
        advances=[advance(first, 2, 3)],
        closed=[PlacementClosed("uid-run-2", AT_MS)],
        seq_next={first.shard: 3},
        log_time_ms=AT_MS,
    )
    assert await ledger.commit(ended) == Committed()
    return backend.store()


async def test_gangs_come_by_name_with_their_pods_and_the_reason_of_the_others(store: Store) -> None:
    idle, none, team, replica = await store.gangs(None, None, 10, None)
    assert (idle.name, idle.object) == ("idle", {"min_member": 4})
    assert (idle.placed_count, idle.waiting_count) == (0, 0)
    assert (idle.since_ms, idle.reasons, idle.cycle_seq) == (None, None, None)
    assert (replica.name, replica.object, replica.waiting_count) == (
        "train:w:r",
        {"pod_groups": {"w": 2}},
        1,
    )
    assert (none.name, none.object, none.waiting_count) == ("none", None, 1)
    assert (team.namespace, team.name, team.placed_count, team.waiting_count) == ("ns", "team", 1, 3)
    assert (team.since_ms, team.at_ms) == (AT_MS + 1, AT_MS)
    assert team.reasons == {"insufficient:cpu": 3}, "not that of a pod which waits for something of its own"
    assert (team.shard, team.cycle_seq) == (0, 7)


async def test_gangs_are_found_by_name_page_by_page_and_as_far_as_they_are_seen(store: Store) -> None:
    assert [each.name for each in await store.gangs("ns", "team", 1, None)] == ["team"]
    assert list(await store.gangs("other", None, 9, None)) == []
    assert list(await store.seen_by({"other"}).gangs(None, None, 9, None)) == []
    page = await store.gangs(None, None, 2, None)
    assert ([each.name for each in page], page.more) == (["idle", "none"], True)
    page = await store.gangs(None, None, 2, ("ns", "none"))
    assert ([each.name for each in page], page.more) == (["team", "train:w:r"], False)


async def test_the_pods_of_a_gang_are_those_that_live(store: Store) -> None:
    pods = await store.pods(PodFilter(namespace="ns", gang="team"), 10, None)
    assert sorted(pod.name for pod in pods) == ["gated", "run-1", "wait-1", "wait-2"]
    assert {pod.template.gang for pod in pods if pod.template} == {"ns/team"}
