"""Does a worker go on where producers gave a uid, or a key, to two shards?"""

from __future__ import annotations

from random import Random

import pytest

from domain.model.events import NodeUpserted, PodDeleted, PodUpserted
from domain.model.pods import PodSpec
from domain.state.changes import FollowRefused, Refused
from domain.state.cluster import ClusterState
from domain.state.steps import Given, Owned, PodFollowedRefreshed, PodsFollowed, PodsLeft
from tests.depth import some
from tests.values import node, pod

OWN, FOREIGN = 0, 1


def _drawn(random: Random, number: int, node_name: str = "") -> PodSpec:
    """Return a pod of few names and few uids."""
    return pod(f"p{random.randrange(6)}", on=node_name, version=number, uid=f"u{random.randrange(6)}")


@pytest.mark.parametrize("seed", some(range(40)))
def test_no_log_of_uids_in_two_shards_ends_a_worker(seed: int) -> None:
    random, state = Random(seed), ClusterState(seed=0)
    state.apply(Owned(frozenset((OWN,)), 2))
    state.apply(NodeUpserted(node("n")), OWN)
    refused = 0
    for number in range(1, 8):  # a base that has both
        shard = random.choice((OWN, FOREIGN))
        is_placed = shard == FOREIGN or random.random() < 0.4
        drawn = _drawn(random, number)
        restored = state.restore_pod(
            drawn, node="n" if is_placed else "", adopted=False, arrival=number, shard=shard
        )
        refused += not restored
    for number in range(10, 120):
        uid = f"u{random.randrange(6)}"
        match random.randrange(6):
            case 0 | 1:
                changes = state.apply(PodUpserted(_drawn(random, number, random.choice(("", "n")))), OWN)
            case 2:
                name = f"p{random.randrange(6)}"
                changes = state.apply(PodDeleted("default", name, uid, number), OWN)
            case 3:
                placed = _drawn(random, number)
                changes = state.apply(
                    PodsFollowed(pods=[placed], nodes=["n"], adopted=[False], shards=[FOREIGN])
                )
            case 4:
                changes = state.apply(PodsLeft([uid]))
            case _:
                changes = state.apply(PodFollowedRefreshed(uid, number, {}, None))
        refused += sum(isinstance(each, FollowRefused | Refused) for each in changes)
    assert refused > 10
    for entry in list(state.pods.values()):
        if entry.shard == OWN:
            state.apply(PodDeleted("default", entry.spec.key.partition("/")[2], entry.spec.uid, 1_000), OWN)
    state.apply(Given(frozenset((OWN,))))
    assert {entry.shard for entry in state.pods.values()} <= {FOREIGN}
    assert len(state.nodes["n"].pods) == sum(bool(entry.node) for entry in state.pods.values())
