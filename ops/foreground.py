"""Serves a development server in the foreground: starts it, prints its address, stops it at the end."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Server(Protocol):
    """What can be served."""

    def start(self) -> str:
        """Start and return the address."""

    def stop(self) -> None:
        """Stop."""


def serve(setting: str, server: Server) -> None:
    """Run the server until Ctrl-C or SIGTERM; print ``SETTING=address`` when it answers."""
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        print(f"{setting}={server.start()}", flush=True)
        while True:
            signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut the clean-up short
        server.stop()
        signal.signal(signal.SIGTERM, previous)


def serve_from_command_line(setting: str, port: int, server: Callable[[Path, int], Server]) -> None:
    """Serve as the options ``--port`` and ``--dir`` say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=port, help="on 127.0.0.1 (default: %(default)s)")
    parser.add_argument("--dir", type=Path, required=True, help="keeps the data; made when missing")
    options = parser.parse_args()
    serve(setting, server(options.dir, options.port))
