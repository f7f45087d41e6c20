"""Do workers that split a log and follow each other know the same cluster as one that folds all of it?"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from domain.model.events import Event, NodeUpserted
from domain.state.cluster import ClusterState
from domain.state.pods import PodEntry
from tests.depth import examples
from tests.oracle.scenarios import Scenario, World
from tests.property.fold_audit import audit
from tests.property.followers import SHARDS, Ledger, Worker, shard_of


def log(seed: int) -> list[Event]:
    """Return what happens to a cluster; some nodes come after pods that run on them."""
    random = Random(seed)
    world = World(Scenario(seed=seed, nodes=6, pods=40, groups=5, resources=4, cycles=1))
    nodes = world.first_nodes()
    later = [nodes.pop() for _ in range(random.randrange(4))]
    later.append(NodeUpserted(world._node("n-later")))
    events = nodes
    for _ in range(random.randrange(3, 14)):
        events = events + world.new_pods(3) + world.changes(2)
        if later and random.random() < 0.4:
            events.append(later.pop())
        if random.random() < 0.3:
            events.append(random.choice(events))
    return events


def placed(state: ClusterState) -> dict[str, tuple[object, ...]]:
    """Return every placed pod with all that must be equal."""

    def known(pod: PodEntry) -> tuple[object, ...]:
        return (*pod.known(), pod.shard, pod.spec.life)

    return {key: known(pod) for key, pod in state.pods.items() if pod.node}


def nodes(state: ClusterState) -> dict[str, tuple[object, ...]]:
    """Return what is known of every node that exists or did."""
    return {
        name: (entry.spec, entry.deleted, entry.spec_count, state.requested_of(name))
        for name, entry in state.nodes.items()
        if entry.spec is not None
    }


def run(seed: int, *, moves: bool) -> tuple[Ledger, list[Worker]]:
    random, ledger = Random(seed), Ledger()
    first, second = Worker(ledger, frozenset((0, 2))), Worker(ledger, frozenset((1,)))
    watcher = Worker(ledger, frozenset())
    workers = [first, second]
    for event in log(seed):
        shard = shard_of(event)
        (owner,) = [each for each in workers if shard in each.state.own]
        owner.fold(event, shard)
        for worker in workers:
            if random.random() < 0.3:
                if random.random() < 0.7:
                    worker.assume(random)
                worker.commit(random)
                worker.follow(random.randrange(4))
        watcher.follow(random.randrange(2))
        if moves and random.random() < 0.1:
            shard = random.randrange(SHARDS)
            giver, taker = workers if shard in first.state.own else workers[::-1]
            giver.give(shard, taker, random)
    while any(worker.followed < len(ledger.journal) or worker.has_news for worker in workers):
        for worker in workers:
            worker.follow(len(ledger.journal))
            if worker.has_news:
                worker.commit(random)
    watcher.follow(len(ledger.journal))
    return ledger, [*workers, watcher]


def check(ledger: Ledger, workers: list[Worker]) -> None:
    one = ledger.one
    for worker in workers:
        state = worker.state
        audit(state)
        assert placed(state) == placed(one)
        assert nodes(state) == nodes(one)
        for name, row in ledger.nodes.items():
            entry = state.nodes[name]
            assert (entry.version, entry.ordinal, entry.spec_count, entry.deleted) == (
                *(row.version, row.ordinal, row.spec_count),
                row.deleted,
            )
            if name not in ledger.odd_nodes:
                assert one.nodes[name].version == row.version
    for name, row in ledger.nodes.items():
        assert {k: v for k, v in row.requested.items() if v} == one.requested_of(name)
    assert len({row.ordinal for row in ledger.nodes.values()}) == len(ledger.nodes)
    waiting = [key for w in workers for key, pod in w.state.pods.items() if not pod.node]
    assert sorted(waiting) == sorted(key for key, pod in one.pods.items() if not pod.node)
    uncounted = {uid for uid, counted in ledger.counted.items() if not counted}
    unknown = {pod.spec.uid for pod in one.pods.values() if pod.node and one.nodes[pod.node].spec is None}
    assert uncounted == unknown
    assert ledger.orphaned == one.orphaned
    gone = [name for name, entry in one.nodes.items() if entry.deleted and entry.spec is not None]
    assert ledger.orphaned == {key for name in gone for key in one.nodes[name].pods}


@settings(deadline=None, max_examples=examples(300))
@given(st.integers(0, 1 << 32), st.booleans())
def test_those_who_follow_each_other_know_what_one_knows(seed: int, moves: bool) -> None:
    check(*run(seed, moves=moves))
