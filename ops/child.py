"""How a child process is started: with nothing of the current directory, and with no secret of ours."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

_KEPT = (
    "HOME",
    "LANG",
    "LD_LIBRARY_PATH",
    "NUMBA_CACHE_DIR",
    "PATH",
    "TMPDIR",
    "VIRTUAL_ENV",
    "XDG_CACHE_HOME",
)
_TREE = Path(__file__).resolve().parents[1]


def environment(*names: str, **more: str) -> dict[str, str]:
    """Return the environment of a child: the few variables that every program needs, these, and ``more``.

    Everything else stays here, secrets above all.
    """
    return {name: os.environ[name] for name in (*_KEPT, *names) if name in os.environ} | more


def python(script: Path, *arguments: object) -> list[str]:
    """Return a command that runs a script of ours, without the current directory on the import path."""
    return [sys.executable, "-P", str(script), *map(str, arguments)]


def python_module(name: str, *arguments: object) -> list[str]:
    """Return a command that runs a module of ours; it needs ``python_path``."""
    return [sys.executable, "-P", "-m", name, *map(str, arguments)]


def python_path() -> str:
    """Return the import path of a child: ours, as far as it does not depend on the current directory."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    given = [entry for entry in entries if Path(entry).is_absolute()]
    own = [str(_TREE)] if (_TREE / "pyproject.toml").exists() else []  # a source tree that is not installed
    return os.pathsep.join([*own, *given])


def program(name: str) -> str | None:
    """Return the absolute path of a program; one found relative to the current directory does not count."""
    found = shutil.which(name)
    return found if found is not None and Path(found).is_absolute() else None


class Reaper:
    """Watches over one process for as long as this process lives; ``ops/reaper.py`` says how.

    Parameters
    ----------
    process : psutil.Process
        The process to end.
    signals : sequence of int
        Sent one after another, each with time to work, until the process is gone.
    keep_open : sequence of int
        File descriptors, such as locks, that have to stay open until the process is gone.
    """

    def __init__(
        self, process: psutil.Process, signals: Sequence[signal.Signals], keep_open: Sequence[int] = ()
    ) -> None:
        read_end, self._write_end = os.pipe()
        try:
            self._child = subprocess.Popen(
                python(Path(__file__).with_name("reaper.py"), process.pid, process.create_time(), *signals),
                cwd="/",
                env=environment(PYTHONPATH=python_path()),  # for psutil
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=tuple(keep_open),
                start_new_session=True,  # Ctrl-C in a terminal is for the parent alone
            )
        except BaseException:
            os.close(self._write_end)
            raise
        finally:
            os.close(read_end)

    def close(self) -> None:
        """End the process, if it still runs, and stop watching it."""
        os.close(self._write_end)
        self._child.wait()
