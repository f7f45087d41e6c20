"""Does a planner that gives a shard up and takes it back decide the same as one that never gave it?"""

from __future__ import annotations

from random import Random

import pytest

from services.adapters.memory.ledger import part_of
from services.ports.journal import JournalRow
from tests.depth import some
from tests.property.site import SHARDS, Producer, Site, audit, batches, kept, payloads


def give_and_take_back(site: Site, shards: list[int]) -> None:
    """Give shards up and take them back, as the ledger has them."""
    planner = site.planner
    before = {at[0]: offset for at, offset in planner.offsets().items() if at[1].startswith("~")}
    assert planner.give_shards(shards) == {shard: before[shard] for shard in shards}
    assert set(planner.owned) == set(range(SHARDS)) - set(shards)
    state = planner.scheduler.state
    assert not [p for p in state.pods.values() if not p.node and p.shard in shards], "they wait elsewhere"
    leases = [site.leases[shard] for shard in shards]
    planner.take_shards(leases, part_of(site.database, leases))
    assert planner.owns_all


@pytest.mark.parametrize("seed", some(range(20)))
def test_a_shard_that_was_given_and_taken_back_is_decided_as_ever(seed: int) -> None:
    random = Random(seed)
    records = Producer(random).records(150)
    keeping, giving = Site(), Site()
    for batch in batches(records, random):
        keeping.take(batch)
        giving.take(batch)
        if random.random() < 0.4:
            give_and_take_back(giving, random.choice(([0], [1], [0, 1])))
        audit(giving)
    assert payloads(giving) == payloads(keeping)
    giving.take([])
    keeping.take([])
    assert kept(giving.planner) == kept(keeping.planner)


@pytest.mark.parametrize("seed", some(range(20)))
def test_memory_after_a_rest_is_what_a_restart_makes_of_the_ledger(seed: int) -> None:
    """A rest asks the ledger nothing, and a replay begins with what the ledger has of that moment."""
    random = Random(seed)
    records = Producer(random).records(150)
    resting, restarting = Site(), Site()
    for batch in batches(records, random):
        resting.take(batch)
        restarting.take(batch)
        if random.random() < 0.4:
            resting.planner.rest([])
            restarting.planner = restarting.restarted()
            restarting.planner.renew_queue()
            planners = resting.planner, restarting.planner
            assert len({planner.digest() for planner in planners}) == 1
            one, other = (
                kept(each) | {"queue": [key for _, key in kept(each)["queue"]]} for each in planners
            )  # the counter behind arrivals may have come further than any that the ledger has
            assert one == other
            one, other = (dict(planner.scheduler.state.tombstones.known()) for planner in planners)
            assert one == other
        audit(resting)
    assert resting.database.decisions == restarting.database.decisions
    assert [row.effects for row in journal(resting)] == [row.effects for row in journal(restarting)]


def journal(site: Site) -> list[JournalRow]:
    """Return the rows of the journal, in their order."""
    return sorted(site.database.journal.values(), key=lambda row: row.position)
