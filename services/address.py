"""The files that a running instance leaves for commands on the same directory: its address, a first key."""

from __future__ import annotations

import secrets
from pathlib import Path

import orjson

from berth.client.local import ADDRESS_FILE, CHALLENGE_PATH, KEY_FILE, Instance, instance_of
from ops.owned import read_own, write_own

__all__ = [
    "ADDRESS_FILE",
    "CHALLENGE_PATH",
    "KEY_FILE",
    "Instance",
    "read_address",
    "read_key",
    "remove_address",
    "write_address",
    "write_key",
]


def write_address(directory: Path, url: str) -> Instance:
    """Note where this directory's API is, with a fresh secret."""
    instance = Instance(url, secrets.token_hex(32))
    write_own(directory / ADDRESS_FILE, orjson.dumps(instance._asdict()))
    return instance


def remove_address(directory: Path) -> None:
    """Forget where this directory's API was."""
    (directory / ADDRESS_FILE).unlink(missing_ok=True)


def read_address(directory: Path) -> Instance | None:
    """Return the last known instance of this directory. After a kill the file may be out of date."""
    return instance_of(read_own(directory / ADDRESS_FILE) or b"")


def write_key(directory: Path, key: str) -> None:
    """Keep a key for our own commands."""
    write_own(directory / KEY_FILE, f"{key}\n".encode())


def read_key(directory: Path) -> str | None:
    """Return the key that is kept here."""
    return (read_own(directory / KEY_FILE) or b"").decode(errors="replace").strip() or None
