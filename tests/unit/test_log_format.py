"""Is every line that a process writes about itself a JSON object, where that is asked for?"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from services.cli import options
from services.log_format import announce
from tests.integration.commands import environment

KEY = "berth_0123456789abcdefghij"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Give the log back as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_lines_are_objects_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    options.settings(log_format="json")
    logging.getLogger("berth.x").warning("a key %s\nand more", KEY)
    try:
        raise ValueError(KEY)
    except ValueError:
        logging.getLogger("berth.y").exception("a fault")
    logging.getLogger("berth.x").info("nothing at this level")
    announce("worker w is up")
    first, second, third = map(orjson.loads, capsys.readouterr().err.splitlines())
    assert (first["level"], first["logger"], first["message"]) == (
        "warning",
        "berth.x",
        "a key berth_***\nand more",
    )
    assert len(first["time"]) == len("2026-01-31T08:00:00.000Z")
    assert (second["level"], second["message"]) == ("error", "a fault")
    assert "ValueError: berth_***" in second["traceback"]
    assert (third["level"], third["message"]) == ("info", "worker w is up")


def test_text_stays_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    options.settings()
    logging.getLogger("berth.x").warning("a key %s", KEY)
    announce("worker w is up")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("WARNING berth.x  a key berth_***")
    assert second == "worker w is up"


@pytest.mark.parametrize("process", ["worker", "relay", "api"])
def test_each_process_takes_the_option_and_ends_with_json(process: str, tmp_path: Path) -> None:
    """Its settings contradict each other: the error that ends it is a line of the log, too."""
    nowhere = ["--postgres-dsn", f"postgresql:///none?host={tmp_path}", "--log-format", "json"]
    ended = subprocess.run(
        [sys.executable, "-m", "services.cli.main", process, *nowhere, "--kafka-security", "tls"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1
    assert [orjson.loads(line)["level"] for line in ended.stderr.splitlines()][-1] == "error"
