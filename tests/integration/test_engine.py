"""The connections of the API: one trip to the database per question, and a restart of it goes unnoticed."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from services import bootstrap
from tests.integration.api_world import fresh_database

_OF_THE_API = "application_name = 'berth-api' AND datname = current_database()"


async def test_a_connection_that_the_server_closed_is_replaced(embedded_dsn: str) -> None:
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 1)
        store = bootstrap.open_store(place)
        assert len(await store.processes.shards()) == 1
        admin = await asyncpg.connect(place.dsn)
        ended = await admin.fetch(
            f"SELECT pg_terminate_backend(pid, 5000) AS ended FROM pg_stat_activity WHERE {_OF_THE_API}"
        )
        assert [row["ended"] for row in ended] == [True]
        assert len(await store.processes.shards()) == 1
        await admin.close()
        await store.aclose()


async def test_a_question_is_one_trip(embedded_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 1)
        store = bootstrap.open_store(place)
        await store.processes.offsets()  # opens the connection and prepares the statement
        besides: list[str] = []
        for name in ("execute", "fetchrow", "prepare"):
            found = getattr(asyncpg.Connection, name)

            async def noted(
                self: Any, *arguments: Any, _found: Any = found, _name: str = name, **more: Any
            ) -> Any:
                besides.append(_name)
                return await _found(self, *arguments, **more)

            monkeypatch.setattr(asyncpg.Connection, name, noted)
        await store.processes.offsets()
        assert besides == []
        await store.aclose()
