"""Runs a Postgres server in the foreground: ``python -m ops.postgres --port 5432 --dir DIR``."""

from __future__ import annotations

from ops.foreground import serve_from_command_line
from ops.postgres import PostgresServer

if __name__ == "__main__":
    serve_from_command_line("BERTH_POSTGRES_DSN", 5432, PostgresServer)
