"""Do all connections to Postgres speak TLS as the DSN says, and is it said when they do not?"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from domain.model.errors import Unavailable
from services import bootstrap
from services.adapters.postgres.connections import Refused, connect
from services.bootstrap import Place
from services.config import SettingError, Settings
from services.metrics import process_registry
from tests.builders import node_manifest, pod_manifest
from tests.integration.api_world import client_of
from tests.security.tls_postgres import CERTIFIED, PASSWORD, TlsServer, tls_postgres
from tests.servers import scratch_dir


@pytest.fixture(scope="module")
def server() -> Iterator[TlsServer]:
    with scratch_dir() as path, tls_postgres(path) as running:
        yield running


def settings_of(dsn: str) -> Settings:
    return Settings.from_env({"BERTH_POSTGRES_DSN": dsn, "BERTH_POSTGRES_PASSWORD": PASSWORD})


def verified(server: TlsServer, **more: Any) -> str:
    found = settings_of(server.dsn(sslmode="verify-full", sslrootcert=server.certificates.ca, **more)).dsn
    assert found is not None
    return found


async def test_everything_runs_over_tls(server: TlsServer) -> None:
    """Migrations, worker, relay, API and the log: every session at the server is encrypted."""
    place = Place(verified(server), None)
    await bootstrap.initialise(place, 1, roles=True)
    settings = Settings(worker_name="w", seed=7)
    works = [
        asyncio.create_task(bootstrap.run_worker(place, settings, process_registry())),
        asyncio.create_task(bootstrap.run_relay(place, settings, process_registry())),
    ]
    looker = await asyncpg.connect(place.dsn)
    try:
        async with client_of(place) as client, asyncio.timeout(90):
            events = [{"type": "ADDED", "object": each} for each in (node_manifest("n"), pod_manifest("p"))]
            sent = await client.post("/v1/events?wait=60s&until=decided", json=events)
            assert sent.json()["folded"], sent.text
            sessions = await looker.fetch(
                "SELECT a.application_name, s.ssl FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid) "
                "WHERE a.backend_type = 'client backend'"
            )
            names = {row["application_name"] for row in sessions}
            assert {"berth-lease", "berth-api", "berth-log"} <= names
            assert [row for row in sessions if not row["ssl"]] == []
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        await looker.close()


@pytest_asyncio.fixture
async def certified(server: TlsServer) -> str:
    connection = await asyncpg.connect(verified(server))
    with contextlib.suppress(asyncpg.DuplicateObjectError):
        await connection.execute(f"CREATE USER {CERTIFIED}")
    await connection.close()
    return CERTIFIED


async def test_a_client_can_show_a_certificate_instead_of_a_password(
    server: TlsServer, certified: str
) -> None:
    files = server.certificates
    query: dict[str, Any] = {"sslmode": "verify-full", "sslrootcert": files.ca, "sslcert": files.client}
    dsn = Settings.from_env(
        {"BERTH_POSTGRES_DSN": server.dsn(certified, **query, sslkey=files.client_key)}
    ).dsn
    connection = await connect(dsn or "", "test")
    assert await connection.fetchval("SELECT current_user") == certified
    await connection.close()
    with pytest.raises(Refused):
        await connect(server.dsn(certified, sslmode="verify-full", sslrootcert=files.ca), "test")


async def test_a_password_file_works(
    server: TlsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pgpass"
    file.write_text(f"127.0.0.1:{server.port}:*:berth:{PASSWORD}\n")
    file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    monkeypatch.setenv("PGPASSFILE", str(file))
    dsn = server.dsn(sslmode="verify-full", sslrootcert=server.certificates.ca)
    connection = await connect(dsn, "test")
    assert await connection.fetchval("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    await connection.close()


@pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
async def test_a_server_of_another_authority_is_refused_and_not_asked_again(
    server: TlsServer, mode: str
) -> None:
    dsn = settings_of(server.dsn(sslmode=mode, sslrootcert=server.certificates.other_ca)).dsn
    with pytest.raises(Refused, match="certificate"):
        await connect(dsn or "", "test")


async def test_a_server_with_another_name_is_refused(server: TlsServer) -> None:
    query: dict[str, Any] = {"sslmode": "verify-full", "sslrootcert": server.certificates.ca}
    dsn = settings_of(server.dsn(at="127.0.0.2", **query)).dsn
    with pytest.raises(Refused, match="certificate"):
        await connect(dsn or "", "test")
    known = await connect(verified(server), "test")
    await known.close()


async def test_a_wrong_password_and_a_connection_without_tls_are_refused(server: TlsServer) -> None:
    wrong = server.dsn("berth:wrong", sslmode="verify-full", sslrootcert=server.certificates.ca)
    with pytest.raises(Refused, match=r"password authentication failed.*BERTH_POSTGRES_PASSWORD or .*_FILE"):
        await connect(wrong, "test")
    plain = settings_of(server.dsn(sslmode="disable")).dsn
    with pytest.raises(Refused, match=r"no encryption"):
        await connect(plain or "", "test")


async def test_a_server_without_tls_is_never_spoken_to_in_clear(postgres_dsn: str) -> None:
    with pytest.raises(Unavailable, match="rejected SSL upgrade"):
        await connect(f"{postgres_dsn}?sslmode=require", "test")


@pytest.mark.parametrize("field", ["sslrootcert", "sslcert", "sslkey", "sslcrl"])
def test_a_file_that_is_not_there_is_named_at_once(field: str) -> None:
    with pytest.raises(SettingError, match=f"BERTH_POSTGRES_DSN .*{field} names a file that cannot be read"):
        Settings.from_env({"BERTH_POSTGRES_DSN": f"postgresql://u@h/d?sslmode=verify-full&{field}=/no/file"})


def test_an_unknown_mode_is_named_at_once() -> None:
    with pytest.raises(SettingError, match="sslmode"):
        Settings.from_env({"BERTH_POSTGRES_DSN": "postgresql://u@h/d?sslmode=often"})


@pytest.mark.parametrize(
    ("dsn", "warned"),
    [
        ("postgresql://u@10.0.0.1/d", True),
        ("postgresql://u@db/d", True),
        ("postgresql://u@127.0.0.1,db/d", True),
        ("postgresql://u@/d?host=db", True),
        ("postgresql://u@db/d?sslmode=prefer", True),
        ("postgresql://u@db/d?sslmode=require", False),
        ("postgresql://u@db/d?sslmode=verify-full", False),
        ("postgresql://u@127.0.0.1:5432/d", False),
        ("postgresql://u@localhost/d", False),
        ("postgresql://u@[::1]:5432/d", False),
        ("postgresql://u@/d?host=/run/postgresql", False),
    ],
)
async def test_a_database_elsewhere_without_tls_is_warned_about_once(
    dsn: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "berth"):
        async with bootstrap.place(Settings.from_env({"BERTH_POSTGRES_DSN": dsn})):
            pass
    said = [each.message for each in caplog.records if "sslmode" in each.message]
    assert len(said) == warned
