"""What all tests share."""

from __future__ import annotations

import signal

import pytest

from domain.cycle.warm import warm_up
from tests.servers import database, embedded_dsn, fresh_kafka, kafka_bootstrap, postgres_dsn, server_dir

__all__ = ["database", "embedded_dsn", "fresh_kafka", "kafka_bootstrap", "postgres_dsn", "server_dir"]

_REAL = {"kafka_bootstrap", "postgres_dsn", "fresh_kafka"}


@pytest.fixture(scope="session", autouse=True)
def _kernels() -> None:
    """Compile what is not on disk yet before anything is timed or waited for."""
    warm_up()


def pytest_configure() -> None:
    """Whoever runs the tests in the background ignores Ctrl-C, and children would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the real servers by the fixtures that they ask for."""
    for item in items:
        if isinstance(item, pytest.Function) and _REAL & set(item.fixturenames):
            item.add_marker("real")
