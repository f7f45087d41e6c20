"""The commands of berth as a user runs them, on a directory of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from services.config import SETTINGS

BERTH = (sys.executable, "-m", "services.cli.main")


def environment(directory: Path) -> dict[str, str]:
    """Return an environment in which only BERTH_DIR is set of all settings."""
    names = {setting.env for setting in SETTINGS}
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return kept | {"BERTH_DIR": str(directory)}


def berth(directory: Path, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*BERTH, *arguments],
        env=environment(directory),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )


def listed(directory: Path, *arguments: str) -> Any:
    """Return what ``get … -o json`` prints."""
    done = berth(directory, "get", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def url_of(directory: Path) -> str:
    """Return the address of the ``berth up`` that runs on a directory."""
    found: str = json.loads((directory / "api.json").read_text())["url"]
    return found


@contextmanager
def up(directory: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``berth up`` until the block ends; it must then stop cleanly within seconds."""
    process = subprocess.Popen(
        [*BERTH, "up", "--port", "0", *options], env=environment(directory), stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("berth is up: http://127.0.0.1:"), line
        yield process
        process.terminate()
        assert process.wait(timeout=20) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stderr is not None:
            process.stderr.close()


def eventually(check: Any) -> None:
    """Wait until a check holds."""
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.1)
