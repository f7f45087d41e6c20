"""Fixtures of all tests."""

from __future__ import annotations

import signal

import pytest

from domain.cycle.warm import warm_up
from tests.servers import database, embedded_dsn, fresh_kafka, kafka_bootstrap, postgres_dsn, server_dir

__all__ = ["database", "embedded_dsn", "fresh_kafka", "kafka_bootstrap", "postgres_dsn", "server_dir"]

_REAL = {"kafka_bootstrap", "postgres_dsn", "fresh_kafka"}


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile what is not on disk yet, once: before the clock of a test runs, or several processes do."""
    if not session.config.option.collectonly:
        warm_up()


def pytest_configure() -> None:
    """Let children end at Ctrl-C, which tests that run in the background would ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the real servers by the fixtures that they ask for."""
    for item in items:
        if isinstance(item, pytest.Function) and _REAL & set(item.fixturenames):
            item.add_marker("real")
