"""Runs parts of berth as an operator does, for attacks on them."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from services import bootstrap
from services.listening import bind
from services.serving import Limits, serve_http
from tests.integration.api_world import fresh_database
from tests.integration.commands import BERTH, environment

QUICK = Limits(
    connections_max=20,
    head_seconds_max=1.0,
    idle_seconds_max=1,
    pace_seconds=1.0,
    pace_bytes_per_second_min=1_000,
)
BIG_BYTES = 64 << 20


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the length of the body; at /big with 64 MiB; at /wait after two seconds."""
    body_bytes, more = 0, True
    if scope["path"] == "/early":
        more = False
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body_bytes += len(message["body"])
        more = message["more_body"]
    if scope["path"] == "/wait":
        await asyncio.sleep(2)
    body = b"x" * BIG_BYTES if scope["path"] == "/big" else str(body_bytes).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def served(limits: Limits = QUICK) -> AsyncIterator[tuple[str, int]]:
    """Serve on a port of loopback; return its address."""
    listening = bind("127.0.0.1", 0, move=False)
    serving = asyncio.create_task(serve_http(echo, [listening], limits))
    try:
        yield listening.getsockname()
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@asynccontextmanager
async def laid_down(server: str) -> AsyncIterator[str]:
    """Return a ledger of its own that is laid down and empty."""
    async with fresh_database(server, migrated=True) as place:
        await bootstrap.initialise(place, 1)
        yield place.dsn


@contextmanager
def api(
    dsn: str,
    directory: Path,
    *,
    before: Callable[[], None] | None = None,
    told: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Run ``berth api`` with some settings; return its address. ``before`` runs in the new process."""
    env = environment(directory) | {"BERTH_POSTGRES_DSN": dsn, "BERTH_API_PORT": "0"} | dict(told or {})
    errors = (directory / "api.log").open("w")
    process = subprocess.Popen([*BERTH, "api"], env=env, stderr=errors, preexec_fn=before)
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"API on (https?://\S+)", (directory / "api.log").read_text())):
            assert process.poll() is None, (directory / "api.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield found[1]
    finally:
        process.terminate()
        errors.close()
        assert process.wait(timeout=20) == 0, (directory / "api.log").read_text()
