"""Does every ledger refuse pods that others, whom no node's version shows, may have made wrong?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from domain.model.pods import PodTemplate
from services.codec.feed import pack_feed, unpack_feed
from services.ports.guards import Guard, budget_key
from services.ports.journal import BATCHES, JournalRow
from services.ports.ledger import CommitBatch, Committed, Lease, Ledger, OffsetAdvance
from services.ports.log import TopicPartition
from tests.batches import batch_of, changed
from tests.contract.batches import AT_MS, SIGNATURE, bind, decision, load_node, new_node, opened, record
from tests.contract.ledgers import SHARDS, start

MATCHER = '{"match":{},"spans":true}'
ON_NODE = frozenset({1})


def reads(key: str, version: int) -> Guard:
    return Guard(key=key, version_seen=version, nodes=ON_NODE)


def raises(version: int) -> Guard:
    return Guard(key=MATCHER, version_seen=version, raises=True, nodes=ON_NODE)


ANNOUNCES = Guard(key=MATCHER, version_seen=0, announces_to=("ns",), nodes=ON_NODE)


class Writer:
    """Commits batches of one pod each, on node 1, as the worker of a shard."""

    def __init__(self, ledger: Ledger, lease: Lease) -> None:
        self.ledger, self.lease = ledger, lease
        self.count = 0  # of pods
        self.batch = int(lease.shard == 0)  # the first one brought the node

    async def commit(
        self, version: int, guards: Sequence[Guard], followed: Mapping[int, int] = {}, **more: Any
    ) -> Committed:
        """Place a pod on node 1, which is seen at a version; it must be granted but for the guards."""
        at, self.count = self.count, self.count + 1
        claims = [load_node(1, version)]
        batch = bind(self.lease, [at + 1], at, nodes=claims, guards=guards, followed=followed, **more)
        number, self.batch = self.batch, self.batch + 1
        counted = OffsetAdvance(self.lease.shard, BATCHES, 0, self.lease.epoch, number, number + 1)
        batch = changed(batch, advances=[*batch.offsets.advances, counted])
        outcome = await self.ledger.commit(journalled(batch, self.lease.shard, self.batch))
        assert isinstance(outcome, Committed)
        return outcome


def journalled(batch: CommitBatch, shard: int, number: int) -> CommitBatch:
    row = JournalRow(shard=shard, batch=number, log_time_ms=AT_MS, feed=pack_feed(batch))
    return changed(batch, row=row)


def raised_by(outcome: Committed) -> set[str]:
    return set(outcome.raised)


async def test_a_new_matcher_is_announced_and_its_pods_wait(ledger: Ledger) -> None:
    first, _ = await writers(ledger)
    assert not (await first.commit(1, [reads("ns", 0)])).lost_pods, "nobody has announced anything"
    outcome = await first.commit(2, [reads("ns", 0), ANNOUNCES])
    assert set(outcome.lost_pods) == {"ns/p0-2"}
    assert outcome.refused == outcome.lost_nodes == ON_NODE
    assert raised_by(outcome) == {MATCHER, "ns"}
    assert (await ledger.load_base()).guards == {MATCHER: 1, "ns": 1}
    *_, told = await ledger.follow({0: 0})
    assert set(told.feed.raised) == {MATCHER, "ns"}
    assert told.feed.opened.keys == []


async def test_who_does_not_know_of_a_matcher_places_nothing_in_its_namespaces(ledger: Ledger) -> None:
    first, second = await writers(ledger)
    await first.commit(1, [ANNOUNCES])
    assert set((await second.commit(1, [reads("ns", 0)])).lost_pods) == {"ns/p1-1"}
    assert not (await second.commit(1, [reads("other", 0)])).lost_pods
    assert not (await second.commit(2, [reads("ns", 1)])).lost_pods


async def test_of_two_who_read_a_matcher_one_is_first(ledger: Ledger) -> None:
    first, second = await writers(ledger)
    await first.commit(1, [ANNOUNCES])
    outcome = await first.commit(1, [reads("ns", 1), raises(1)])
    assert (outcome.lost_pods, raised_by(outcome)) == ({}, {MATCHER})
    outcome = await second.commit(2, [reads("ns", 1), raises(1)])
    assert (set(outcome.lost_pods), raised_by(outcome)) == ({"ns/p1-1"}, set())
    assert not (await second.commit(2, [raises(2)], {0: 2})).lost_pods
    assert (await ledger.load_base()).guards == {MATCHER: 3, "ns": 1}


async def test_who_reads_a_matcher_must_know_all_who_could_not_know_of_it(ledger: Ledger) -> None:
    first, second = await writers(ledger)
    await second.commit(1, [reads("ns", 0)])
    await first.commit(2, [ANNOUNCES])
    assert set((await first.commit(2, [raises(1)], {1: 0})).lost_pods) == {"ns/p0-2"}
    assert not (await first.commit(2, [raises(1)], {1: 1})).lost_pods


async def test_what_a_node_loses_raises_nothing(ledger: Ledger) -> None:
    first, _ = await writers(ledger)
    await first.commit(1, [ANNOUNCES])
    outcome = await first.commit(7, [raises(1)])
    assert (set(outcome.lost_pods), outcome.refused, outcome.raised) == ({"ns/p0-2"}, frozenset(), ())
    assert (await ledger.load_base()).guards[MATCHER] == 1


BESIDE = Guard(key=MATCHER, version_seen=1, raises=True, nodes=frozenset({1, 2}))


@pytest.mark.parametrize("guards", [[BESIDE], []], ids=["of several workers", "of the only worker"])
async def test_who_was_placed_beside_a_pod_that_lost_loses_too(
    ledger: Ledger, guards: Sequence[Guard]
) -> None:
    first, _ = await writers(ledger)
    await first.commit(1, [ANNOUNCES])
    lease = first.lease
    new = batch_of(
        advances=[OffsetAdvance(0, BATCHES, 0, lease.epoch, 2, 3)], facts=[new_node(2), new_node(3)]
    )
    assert await ledger.commit(journalled(new, 0, 3)) == Committed()
    only_room = msgspec.structs.replace(load_node(3, 1, cpu=100), resource_only=True)
    made = [decision(lease, seq, f"p{seq}", f"n{node}") for seq, node in ((2, 1), (3, 2), (4, 3))]
    batch = batch_of(
        advances=[OffsetAdvance(0, BATCHES, 0, lease.epoch, 3, 4)],
        made=[record(each) for each in made],
        claims=[load_node(1, 7, cpu=100), load_node(2, 1, cpu=100), only_room],
        opened=[opened(each) for each in made],
        waited={each.pod_uid: (each.seq, AT_MS, None) for each in made},
        templates={SIGNATURE: PodTemplate(requests={"cpu": 100})},
        seq_next={0: 5},
        guards=guards,
        log_time_ms=AT_MS,
    )
    outcome = await ledger.commit(journalled(batch, 0, 4))
    assert isinstance(outcome, Committed)
    assert (set(outcome.lost_pods), outcome.raised) == ({"ns/p2", "ns/p3"}, ())
    assert outcome.refused == {2}, "its own claim would have been granted"
    base = await ledger.load_base()
    assert {row.name: (row.version, row.requested) for row in base.nodes} == {
        "n1": (1, {}),
        "n2": (1, {}),
        "n3": (2, {"cpu": 100}),
    }
    assert [placed.name for placed in base.placements] == ["p4"]
    assert base.guards[MATCHER] == 1


async def test_what_was_raised_is_told_again(ledger: Ledger) -> None:
    """By ``resolve``, where the answer to a commit did not come."""
    first, _ = await writers(ledger)
    await first.commit(1, [ANNOUNCES])
    batch = bind(first.lease, [2], 1, nodes=[load_node(1, 1)], guards=[raises(1)])
    batch = journalled(batch, 0, 3)
    outcome = await ledger.commit(batch)
    assert isinstance(outcome, Committed)
    assert outcome.raised == (MATCHER,)
    assert await ledger.resolve(batch) == outcome
    assert batch.journal.row is not None
    assert unpack_feed(batch.journal.row.feed).raised == []


async def writers(ledger: Ledger) -> tuple[Writer, Writer]:
    """Return the workers of two shards, with a node that they know."""
    leases = await start(ledger, SHARDS)
    for lease in leases:
        await ledger.ensure_offsets(lease, {TopicPartition(BATCHES, 0): 0})
    known = batch_of(
        advances=[OffsetAdvance(0, BATCHES, 0, leases[0].epoch, 0, 1)], facts=[new_node(1)], log_time_ms=AT_MS
    )
    assert await ledger.commit(journalled(known, 0, 1)) == Committed()
    found = tuple(Writer(ledger, lease) for lease in leases)
    return found[0], found[1]


async def test_a_shard_that_was_taken_over_is_known_to_its_end(ledger: Ledger) -> None:
    first, second = await writers(ledger)
    await second.commit(1, [reads("ns", 0)])
    await first.commit(2, [ANNOUNCES])
    outcome = await first.commit(2, [raises(1)], {}, shards=dict([first.lease, second.lease]))
    assert outcome.lost_pods == {}


def drops(version: int) -> Guard:
    return Guard(key=MATCHER, version_seen=version, drops=True)


async def test_a_matcher_goes_that_nobody_used_meanwhile_and_all_are_told(ledger: Ledger) -> None:
    first, second = await writers(ledger)
    await first.commit(1, [ANNOUNCES])
    await first.commit(1, [raises(1)])
    assert raised_by(await second.commit(2, [drops(1)])) == set(), "somebody raised it"
    assert raised_by(await second.commit(3, [drops(2)])) == {f"-{MATCHER}"}
    assert (await ledger.load_base()).guards == {"ns": 1}
    *_, told = await ledger.follow({1: 0})
    assert told.feed.raised == [f"-{MATCHER}"]
    assert (await first.commit(4, [raises(2)])).refused == ON_NODE, "it has not heard of that"
    assert raised_by(await first.commit(4, [ANNOUNCES], {1: 2})) == {MATCHER, "ns"}
    assert not (await first.commit(4, [reads("ns", 2), raises(1)], {1: 2})).lost_pods


BUDGET = budget_key("ns/web")


def evicts(version: int) -> Guard:
    """A victim that a budget counts leaves node 1."""
    return Guard(key=BUDGET, version_seen=version, raises=True, nodes=ON_NODE)


async def test_of_two_who_take_from_a_budget_one_is_first_though_nobody_did_before(ledger: Ledger) -> None:
    first, second = await writers(ledger)
    outcome = await first.commit(1, [evicts(0)])
    assert (outcome.lost_pods, outcome.raised) == ({}, (BUDGET,))
    outcome = await second.commit(2, [evicts(0)])
    assert (set(outcome.lost_pods), outcome.refused, outcome.raised) == ({"ns/p1-1"}, ON_NODE, ())
    assert not (await second.commit(2, [evicts(1)])).lost_pods
    assert (await ledger.load_base()).guards == {BUDGET: 2}
    told = [each.feed.raised for each in await ledger.follow({0: 0, 1: 0})]
    assert sorted(told) == [[], [], [BUDGET], [BUDGET]]


async def test_what_lost_took_nothing_from_a_budget(ledger: Ledger) -> None:
    first, second = await writers(ledger)
    outcome = await first.commit(7, [evicts(0)])
    assert (set(outcome.lost_pods), outcome.raised) == ({"ns/p0-1"}, ())
    assert not (await second.commit(1, [evicts(0)])).lost_pods


async def test_two_who_take_from_a_budget_at_the_same_time_do_not_both_come_first(ledger: Ledger) -> None:
    first, second = await writers(ledger)
    await first.commit(1, [evicts(0)])
    for version in (1, 2):
        outcomes = await asyncio.gather(
            *(writer.commit(version + 1, [evicts(version)]) for writer in (first, second))
        )
        assert sorted(len(each.lost_pods) for each in outcomes) == [0, 1]


async def test_two_who_bring_a_budget_at_the_same_time_do_not_both_come_first(ledger: Ledger) -> None:
    first, second = await writers(ledger)
    outcomes = await asyncio.gather(*(writer.commit(1, [evicts(0)]) for writer in (first, second)))
    assert sorted(len(each.lost_pods) for each in outcomes) == [0, 1]
    assert (await ledger.load_base()).guards == {BUDGET: 1}
