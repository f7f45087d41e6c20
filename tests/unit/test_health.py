"""Do a process's health answers tell the truth?"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Counter
from typer.testing import CliRunner

from domain.model.errors import Unavailable
from services import bootstrap, log_limit, metrics
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.processes import MemoryProcesses
from services.api import health
from services.bootstrap import Place
from services.cli.main import app
from services.listening import bind
from services.metrics import Heartbeat, process_app
from services.ports.store import Pulse
from services.serving import serve_in_thread


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def test_a_loop_that_stands_still_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, heartbeat = CollectorRegistry(), Heartbeat()
    Counter("turns", "Turns", registry=registry).inc()
    listening = bind("127.0.0.1", 0, move=False)
    port = listening.getsockname()[1]
    stop = serve_in_thread(process_app(registry, heartbeat, None), listening)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b"turns_total 1.0" in answer.read()
        healthy = CliRunner().invoke(app, ["health", "--metrics-port", str(port)])
        assert (healthy.exit_code, healthy.stdout) == (0, '{"status":"ok","checks":{}}\n')
        monkeypatch.setattr(metrics, "SILENT_SECONDS_MAX", 0.01)
        time.sleep(0.02)
        stuck = CliRunner().invoke(app, ["health", "--metrics-port", str(port)])
        assert stuck.exit_code == 1
        assert "503" in stuck.stderr
    finally:
        stop()


def test_nobody_there_is_not_healthy() -> None:
    gone = CliRunner().invoke(app, ["health", f"http://127.0.0.1:{_free_port()}/healthz"])
    assert gone.exit_code == 1
    assert "is not healthy" in gone.stderr


class Leaving(MemoryProcesses):
    """A ledger whose database goes away and comes back."""

    is_away = True

    async def pulse(self) -> Pulse:
        """See ``Processes.pulse``."""
        if self.is_away:
            raise Unavailable("nobody answers")
        return await super().pulse()


async def said_within(caplog: pytest.LogCaptureFixture, text: str, count: int = 1) -> None:
    """Wait until the log says something so often, at the level that is the default."""
    async with asyncio.timeout(10):
        while sum(text in each.getMessage() for each in caplog.records) < count:
            await asyncio.sleep(0.01)
    assert all(each.levelno == logging.WARNING for each in caplog.records if text in each.getMessage())


async def test_the_api_says_that_its_database_is_away_and_that_it_is_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(log_limit, "REMIND_SECONDS", 0.05)
    store = Leaving(MemoryDatabase(1))
    watching = asyncio.create_task(health.watch_database(store))
    await said_within(caplog, "could not use the database: nobody answers")
    await said_within(caplog, "could not use the database for ", 2)
    store.is_away = False
    await said_within(caplog, "could use the database again, after ")
    await asyncio.sleep(0.1)
    watching.cancel()
    again = [each for each in caplog.records if "again, after" in each.getMessage()]
    assert len(again) == 1


async def test_an_api_watches_its_database_though_nobody_asks(caplog: pytest.LogCaptureFixture) -> None:
    async with bootstrap.open_app(Place("postgresql://berth@127.0.0.1:9/berth", None), keys_required=True):
        await said_within(caplog, "could not use the database: the ledger does not answer")
