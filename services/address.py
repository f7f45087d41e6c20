"""The file in which a running instance notes the address of its API, for commands on the same directory."""

from __future__ import annotations

from pathlib import Path

import orjson

_FILE = "api.json"


def write_address(directory: Path, url: str) -> None:
    """Note where this directory's API is."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _FILE).write_bytes(orjson.dumps({"url": url}))


def remove_address(directory: Path) -> None:
    """Forget where this directory's API was."""
    (directory / _FILE).unlink(missing_ok=True)


def read_address(directory: Path) -> str | None:
    """Return where this directory's API was last said to be; a kill may have left the file behind."""
    try:
        return str(orjson.loads((directory / _FILE).read_bytes())["url"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None
