"""Does a worker whose claims are lost at random end like its ledger, and can what it did be planned again?"""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import orjson
import pytest

from services.codec.settling import settle_batch
from services.ports.ledger import CommitBatch, Committed
from services.ports.log import Record
from services.worker.lost_claims import LostClaims, LostPodTouched, NodeMoved
from tests.property.site import Producer, Site, audit, kept


class Contested:
    """A planner that plans while it commits, on nodes that somebody else holds and changes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.site = Site()
        self.losers = LostClaims()
        self.counts: Counter[str] = Counter()
        self.first_life: list[tuple[list[Record], list[str]]] = []
        self._flying: CommitBatch | None = None

    def _begin_anew(self, why: str) -> None:
        self.counts[why] += 1
        self.site.planner, self.losers, self._flying = self.site.restarted(), LostClaims(), None

    def _meddle(self, is_calm: bool) -> None:
        database = self.site.database
        database.nodes_held.clear()
        for number, row in database.nodes.items():
            if is_calm:
                return
            if self.random.random() < 0.3:
                database.nodes_held.add(number)
            elif self.random.random() < 0.1:
                database.nodes[number] = msgspec.structs.replace(row, version=row.version + 1)

    def _land(self) -> None:
        assert self._flying is not None
        outcome = self.site.database.apply(self._flying)
        assert isinstance(outcome, Committed)
        self.counts["lost"] += len(outcome.lost_pods)
        self.counts["moved"] += outcome.moved_count
        self.losers.note(self._flying, outcome)

    def step(self, records: list[Record], *, is_calm: bool) -> None:
        """Plan a batch while the one before it is committed."""
        try:
            self._meddle(is_calm)
            is_flying = self._flying is not None
            if is_flying and self.random.random() < 0.5:
                self._land()
                self._flying, is_flying = None, False
            keys = self.losers.take_pods()
            batch = self.site.planner.plan_batch(records, keys)
            if not self.counts["loser-touched"] + self.counts["node-moved"]:
                self.first_life.append((records, keys))
            if is_flying:
                self._land()
                batch = self.losers.judge(batch)
            self._flying = batch
        except (LostPodTouched, NodeMoved) as error:
            self._begin_anew(error.code)

    def live(self, records: list[Record]) -> None:
        """Take all records, then come to rest."""
        for turn in range(5 * len(records)):
            positions = self.site.planner.positions()
            left = [r for r in records if r.offset >= positions[r.topic, r.partition]]  # type: ignore[index]
            held = {(r.topic, r.partition, r.offset) for r in self.site.planner.held}
            fresh = [r for r in left if (r.topic, r.partition, r.offset) not in held]
            is_calm = turn > 3 * len(records)
            if not (left or self.site.planner.has_work or self._flying or self.losers.keys):
                return
            self.step(fresh[: self.random.randrange(6)], is_calm=is_calm)
            if not left and not self.site.planner.has_work and self._flying is not None:
                try:
                    self._land()
                    self._flying = None
                except NodeMoved as error:
                    self._begin_anew(error.code)
        pytest.fail("it never comes to rest")


@pytest.fixture(scope="module")
def worlds() -> list[Contested]:
    """Return what was lived."""
    found = []
    for seed in range(12):
        world = Contested(seed)
        world.live(Producer(Random(seed)).records(150))
        found.append(world)
    return found


@pytest.mark.wide
def test_state_and_ledger_end_alike_and_every_decision_is_told(worlds: list[Contested]) -> None:
    counts: Counter[str] = Counter()
    for world in worlds:
        counts += world.counts
        audit(world.site)
        site = world.site
        assert kept(site.restarted())["digest"] == kept(site.planner)["digest"]
        for shard, rows in site.database.decisions.items():
            assert [decision.seq for decision, _ in rows] == list(range(1, len(rows) + 1)), shard
            for decision, payload in rows:
                told = orjson.loads(payload)
                assert (told["outcome"], told["node"]) == (decision.outcome, decision.node)
        last: dict[str, str] = {}
        for rows in site.database.decisions.values():
            for decision, _ in rows:
                last[decision.pod_uid] = decision.outcome
        assert "conflict" not in last.values(), "each of them was tried again"
    assert counts["lost"] > 50
    assert counts["moved"] > 10
    assert counts["loser-touched"] > 3


@pytest.mark.wide
def test_what_was_lost_is_planned_again_alike(worlds: list[Contested]) -> None:
    """A batch follows from its records, the pods taken back before, and what its row says was lost."""
    lost_count = 0
    for world in worlds:
        planner = Site().planner
        for records, keys in world.first_life:
            planned = planner.plan_batch(records, keys, is_recorded=True)
            assert planned.journal.row is not None
            row = world.site.database.journal.get((planned.journal.row.shard, planned.journal.row.batch))
            if row is None or (row.start is not None and row.batch > 1):
                break  # it was never committed: the worker began anew
            again = settle_batch(planned, set(row.lost), row.moved).journal.row
            assert again is not None
            for name in ("decisions_hash", "effects", "feed", "seqs", "forgotten", "lost", "moved"):
                assert getattr(again, name) == getattr(row, name), (row.batch, name)
            lost_count += len(row.lost)
    assert lost_count > 5
