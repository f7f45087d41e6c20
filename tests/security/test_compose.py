"""The compose file gives nothing away: no default password, no port but the API's, no rights to spare."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml

from ops.compose.passwords import make_passwords
from ops.postgres.account import server_package
from services import bootstrap
from services.bootstrap import Place

REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_no_password_stands_in_the_file() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if "PASSWORD" in variable:
                assert variable.endswith("_FILE"), f"{name} takes {variable} from the file itself"
            assert not re.search(r"://[^@/]*:[^@/]*@", str(value)), f"{name} has a password in {variable}"


def test_only_the_api_is_published_and_to_this_machine() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert set(published) == {"api"}
    assert all(port.startswith("127.0.0.1:") for port in published["api"])


def test_only_the_api_is_on_a_network_that_leads_out() -> None:
    networks = COMPOSE["networks"]
    assert networks["backend"]["internal"] is True
    for name, service in SERVICES.items():
        if service.get("network_mode") != "none":
            assert set(service["networks"]) == ({"backend", "front"} if name == "api" else {"backend"})


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_has_rights_to_spare(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "privileged" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    if name != "kafka":  # its image writes its configuration beside its programs
        assert service["read_only"] is True


def test_the_superuser_of_the_database_is_out_of_reach_of_berth() -> None:
    for name, service in SERVICES.items():
        mounted = {str(volume).partition(":")[0] for volume in service.get("volumes", ())}
        assert ("postgres-secrets" in mounted) == (name in ("postgres", "secrets")), name
    assert "postgresql://berth@" in SERVICES["worker"]["environment"]["BERTH_POSTGRES_DSN"]


def test_passwords_are_made_once_and_are_not_for_all(tmp_path: Path) -> None:
    own, postgres = tmp_path / "own", tmp_path / "postgres"
    own.mkdir()
    postgres.mkdir()
    assert make_passwords(own, postgres) == ["berth", "postgres"]
    kept = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(kept) == 3
    assert len({*kept.values()}) == 2, "berth's is in both folders"
    assert all(len(text) >= 40 for text in kept.values())
    assert stat.S_IMODE((own / "berth").stat().st_mode) == 0o400
    assert make_passwords(own, postgres) == []
    assert kept == {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}


async def test_the_role_of_berth_is_no_superuser_and_can_lay_the_tables(
    postgres_dsn: str, tmp_path: Path
) -> None:
    """The script runs on a real server, under another name: there, ``berth`` exists already."""
    name = f"berth_compose_{os.getpid()}"
    parts = urllib.parse.urlsplit(postgres_dsn)
    script = re.sub(r"\bberth\b(?!/)", name, (REPOSITORY / "ops/compose/database.sh").read_text())
    (tmp_path / name).write_text("a password's text")
    environment = {
        "PATH": f"{server_package() / 'pginstall18' / 'bin'}:{os.environ['PATH']}",
        "PASSWORDS": str(tmp_path),
        "PGHOST": str(parts.hostname),
        "PGPORT": str(parts.port),
        "PGUSER": str(parts.username),
        "PGPASSWORD": urllib.parse.unquote(str(parts.password)),
        "PGDATABASE": "postgres",
    }
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-c", script], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    password = urllib.parse.quote("a password's text")
    dsn = parts._replace(netloc=f"{name}:{password}@{parts.hostname}:{parts.port}", path=f"/{name}").geturl()
    await bootstrap.initialise(Place(dsn, None), 1)
    connection = await asyncpg.connect(dsn)
    try:
        is_super = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
        assert await connection.fetchval(is_super) is False
        assert await connection.fetchval("SELECT count(*) FROM shards") == 1
    finally:
        await connection.close()
    owner = await asyncpg.connect(postgres_dsn)
    await owner.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await owner.execute(f"DROP ROLE {name}")
    await owner.close()
