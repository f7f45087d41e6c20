"""`berth init`, `berth trace`, `berth compile` and `berth serve-dev`: commands that prepare a run."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli import options
from services.cli.options import PLACE, CommandError, with_settings
from services.cli.output import Format, print_value
from services.cli.reaching import reach_ledger
from services.cli.terminal import echo
from services.config import Settings
from services.phrases import plural


@with_settings("shards", *PLACE)
async def init(
    settings: Settings,
    roles: Annotated[
        bool,
        typer.Option("--roles", help="Also make the database's roles for worker, relay, API and auditors."),
    ] = False,
) -> None:
    """Migrate the database, lay down the shards and create the topics; doing it again changes nothing."""
    from services import bootstrap

    await reach_ledger(settings)
    async with bootstrap.place(settings, make=True) as place:
        for line in await bootstrap.initialise(place, settings.shards, roles=roles) or [
            "nothing to do: everything is there"
        ]:
            echo(line)


@with_settings(*PLACE)
async def refold(settings: Settings) -> None:
    """Let the next worker read from the log what an earlier version did not keep of pods; none of them moves.

    Needed once, where a worker says so. Stop all workers before.
    """
    from domain.model.errors import BerthError
    from services import bootstrap

    await reach_ledger(settings)
    async with bootstrap.place(settings) as place:
        try:
            count = await bootstrap.refold(place)
        except BerthError as error:
            raise CommandError(str(error)) from error
    echo(f"the next worker reads {plural(count, 'record')} once more, and places nothing before it has")


class Trace(enum.StrEnum):
    """Traces that berth can read."""

    OPENB = "openb"


def trace(
    name: Annotated[Trace, typer.Argument(help="Which trace: openb, a GPU cluster of 1,523 nodes.")],
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Folder with the CSV files; else the bundled data.")
    ] = None,
    pods: Annotated[
        str, typer.Option("--pods", help="Which pod list: default, gpuspec33, or another one in DIR.")
    ] = "default",
    with_deletions: Annotated[
        bool, typer.Option("--with-deletions", help="Also delete each pod when it ended.")
    ] = False,
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed",
            metavar="N",
            min=1,
            help="Write events when due, N times as fast as they happened; no pause exceeds a second.",
        ),
    ] = None,
) -> None:
    """Write a trace as watch events, one JSON object a line: pipe it to `berth apply -f -`."""
    import sys

    import orjson

    from services.traces import openb

    assert name is Trace.OPENB
    events = openb.events(folder, pods, with_deletions=with_deletions)
    if speed is not None:
        _write_paced(events, speed)
        return
    if with_deletions:
        echo(
            "all events come at once: applied so, most pods are deleted before a worker tries to place them, "
            "and are only ever released; --speed 1000 writes them as they are due (docs/trace.md)",
            err=True,
        )
    lines: list[bytes] = []
    for event in events:
        lines.append(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))
        if len(lines) == 500:
            sys.stdout.buffer.write(b"".join(lines))
            lines.clear()
    sys.stdout.buffer.write(b"".join(lines))
    sys.stdout.buffer.flush()


def _write_paced(events: Iterable[dict[str, Any]], speed: float) -> None:
    """Write each event when it is due, and flush before each pause."""
    import sys
    import time

    import orjson

    from services.traces.pacing import due

    started = time.monotonic()
    for due_seconds, event in due(events, speed):
        early_seconds = started + due_seconds - time.monotonic()
        if early_seconds > 0:
            sys.stdout.buffer.flush()
            time.sleep(early_seconds)
        sys.stdout.buffer.write(orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


class DevServer(enum.StrEnum):
    """Servers that berth can start for development."""

    KAFKA = "kafka"
    POSTGRES = "postgres"


def serve_dev(
    name: Annotated[DevServer, typer.Argument(help="What to start.")],
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Port on 127.0.0.1; its usual one without.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Keeps its data; under BERTH_DIR without it.")
    ] = None,
) -> None:
    """Run a real Kafka broker or Postgres server for development, without Docker, until Ctrl-C."""
    from ops.foreground import serve
    from services import bootstrap

    data = (folder or bootstrap.data_dir(options.settings()) / f"dev-{name}").absolute()
    try:
        if name is DevServer.KAFKA:
            from ops.kafka import KafkaServer

            serve("BERTH_KAFKA_BOOTSTRAP", KafkaServer(data, port or 9092))
        else:
            from ops.postgres import PostgresServer

            serve("BERTH_POSTGRES_DSN", PostgresServer(data, port or 5432))
    except (RuntimeError, OSError) as error:
        raise CommandError(f"{name} does not start: {error}") from error


def version(
    form: Annotated[
        Format, typer.Option("-o", "--output", help="How to show it: table, json or yaml.")
    ] = Format.TABLE,
) -> None:
    """Show the version of berth, of Python, and of the tables that this version reads and writes."""
    import platform

    from services import bootstrap
    from services.build import build

    said = {
        "berth": build(),
        "python": platform.python_version(),
        "tables": bootstrap.newest_revision(),
    }
    if form in (Format.JSON, Format.YAML):
        print_value(said, form)
        return
    for name, value in said.items():
        echo(f"{name}\t{value}")


def compile_() -> None:
    """Compile all kernels now, for an image or before the first start; again: does nothing."""
    from domain.kernels.catalogue import UNITS
    from services.worker.compiling import compile_kernels

    options.run(compile_kernels(UNITS))


@options.with_settings("metrics_port", "api_port", "api_tls_cert")
def health(
    settings: Settings,
    url: Annotated[
        str | None,
        typer.Argument(
            help="What to ask. Without it the process here, at its metrics port or else its API's."
        ),
    ] = None,
) -> None:
    """Ask a process whether it is alive, and fail if not: for a container's health check."""
    from services.cli.web import httpx

    scheme = "https" if settings.api_tls_cert and not settings.metrics_port else "http"
    asked = url or f"{scheme}://127.0.0.1:{settings.metrics_port or settings.api_port}/healthz"
    try:
        # Nothing secret is asked or told, so whose certificate it is does not matter.
        answer = httpx.get(asked, timeout=5, trust_env=False, verify=False).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CommandError(f"{asked} is not healthy: {error}") from None
    echo(answer.text)
