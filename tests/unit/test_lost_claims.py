"""When does a worker that loses claims believe no more what it knows of a node?"""

from __future__ import annotations

import pytest

from services.ports.ledger import CommitBatch, Committed, NodeClaim
from services.worker.lost_claims import LOSSES_MAX, LostClaims, NodeMoved
from tests.batches import batch_of


def batch(version: int, *, is_doubtful: bool = False) -> CommitBatch:
    claim = NodeClaim(
        id=7, name="n7", version_seen=version, changes=1, delta={}, spec_count_seen=1, is_doubtful=is_doubtful
    )
    return batch_of(advances=[], claims=[claim])


LOST = Committed(lost_pods={"ns/p": "uid"}, lost_nodes=frozenset({7}))
REFUSED = LOST._replace(refused=frozenset({7}))


def test_a_node_that_others_change_all_the_time_is_lost_again_and_again() -> None:
    losers = LostClaims()
    for version in range(4 * LOSSES_MAX):
        losers.note(batch(version), LOST)


def test_a_node_that_does_not_move_here_and_is_lost_is_not_as_it_is_known() -> None:
    losers = LostClaims()
    for _ in range(LOSSES_MAX - 1):
        losers.note(batch(3), LOST)
        losers.note(batch(4, is_doubtful=True), LOST)
        losers.note(batch(3), REFUSED)
    with pytest.raises(NodeMoved, match="n7"):
        losers.note(batch(3), LOST)


def test_a_claim_that_is_granted_ends_the_count() -> None:
    losers = LostClaims()
    for _ in range(3):
        for _ in range(LOSSES_MAX - 1):
            losers.note(batch(3), LOST)
        losers.note(batch(3), Committed())
