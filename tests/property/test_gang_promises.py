"""Is a gang ever promised nodes in part, while two workers preempt, nodes go and promises run out?"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from services.ports.log import Record
from tests.builders import Json, node_manifest, pod_group_manifest, pod_manifest
from tests.depth import some
from tests.property.team import AT_MS, Team, audit, budget_manifest, keys_of, node_of, running

LABEL = "scheduling.x-k8s.io/pod-group"
LEAST = {"g0": 2, "g1": 3, "g2": 3, "g3": 4}


class Day:
    """Two workers, an executor that is slow at times, and a log."""

    def __init__(self, seed: int) -> None:
        self.random, self.team = Random(seed), Team([0], [1], preempts=True)
        self.at_ms = AT_MS
        self.manifests: dict[str, Json] = {}
        self.acted: set[tuple[int, int]] = set()
        self.seen = Counter[str]()

    def tell(self, number: int, *told: tuple[str, Json], follows: bool = True) -> None:
        """Let a worker take events, and look at all that is promised."""
        records: list[Record] = []
        for kind, manifest in told:
            self.at_ms += 20
            record = self.team.record(kind, manifest, self.at_ms)
            assert record.partition == number
            records.append(record)
        self.team.step(number, records, follows=follows)
        self.check()

    def check(self) -> None:
        database = self.team.database
        gangs = Counter(database.templates[row.signature].gang for row in database.nominations.rows.values())
        placed = running(self.team)
        for name, least in LEAST.items():
            count = gangs[f"default/{name}"]
            assert count == 0 or count + placed[name] >= least, f"{name}: {count} promised"

    def begin(self) -> None:
        team = self.team
        names = [node_of(team, i % 2, f"n{i}-") for i in range(6)]
        for i, name in enumerate(names):
            self.tell(i % 2, ("ADDED", node_manifest(name, cpu=4, labels={"zone": f"z{i // 2 % 2}"})))
        team.tell("ADDED", budget_manifest(1, "web"), *(pod_group_manifest(*each) for each in LEAST.items()))
        for i in range(18):
            shard = i % 2
            name = keys_of(team, shard, 1, f"low{i}-")[0]
            labels = {"app": "web"} if self.random.random() < 0.3 else {}
            self.add(shard, pod_manifest(name, cpu=1, priority=self.random.choice((0, 1)), labels=labels))
        team.rest()
        last: list[tuple[int, Json]] = []
        for i, gang in enumerate(LEAST):
            priority = self.random.choice((5, 5, 7))
            for name in keys_of(team, i % 2, LEAST[gang], f"{gang}-"):
                cpu = self.random.choice((1, 2, 3))
                pod = pod_manifest(name, cpu=cpu, priority=priority, labels={LABEL: gang})
                last.append((i % 2, pod))
            for each in last[-LEAST[gang] : -1]:
                self.add(*each)
            last[-LEAST[gang] :] = last[-1:]
            if i % 2:  # the two workers plan for a gang each, and neither hears of the other's plan
                for each in last:
                    self.add(*each, follows=False)
                last.clear()

    def add(self, shard: int, manifest: Json, follows: bool | None = None) -> None:
        self.manifests[manifest["metadata"]["name"]] = manifest
        follows = self.random.random() < 0.6 if follows is None else follows
        self.tell(shard, ("ADDED", manifest), follows=follows)

    def act(self) -> None:
        """Delete some of those that were evicted."""
        for row in self.team.decided():
            at = row["shard"], row["seq"]
            if row["outcome"] == "evicted" and at not in self.acted and self.random.random() < 0.5:
                self.acted.add(at)
                name = row["pod"]["name"]
                shard = self.team.record("DELETED", self.manifests[name], self.at_ms)
                self.team.step(shard.partition, [shard])
                self.check()

    def live(self) -> Counter[str]:
        self.begin()
        for turn in range(14):
            self.at_ms += self.random.choice((10, 400, 61_000))
            self.act()
            draw = self.random.random()
            if draw < 0.2:
                name = node_of(self.team, turn % 2, f"n{turn % 6}-")
                self.tell(turn % 2, ("DELETED", node_manifest(name)))
            elif draw < 0.5:
                name = keys_of(self.team, turn % 2, 1, f"high{turn}-")[0]
                self.add(turn % 2, pod_manifest(name, cpu=3, priority=self.random.choice((5, 20))))
            else:
                name = keys_of(self.team, turn % 2, 1, f"small{turn}-")[0]
                self.add(turn % 2, pod_manifest(name, cpu=1, priority=0))
            if self.random.random() < 0.5:
                self.team.rest()
                self.check()
        self.team.rest()
        self.check()
        audit(self.team)
        gang_of = {
            name: each["metadata"].get("labels", {}).get(LABEL) for name, each in self.manifests.items()
        }
        return Counter(row["outcome"] for row in self.team.decided() if gang_of.get(row["pod"]["name"]))


@pytest.mark.parametrize("seed", some(range(20)))
def test_a_gang_is_promised_nodes_whole_or_not_at_all(seed: int) -> None:
    Day(seed).live()


@pytest.mark.wide
def test_promises_of_gangs_are_kept_cleared_and_lost() -> None:
    seen = Counter[str]()
    for seed in range(20):
        seen += Day(seed).live()
    assert min(seen[each] for each in ("nominated", "bound", "cleared", "conflict")) > 5, seen
