"""The files that a running instance leaves for commands on the same directory: its address, a first key."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import NamedTuple

import orjson

from ops.owned import read_own, write_own

ADDRESS_FILE = "api.json"
KEY_FILE = "admin.key"
CHALLENGE_PATH = "/v1/instance"


class Instance(NamedTuple):
    """A running instance: where its API is, and the secret by which it proves to be that instance.

    The file outlives a killed instance, and its port may belong to anybody by then.
    """

    url: str
    secret: str

    def answer(self, challenge: str) -> str:
        """Return what only this instance answers, and at this address only."""
        return self._sign(f"{challenge}\n{self.url}")

    @property
    def owner_key(self) -> str:
        """The key of whoever can read the file; with it he makes keys, as he could in the stopped instance.

        It ends with the instance. No challenge has it as its answer: those are signed with an address.
        """
        return f"berth_{self._sign('owner')}"

    def _sign(self, text: str) -> str:
        return hmac.new(self.secret.encode(), text.encode(), hashlib.sha256).hexdigest()


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
    try:
        found = orjson.loads(read_own(directory / ADDRESS_FILE) or b"")
        return Instance(str(found["url"]), str(found["secret"]))
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


def write_key(directory: Path, key: str) -> None:
    """Keep a key for our own commands."""
    write_own(directory / KEY_FILE, f"{key}\n".encode())


def read_key(directory: Path) -> str | None:
    """Return the key that is kept here."""
    return (read_own(directory / KEY_FILE) or b"").decode(errors="replace").strip() or None
