"""Does a new version of berth take over from an old one that goes on, and does each refuse other tables?"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from alembic.script import ScriptDirectory

from services import bootstrap
from services.adapters.postgres.audit import check
from services.adapters.postgres.migrate import ShardsMismatch, alembic_config
from services.adapters.postgres.revision import LAST_TO_MIGRATE, Outdated, TooNew, newest_revision, why_not
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
    monkeypatch.setattr(bootstrap, "build", lambda: build)
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
    why = f"at 0031, which this version does not migrate; run `berth init` of build {LAST_TO_MIGRATE}, "
    with pytest.raises(Outdated, match=re.escape(why)):
        await bootstrap.check_database(place, process)
    with pytest.raises(Outdated, match=re.escape(why)):
        await bootstrap.initialise(place, SHARDS)
    async with client_of(place) as client:
        answer = await client.get("/readyz")
    assert answer.json()["checks"]["migrations"].startswith(why)


async def _migrated_by_the_next_version(place: Place, works_from: str) -> str:
    """Return what `/readyz` says of tables that a newer version has migrated."""
    await query(place, f"UPDATE alembic_version SET version_num = '9999', works_from = {works_from}")
    async with client_of(place) as client:
        return str((await client.get("/readyz")).json()["checks"]["migrations"])


async def test_back_to_an_old_version_that_may_work_on_newer_tables(place: Place) -> None:
    assert await _migrated_by_the_next_version(place, f"'{newest_revision()}'") == "ok"
    await bootstrap.check_database(place, "worker")
    newer = f"the tables are at 9999, newer than this version of berth ({newest_revision()}); nothing to do"
    for shards in (None, SHARDS):
        assert await bootstrap.initialise(place, shards, roles=True) == [newer]
    with pytest.raises(
        ShardsMismatch, match=f"for {SHARDS} shards, not 8; add shards with the newer version"
    ):
        await bootstrap.initialise(place, 8)


@pytest.mark.parametrize("works_from", ["'9998'", "NULL"])
async def test_no_way_back_to_a_version_that_would_not_understand_the_tables(
    place: Place, works_from: str
) -> None:
    why = await _migrated_by_the_next_version(place, works_from)
    if works_from == "NULL":
        assert why.startswith("at 9999, of a newer version of berth or of something else; this one knows ")
    else:
        assert why.startswith("at 9999, for versions of berth that know migration 9998 at least")
    with pytest.raises(TooNew, match=why):
        await bootstrap.check_database(place, "worker")
    with pytest.raises(TooNew, match=why):
        await bootstrap.initialise(place, None)


async def test_tables_that_something_else_migrated_are_told_from_a_fault(place: Place) -> None:
    await query(place, "ALTER TABLE alembic_version DROP COLUMN works_from")
    await query(place, "UPDATE alembic_version SET version_num = 'ae1027a6acf0'")
    why = "at ae1027a6acf0, of a newer version of berth or of something else"
    with pytest.raises(TooNew, match=why):
        await bootstrap.check_database(place, "worker")
    with pytest.raises(TooNew, match=why):
        await bootstrap.initialise(place, None)
    async with client_of(place) as client:
        assert (await client.get("/readyz")).json()["checks"]["migrations"].startswith(why)


async def test_the_tables_say_which_older_versions_may_work_on_them(place: Place) -> None:
    assert await query(place, "SELECT works_from FROM alembic_version") == [(_SAID[newest_revision()],)]


def _said() -> dict[str, str]:
    scripts = ScriptDirectory.from_config(alembic_config()).walk_revisions()
    return {each.revision: each.module.works_from for each in scripts}


_SAID = _said()


def test_every_migration_says_which_older_versions_may_work_on_what_it_leaves() -> None:
    saying = dict(sorted(_SAID.items()))
    assert [at for at, said in saying.items() if said > at] == []
    assert [*saying.values()] == sorted(saying.values()), "none takes back what an earlier one said"


def test_tables_that_are_not_there_or_behind_are_made_by_this_version() -> None:
    assert why_not(None, None) == f"at None, not {newest_revision()}; run `berth init`"
    assert why_not(newest_revision(), None) == ""


def test_the_newest_revision_is_that_of_the_migrations() -> None:
    assert newest_revision() == ScriptDirectory.from_config(alembic_config()).get_current_head()
