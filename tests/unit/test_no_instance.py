"""Does a command that needs an instance say at once that there is none?"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ops.postgres.server import EmbeddedServer
from services.cli.main import app

READING = (
    "optimise",
    "audit",
    "prune",
    "replay",
    "refold",
    "executor",
    "relay",
    "relay --acknowledge",
    "worker",
    "api",
    "simulate --from-log",
    "get nodes",
    "describe node a",
    "explain pod a",
    "accesses",
    "bill",
    "deadletters list",
    "delete pod a",
)


@pytest.mark.parametrize("command", READING)
def test_a_command_says_that_there_is_no_instance(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*_: object) -> None:
        raise AssertionError("a server was made")

    monkeypatch.setattr(EmbeddedServer, "_initialise", made)
    monkeypatch.delenv("BERTH_POSTGRES_DSN", raising=False)
    directory = tmp_path / "none"
    done = CliRunner().invoke(app, [*command.split(), "--dir", str(directory)])
    assert done.exit_code == 1
    said = " ".join(done.stderr.split())
    assert f"there is no instance in {directory}: `berth up` sets one up" in said
    assert ("-f reads manifests" in said) == (command == "optimise")
    assert not directory.exists()
