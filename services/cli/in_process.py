"""Requests to an application in this process, whose answers come piece by piece.

The transport of httpx for that holds a whole answer before it gives the first byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

from services.cli.web import httpx

_Message = MutableMapping[str, Any]


class InProcess(httpx.AsyncBaseTransport):
    """Asks an ASGI application. It waits until each piece of its answer is taken."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See ``AsyncBaseTransport``."""
        body = await request.aread()
        messages = asyncio.Queue[_Message | None](1)
        left = asyncio.Event()
        asked = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> _Message:
            if asked:
                return asked.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def answer() -> None:
            try:
                await self._app(_scope(request), receive, messages.put)
            except asyncio.CancelledError:
                raise  # nothing takes the messages any more
            except Exception:
                await messages.put(None)
                raise
            await messages.put(None)

        work = asyncio.create_task(answer(), name="answering in this process")
        start = await messages.get()
        if start is None:
            await work
            raise httpx.RemoteProtocolError("no answer")
        return httpx.Response(start["status"], headers=start["headers"], stream=_Body(messages, work, left))


class _Body(httpx.AsyncByteStream):
    def __init__(
        self, messages: asyncio.Queue[_Message | None], work: asyncio.Task[None], left: asyncio.Event
    ) -> None:
        self._messages, self._work, self._left = messages, work, left

    async def __aiter__(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._messages.get()
            if message is None:
                await self._work
                raise httpx.RemoteProtocolError("the answer ended in its middle")
            more = message.get("more_body", False)
            yield message.get("body", b"")

    async def aclose(self) -> None:
        self._left.set()
        self._work.cancel()
        await asyncio.wait([self._work])


def _scope(request: httpx.Request) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.partition(b"?")[0],
        "query_string": request.url.query,
        "server": (request.url.host, request.url.port),
        "client": ("127.0.0.1", 123),
        "root_path": "",
    }
