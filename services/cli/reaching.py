"""Says within seconds that a server cannot be reached, before a command waits for its answer."""

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
    """Raise ``CommandError`` where the database or Kafka of the settings cannot be reached."""
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
    """Raise ``CommandError`` where the API at an address cannot be reached."""
    parts = urlsplit(url)
    if parts.hostname:
        port = parts.port or _PORTS.get(parts.scheme, 80)
        await reach("the API", [(parts.hostname, port)], "--api-url, BERTH_API_URL")


async def reach(what: str, servers: list[tuple[str, int]], setting: str) -> None:
    """Connect to one of the servers, and say what is tried where that takes longer than a moment."""
    named = ", ".join(f"{host}:{port}" for host, port in servers)
    asked = {asyncio.create_task(asyncio.open_connection(*server)) for server in servers}
    told, left, why = False, CONNECT_SECONDS, "no answer"
    pending = asked
    try:
        while pending and left > 0:
            step = SILENT_SECONDS if not told else left
            done, pending = await asyncio.wait(pending, timeout=step, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                if (error := each.exception()) is None:
                    return
                why = str(getattr(error, "strerror", None) or error)
            if not done:
                left -= step
                if not told:
                    say(f"trying {what} at {named} …", err=True)
                    told = True
    finally:
        for each in asked:
            each.cancel()
        for each in await asyncio.gather(*asked, return_exceptions=True):
            if not isinstance(each, BaseException):
                each[1].close()
    waited = f" within {CONNECT_SECONDS:g} s" if pending else ""
    raise CommandError(f"{what} at {named} cannot be reached{waited}: {why}; check {setting}")
