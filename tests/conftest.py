"""What all tests share."""

from __future__ import annotations

import pytest

from tests.servers import database, embedded_dsn, fresh_kafka, kafka_bootstrap, postgres_dsn, server_dir

__all__ = ["database", "embedded_dsn", "fresh_kafka", "kafka_bootstrap", "postgres_dsn", "server_dir"]

_REAL = {"kafka_bootstrap", "postgres_dsn", "fresh_kafka"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the real servers by the fixtures that they ask for."""
    for item in items:
        if isinstance(item, pytest.Function) and _REAL & set(item.fixturenames):
            item.add_marker("real")
