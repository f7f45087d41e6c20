"""Does every ledger show a worker what others did: all of it, once, in an order in which it can be folded?"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest

from domain.model.config import CONTENTS
from domain.model.errors import Fenced, Unavailable
from domain.model.events import ConfigDeleted, ConfigUpserted, NodeUsed, ProfileDeleted, ProfileUpserted
from domain.model.pods import Controller, PodLife, PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.usage import Measured, NodeUsage
from services.adapters.memory import ledger as memory
from services.adapters.postgres import following
from services.codec.feed import FeedEvent, pack_again, pack_feed, unpack_event, unpack_feed
from services.ports.journal import JournalRow
from services.ports.ledger import (
    CommitBatch,
    Committed,
    Lease,
    Ledger,
    PlacementClosed,
    PlacementRefreshed,
)
from tests.batches import batch_of, changed
from tests.contract.batches import AT_MS, SIGNATURE, advance, bind, everything, load_node
from tests.contract.ledgers import SHARDS, Backend, start


def journalled(batch: CommitBatch, shard: int, number: int) -> CommitBatch:
    row = JournalRow(
        shard=shard,
        batch=number,
        worker=f"worker-{shard}",
        followed={1 - shard: 3},
        log_time_ms=AT_MS + number,
        seqs={shard: (1, 4)},
        feed=pack_feed(batch),
    )
    return changed(batch, row=row)


async def commit(ledger: Ledger, batch: CommitBatch) -> None:
    assert await ledger.commit(batch) == Committed()


async def two_chains(ledger: Ledger) -> list[Lease]:
    """Leave batches 1 to 3 of shard 0 and 1 to 2 of shard 1, by turns."""
    leases = await start(ledger, SHARDS)
    await commit(ledger, journalled(everything(leases[0]), 0, 1))
    await commit(ledger, journalled(bind(leases[1], [1], 0), 1, 1))
    await commit(ledger, journalled(bind(leases[0], [4], 5), 0, 2))
    await commit(ledger, journalled(bind(leases[1], [2], 1), 1, 2))
    await commit(ledger, journalled(bind(leases[0], [5], 6), 0, 3))
    return leases


async def rows(ledger: Ledger, seen: dict[int, int]) -> list[tuple[int, int]]:
    return [(row.shard, row.batch) for row in await ledger.follow(seen)]


async def test_only_what_others_did_since_comes_and_in_the_order_of_positions(ledger: Ledger) -> None:
    assert await ledger.follow({0: 0, 1: 0}) == []
    await two_chains(ledger)
    assert await rows(ledger, {0: 0, 1: 0}) == [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3)]
    assert await rows(ledger, {0: 1, 1: 1}) == [(0, 2), (1, 2), (0, 3)]
    assert await rows(ledger, {0: 0}) == [(0, 1), (0, 2), (0, 3)], "shard 1 is the caller's own"
    assert await rows(ledger, {0: 3, 1: 2}) == await rows(ledger, {}) == []
    positions = [row.position for row in await ledger.follow({0: 0, 1: 0})]
    assert positions == sorted(set(positions))


async def test_a_batch_comes_with_all_that_its_feed_names(backend: Backend, ledger: Ledger) -> None:
    leases = await two_chains(ledger)
    batch = journalled(everything(leases[0]), 0, 1)
    assert batch.journal.row is not None
    for reader in (ledger, backend.ledger()):
        first, second, *_ = await reader.follow({0: 0, 1: 0})
        assert first.feed == unpack_feed(batch.journal.row.feed)
        assert (first.log_time_ms, first.seqs) == (AT_MS + 1, {0: (1, 4)})
        assert first.templates == {SIGNATURE: PodTemplate(requests={"cpu": 100, "nvidia.com/gpu": 2})}
        assert second.templates == first.templates, "as the ledger has it, which had it before"


@pytest.mark.parametrize("is_followed", [True, False])
async def test_a_ledger_that_lacks_what_was_read_of_it_is_another(
    backend: Backend, ledger: Ledger, is_followed: bool
) -> None:
    """A snapshot of its volume was restored, name and all; this worker's own shards may have lost nothing."""
    other = backend.ledger()
    if is_followed:
        await other.load_base()
    await two_chains(ledger)
    if is_followed:
        assert len(await other.follow({0: 0, 1: 0})) == 5
    else:
        await other.load_base()
    await backend.cut()
    with contextlib.suppress(Unavailable):
        await other.follow({0: 3})
    assert await other.follow({0: 3}) == [], "a restart loses nothing"
    await backend.lose_batch(0, 3)
    with contextlib.suppress(Unavailable, Fenced):
        await other.follow({0: 2})
    with pytest.raises(Fenced):
        await other.follow({0: 2})
    await other.load_base()
    assert await other.follow({0: 2}) == []


async def test_a_ledger_that_lacks_what_was_written_to_it_is_another(
    backend: Backend, ledger: Ledger
) -> None:
    """The worker that wrote it may have lost its shard meanwhile, and go on from what it has in memory."""
    await ledger.load_base()
    await two_chains(ledger)
    await backend.cut()
    with contextlib.suppress(Unavailable):
        await ledger.follow({0: 3})
    assert await ledger.follow({0: 3}) == [], "a restart loses nothing"
    await backend.lose_batch(0, 3)
    with contextlib.suppress(Unavailable, Fenced):
        await ledger.follow({0: 3})
    with pytest.raises(Fenced):
        await ledger.follow({0: 3})


async def test_a_batch_that_was_pruned_is_not_lost(backend: Backend, ledger: Ledger) -> None:
    await ledger.load_base()
    await two_chains(ledger)
    await backend.prune_batch(0, 3)
    with contextlib.suppress(Unavailable):
        await ledger.follow({0: 3})
    assert await ledger.follow({0: 3}) == []


async def test_each_answer_is_bounded_and_complete_in_itself(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two_chains(ledger)
    order = [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3)]
    seen, found = {0: 0, 1: 0}, []
    monkeypatch.setattr(memory, "followed_rows_max", 2)
    monkeypatch.setattr(following, "FOLLOW", following.statement(rows_max=2, bytes_max=1 << 20))
    while answer := await rows(ledger, seen):
        assert len(answer) <= 2
        found += answer
        seen |= dict(answer)
    assert found == order
    monkeypatch.setattr(memory, "followed_rows_max", 9)
    monkeypatch.setattr(memory, "followed_bytes_max", 1)
    monkeypatch.setattr(following, "FOLLOW", following.statement(rows_max=9, bytes_max=1))
    assert await rows(ledger, {0: 0, 1: 0}) == order[:1], "one always comes, however much it is"


# ---------------------------------------------------------------------------------------------------- feed


def test_a_feed_says_what_the_batch_did() -> None:
    lease = Lease(3, 1)
    life = PodLife(start_time="2023", controller=Controller(kind="Job", name="j", uid="u"))
    batch = changed(
        everything(lease),
        closed=[PlacementClosed("uid-left", AT_MS), PlacementClosed("uid-placed", AT_MS)],
        refreshed=[
            PlacementRefreshed("uid-old", 9, {"app": "web"}, life),
            PlacementRefreshed("uid-older", None, {}, None),
        ],
    )
    feed = unpack_feed(pack_feed(batch))
    assert (feed.nodes, feed.changes) == (["n1", "n2"], [1, 1])
    assert [(fed.id, fed.spec.name, fed.deleted, fed.sent_by) for fed in feed.specs] == [
        (1, "n1", False, "key:ops"),
        (2, "n2", False, None),
    ]
    assert feed.closed == ["uid-left", "uid-placed"], "a pod that is opened again has moved"
    pods = feed.opened
    assert (pods.keys, pods.uids) == (["ns/placed", "ns/adopted"], ["uid-placed", "uid-adopted"])
    assert [feed.nodes[at] for at in pods.nodes] == ["n1", "n2"]
    assert [feed.signatures[at] for at in pods.templates] == [SIGNATURE] * 2
    assert [feed.labels[at] for at in pods.labels] == [{"app": "web"}, {}]
    assert [feed.lives[at] for at in pods.lives] == [None, None]
    assert (pods.versions, pods.shards, pods.adopted) == ([1, None], [3, 3], [False, True])
    others = feed.refreshed
    assert (others.uids, others.versions) == (["uid-old", "uid-older"], [9, None])
    assert [feed.labels[at] for at in others.labels] == [{"app": "web"}, {}]
    assert [feed.lives[at] for at in others.lives] == [life, None]


def test_a_pod_may_count_on_a_node_that_the_batch_did_not_change() -> None:
    lease = Lease(0, 1)
    batch = changed(bind(lease, [1, 2], 0, node="unknown"), claims=[load_node(1, 4)])
    feed = unpack_feed(pack_feed(batch))
    assert (feed.nodes, feed.changes) == (["n1", "unknown"], [1])
    assert feed.opened.nodes == [1, 1]


def test_rows_of_builds_without_a_feed_say_nothing() -> None:
    empty = unpack_feed(pack_feed(batch_of(advances=[advance(Lease(0, 1), 0, 1)])))
    assert unpack_feed(b"") == msgspec.structs.replace(empty, gone=None), "who is gone is left to the ledger"


def _contents() -> dict[str, Any]:
    fields = {
        "PriorityClass": {"name": "c", "value": 7},
        "PodDisruptionBudget": {"selector": None, "min_available": "50%"},
        "Namespace": {},
        "HostedReplicas": {"kind": "ReplicaSet", "workload": "w", "least": 1, "most": 5},
        "CoLocationPolicy": {
            "view": {"margin_cpu": {"percent": 1 / 3}, "reserved": [1, 2], "mid_form": "request"}
        },
    }
    return {
        kind: msgspec.convert(fields.get(kind, {"selector": None}), shape) for kind, shape in CONTENTS.items()
    }


def test_events_come_back_as_they_were_folded() -> None:
    window = {"cpu": Measured(avg=1 / 3)}
    events: list[FeedEvent] = [
        NodeUsed(NodeUsage(node="n", at_ms=5, percent={"cpu": 0.1}, used={"memory": 1 << 40}, window=window)),
        ConfigDeleted("Service", "ns", "s", None),
        *(ProfileUpserted(profile, 2**62) for profile in BUILT_IN_PROFILES.values()),
        ProfileDeleted("gone"),
        *(ConfigUpserted(kind, "", "x", content, 3) for kind, content in _contents().items()),
    ]
    batch = everything(Lease(0, 1))
    packed = pack_feed(batch, list(enumerate(events)))
    found = unpack_feed(packed).events
    assert [(before, unpack_event(kind, each)) for before, kind, each in found] == list(enumerate(events))
    fewer = changed(batch, opened=batch.pods.opened[:1])
    again = unpack_feed(pack_again(fewer, packed))
    assert (again.events, again.opened.keys) == (found, ["ns/placed"])
