"""Is what several workers did at once planned again with the same bytes, in one process?"""

from __future__ import annotations

from unittest import mock

import msgspec
import pytest

from services.codec.feed import unpack_feed
from services.replay.replay import CannotReplay
from services.worker import planner as planner_module
from tests.builders import node_manifest, pod_manifest
from tests.depth import some
from tests.property.replays import keep, live, mark_many, replay
from tests.property.team import Team


@pytest.fixture(autouse=True)
def _many_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "DIGEST_EVERY", 3)


@pytest.mark.parametrize("seed", some(range(10)))
def test_a_day_of_several_workers_is_planned_again_with_the_same_bytes(seed: int) -> None:
    team = live(seed)
    outcome = replay(team)
    assert outcome.difference is None
    assert outcome.progress.batches_count == len(team.database.journal) == outcome.progress.total
    counts = [outcome.progress.batches_count]
    for later, _ in team.database.checkpoints[1:]:
        again = replay(team, first=later.batch + 1)
        assert (again.difference, again.progress.checkpoint) == (None, later.batch)
        counts.append(again.progress.batches_count)
    assert counts == sorted(set(counts), reverse=True)
    assert len(counts) > 4


@pytest.mark.wide
def test_days_have_several_workers_that_follow_lose_and_take_over() -> None:
    """What the test above rests on."""
    rows = [row for seed in range(6) for row in live(seed).database.journal.values()]
    assert sum(row.digest is not None for row in rows) > 10
    assert len({row.worker for row in rows}) > 4
    assert sum(bool(row.followed) for row in rows) > 100
    assert sum(row.start is not None for row in rows) > 15
    assert sum(bool(row.owned) and row.start is None for row in rows) > 5
    assert sum(bool(row.lost) for row in rows) > 0
    assert sum(bool(row.forgotten) for row in rows) > 0
    assert sum(bool(row.moved) for row in rows) > 0
    rests = [rest for row in rows if (rest := unpack_feed(row.feed).rest) is not None]
    assert sum(len(rest.leases) < 3 for rest in rests) > 10


def test_nothing_is_replayed_from_where_workers_did_not_rest() -> None:
    team = Team([0], [1, 2])
    team.tell("ADDED", *(node_manifest(f"n{number}", cpu=8) for number in range(12)))
    keep(team)
    team.tell("ADDED", *(pod_manifest(f"p{number}", cpu=1) for number in range(9)))
    with pytest.raises(CannotReplay, match="does not say how workers w1, w2 began"):
        replay(team)
    mark_many(team)
    later = team.database.checkpoints[-1][0]
    team.tell("ADDED", *(pod_manifest(f"q{number}", cpu=1) for number in range(9)))
    assert replay(team, first=later.batch + 1).difference is None
    at, row = next(
        (at, row) for at, row in team.database.journal.items() if row.start and at[0] and row.renewed
    )
    less = [msgspec.structs.replace(row.owned[0], followed={0: later.batch - 1}), *row.owned[1:]]
    team.database.journal[at] = msgspec.structs.replace(row, owned=less)
    with pytest.raises(CannotReplay, match=r"began with less of shards \[0\] than the checkpoint holds"):
        replay(team, first=later.batch + 1)


def test_every_worker_knows_who_is_gone_whoever_holds_the_shard() -> None:
    team = Team([0], [1, 2])
    node = node_manifest("n", cpu=16)
    pods = [pod_manifest(f"p{number}", cpu=1, uid=f"u{number}") for number in range(9)]
    team.tell("ADDED", node, *pods)
    team.tell("DELETED", *pods)
    planner, other = team.planners
    known = dict(other.scheduler.state.tombstones.known())
    assert len(known) == len(pods)
    assert dict(planner.scheduler.state.tombstones.known()) == known
    team.give(1, [1, 2])
    team.take(planner, [1, 2])
    assert not planner.lacks_gone
    for each in team.planners:
        assert dict(each.scheduler.state.tombstones.known()) == known


def test_who_followed_an_earlier_build_reads_who_is_gone_when_it_takes_a_shard() -> None:
    team = Team([0], [1, 2])
    pods = [pod_manifest(f"p{number}", cpu=1, uid=f"u{number}") for number in range(9)]
    with mock.patch("services.codec.feed._gone", return_value=None):
        team.tell("ADDED", node_manifest("n", cpu=16), *pods)
        team.tell("DELETED", *pods)
    planner, other = team.planners
    assert planner.lacks_gone
    known = dict(other.scheduler.state.tombstones.known())
    assert len(dict(planner.scheduler.state.tombstones.known())) < len(known)
    team.give(1, [1, 2])
    team.take(planner, [1, 2])
    assert dict(planner.scheduler.state.tombstones.known()).keys() >= known.keys()


def test_a_changed_row_of_another_worker_is_found() -> None:
    team = live(1)
    journal = team.database.journal
    row = next(row for row in journal.values() if row.followed and row.shard and row.seqs)
    for what, changed in (
        ("what other workers follow", msgspec.structs.replace(row, feed=b"\x90")),
        ("the journal's row was changed", msgspec.structs.replace(row, decisions_hash=b"")),
    ):
        journal[row.shard, row.batch] = changed
        found = replay(team).difference
        journal[row.shard, row.batch] = row
        assert found is not None
        assert (found.shard, found.batch, what in found.what) == (row.shard, row.batch, True)
    last = max(journal.values(), key=lambda row: row.position)
    del journal[last.shard, last.batch]
    with pytest.raises(CannotReplay, match=f"no row of batch {last.batch}"):
        replay(team)


def test_a_journal_that_does_not_name_its_workers_is_refused() -> None:
    team = live(1)
    for at, row in team.database.journal.items():
        team.database.journal[at] = msgspec.structs.replace(row, worker="")
    with pytest.raises(CannotReplay, match="does not name its worker"):
        replay(team)
