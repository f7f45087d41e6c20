"""The compose file: open to this machine only, and made of commands and settings that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from services.cli.main import app
from services.config import SETTINGS

REPOSITORY = Path(__file__).parents[2]


def services() -> dict[str, Any]:
    compose = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
    found: dict[str, Any] = compose["services"]
    return found


def berth_services() -> dict[str, Any]:
    found = services().items()
    return {name: each for name, each in found if each["image"] == "berth" and name != "secrets"}


def test_every_process_is_a_command_of_berth() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert set(berth_services()) == {"init", "worker", "relay", "api"}
    for service in berth_services().values():
        assert service["command"][0] in commands


def test_every_setting_exists() -> None:
    known = {name for setting in SETTINGS for name in (setting.env, setting.env_file)}
    for service in berth_services().values():
        assert set(service["environment"]) <= known


def test_every_service_says_how_it_is_by_a_command_that_exists() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for name, service in services().items():
        check = service["healthcheck"]
        assert check.get("disable") if name in ("init", "secrets") else check["test"][0] == "CMD", name
    for name in ("worker", "relay", "api"):
        program, command, *url = berth_services()[name]["healthcheck"]["test"][1:]
        assert (program, command in commands) == ("berth", True)
        assert url or int(berth_services()[name]["environment"]["BERTH_METRICS_PORT"])


def test_the_image_gets_all_that_it_copies_and_pins_what_it_installs() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text().splitlines()
    lines = (REPOSITORY / "Dockerfile").read_text().splitlines()
    copied = {name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]}
    assert copied == {line[1:] for line in ignored if line.startswith("!")}
    packages = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert {name.removesuffix("*").partition(".")[0] for name in packages["find"]["include"]} <= copied
    assert "RUN pip install --no-cache-dir --require-hashes --requirement requirements.lock" in lines
    assert "RUN pip install --no-cache-dir --no-deps --no-build-isolation ." in lines
    assert "RUN berth compile" in lines
    variables = set(re.findall(r"\b(BERTH_\w+)=", "\n".join(lines)))
    assert variables <= {setting.env for setting in SETTINGS}


def _has_compose() -> bool:
    docker = shutil.which("docker")
    return (
        docker is not None
        and subprocess.run([docker, "compose", "version"], capture_output=True).returncode == 0
    )


@pytest.mark.skipif(not _has_compose(), reason="no docker compose client")
def test_docker_compose_accepts_the_file() -> None:
    done = subprocess.run(
        ["docker", "compose", "config", "-q"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
