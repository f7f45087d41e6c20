"""Cancels the work for a client that has gone: its query would hold a connection that others wait for."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.api.failures import GONE


class CancelOnDisconnect:
    """Cancels a question whose client closes the connection. What was sent with a body goes on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and look whether its client stays."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return

        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        async def nothing_more() -> Message:
            await asyncio.wait([left])  # a caller that stops waiting does not cancel it
            return {"type": "http.disconnect"}

        async def leave() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        left = asyncio.create_task(leave())
        work = asyncio.ensure_future(self._app(scope, nothing_more, answer))
        try:
            await asyncio.wait([left, work], return_when=asyncio.FIRST_COMPLETED)
        finally:
            left.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait([work])
        if work.cancelled() and begun:
            return  # the client left, or spoke no HTTP any more, while it was answered
        if work.cancelled():
            await send({"type": "http.response.start", "status": GONE, "headers": []})
            await send({"type": "http.response.body"})
        else:
            work.result()
