"""Do a process's health answers tell the truth?"""

from __future__ import annotations

import socket
import time
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Counter
from typer.testing import CliRunner

from services import metrics
from services.cli.main import app
from services.listening import bind
from services.metrics import Heartbeat, process_app
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
