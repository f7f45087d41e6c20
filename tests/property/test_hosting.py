"""Is what is said of hosted workloads the same however the log is cut, restarted, shared and replayed?"""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from domain.model.hosting import ReplicasSaid, WaitSaid
from domain.model.timestamps import NEVER_MS
from services.codec.feed import unpack_feed
from services.ports.log import Record
from tests.builders import Json, node_manifest
from tests.hosted import STEP_MS, WEB, hosted_manifest, member_manifest, use_manifest
from tests.property.replays import mark, mark_many, replay
from tests.property.site import Site, batches
from tests.property.team import AT_MS, Team, keys_of, node_of

BEGIN_MS = AT_MS - AT_MS % STEP_MS


def day() -> list[tuple[str, Json, int]]:
    """Return five minutes: pods come, the load rises and falls, a pod waits, a pod leaves."""
    told = [("ADDED", node_manifest(f"n{i}", cpu=10), BEGIN_MS) for i in range(2)]
    told += [("ADDED", hosted_manifest(max=12), BEGIN_MS)]
    told += [("ADDED", member_manifest(f"p{i}", cpu=1), BEGIN_MS + 100 * i) for i in range(4)]
    for second, cores in ((25, 2), (55, 5), (85, 9), (115, 7), (145, 2), (175, 2), (205, 2)):
        told += [("ADDED", use_manifest(f"n{i}", cores), BEGIN_MS + 1_000 * second) for i in range(2)]
    told += [("ADDED", member_manifest("large", cpu=11), BEGIN_MS + 121_000)]
    told += [("DELETED", member_manifest("large", cpu=11), BEGIN_MS + 190_000)]
    told += [("ADDED", node_manifest("last", cpu=1), BEGIN_MS + 241_000)]
    return sorted(told, key=lambda each: each[2])


def scales(site: Site) -> list[Json]:
    return [msgspec.json.decode(scale.payload) for scale in site.database.hosted.scales]


def lived(records: list[list[Record]] | None = None, *, restarts: bool = False) -> Site:
    site = Site()
    for batch in records or [site.records(day())]:
        if restarts:
            site.planner = site.restarted()
        site.take(batch)
    return site


def test_each_step_is_decided_at_its_moment() -> None:
    site = lived()
    said = [(each["decided_at"][14:19], each["seq"], each["wanted"]) for each in scales(site)]
    assert [each[1] for each in said] == list(range(1, len(said) + 1)), "no hole, none twice"
    assert all(at[3:] in ("00", "30") for at, *_ in said)
    wanted = [each[2] for each in said]
    assert wanted == [12, 3, 12, 4, 12], "low load; a high one; low; a pod that waits; it is gone"
    (row,) = site.database.hosted.shown(None)
    assert (row.wanted, row.running, row.waiting_since_ms, row.seq) == (12, 4, None, 5)
    assert {each.due_ms for each in site.database.shards.values()} < {BEGIN_MS + 270_000, NEVER_MS}


@pytest.mark.parametrize("restarts", [False, True])
def test_nothing_is_said_any_more_of_the_last_object_that_was_deleted(restarts: bool) -> None:
    site = lived()
    site.tell("DELETED", hosted_manifest(max=12), at_ms=BEGIN_MS + 245_000)
    if restarts:
        site.planner = site.restarted()
    site.tell("ADDED", node_manifest("later", cpu=1), at_ms=BEGIN_MS + 271_000)
    assert site.database.hosted.shown(None) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_it_is_the_same_wherever_batches_end_and_workers_begin_anew(restarts: bool) -> None:
    whole = lived()
    for seed in range(4):
        cut = lived(batches(Site().records(day()), Random(seed)), restarts=restarts)
        assert scales(cut) == scales(whole)
        assert cut.database.hosted.said == whole.database.hosted.said
        assert cut.database.hosted.waits == whole.database.hosted.waits


def team_of(*shards: list[int]) -> Team:
    team = Team(*shards)
    for shard in range(team.shards_count):
        team.tell("ADDED", node_manifest(node_of(team, shard), cpu=4), at_ms=BEGIN_MS)
    team.tell("ADDED", hosted_manifest(), at_ms=BEGIN_MS)
    return team


def pass_to(team: Team, seconds: int) -> None:
    """Let log time pass for all of them."""
    for shard in range(team.shards_count):
        ticking = node_manifest(node_of(team, shard, "tick"), cpu=1, labels={"t": str(seconds)})
        team.tell("ADDED", ticking, at_ms=BEGIN_MS + 1_000 * seconds)


def measured(team: Team, seconds: int, cores: float) -> None:
    """Measure all nodes that have room for pods."""
    for shard in range(team.shards_count):
        told = use_manifest(node_of(team, shard), cores)
        team.tell("ADDED", told, at_ms=BEGIN_MS + 1_000 * seconds)


def said(team: Team) -> ReplicasSaid:
    (row,) = team.database.hosted.shown(None)
    return row


def other_waits(team: Team) -> str:
    """Let a pod wait of a shard that the owner of the shard of usage does not hold."""
    (small,) = keys_of(team, 0, 1)
    (large,) = keys_of(team, 1, 1, "large")
    team.tell("ADDED", member_manifest(small, cpu=1), at_ms=BEGIN_MS + 1_000)
    team.tell("ADDED", member_manifest(large, cpu=99), at_ms=BEGIN_MS + 2_000)
    return large


def test_the_pods_of_other_workers_that_wait_are_heard_of() -> None:
    team = team_of([0], [1])
    large = other_waits(team)
    assert list(team.database.hosted.waits.values()) == [WaitSaid(1, *WEB, BEGIN_MS + 2_000)]
    for planner in team.planners:
        assert planner.scheduler.state.hosted.waits == {(1, WEB): BEGIN_MS + 2_000}
    for seconds in (31, 61, 91):
        pass_to(team, seconds)
    row = said(team)
    assert row.waiting_since_ms == BEGIN_MS + 2_000
    assert (row.wanted, row.running) == (1, 1)
    assert row.reason == "a pod has waited for 88 s: as many as run"
    team.tell("DELETED", member_manifest(large, cpu=99), at_ms=BEGIN_MS + 100_000)
    assert not team.database.hosted.waits
    for seconds in (121, 151):
        pass_to(team, seconds)
    assert said(team).waiting_since_ms is None


def test_it_is_said_once_and_takes_no_byte_where_nothing_is_new() -> None:
    team = team_of([0], [1])
    other_waits(team)
    for seconds in (31, 61, 91):
        pass_to(team, seconds)
    feeds = [unpack_feed(row.feed) for row in team.database.journal.values()]
    assert sum(len(feed.hosted.waits) for feed in feeds if feed.hosted is not None) == 1
    plain = Team([0])
    plain.tell("ADDED", node_manifest("n0", cpu=4))
    (row, *_) = plain.database.journal.values()
    assert len(msgspec.msgpack.decode(row.feed)) == 18, "as before there were hosted workloads"


def test_pods_that_waited_before_the_object_came_are_said_in_a_quiet_log() -> None:
    team = Team([0], [1])
    (large,) = keys_of(team, 1, 1, "large")
    team.tell("ADDED", node_manifest("n0", cpu=4), at_ms=BEGIN_MS)
    team.tell("ADDED", member_manifest(large, cpu=99), at_ms=BEGIN_MS + 1_000)
    team.tell("ADDED", hosted_manifest(), at_ms=BEGIN_MS + 5_000)
    assert list(team.database.hosted.waits.values()) == [WaitSaid(1, *WEB, BEGIN_MS + 1_000)]


@pytest.mark.parametrize("dies", [(), (0,), (1,), (0, 1)])
def test_a_take_over_says_the_same(dies: tuple[int, ...]) -> None:
    plain, struck = team_of([0], [1]), team_of([0], [1])
    for team in (plain, struck):
        other_waits(team)
        for seconds in (20, 31, 47, 61, 92):
            if team is struck:
                for number in dies:
                    team.die(number)
                team.rest()
            pass_to(team, seconds)
    assert struck.database.hosted.said == plain.database.hosted.said
    assert struck.database.hosted.scales == plain.database.hosted.scales
    assert struck.database.hosted.waits == plain.database.hosted.waits


def test_another_worker_goes_on_with_the_numbers() -> None:
    team = team_of([0], [1])
    other_waits(team)
    pass_to(team, 31)
    team.gather(1)
    team.tell("DELETED", {**hosted_manifest()}, at_ms=BEGIN_MS + 40_000)
    team.tell("ADDED", hosted_manifest("again", min=7), at_ms=BEGIN_MS + 41_000)
    pass_to(team, 61)
    pass_to(team, 91)
    scales = team.database.hosted.scales
    assert [scale.seq for scale in scales] == list(range(1, len(scales) + 1))
    assert {(scale.namespace, scale.name) for scale in scales} == {("default", "web"), ("default", "again")}
    assert said(team).name == "again"


@pytest.mark.parametrize("seconds", [20, 47, 61])
def test_a_replay_says_the_same(seconds: int) -> None:
    team = team_of([0, 1], [])
    mark(team)
    large = other_waits(team)
    measured(team, 15, 1)
    pass_to(team, seconds)
    mark(team)
    measured(team, 75, 3.8)
    team.give(0, [1])
    team.rest()
    team.take(team.planners[1], [1])
    team.tell("DELETED", member_manifest(large, cpu=99), at_ms=BEGIN_MS + 85_000)
    team.rest()
    pass_to(team, 95)
    mark_many(team)
    measured(team, 118, 1)
    pass_to(team, 131)
    for number in range(2):
        team.die(number)
    pass_to(team, 161)
    assert len(team.database.hosted.scales) >= 3
    for first in (None, team.planners[0].batch - 3):
        assert replay(team, first).difference is None
