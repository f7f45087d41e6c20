"""A real Postgres server over TCP for development and tests, without Docker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ops.kafka import free_port
from ops.postgres.server import EmbeddedServer


class PostgresServer(EmbeddedServer):
    """One server with its data in a directory, listening on 127.0.0.1.

    Parameters
    ----------
    directory : Path
        Made when missing. A later start in it goes on from the same data.
    port : int, optional
        Where it listens; a free port when not given.
    settings : mapping of str to str
        As of ``EmbeddedServer``.
    """

    def __init__(self, directory: Path, port: int | None = None, settings: Mapping[str, str] = {}) -> None:
        super().__init__(directory, port or free_port(), settings)
