"""Reads the stream of events of an API, and goes on where it left off whenever the stream ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, NamedTuple

import orjson

from services.background import begin
from services.cli.options import CommandError
from services.cli.output import Json, say
from services.cli.source import Source, answer_of, target
from services.cli.web import httpx

AGAIN_SECONDS = 1.0
SILENT_SECONDS_MAX = 60.0
"""A stream has a heartbeat every 15 s."""

_FINAL = ("another-ledger", "not-kept")


class Seen(NamedTuple):
    """An event with its id; without a kind it is where the stream is by now, and nothing happened."""

    id: str
    kind: str
    data: Json


async def follow(source: Source, last_id: str | None = None, **params: object) -> AsyncGenerator[Seen]:
    """Yield events without an end, behind an id or from now on; the first one is where the stream begins.

    Raises
    ------
    CommandError
        The API refuses the stream, or does not know the id any more.
    """
    begun = False
    while True:
        where = target("/v1/events", **({"after": last_id} if last_id else {}), **params)
        try:
            async with contextlib.aclosing(_events(source, where)) as events:
                async for seen in events:
                    last_id = seen.id or last_id
                    if seen.kind == "end":
                        error = seen.data["error"]
                        if error["code"] in _FINAL:
                            raise CommandError(f"{error['message']}; the last id was {last_id}")
                        break
                    if seen.kind or not begun:
                        yield seen
                    begun = True
        except httpx.HTTPError as error:
            if not begun:
                raise CommandError(
                    f"the API does not answer ({str(error) or type(error).__name__})"
                ) from None
            say(f"the stream broke off ({str(error) or type(error).__name__}); going on …", err=True)
        params.pop("since", None)  # what came before is passed by now
        await asyncio.sleep(AGAIN_SECONDS)


async def _events(source: Source, where: str) -> AsyncGenerator[Seen]:
    """Yield the events of one stream; raise ``CommandError`` where the API refuses it."""
    waiting = b""
    async with contextlib.aclosing(_bytes(source, where)) as parts:
        async for part in parts:
            *frames, waiting = (waiting + part).split(b"\n\n")
            for frame in frames:
                fields = _fields(frame)
                data = orjson.loads(fields["data"]) if "data" in fields else {}
                yield Seen(fields.get("id", ""), fields.get("event", ""), data)


def _fields(frame: bytes) -> Mapping[str, str]:
    lines = (line.partition(": ") for line in frame.decode().split("\n") if not line.startswith(":"))
    return {name: value for name, _, value in lines}


def _bytes(source: Source, where: str) -> AsyncGenerator[bytes]:
    return _in_process(source.app, where) if source.in_process else _over_http(source, where)


async def _over_http(source: Source, where: str) -> AsyncGenerator[bytes]:
    limits = httpx.Timeout(SILENT_SECONDS_MAX)
    async with source.client.stream("GET", where, timeout=limits) as answer:
        if answer.status_code != 200:
            answer_of(answer.status_code, await answer.aread())
            raise CommandError(f"the API answered {answer.status_code} without events")
        async for part in answer.aiter_bytes():
            yield part


async def _in_process(app: Any, where: str) -> AsyncGenerator[bytes]:
    """Ask an application in this process; the client library would wait for the end of the answer."""
    path, _, query = where.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"berth")],
        "client": ("127.0.0.1", 0),
        "server": ("berth", 80),
    }
    parts: asyncio.Queue[bytes | None] = asyncio.Queue(1)
    left, status = asyncio.Event(), 0

    async def receive() -> Mapping[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            return
        await parts.put(message.get("body", b""))
        if not message.get("more_body", False):
            await parts.put(None)

    asking = begin("streaming events", app(scope, receive, send))
    try:
        whole = b""
        while (part := await parts.get()) is not None:
            if status == 200:
                yield part
            whole += part if status != 200 else b""
        if status != 200:
            answer_of(status, whole)
    finally:
        left.set()
        asking.cancel()
        await asyncio.wait([asking])


async def changes(source: Source, seconds_min: float, seconds_max: float) -> AsyncIterator[None]:
    """Yield when something has happened: not sooner than after the one time, nor later than after the other.

    Where the API has no stream to give, it is the shorter time.
    """
    happened = asyncio.Event()

    async def listen() -> None:
        async for seen in follow(source):
            if seen.kind:
                happened.set()

    listening = asyncio.create_task(listen())
    try:
        while True:
            await asyncio.sleep(seconds_min)
            if not listening.done():
                waiting = asyncio.create_task(happened.wait())
                await asyncio.wait(
                    [waiting, listening], timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED
                )
                waiting.cancel()
                happened.clear()
            elif not listening.cancelled():
                listening.exception()  # it was refused, and is not missed
            yield
    finally:
        listening.cancel()
        await asyncio.wait([listening])
