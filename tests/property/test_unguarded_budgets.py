"""Do two workers take no more from a budget than they say, and is a build without its guard named?"""

from __future__ import annotations

from random import Random

import msgspec
import orjson
import pytest

from domain.model.config import DISRUPTION_BUDGET, DisruptionBudget
from services.adapters.memory.database import MemoryDatabase
from services.ports.guards import budget_key
from services.ports.ledger import CommitBatch, Committed, NotCommitted
from tests.batches import changed
from tests.builders import node_manifest, pod_manifest
from tests.property.team import Team, budget_manifest, keys_of, node_of

SEEDS = range(12)


class Watched(MemoryDatabase):
    """A ledger that looks after each transaction whether budgets let go whom it says.

    Attributes
    ----------
    overdrawn : list of str
        Budgets of which more pods have to go than their status lets go and their preemptors said.
    """

    def __init__(self, shards: int) -> None:
        super().__init__(shards)
        self.overdrawn: list[str] = []
        self._violations: dict[str, int] = {}  # uid of a preemptor -> as its nomination says
        self._seen = dict.fromkeys(self.decisions, 0)

    def apply(self, batch: CommitBatch, holder: object = None) -> Committed | NotCommitted:
        """Write the batch, and look."""
        outcome = super().apply(batch, holder)
        for shard, rows in self.decisions.items():
            for decision, payload in rows[self._seen[shard] :]:
                if decision.outcome == "nominated":
                    told = orjson.loads(payload)["preemption"]
                    self._violations[decision.pod_uid] = told["violations"]
            self._seen[shard] = len(rows)
        for (kind, namespace, name), row in self.config_objects.items():
            if kind == DISRUPTION_BUDGET:
                self._judge_budget(namespace, name, msgspec.convert(row.object, DisruptionBudget))
        return outcome

    def _judge_budget(self, namespace: str, name: str, budget: DisruptionBudget) -> None:
        assert budget.selector is not None
        placed = self.open_placements
        victims = {
            victim: by
            for victim, by in self.nominations.evictions.items()
            if placed[victim].opened.namespace == namespace
            and budget.selector.matches(placed[victim].opened.labels)
        }
        allowed = budget.disruptions_allowed or 0
        said = sum(self._violations[uid] for uid, _ in set(victims.values()))
        if len(victims) > allowed + said:
            self.overdrawn.append(
                f"BUDGET_OVERDRAWN: {namespace}/{name} lets {allowed} go, {len(victims)} have to, and "
                f"{said} are said to violate it"
            )


class Unguarded(Watched):
    """The same, of a build that guards no budget."""

    def apply(self, batch: CommitBatch, holder: object = None) -> Committed | NotCommitted:
        """Write the batch without such guards."""
        guards = [each for each in batch.cluster.guards if not each.key.startswith(budget_key(""))]
        return super().apply(changed(batch, guards=guards), holder)


def day(seed: int, database: type[Watched]) -> list[str]:
    """Let two workers evict pods of one budget side by side; return what is overdrawn."""
    team, random = Team([0], [1], preempts=True, database=database), Random(seed)
    team.tell("ADDED", budget_manifest(random.randrange(3)))
    for i in range(6):
        shard, node = i % 2, node_of(team, i % 2, f"n{i}-")
        team.tell("ADDED", node_manifest(node, cpu=4))
        for low in keys_of(team, shard, 4, f"low{i}-"):
            labels = {"app": random.choice(("web", "web", "other"))}
            team.tell("ADDED", pod_manifest(low, cpu=1, priority=0, node_name=node, labels=labels))
    for i in range(10):
        for number in random.sample(range(2), 2):
            (name,) = keys_of(team, number, 1, f"high{i}-")
            high = pod_manifest(name, cpu=random.choice((1, 2, 3)), priority=10 + random.randrange(3))
            team.step(number, [team.record("ADDED", high)], follows=random.random() < 0.5)
        if random.random() < 0.5:
            evicted = [team.database.open_placements[each] for each in team.database.nominations.evictions]
            gone = random.sample(evicted, random.randrange(len(evicted) + 1))
            team.tell("DELETED", *(pod_manifest(row.opened.name) for row in gone))
    team.rest()
    assert isinstance(team.database, Watched)
    return team.database.overdrawn


@pytest.mark.wide
def test_no_budget_is_overdrawn_by_workers_that_see_little_of_each_other() -> None:
    assert [found for seed in SEEDS for found in day(seed, Watched)] == []


@pytest.mark.wide
def test_a_build_that_guards_no_budget_is_named() -> None:
    assert any("BUDGET_OVERDRAWN" in found for seed in SEEDS for found in day(seed, Unguarded))
