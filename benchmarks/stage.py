"""Start and stop what a measurement runs on: the servers and berth's own processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from domain.model.errors import BerthError
from ops.child import Reaper, environment, python_module, python_path
from ops.kafka import VERSION as KAFKA_VERSION
from ops.kafka import KafkaServer, free_port
from ops.postgres import PostgresServer
from ops.postgres.server import EmbeddedServer
from ops.reaper import end
from services.bootstrap import Place
from services.config import KafkaAccess, Settings

_SIGNALS = (signal.SIGTERM, signal.SIGKILL)
_STOP_SECONDS = 10.0


class BenchError(BerthError):
    """A measurement cannot be made, or has a result that must not be reported."""

    code = "bench"


class Servers(NamedTuple):
    """Where log and ledger are, which processes serve them (None: not ours), and a text that names them."""

    place: Place
    broker: psutil.Process | None
    database: psutil.Process | None
    log_kind: str
    ledger_kind: str


class BerthProcess:
    """One of berth's long-running commands as a process of its own."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], output: Path, metrics_port: int) -> None:
        self.name = name
        self.metrics_port = metrics_port
        self._process = process
        self._output = output
        self.handle = psutil.Process(process.pid)

    def check(self) -> None:
        """Raise if the process has ended."""
        if self._process.poll() is not None:
            raise BenchError(f"berth {self.name} has ended:\n{_tail(self._output)}")


@contextlib.contextmanager
def own_servers(scratch: Path, *, embedded: bool) -> Iterator[Servers]:
    """Run a real Kafka broker and a real Postgres server, or the embedded default alone."""
    if embedded:
        server = EmbeddedServer(scratch / "embedded")
        with server as dsn:
            kind = "table in the embedded Postgres"
            yield Servers(
                Place(dsn, None), None, psutil.Process(server.pid), kind, "embedded Postgres, Unix socket"
            )
        return
    kafka, postgres = KafkaServer(scratch / "kafka"), PostgresServer(scratch / "postgres")
    with kafka as bootstrap, postgres as dsn:
        broker, database = psutil.Process(kafka.pid), psutil.Process(postgres.pid)
        yield Servers(
            Place(dsn, bootstrap), broker, database, f"Kafka {KAFKA_VERSION}, own process", "own process, TCP"
        )


@contextlib.contextmanager
def given_servers(kafka: str, dsn: str) -> Iterator[Servers]:
    """Use servers that run already."""
    access = Settings.from_env(None, kafka_bootstrap=kafka).kafka_access
    yield Servers(Place(dsn, kafka, access), None, None, "Kafka, given", "given")


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """Give a directory that the account of the Postgres server can reach, and remove it at the end."""
    path = Path(tempfile.mkdtemp(prefix="berth-bench-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _environment(place: Place, **settings: str) -> dict[str, str]:
    """Return an environment in which the measurement alone decides berth's settings."""
    kept = environment("PGPASSFILE", PYTHONPATH=python_path(), BERTH_POSTGRES_DSN=place.dsn)
    if place.kafka_bootstrap is not None:
        if place.kafka_access != KafkaAccess():
            kept |= {name: value for name, value in os.environ.items() if name.startswith("BERTH_KAFKA_")}
        kept["BERTH_KAFKA_BOOTSTRAP"] = place.kafka_bootstrap
    return kept | settings


def initialise(place: Place, shards: int) -> None:
    """Run ``berth init``."""
    done = subprocess.run(
        _command("init"),
        cwd="/",
        env=_environment(place, BERTH_SHARDS=str(shards)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise BenchError(f"berth init failed:\n{done.stdout.strip()}")


@contextlib.contextmanager
def berth_process(
    name: str, place: Place, scratch: Path, number: int = 1, **settings: str
) -> Iterator[BerthProcess]:
    """Run ``berth worker``, say, until the end of the block; ``number`` tells several apart."""
    output, metrics_port = scratch / f"{name}-{number}.log", free_port()
    with output.open("wb") as file:
        process = subprocess.Popen(
            _command(name),
            cwd="/",
            env=_environment(place, BERTH_METRICS_PORT=str(metrics_port), **settings),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,  # Ctrl-C in a terminal is for the parent alone
        )
    started = BerthProcess(name, process, output, metrics_port)
    reaper: Reaper | None = None
    try:
        reaper = Reaper(started.handle, _SIGNALS)
        yield started
    finally:
        end(started.handle, _SIGNALS, _STOP_SECONDS)
        process.wait()
        if reaper is not None:
            reaper.close()


def _command(name: str) -> list[str]:
    return python_module("services.cli.main", name)


def _tail(output: Path) -> str:
    return "\n".join(output.read_text(errors="replace").splitlines()[-10:])
