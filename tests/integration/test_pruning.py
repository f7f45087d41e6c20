"""Does the history go that nobody needs, and nothing that is not audited, not published or still in force?"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from domain.model.errors import LedgerMismatch
from services import bootstrap
from services.adapters.postgres import pruning
from services.adapters.postgres.audit import audit, check
from services.adapters.postgres.ledger import PostgresLedger
from services.adapters.postgres.pruning import prune
from services.bootstrap import Place
from services.replay.replay import Progress
from services.worker.follow.positions import JournalPositions
from tests.builders import pod_manifest
from tests.integration.api_world import client_of, query, work_off
from tests.integration.commands import berth
from tests.integration.lives import change
from tests.integration.lives import place as place

TABLES = ("decisions", "placements", "cycles", "node_specs", "journal")
RECORDED = {"placements": ("recorded_at", "released_recorded_at"), "journal": ("recorded_at",)}


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the latest decisions go, too, and the cycles behind them, a few rows at a time."""
    monkeypatch.setattr(pruning, "_ROWS_MAX", 3)
    for name in ("_BOUNDS", "_CYCLES"):
        statement = getattr(pruning, name)
        for number in (pruning._LATEST_MIN, pruning._SPAN_MAX):
            statement = statement.replace(f"- {number}", "- 0")
        monkeypatch.setattr(pruning, name, statement)


async def grow_older(place: Place, days: int) -> None:
    for table in (*TABLES, "checkpoints"):
        for column in RECORDED.get(table, ("recorded_at",)):
            await change(place, f"UPDATE {table} SET {column} = {column} - interval '{days} days'")


async def counts(place: Place) -> dict[str, int]:
    return {table: (await query(place, f"SELECT count(*) FROM {table}"))[0][0] for table in TABLES}


async def pruned(place: Place, days: int = 30, hours: int = 24) -> dict[str, int]:
    """Return how many rows of each table went."""
    before = await counts(place)
    told = await prune(
        place.dsn, journal_hours=hours, history_days=days, owners_seconds=86_400 * days, pause_seconds=0
    )
    after = await counts(place)
    gone = {table: before[table] - after[table] for table in TABLES}
    assert told.decisions == gone["decisions"] + gone["placements"]
    others = ("journal", "cycles", "node_specs")
    assert {table: told._asdict()[table] for table in others} == {table: gone[table] for table in others}
    return gone


LIVE = "SELECT pod_uid FROM placements WHERE released_at_ms IS NULL UNION SELECT pod_uid FROM pending"
NOTHING = dict.fromkeys(TABLES, 0)
DECIDED = "SELECT outcome, count(*)::int FROM decisions GROUP BY 1 ORDER BY 1"


async def shown(client: httpx.AsyncClient, path: str) -> Any:
    """Return what is told of a pod, but for how long it waits: that grows."""
    told = (await client.get(path)).json()
    if told["group"] is not None:
        del told["group"]["waits_seconds"]
    return told


async def test_what_is_over_goes_and_what_explains_live_pods_stays(place: Place) -> None:
    await grow_older(place, 40)
    assert (await audit(place.dsn)).remembered
    async with client_of(place) as client:
        items = (await client.get("/v1/pods?limit=1000")).json()["items"]
        live = [f"/v1/pods/{each['namespace']}/{each['name']}" for each in items]
        before = {path: await shown(client, path) for path in live}
        over = (await query(place, f"SELECT count(*) FROM decisions WHERE pod_uid NOT IN ({LIVE})"))[0][0]
        gone = await pruned(place)
        assert gone["decisions"] == over > 0
        assert await check(place.dsn) == []
        for path in live:
            assert await shown(client, path) == before[path]
            first = before[path]["decisions"][0]["id"]
            assert (await client.get(f"/v1/decisions/{first}/explanation")).status_code == 200
    assert await pruned(place) == NOTHING


async def test_a_pod_that_leaves_later_takes_its_history_with_it(place: Place) -> None:
    await grow_older(place, 40)
    await audit(place.dsn)
    await pruned(place)
    async with client_of(place) as client:
        for item in (await client.get("/v1/pods?limit=1000")).json()["items"]:
            named = {"name": item["name"], "namespace": item["namespace"], "uid": item["uid"]}
            thing = {"apiVersion": "v1", "kind": "Pod", "metadata": named}
            answer = await client.post("/v1/events", json=[{"type": "DELETED", "object": thing}])
            assert answer.status_code == 202, answer.text
    await work_off(place)
    await audit(place.dsn)
    assert (await pruned(place))["placements"] == 0, "they left just now"
    young = await counts(place)
    await grow_older(place, 31)
    await audit(place.dsn)
    left = await pruned(place)
    assert left["placements"] == young["placements"] > 0
    assert left["decisions"] == young["decisions"]
    assert await check(place.dsn) == []


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM audits",
        "UPDATE audits SET ok = false",
        "UPDATE relay_cursor SET decisions_seq = 0",
    ],
)
async def test_nothing_goes_that_is_not_audited_or_not_published(place: Place, statement: str) -> None:
    await grow_older(place, 40)
    await audit(place.dsn)
    await change(place, statement)
    gone = await pruned(place)
    assert (gone["decisions"], gone["placements"], gone["cycles"]) == (0, 0, 0)


async def test_the_past_ends_where_the_history_was_pruned(place: Place) -> None:
    """Nothing of before may be told once rows are gone that held then."""
    kept = "SELECT count(*) FROM past_pending"
    await change(
        place,
        "INSERT INTO past_pending (removed_by, removed_batch, pod_uid, shard, namespace, name, signature, "
        "arrival, since_ms) SELECT 0, 1, 'u' || i, 0, 'ns', 'p', '', i, 0 FROM generate_series(1, 5) AS i",
    )
    async with client_of(place) as client:
        assert (await client.get("/v1/totals?at=0:1")).status_code == 200
        await grow_older(place, 40)
        await change(place, "UPDATE past_pending SET recorded_at = recorded_at - interval '40 days'")
        await audit(place.dsn)
        how: dict[str, Any] = {"journal_hours": 24 * 60, "owners_seconds": 1e7, "pause_seconds": 0}
        assert (await prune(place.dsn, history_days=0, **how)).past == 0
        assert (await client.get("/v1/totals?at=0:1")).status_code == 200
        assert (await query(place, kept))[0][0] == 5
        assert (await prune(place.dsn, history_days=30, **how)).past == 5, "more than one step"
        assert (await query(place, kept))[0][0] == 0
        refused = await client.get("/v1/totals?at=0:1")
        assert (refused.status_code, refused.json()["error"]["code"]) == (410, "out-of-reach")
        assert (await client.get("/v1/totals?at=now")).status_code == 200


async def test_past_owners_and_workers_go_with_the_history_that_names_them(place: Place) -> None:
    await grow_older(place, 40)
    for column in ("taken_at", "ended_at"):
        await change(place, f"UPDATE shard_owners SET {column} = {column} - interval '40 days'")
    await change(place, "UPDATE workers SET seen_at = seen_at - interval '40 days'")
    ledger = bootstrap.open_ledger(place)
    (lease, *_) = await ledger.acquire("present", 30)
    await ledger.aclose()
    await change(place, f"UPDATE shard_owners SET taken_at = 'epoch' WHERE epoch = {lease.epoch}")
    assert (await audit(place.dsn)).remembered
    how: dict[str, Any] = {"journal_hours": 24, "history_days": 0, "pause_seconds": 0}
    kept = await prune(place.dsn, owners_seconds=50 * 86_400.0, **how)
    assert (kept.shard_owners, kept.workers) == (0, 0)
    gone = await prune(place.dsn, owners_seconds=30 * 86_400.0, **how)
    assert gone.shard_owners > 3, "more than one step"
    assert gone.workers == 2
    assert [row[0] for row in await query(place, "SELECT owner FROM shard_owners")] == ["present"] * 2
    assert await query(place, "SELECT FROM workers") == []


async def test_hours_of_the_bill_are_kept_for_days_of_their_own(place: Place) -> None:
    """Whether the ledger was ever audited, and however old its history is that goes."""
    line = "'ns', 'low', 'low', 'cpu', 1, 1, 1"
    hours = "FROM generate_series(0, 9) AS i"
    now_ms = "extract(epoch FROM now()) * 1000"
    await change(place, f"INSERT INTO bill_hours SELECT {now_ms} - i * 86400000, {line} {hours}")
    how: dict[str, Any] = {"journal_hours": 24, "history_days": 1, "owners_seconds": 1.0, "pause_seconds": 0}
    assert (await prune(place.dsn, **how)).bill_hours == 0
    days = f"SELECT round(({now_ms} - hour_ms) / 86400000) FROM bill_hours ORDER BY 1"
    assert (await prune(place.dsn, bill_days=3, **how)).bill_hours == 7, "more than two steps"
    assert [row[0] for row in await query(place, days)] == [0, 1, 2]


async def test_who_followed_last_before_what_was_pruned_notices(place: Place) -> None:
    """A worker may have been paused for longer than the journal is kept, and nothing come after it."""
    assert (await query(place, "SELECT max(batch) FROM journal WHERE shard = 0"))[0][0] > 1
    await grow_older(place, 40)
    await change(place, "UPDATE checkpoints SET recorded_at = now()")
    await audit(place.dsn)
    assert (await pruned(place))["journal"] > 0
    ledger = PostgresLedger(place.dsn)
    first, *_ = await ledger.follow({0: 0})
    await ledger.aclose()
    with pytest.raises(LedgerMismatch, match="came after batch 0"):
        JournalPositions({0: 0}).follow(first)


async def test_a_journal_reaches_back_to_its_oldest_checkpoint(place: Place) -> None:
    await audit(place.dsn)
    await grow_older(place, 2)
    oldest = "(SELECT min(recorded_at) FROM journal)"
    await change(place, f"UPDATE checkpoints SET recorded_at = {oldest} + interval '1 hour'")
    assert (await pruned(place, days=0))["journal"] == 0

    async def report(_: Progress) -> None:
        pass

    assert (await bootstrap.replay(place, None, None, report)).difference is None
    await change(place, "UPDATE checkpoints SET recorded_at = now()")
    assert (await pruned(place, days=0))["journal"] > 0
    ends = await query(place, "SELECT shard, next_offset FROM shard_offsets WHERE topic = '~batches'")
    assert (await query(place, "SELECT shard, max(batch) FROM journal GROUP BY shard"))[0] in ends
    assert await check(place.dsn) == []


async def test_what_holds_the_journal_or_decisions_is_said(place: Place, tmp_path: Path) -> None:
    """With `BERTH_CHECKPOINT_BATCHES=0` no new checkpoint comes, and the last ones stay for ever."""
    await grow_older(place, 40)
    told = ("prune", "--postgres-dsn", place.dsn, "--history-days", "30")
    await change(place, "UPDATE relay_cursor SET decisions_seq = 2 WHERE shard = 0")
    done = await asyncio.to_thread(berth, tmp_path, *told)
    assert done.returncode == 0, done.stderr
    by_checkpoint, by_relay = [line for line in done.stderr.splitlines() if line.startswith("held: ")][:2]
    ((batch,),) = await query(place, "SELECT min(batch) FROM checkpoints")
    assert by_checkpoint.startswith("held: the journal of shard 0 from batch 1 on, of 20")
    assert f"by the oldest checkpoint, after batch {batch} of shard 0, of 20" in by_checkpoint
    assert "and no worker holds shard 0" in by_checkpoint
    assert "BERTH_CHECKPOINT_BATCHES above 0" in by_checkpoint
    assert by_relay.startswith("held: the decisions of shard 0 from 3 on, of 20")
    assert "by the relay's cursor, which is at 2; no relay publishes it. Remedy: start a relay" in by_relay
    await change(
        place, "UPDATE relay_cursor SET decisions_seq = (SELECT seq_next - 1 FROM shards WHERE shard = 0)"
    )
    await change(place, "DELETE FROM checkpoints")
    done = await asyncio.to_thread(berth, tmp_path, *told)
    assert "held: " not in done.stderr


async def test_the_command_prunes_nothing_while_something_is_broken(place: Place, tmp_path: Path) -> None:
    await grow_older(place, 40)
    told = ("prune", "--postgres-dsn", place.dsn, "--history-days", "30")
    await change(place, "UPDATE nodes SET requested[1] = requested[1] + 1 WHERE id = 1")
    refused = await asyncio.to_thread(berth, tmp_path, *told)
    assert (refused.returncode, await counts(place)) == (1, await counts(place))
    assert "requested-is-the-sum is broken" in refused.stdout
    assert "nothing is pruned" in refused.stderr
    await change(place, "UPDATE nodes SET requested[1] = requested[1] - 1 WHERE id = 1")
    short = await asyncio.to_thread(berth, tmp_path, *told[:-1], "6")
    assert (short.returncode, "BERTH_HISTORY_DAYS" in short.stderr) == (1, True)
    done = await asyncio.to_thread(berth, tmp_path, *told)
    assert done.returncode == 0, done.stderr
    assert "rows pruned" in done.stdout


async def test_a_topic_that_is_made_anew_begins_with_what_is_kept(place: Place) -> None:
    await grow_older(place, 40)
    await audit(place.dsn)
    await pruned(place)
    await change(place, "DELETE FROM log_records WHERE topic = 'berth.decisions'")
    await change(place, "UPDATE log_topics SET next_offset = 0 WHERE topic = 'berth.decisions'")
    async with client_of(place) as client:
        pods = [{"type": "ADDED", "object": pod_manifest(f"late-{i}", cpu="1m")} for i in range(8)]
        assert (await client.post("/v1/events", json=pods)).status_code == 202
    await work_off(place)
    found = await bootstrap.audit(place, None, lambda _: None, topic=True)
    assert found.broken == []
    below = "SELECT count(*) FROM decisions d JOIN pruned p USING (shard) WHERE d.seq < p.seq_below"
    assert (await query(place, below))[0][0] > 0, "what explains live pods"
    assert found.records_count == (await query(place, "SELECT count(*) FROM decisions"))[0][0]


async def test_what_is_deleted_was_rolled_up_and_stays_counted(place: Place) -> None:
    """No worker has counted it, as none ran long enough; steps go by an age of their own."""
    rolled_up = (
        "SELECT outcome, sum(count)::int FROM rollup_counts WHERE kind = 'namespace' GROUP BY 1 ORDER BY 1"
    )
    decided = [tuple(row) for row in await query(place, DECIDED)]
    await change(place, "DELETE FROM rollup_counts")
    await change(place, "DELETE FROM rollup_cursors")
    await grow_older(place, 40)
    await audit(place.dsn)
    assert (await pruned(place))["decisions"] > 0
    assert [tuple(row) for row in await query(place, DECIDED)] != decided
    assert [tuple(row) for row in await query(place, rolled_up)] == decided
    for days, stays in ((0, True), (30, True), (1, False)):
        if days == 30:
            await change(place, "UPDATE rollup_counts SET step_ms = step_ms - 10 * 86400000::bigint")
        told = await prune(
            place.dsn, journal_hours=24, history_days=0, rollup_days=days, owners_seconds=9e9, pause_seconds=0
        )
        assert bool(await query(place, rolled_up)) == stays
        assert bool(told.rollups) != stays
