"""The files that a running instance leaves for commands on the same directory: its address, a first key."""

from __future__ import annotations

from pathlib import Path

import orjson

_FILE = "api.json"
KEY_FILE = "admin.key"


def write_address(directory: Path, url: str) -> None:
    """Note where this directory's API is."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _FILE).write_bytes(orjson.dumps({"url": url}))


def remove_address(directory: Path) -> None:
    """Forget where this directory's API was."""
    (directory / _FILE).unlink(missing_ok=True)


def read_address(directory: Path) -> str | None:
    """Return the last known address of this directory's API. After a kill the file may be out of date."""
    try:
        return str(orjson.loads((directory / _FILE).read_bytes())["url"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None


def write_key(directory: Path, key: str) -> None:
    """Keep a key for the commands of everybody who may read this directory."""
    path = directory / KEY_FILE
    path.touch(mode=0o600)
    path.write_text(key + "\n")


def read_key(directory: Path) -> str | None:
    """Return the key that is kept here."""
    try:
        return (directory / KEY_FILE).read_text().strip() or None
    except OSError:
        return None
