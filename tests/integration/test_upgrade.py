"""Does a new version of berth take over from an old one that goes on, and does each refuse other tables?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from services import bootstrap
from services.adapters.postgres.audit import check
from services.adapters.postgres.migrate import alembic_config
from services.adapters.postgres.revision import Outdated, newest_revision
from services.bootstrap import Place
from services.config import Settings
from services.metrics import process_registry
from services.replay.replay import Outcome, Progress
from tests.builders import node_manifest, pod_manifest
from tests.integration.api_world import client_of, fresh_database, query

SHARDS = 4
MIGRATED = [
    "ALTER TABLE placements ADD COLUMN of_the_next_version text",
    "ALTER TABLE journal ADD COLUMN of_the_next_version jsonb NOT NULL DEFAULT '{}'",
    "CREATE TABLE of_the_next_version (id bigint PRIMARY KEY)",
    "UPDATE alembic_version SET version_num = '9999'",
]
"""What migrations do while an older version runs: they add."""
_OWNERS = "SELECT owner, count(*) FROM worker_leases WHERE expires_at > clock_timestamp() GROUP BY owner"
_OPEN = "SELECT count(*) FROM placements WHERE released_at_ms IS NULL"
_PUBLISHED = "SELECT bool_and(decisions_seq = seq_next - 1) FROM relay_cursor JOIN shards USING (shard)"


@pytest_asyncio.fixture
async def place(embedded_dsn: str) -> AsyncIterator[Place]:
    """Return a ledger and a log with some shards."""
    async with fresh_database(embedded_dsn) as place:
        await bootstrap.initialise(place, SHARDS)
        yield place


def work(place: Place, name: str, build: str, monkeypatch: pytest.MonkeyPatch) -> asyncio.Task[None]:
    """Start a worker of a version of berth."""
    monkeypatch.setattr(bootstrap, "version", lambda _: build)
    return asyncio.create_task(bootstrap.run_worker(place, Settings(worker_name=name), process_registry()))


async def until(place: Place, query_text: str, is_so: Callable[[list[Any]], bool]) -> None:
    """Wait until the ledger says so."""
    async with asyncio.timeout(120):
        while not is_so(found := await query(place, query_text)):
            await asyncio.sleep(0.05)
        assert found


async def place_pods(place: Place, numbers: range) -> None:
    """Send pods, and wait until all pods up to them are placed."""
    async with client_of(place) as client:
        things = [pod_manifest(f"p{i}", cpu="100m") for i in numbers]
        answer = await client.post("/v1/events", json=[{"type": "ADDED", "object": each} for each in things])
        assert answer.status_code == 202, answer.text
    await until(place, _OPEN, lambda rows: rows[0][0] == numbers.stop)


async def replay(place: Place) -> Outcome:
    async def report(progress: Progress) -> None:
        pass

    return await bootstrap.replay(place, None, None, report)


async def test_an_old_and_a_new_version_work_side_by_side_and_their_day_is_replayed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(place) as client:
        nodes = [{"type": "ADDED", "object": node_manifest(f"n{i}", cpu=8)} for i in range(12)]
        assert (await client.post("/v1/events", json=nodes)).status_code == 202
    old = work(place, "old", "1.0", monkeypatch)
    relay = asyncio.create_task(bootstrap.run_relay(place, Settings(), process_registry()))
    try:
        await place_pods(place, range(40))
        for statement in MIGRATED:
            await query(place, statement)
        await place_pods(place, range(40, 80))
        await bootstrap.check_database(place, "worker")  # an old one may be started again, too
        new = work(place, "new", "1.1", monkeypatch)
        try:
            await until(place, _OWNERS, lambda rows: dict(rows) == {"old": 2, "new": 2})
            await place_pods(place, range(80, 160))
            old.cancel()
            await asyncio.gather(old, return_exceptions=True)
            await until(place, _OWNERS, lambda rows: dict(rows) == {"new": SHARDS})
            await place_pods(place, range(160, 200))
            await until(place, _PUBLISHED, lambda rows: bool(rows[0][0]))
        finally:
            new.cancel()
            await asyncio.gather(new, return_exceptions=True)
    finally:
        for task in (old, relay):
            task.cancel()
        await asyncio.gather(old, relay, return_exceptions=True)
    assert [each.name for each in await check(place.dsn) if not each.warning] == []
    outcome = await replay(place)
    assert (outcome.difference, outcome.progress.batches_count) == (None, outcome.progress.total)
    builds = await query(place, "SELECT DISTINCT start->>'build' FROM journal WHERE start IS NOT NULL")
    assert {row[0] for row in builds} == {"1.0", "1.1"}


@pytest.mark.parametrize("process", ["worker", "relay", "api", "prune"])
async def test_no_process_begins_on_tables_that_have_to_be_migrated_first(place: Place, process: str) -> None:
    await query(place, "UPDATE alembic_version SET version_num = '0031'")
    with pytest.raises(Outdated, match=f"at 0031, not {newest_revision()}; run `berth init`"):
        await bootstrap.check_database(place, process)
    async with client_of(place) as client:
        answer = await client.get("/readyz")
    assert answer.json()["checks"]["migrations"] == f"at 0031, not {newest_revision()}; run `berth init`"


async def test_an_api_beside_a_newer_version_is_ready_by_its_tables(place: Place) -> None:
    await query(place, "UPDATE alembic_version SET version_num = '9999'")
    async with client_of(place) as client:
        answer = await client.get("/readyz")
    assert answer.json()["checks"]["migrations"] == "ok"


def test_the_newest_revision_is_that_of_the_migrations() -> None:
    from alembic.script import ScriptDirectory

    assert newest_revision() == ScriptDirectory.from_config(alembic_config()).get_current_head()
