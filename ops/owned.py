"""Files and directories that nobody else can have made or can change: what we write secrets to and act on."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from domain.model.errors import BerthError

_FILE_BYTES_MAX = 64 << 10


class NotOurs(BerthError):
    """A file or directory that another user made or can change; the message says what to do."""

    code = "not-ours"


def own_directory(path: Path) -> None:
    """Make a directory if it is missing; what is there must be ours, and no other user may write to it.

    Root's is made so that the account of the embedded server can pass through it, but not list it.
    """
    path.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    _check(path, path.stat())


def write_own(path: Path, content: bytes) -> None:
    """Write a file that only we can read, beside its place, and move it there: it is never half written."""
    own_directory(path.parent)
    scratch = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        # O_EXCL: whatever stands there, a link above all, is not ours and not followed.
        descriptor = os.open(
            scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def read_own(path: Path) -> bytes | None:
    """Return what ``write_own`` wrote; None if there is no such file or we may not read it.

    Raises
    ------
    NotOurs
        Somebody else made the file or can change it.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        _check(path.parent, path.parent.stat())
        _check(path, path.lstat())
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            _check(path, os.fstat(file.fileno()))
            return file.read(_FILE_BYTES_MAX)
    return None


def is_ours(status: os.stat_result) -> bool:
    """Return whether no other user but root made this file or directory, or may write to it."""
    kind = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return kind and status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH


def _check(path: Path, status: os.stat_result) -> None:
    if not is_ours(status):
        raise NotOurs(
            f"{path} is not safe: it belongs to another user, or others can write to it, or it is a link; "
            "remove it, or give it to the user that runs berth (chown, chmod), or choose another "
            "(BERTH_DIR, NUMBA_CACHE_DIR)"
        )
