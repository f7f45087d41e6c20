"""Says within seconds that a server is silent, before a command waits for its answer."""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import urlsplit

from services.cli.options import CommandError
from services.cli.output import say
from services.config import Settings

SILENT_SECONDS = 1.0
CONNECT_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}
_POSTGRES_PORT = 5432


async def reach_ledger(settings: Settings) -> None:
    """Raise ``CommandError`` where the database or Kafka of the settings is silent."""
    if settings.postgres_dsn is not None:
        parts = urlsplit(settings.postgres_dsn)
        with contextlib.suppress(ValueError):  # several hosts: the driver tries them
            if parts.hostname and "," not in parts.netloc:
                port = parts.port or _POSTGRES_PORT
                await reach("the database", [(parts.hostname, port)], "BERTH_POSTGRES_DSN")
    if settings.kafka_bootstrap is not None:
        servers = [each.strip().rpartition(":") for each in settings.kafka_bootstrap.split(",")]
        brokers = [(host.strip("[]"), int(port)) for host, _, port in servers]
        await reach("Kafka", brokers, "BERTH_KAFKA_BOOTSTRAP")


async def reach_api(url: str) -> None:
    """Raise ``CommandError`` where the API at an address is silent."""
    parts = urlsplit(url)
    if parts.hostname:
        port = parts.port or _PORTS.get(parts.scheme, 80)
        await reach("the API", [(parts.hostname, port)], "--api-url, BERTH_API_URL")


async def reach(what: str, servers: list[tuple[str, int]], setting: str) -> None:
    """Return once a server answers or refuses; say what is tried where that takes longer than a moment.

    A server that refuses is asked again by the command itself, which then says what is wrong.
    """
    named = ", ".join(f"{host}:{port}" for host, port in servers)
    asked = [asyncio.create_task(asyncio.open_connection(*server)) for server in servers]
    try:
        for seconds in (SILENT_SECONDS, CONNECT_SECONDS - SILENT_SECONDS):
            done, _ = await asyncio.wait(asked, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return
            if seconds == SILENT_SECONDS:
                say(f"trying {what} at {named} …", err=True)
    finally:
        for each in asked:
            each.cancel()
        for opened in await asyncio.gather(*asked, return_exceptions=True):
            if not isinstance(opened, BaseException):
                opened[1].close()
    raise CommandError(f"{what} at {named} did not answer within {CONNECT_SECONDS:g} s; check {setting}")
