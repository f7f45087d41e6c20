"""Does a planner that gives a shard up and takes it back decide the same as one that never gave it?"""

from __future__ import annotations

from random import Random

import pytest

from services.adapters.memory.ledger import part_of
from tests.depth import some
from tests.property.site import SHARDS, Producer, Site, audit, batches, kept, payloads


def give_and_take_back(site: Site, shards: list[int]) -> None:
    """Give shards up and take them back, as the ledger has them."""
    planner = site.planner
    before = {at[0]: offset for at, offset in planner.offsets().items() if at[1].startswith("~")}
    assert planner.give(shards) == {shard: before[shard] for shard in shards}
    assert set(planner.owned) == set(range(SHARDS)) - set(shards)
    state = planner.scheduler.state
    assert not [p for p in state.pods.values() if not p.node and p.shard in shards], "they wait elsewhere"
    leases = [site.leases[shard] for shard in shards]
    planner.take(leases, part_of(site.database, leases))
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
