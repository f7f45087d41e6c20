"""Asks the API inside this process, as the caller of a page would ask it: the console knows nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import orjson
from starlette.requests import Request
from starlette.types import Message

from services.api.formats import instant
from services.api.origin import PROXY_HEADERS
from services.console.blocks import Json
from services.times import moment_ms

_log = logging.getLogger("berth.api")
_PASSED_ON = ("host", "last-event-id", *PROXY_HEADERS)
"""Headers by which the API judges who asks."""


class NotAnswered(Exception):
    """The API answered with an error: its status, its one shape, and how long to wait."""

    def __init__(self, status: int, body: Json) -> None:
        error = body.get("error", {})
        self.status, self.body = status, body
        self.code, self.message = str(error.get("code", "internal")), str(error.get("message", ""))
        self.path = error.get("path")
        self.details: Sequence[Json] = error.get("details", ())
        super().__init__(self.message)

    @staticmethod
    def of(status: int, code: str, message: str, path: str | None = None) -> NotAnswered:
        """Return an error of the console itself, in the shape of the API's."""
        error = {"code": code, "message": message} | ({} if path is None else {"path": path})
        return NotAnswered(status, {"error": error})


def inner_scope(request: Request, method: str, path: str, query: str, key: str | None) -> dict[str, Any]:
    """Return the scope of a request to the API that comes from where a request to the console came."""
    outer = request.scope
    headers = [(name, value) for name, value in outer["headers"] if name.decode("latin-1") in _PASSED_ON]
    if key is not None:
        headers.append((b"authorization", b"Bearer " + key.encode()))
    request.state.is_console = True  # the access log notes what the page asks, and not the page besides
    return {
        "type": "http",
        "asgi": outer["asgi"],
        "http_version": "1.1",
        "method": method,
        "scheme": outer["scheme"],
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": query.encode(),
        "headers": headers,
        "server": outer.get("server"),
        "client": outer.get("client"),
        "root_path": "",
        "state": {},
    }


class Asking:
    """The API, for one request of the console.

    Parameters
    ----------
    request : Request
        What is answered; its application is the one that is asked.
    key : str, optional
        The session of the caller, or the key that he signs in with. None: he shows none.
    """

    def __init__(self, request: Request, key: str | None) -> None:
        self._request = request
        self._key = key
        self.at = request.query_params.get("at") or None
        self.until: str | None = None
        self.names: Mapping[str, str] = request.path_params

    def asked(self, *names: str) -> dict[str, str]:
        """Return these parameters of the page's own URL, where they have a value."""
        given = self._request.query_params
        return {name: given[name] for name in names if given.get(name)}

    async def get(self, *segments: str, **query: object) -> Json:
        """Return an answer; of the query, what is None is left out. Raises ``NotAnswered``."""
        given = [(name, str(value)) for name, value in query.items() if value is not None]
        status, answer = await self._ask("GET", _path(segments), urlencode(given))
        if status >= 400:
            raise NotAnswered(status, answer)
        return answer

    async def get_or_none(self, *segments: str, **query: object) -> Json | None:
        """Return an answer, or None where there is no such thing or the caller may not see it."""
        try:
            return await self.get(*segments, **query)
        except NotAnswered as error:
            if error.status in (403, 404, 410, 501, 503):
                return None
            raise

    async def look(self) -> Json:
        """Return what the moment of the page means; from then on ``until`` is the first time behind it."""
        told = await self.get("/v1/moment", at=self.at)
        self.until = instant(moment_ms("at", told["at"]) + 1)
        return told

    async def ready(self) -> Json:
        """Return whether the deployment can decide, as ``/readyz`` tells it, also where it cannot."""
        return (await self._ask("GET", "/readyz", ""))[1]

    async def send(self, method: str, *segments: str, body: object = None, **query: object) -> Json:
        """Send something; return the answer, or raise ``NotAnswered``."""
        given = [(name, str(value)) for name, value in query.items() if value is not None]
        text = b"" if body is None else orjson.dumps(body)
        status, answer = await self._ask(method, _path(segments), urlencode(given), text)
        if status >= 400:
            raise NotAnswered(status, answer)
        return answer

    async def _ask(self, method: str, path: str, query: str, body: bytes = b"") -> tuple[int, Json]:
        scope = inner_scope(self._request, method, path, query, self._key)
        scope["headers"].append((b"accept", b"application/json"))
        if method != "GET":
            scope["headers"] += [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
            ]
        unsent = [body]
        status, parts, never = 0, [], asyncio.Event()

        async def receive() -> Message:
            if unsent:
                return {"type": "http.request", "body": unsent.pop(), "more_body": False}
            await never.wait()
            raise AssertionError("nothing sets the event")

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        try:
            await self._request.app(scope, receive, send)
        except Exception:
            if not status:
                raise
            _log.exception("a question of the console failed: %s %s", method, path)
        return status, orjson.loads(b"".join(parts) or b"{}")


def _path(segments: Sequence[str]) -> str:
    """Return the path of an answer of the API; what a user names has no slash."""
    first, *names = segments
    return "/".join((first, *names))
