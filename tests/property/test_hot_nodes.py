"""On random days with hot nodes: do only so many pods leave, which may? Is the same decided in a replay?"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from operator import itemgetter
from random import Random
from typing import Any

import pytest

from domain.model.colocation import HotSpotRule
from domain.model.pods import why_it_stays
from tests.builders import Json, node_manifest, pod_manifest, usage_manifest
from tests.depth import some
from tests.property.replays import mark, mark_many, replay
from tests.property.site import Site, audit, kept
from tests.property.team import AT_MS, Team, budget_manifest
from tests.property.team import audit as audit_team
from tests.unit.heated import owned

SEEDS = some(range(40))
RULE = HotSpotRule()
NODES = [f"n{i}" for i in range(5)]
STEP_MS = 10_000
ALLOWED = {"web": 1, "db": 0}
"""How many pods the budget of each app lets go, by its status."""


@dataclasses.dataclass
class Day:
    """What producers tell on a day: nodes become hot for a while, and pods come, go and leave."""

    random: Random
    at_ms: int = AT_MS
    count: int = 0
    bad: dict[str, float] = dataclasses.field(default_factory=lambda: defaultdict(lambda: 2.0))

    def start(self) -> list[tuple[str, Json]]:
        """Return the nodes, the budgets and the first pods."""
        nodes = [node_manifest(name, cpu=10, memory="64Gi") for name in NODES]
        budgets = [budget_manifest(allowed, app) for app, allowed in ALLOWED.items()]
        pods = [self.pod(self.random.choice(NODES)) for _ in range(20)]
        return [("ADDED", each) for each in (*nodes, *budgets, *pods)]

    def pod(self, node: str | None) -> Json:
        """Return a new pod, of some controller or of none, which runs on a node or waits."""
        random, name = self.random, f"p{self.count}"
        self.count += 1
        labels = {"app": random.choice(("web", "db", "free", "free"))}
        more: Json = {"cpu": random.choice((None, "300m", "1", "2")), "labels": labels, "node_name": node}
        if random.random() < 0.2:
            return pod_manifest(name, **more)
        kind = "DaemonSet" if random.random() < 0.2 else "ReplicaSet"
        pod = owned(name, f"w{random.randrange(8)}", kind, **more)
        if random.random() < 0.2:
            pod["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
        return pod

    def next(self, evicted: list[str]) -> list[tuple[str, Json]]:
        """Return what happens next; of the pods that were told to leave some do, and are made anew."""
        random, told = self.random, list[tuple[str, Json]]()
        self.at_ms += STEP_MS if random.random() < 0.95 else 100_000
        if random.random() < 0.3:
            self.bad[random.choice(NODES)] = random.choice((2.0, 8.0, 8.5, 9.0, 10.0))
        for node in NODES:
            if random.random() < 0.9:
                use = {"mid": {"cpu": str(self.bad[node]), "memory": "1Gi"}}
                told.append(("ADDED", usage_manifest(node, quality=use)))
        for name in evicted:
            if random.random() < 0.4:
                told += [("DELETED", pod_manifest(name)), ("ADDED", self.pod(None))]
        if random.random() < 0.3:
            told.append(("ADDED", self.pod(random.choice([*NODES, None]))))
        return told


def under_way(site: Site) -> list[Any]:
    return site.database.moves.open()


def live(seed: int) -> tuple[Site, Counter[str]]:
    """Live a day with one worker, and look at all that it decides."""
    day, site, counts = Day(Random(seed)), Site(preempts=True), Counter[str]()
    site.tell_all([(kind, thing, day.at_ms) for kind, thing in day.start()])
    for _ in range(60):
        before = len(told(site))
        records = site.records([(*each, day.at_ms) for each in day.next([r.name for r in under_way(site)])])
        site.take(records)
        audit(site)
        check(site)
        for node in {row["node"] for row in told(site)[before:]}:
            counts["reliefs"] += 1
            check_relief(site, node)
        if day.random.random() < 0.1:
            again = site.restarted()
            assert kept(site.planner) == kept(again)
            site.planner = again
    counts["spared"] = sum(row["outcome"] == "spared" for row in site.decided())
    return site, counts


def told(site: Site) -> list[Json]:
    """Return the decisions by which pods leave hot nodes, in the order of log time."""
    return sorted((row for row in site.decided() if "migration" in row), key=itemgetter("decided_at"))


def check(site: Site) -> None:
    """Compare the moves that are under way with what may be."""
    state, rows = site.planner.scheduler.state, under_way(site)
    assert {row.key: row.node for row in rows} == state.moves.under_way
    assert len(rows) <= RULE.moves_max
    pods = [state.pods[row.key] for row in rows]
    workloads = [pod.spec.controller for pod in pods]
    assert len(set(workloads)) == len(workloads), "one of each workload"
    apps = Counter(pod.spec.labels["app"] for pod in pods)
    assert all(apps[app] <= allowed for app, allowed in ALLOWED.items())
    assert [why_it_stays(pod.spec) for pod in pods] == [""] * len(pods)
    assert all(pod.node == row.node for pod, row in zip(pods, rows, strict=True))


def check_relief(site: Site, node: str) -> None:
    """A node of which pods leave was measured as hot just now, and their estimates are enough."""
    state = site.planner.scheduler.state
    rows = [row for row in told(site) if row["node"] == node]
    rows = [row for row in rows if row["decided_at"] == rows[-1]["decided_at"]]
    record = state.usage.qualities[node]
    assert record.heat.is_hot
    left = record.use.mid.cpu_milli - sum(row["migration"]["relief"]["cpu"] for row in rows)
    assert left * 100 < 10_000 * RULE.target_percent
    assert not any(state.usage.qualities[row["migration"]["to"]].heat.is_hot for row in rows)
    assert all(row["migration"]["to"] != node for row in rows)


@pytest.mark.parametrize("seed", SEEDS)
def test_only_pods_that_may_move_leave_and_never_too_many(seed: int) -> None:
    live(seed)


@pytest.mark.wide
def test_days_have_moves_of_which_some_are_made_in_time() -> None:
    """What the test above rests on."""
    counts = Counter[str]()
    for seed in range(10):
        counts += live(seed)[1]
    assert counts["reliefs"] > 10
    assert counts["spared"] > 0


# -------------------------------------------------------------------------------------- several workers


def live_together(seed: int) -> Team:
    """Live a day with two workers, one of which dies now and then; both rest for checkpoints."""
    team, day = Team([0], [1], [2], preempts=True), Day(Random(seed))
    team.gather(0)
    mark(team)
    team.give(0, [1])
    team.take(team.planners[1], [1])
    for kind, thing in day.start():
        team.record(kind, thing, day.at_ms)
    step(team, day, team.records)
    for number in range(40):
        evicted = [row.name for row in team.database.moves.open()]
        step(team, day, [team.record(kind, thing, day.at_ms) for kind, thing in day.next(evicted)])
        if day.random.random() < 0.1:
            team.die(day.random.choice([at for at, each in enumerate(team.planners) if each.owned]))
        if number % 10 == 9:
            mark_many(team)
    team.rest()
    audit_team(team)
    return team


def step(team: Team, day: Day, records: list[Any]) -> None:
    """Let each worker take its records; some do not follow the others yet."""
    for at, planner in enumerate(team.planners):
        if own := [record for record in records if record.partition in planner.owned]:
            team.step(at, own, follows=day.random.random() < 0.6)
            check_budgets(team)
    if day.random.random() < 0.5:
        team.rest()


def check_budgets(team: Team) -> None:
    """Whatever workers knew of each other, no budget lets more pods go than it allows."""
    placed = team.database.open_placements
    labels = [placed[row.pod_uid, row.shard].opened.labels for row in team.database.moves.open()]
    apps = Counter(each["app"] for each in labels)
    assert all(apps[app] <= allowed for app, allowed in ALLOWED.items())


@pytest.mark.parametrize("seed", some(range(12)))
def test_workers_know_the_same_moves_and_a_replay_decides_the_same(seed: int) -> None:
    team = live_together(seed)
    open_ = {row.key: row.node for row in team.database.moves.open()}
    for planner in team.planners:
        assert planner.scheduler.state.moves.under_way == open_
        assert planner.ledger_view.refused_count == 0
    outcome = replay(team)
    assert outcome.difference is None
    assert any("migration" in row for row in team.decided())
