"""Runs parts of berth as an operator does, for attacks on them."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from services import bootstrap
from tests.integration.api_world import fresh_database
from tests.integration.commands import BERTH, environment


@asynccontextmanager
async def laid_down(server: str) -> AsyncIterator[str]:
    """Return a ledger of its own that is laid down and empty."""
    async with fresh_database(server) as place:
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
