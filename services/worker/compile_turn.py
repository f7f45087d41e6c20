"""Lets one process at a time compile into a folder, so that those that start together compile once.

The first takes a lock of the operating system on a file there, which ends with its process, however that
ends. The others wait and then load what it has kept, all at once. Where it did not get to the end, the next
one compiles. No process waits for ever, and where nothing can be locked each compiles for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

_LOGGER = logging.getLogger(__name__)
_FILE = "berth-compile.lock"
_WHOLE = b"1"
"""What the file holds when the last process that compiled came to the end."""
_LOOK_SECONDS = 0.1
WAIT_SECONDS_MAX = 600.0


class Turn:
    """The turn of this process. ``waits``: another one compiles at the moment."""

    def __init__(self, folder: Path | None, wait_seconds_max: float = WAIT_SECONDS_MAX) -> None:
        self._folder, self._wait_seconds_max = folder, wait_seconds_max
        self.waits = False

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the turn, which blocks the thread, and keep it while this is entered."""
        file = None if self._folder is None else _opened(self._folder)
        if file is None:
            yield
            return
        try:
            is_alone = self._wait(file)
            if is_alone:
                os.ftruncate(file, 0)
            yield
            if is_alone:
                os.pwrite(file, _WHOLE, 0)
        finally:
            os.close(file)

    def _wait(self, file: int) -> bool:
        """Return whether to compile alone; else everything is there, or the time is over."""
        until = time.monotonic() + self._wait_seconds_max
        try:
            while not _locked(file, fcntl.LOCK_EX):
                self.waits = True
                if time.monotonic() >= until:
                    _LOGGER.warning("another process has compiled for %.0f s", self._wait_seconds_max)
                    return False
                time.sleep(_LOOK_SECONDS)
                if _locked(file, fcntl.LOCK_SH):
                    if os.pread(file, 1, 0) == _WHOLE:
                        return False
                    fcntl.flock(file, fcntl.LOCK_UN)  # it did not get to the end
        except OSError as error:  # a file system without locks
            _LOGGER.warning("%s cannot be locked: %s", _FILE, error)
            return False
        finally:
            self.waits = False
        return True


def _opened(folder: Path) -> int | None:
    """Return a descriptor that no child inherits; None where the folder is not to be written to."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(folder / _FILE, flags, 0o600)  # another account that may open it could hold the lock
    except OSError:
        return None


def _locked(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
