"""Serves a development server in the foreground: starts it, prints its address, stops it at the end."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import psutil

_LOOK_SECONDS = 0.5


class Server(Protocol):
    """What can be served."""

    @property
    def pid(self) -> int:
        """The process id of the running server."""

    def start(self) -> str:
        """Start and return the address."""

    def stop(self) -> None:
        """Stop."""


def serve(setting: str, server: Server) -> None:
    """Run the server until Ctrl-C or SIGTERM; print ``SETTING=address`` when it answers.

    Exits with status 1 when the server ends by itself.
    """
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        print(f"{setting}={server.start()}", flush=True)
        while _runs(server.pid):
            time.sleep(_LOOK_SECONDS)
        sys.exit("error: the server has ended by itself; its log is in its directory")
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut the clean-up short
        server.stop()
        signal.signal(signal.SIGTERM, previous)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def serve_from_command_line(setting: str, port: int, server: Callable[[Path, int], Server]) -> None:
    """Serve on the port and in the directory that the options name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=port, help="on 127.0.0.1 (default: %(default)s)")
    parser.add_argument("--dir", type=Path, required=True, help="keeps the data; made when missing")
    options = parser.parse_args()
    serve(setting, server(options.dir, options.port))
