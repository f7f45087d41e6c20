"""Can each process work under a role of its own, and do nothing else with the database?"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio

from services import bootstrap
from services.adapters.postgres import schema, sql_guards
from services.adapters.postgres.engine import NotGranted
from services.adapters.postgres.roles import (
    API,
    AUDITOR,
    GRANTS,
    PRUNE,
    RELAY,
    REPLAY,
    ROLES,
    VIEWS,
    WORKER,
    RolesRefused,
    create_roles,
)
from services.bootstrap import Place
from services.config import Settings
from services.metrics import process_registry
from services.ports.exports import What
from services.ports.store import Grant
from services.replay.replay import Progress
from tests.builders import node_manifest, pod_manifest
from tests.integration.api_world import client_of, fresh_database
from tests.integration.commands import BERTH, environment

PASSWORD = "p@ss/word"


class Deployment(NamedTuple):
    """A database with roles, and the place of each login."""

    owner: Place
    of: dict[str, Place]


@pytest_asyncio.fixture(scope="module")
async def deployment(postgres_dsn: str) -> AsyncIterator[Deployment]:
    async with fresh_database(postgres_dsn) as owner:
        await bootstrap.initialise(owner, 1, roles=True)
        connection = await asyncpg.connect(owner.dsn)
        logins = {role: f"{role}_login" for role in ROLES}
        for role, login in logins.items():
            await connection.execute(f"CREATE USER {login} PASSWORD '{PASSWORD}' IN ROLE {role}")
        parts = urlsplit(owner.dsn)
        where = f"{parts.hostname}:{parts.port}"
        places = {}
        for role, login in logins.items():
            bare = parts._replace(netloc=f"{login}@{where}").geturl()
            found = Settings.from_env({"BERTH_POSTGRES_DSN": bare, "BERTH_POSTGRES_PASSWORD": PASSWORD})
            places[role] = Place(found.dsn or "", None)
        try:
            yield Deployment(owner, places)
        finally:
            for name in (*logins.values(), *ROLES):
                await connection.execute(f"DROP OWNED BY {name}")
                await connection.execute(f"DROP ROLE {name}")
            await connection.close()


def test_every_table_has_a_grant_decision() -> None:
    """A new table fails here until ``GRANTS`` says who may do what with it."""
    assert set(GRANTS) == {*schema.metadata.tables, "alembic_version"}


async def test_each_process_works_under_its_own_role(deployment: Deployment) -> None:
    settings = Settings(worker_name="w", seed=7)
    works = [
        asyncio.create_task(bootstrap.run_worker(deployment.of[WORKER], settings, process_registry())),
        asyncio.create_task(bootstrap.run_relay(deployment.of[RELAY], settings, process_registry())),
    ]
    try:
        async with client_of(deployment.of[API]) as client, asyncio.timeout(90):
            while (await client.get("/readyz")).status_code != 200:
                for work in works:
                    assert not work.done(), work.result()
                await asyncio.sleep(0.1)
            events: list[Any] = [
                {"type": "ADDED", "object": node_manifest("n"), "id": "1"},
                {"type": "ADDED", "object": pod_manifest("fits"), "id": "2"},
                {"type": "ADDED", "object": pod_manifest("waits", cpu="9999"), "id": "3"},
                {"type": "DELETED", "object": pod_manifest("fits"), "id": "4"},
            ]
            for event in events:
                target = "/v1/events?wait=30s&until=decided"
                sent = await client.post(target, json=event)
                assert sent.status_code == 202, sent.text
                assert sent.json()["folded"], sent.text
            for path in ("nodes", "pods", "decisions", "pending", "profiles", "shards", "deadletters"):
                assert (await client.get(f"/v1/{path}")).status_code == 200, path
            assert (await client.get("/metrics")).status_code == 200
            why = await client.get("/v1/pods/default/waits/why")  # its own process reads the whole ledger
            assert why.status_code == 200, why.text
            assert why.json()["cures"][0]["changes"][0]["kind"] == "more-room"
            store = bootstrap.open_store(deployment.of[API])
            async with contextlib.aclosing(store):
                while any(each.decisions_seq < each.seq_next - 1 for each in await store.processes.shards()):
                    await asyncio.sleep(0.05)
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    async def report(progress: Progress) -> None:
        pass

    outcome = await bootstrap.replay(deployment.of[REPLAY], None, None, report)
    assert outcome.difference is None
    assert outcome.progress.decisions_count == 3


async def test_a_worker_may_do_all_that_guards_take(deployment: Deployment) -> None:
    """Some of it comes late: a matcher is dropped when nobody has used it for an hour."""
    connection = await asyncpg.connect(deployment.of[WORKER].dsn)
    try:
        for statement in ("BRING", "READ", "LOCK_RAISED", "RAISE", "ANNOUNCE", "DROP"):
            await connection.execute(getattr(sql_guards, statement), ["ns"])
    finally:
        await connection.close()


async def test_only_the_owner_of_the_tables_makes_keys(deployment: Deployment) -> None:
    async with client_of(deployment.of[API], local_user="me") as client:
        refused = await client.post("/v1/keys", json={"name": "mine", "roles": ["admin"]})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not-granted"), refused.text
        assert "the tables' owner may" in refused.json()["error"]["message"]
        assert (await client.get("/v1/keys")).json() == {"items": [], "next": None}
    async with contextlib.aclosing(bootstrap.open_store(deployment.of[API])) as store:
        assert await store.callers.forget_events(3600, 10) == 0
    async with contextlib.aclosing(bootstrap.open_store(deployment.of[AUDITOR])) as store:
        assert await store.callers.keys() == []


FORBIDDEN = [
    (WORKER, "SELECT * FROM api_keys"),
    (WORKER, "UPDATE decisions SET node = 'x'"),
    (WORKER, "DELETE FROM decisions"),
    (WORKER, "DELETE FROM placements"),
    (WORKER, "INSERT INTO log_records (topic) VALUES ('berth.pods')"),
    (WORKER, "UPDATE relay_cursor SET decisions_seq = 0"),
    (WORKER, "UPDATE log_seal SET secret = ''"),
    (RELAY, "SELECT * FROM placements"),
    (RELAY, "UPDATE placements SET node = 'x'"),
    (RELAY, "UPDATE decisions SET node = 'x'"),
    (RELAY, "UPDATE shards SET epoch = 99"),
    (RELAY, "SELECT * FROM api_keys"),
    (RELAY, "SELECT * FROM log_seal"),
    (API, "UPDATE decisions SET node = 'x'"),
    (API, "INSERT INTO placements (shard) VALUES (0)"),
    (API, "UPDATE nodes SET requested = '{}'"),
    (API, "UPDATE shards SET epoch = 99"),
    (API, "INSERT INTO api_keys (name) VALUES ('mine')"),
    (API, "UPDATE api_keys SET roles = '{admin}'"),
    (API, "UPDATE log_records SET value = ''"),
    *((REPLAY, f"SELECT * FROM {table}") for table in ("placements", "nodes", "api_keys", "access_log")),
    *((REPLAY, f"DELETE FROM {table}") for table in GRANTS),
    *((REPLAY, f"INSERT INTO {table} DEFAULT VALUES") for table in GRANTS),
    (PRUNE, "UPDATE decisions SET node = 'x'"),
    (PRUNE, "DELETE FROM nodes"),
    *((PRUNE, f"SELECT * FROM {table}") for table in ("api_keys", "log_seal", "access_log")),
    (AUDITOR, "SELECT key_hash FROM api_keys"),
    (AUDITOR, "SELECT * FROM sessions"),
    (WORKER, "SELECT * FROM sessions"),
    (AUDITOR, "SELECT * FROM api_keys"),
    (AUDITOR, "SELECT * FROM log_seal"),
    *((AUDITOR, f"DELETE FROM {table}") for table in GRANTS),
    *((AUDITOR, f"INSERT INTO {table} DEFAULT VALUES") for table in GRANTS),
    *((role, "CREATE TABLE public.mine (a int)") for role in ROLES),
    *((role, f"TRUNCATE {table}") for role in ROLES for table in GRANTS),
    *((role, f"DROP TABLE {table}") for role in ROLES for table in ("decisions", "api_keys")),
    *((role, "UPDATE alembic_version SET version_num = '0'") for role in ROLES),
]


@pytest.mark.parametrize("role", ROLES)
async def test_no_role_can_do_more(deployment: Deployment, role: str) -> None:
    connection = await asyncpg.connect(deployment.of[role].dsn)
    try:
        for statement in (statement for who, statement in FORBIDDEN if who == role):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
    finally:
        await connection.close()


async def test_an_auditor_reads_everything_but_secrets(deployment: Deployment) -> None:
    connection = await asyncpg.connect(deployment.of[AUDITOR].dsn)
    try:
        for table in GRANTS:
            if table not in ("api_keys", "log_seal", "sessions"):
                await connection.fetch(f"SELECT * FROM {table}")
        await connection.fetch("SELECT name, roles, created_at, revoked_at FROM api_keys")
        for what in What:
            await connection.fetch(f"SELECT * FROM {VIEWS}.{what}")
    finally:
        await connection.close()


async def test_keys_are_made_by_the_owner_alone(deployment: Deployment) -> None:
    async with contextlib.aclosing(bootstrap.open_store(deployment.owner)) as store:
        await store.callers.create_key(b"hash", Grant("team", ["auditor"]))
        assert await store.callers.revoke_key("team") == 1
    async with contextlib.aclosing(bootstrap.open_store(deployment.of[API])) as store:
        with pytest.raises(Exception, match="permission denied"):
            await store.callers.create_key(b"other", Grant("team", ["admin"]))


async def test_making_the_roles_again_restores_exactly_their_grants(deployment: Deployment) -> None:
    query = (
        "SELECT grantee, table_name, privilege_type FROM information_schema.role_table_grants "
        "WHERE grantee LIKE 'berth\\_%' AND grantee NOT LIKE '%login'"
    )
    connection = await asyncpg.connect(deployment.owner.dsn)
    try:
        before = {tuple(row) for row in await connection.fetch(query)}
        await connection.execute(f"GRANT DELETE ON decisions TO {API}; REVOKE ALL ON nodes FROM {WORKER}")
        assert await create_roles(deployment.owner.dsn) == []
        assert {tuple(row) for row in await connection.fetch(query)} == before
    finally:
        await connection.close()


@pytest.mark.parametrize(("process", "own"), [("worker", WORKER), ("relay", RELAY), ("api", API)])
async def test_a_process_with_the_login_of_another_role_ends_at_its_start(
    deployment: Deployment, tmp_path: Path, process: str, own: str
) -> None:
    await bootstrap.check_database(deployment.of[own], process)
    await bootstrap.check_database(deployment.owner, process)
    for role in set(ROLES) - {own}:
        with pytest.raises(NotGranted, match=f"{role}_login, .*make it a member of {own}.*init --roles"):
            await bootstrap.check_database(deployment.of[role], process)
    other = RELAY if own != RELAY else WORKER
    told = environment(tmp_path) | {"BERTH_POSTGRES_DSN": deployment.of[other].dsn, "BERTH_API_PORT": "0"}
    command = [*BERTH, process]
    done = await asyncio.to_thread(
        subprocess.run, command, env=told, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, "is up" in done.stderr) == (1, False), done.stderr
    assert f"make it a member of {own}" in done.stderr


async def test_a_table_whose_grants_were_forgotten_is_named_at_the_start(deployment: Deployment) -> None:
    connection = await asyncpg.connect(deployment.owner.dsn)
    try:
        await connection.execute(f"REVOKE DELETE ON node_usage FROM {WORKER}")
        with pytest.raises(NotGranted, match=r"lacks grants on node_usage: .*after each upgrade"):
            await bootstrap.check_database(deployment.of[WORKER], "worker")
    finally:
        await create_roles(deployment.owner.dsn)
        await connection.close()
    await bootstrap.check_database(deployment.of[WORKER], "worker")


async def test_who_may_not_lay_down_shards_is_told_who_may(deployment: Deployment) -> None:
    with pytest.raises(NotGranted, match="the tables' owner may"):
        await bootstrap.initialise(deployment.of[RELAY], 1)


async def test_who_may_not_make_roles_is_told_what_is_needed(deployment: Deployment) -> None:
    with pytest.raises(RolesRefused, match="has to own the tables"):
        await create_roles(deployment.of[API].dsn)
