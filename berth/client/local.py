"""The instance of berth that runs on this machine: where it is, and how it proves to be that one."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

ADDRESS_FILE = "api.json"
KEY_FILE = "admin.key"
CHALLENGE_PATH = "/v1/instance"
_FILE_BYTES_MAX = 64 << 10


class Instance(NamedTuple):
    """A running instance: where its API is, and the secret by which it proves to be that instance.

    The file outlives a killed instance, and its port may belong to anybody by then.
    """

    url: str
    secret: str

    def answer(self, challenge: str) -> str:
        """Return what only this instance answers, and at this address only."""
        return self._sign(f"{challenge}\n{self.url}")

    def is_proved_by(self, challenge: str, answer: bytes) -> bool:
        """Return whether an answer to a challenge is that of this instance."""
        return hmac.compare_digest(answer, msgspec.json.encode({"answer": self.answer(challenge)}))

    @property
    def owner_key(self) -> str:
        """The key of whoever can read the file; with it he makes keys, as he could in the stopped instance.

        It ends with the instance. No challenge has it as its answer: those are signed with an address.
        """
        return f"berth_{self._sign('owner')}"

    def _sign(self, text: str) -> str:
        return hmac.new(self.secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def instance_of(text: bytes) -> Instance | None:
    """Return the instance of which a file tells; None: it tells of none."""
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        found = msgspec.json.decode(text, type=dict[str, str])
        return Instance(found["url"], found["secret"])
    return None


def directories(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return where an instance of this user may have told its address: BERTH_DIR, else the usual places."""
    if named := environ.get("BERTH_DIR"):
        return (Path(named).expanduser(),)
    home = Path.home()
    if sys.platform == "darwin":
        return (home / "Library/Application Support/berth", Path("/var/lib/berth"))
    data = environ.get("XDG_DATA_HOME", "").strip()
    return (Path(data) / "berth" if data else home / ".local/share/berth", Path("/var/lib/berth"))


def read_instance(directory: Path) -> Instance | None:
    """Return the last known instance of a directory. After a kill the file may be out of date."""
    text = _read(directory / ADDRESS_FILE)
    return None if text is None else instance_of(text)


def read_instance_key(directory: Path) -> str | None:
    """Return the key that an instance keeps for its owner's own programs."""
    return (_read(directory / KEY_FILE) or b"").decode(errors="replace").strip() or None


def _read(path: Path) -> bytes | None:
    """Return a file that nobody but this user or root can have made or can change; None: there is none."""
    with contextlib.suppress(OSError):
        if not _is_ours(path.parent.stat()):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(_FILE_BYTES_MAX) if _is_ours(os.fstat(file.fileno())) else None
    return None


def _is_ours(status: os.stat_result) -> bool:
    kind = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return kind and status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH
