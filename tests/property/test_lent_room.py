"""Is room lent once, though two workers lend it side by side, and is a build that lends twice named?"""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from domain.model.colocation import Heat
from domain.model.pods import COLOCATION_PROFILE
from domain.state.resources import ROOM
from services.adapters.memory.database import MemoryDatabase
from services.ports.ledger import CommitBatch, Committed, NotCommitted
from tests.batches import changed
from tests.builders import node_manifest, pod_manifest, usage_manifest
from tests.depth import some
from tests.property.team import AT_MS, Team, keys_of, node_of

SEEDS = some(range(30))
LOW_MILLI, CORES, KEPT_MILLI = 1_000, 8, 800
"""A container that says nothing is expected to use a core; a tenth of eight cores is kept free."""


class Watched(MemoryDatabase):
    """A ledger that looks after each transaction whether low pods were lent more than was idle.

    Attributes
    ----------
    overlent : list of str
        Nodes on which the low pods that came since are expected to use more than was measured as idle.
    """

    def __init__(self, shards: int) -> None:
        super().__init__(shards)
        self.overlent: list[str] = []

    def apply(self, batch: CommitBatch, holder: object = None) -> Committed | NotCommitted:
        """Write the batch, and look."""
        outcome = super().apply(batch, holder)
        for name, row in self.measured.usage.items():
            assert row.record.quality is not None
            use = row.record.quality.use
            idle = CORES * 1_000 - KEPT_MILLI - use.high.cpu_milli - use.low.cpu_milli
            lent = LOW_MILLI * sum(
                each.opened.node == name and self.templates[each.opened.signature].qos_class == "BestEffort"
                for each in self.open_placements.values()
            )
            if lent > idle:
                self.overlent.append(f"LENT_TWICE: {name} lends {idle}m, and lent {lent}m")
        return outcome


class Unguarded(Watched):
    """The same, of a build whose claims hold wherever what is requested fits."""

    def apply(self, batch: CommitBatch, holder: object = None) -> Committed | NotCommitted:
        """Write the batch as if room for requests were all that its pods need."""
        claims = [replace(claim, resource_only=True) for claim in batch.cluster.claims]
        return super().apply(changed(batch, claims=claims), holder)


def day(seed: int, database: type[Watched]) -> tuple[list[str], int]:
    """Let two workers lend side by side; return what was lent twice, and how many pods lost a claim."""
    team, random, lost = Team([0], [1], database=database), Random(seed), 0
    for i in range(3):
        node = node_of(team, i % 2, f"n{i}-")
        team.tell("ADDED", node_manifest(node, cpu=CORES, memory="64Gi"))
        high = {"cpu": f"{random.randrange(4_000)}m", "memory": "1Gi"}
        team.tell("MODIFIED", usage_manifest(node, quality={"high": high}))
    for i in range(14):
        for number in random.sample(range(2), 2):
            names = keys_of(team, number, random.choice((1, 1, 2)), f"low{i}-")
            pods = [pod_manifest(name, scheduler_name=COLOCATION_PROFILE) for name in names]
            records = [team.record("ADDED", pod, AT_MS + i) for pod in pods]
            team.step(number, records, follows=random.random() < 0.5)
            lost += len(team.lost[number])
        if random.random() < 0.2:
            team.rest()
    team.rest()
    assert isinstance(team.database, Watched)
    return team.database.overlent, lost


def test_two_workers_never_lend_one_room_twice() -> None:
    days = [day(seed, Watched) for seed in SEEDS]
    assert [found for found, _ in days if found] == []
    assert sum(lost for _, lost in days) > 0, "or they never met"


@pytest.mark.wide
def test_a_build_that_claims_room_for_requests_alone_is_named() -> None:
    assert any("LENT_TWICE" in said for seed in SEEDS for said in day(seed, Unguarded)[0])


def test_a_worker_that_begins_anew_expects_of_pods_what_the_policy_says() -> None:
    team = Team([0], [1])
    meta, spec = {"name": "all"}, {"estimate": {"cpu": "2", "memory": "64Mi"}}
    team.tell(
        "ADDED",
        {"apiVersion": "berth/v1", "kind": "CoLocationPolicy", "metadata": meta, "spec": spec},
        node_manifest("n", cpu=CORES, memory="64Gi"),
    )
    team.tell("MODIFIED", usage_manifest("n", quality={}))
    team.tell("ADDED", pod_manifest("low", scheduler_name=COLOCATION_PROFILE))
    team.rest()
    for number in range(2):
        team.die(number)
    team.rest()
    for planner in team.planners:
        state = planner.scheduler.state
        assert state.pods["default/low"].node == "n"
        assert state.table.requested[ROOM, state.table.rows["n"]].tolist()[2:] == [2_000, 64 << 20]


def test_a_follower_takes_a_sample_for_bad_where_the_worker_that_read_it_did() -> None:
    """It folds the node of the end of the batch first, which has more cores than when it was measured."""
    team = Team([0], [1])
    node = node_of(team, 0)
    team.tell("ADDED", node_manifest(node, cpu=2, memory="64Gi", resource_version=1))
    busy = usage_manifest(node, quality={"high": {"cpu": "1900m"}})
    grown = node_manifest(node, cpu=64, memory="64Gi", resource_version=2)
    team.step(0, [team.record("MODIFIED", each) for each in (busy, grown)])
    team.rest()
    heats = [planner.scheduler.state.usage.qualities[node].heat for planner in team.planners]
    assert heats == [Heat(bad_count=1), Heat(bad_count=1)]
