"""Checks which site a request comes from, and says in each answer what a browser may not do with it.

A web page can make its visitor's browser send requests to this machine, and, by a name of its own that
points to 127.0.0.1, read the answers. The checks of the host, the origin and the type of the body are
what stops it where no key is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fastapi import Request, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.api.failures import ApiError, error_answer
from services.listening import is_loopback

_NETLOC = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+?)\.?(?::\d{1,5})?", re.IGNORECASE)
_WITH_BODY = ("POST", "PUT", "PATCH")

PROXY_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
"""What a proxy adds to the requests that it passes on."""

ANSWER_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
"""What every answer tells a browser, unless the answer says otherwise itself."""


def names_allowed(host: str, others: Iterable[str]) -> frozenset[str] | None:
    """Return the names by which requests may call an API that listens on ``host``; None: by any name.

    Beyond loopback the API asks for a key, which no web page has. The names are then checked only if the
    settings name some.
    """
    named = {each.lower() for each in others}
    if not is_loopback(host) and not named:
        return None
    return frozenset({"localhost", host.lower(), *named})


class OriginCheck:
    """Refuses requests that a foreign web page made, before anything looks at them.

    Parameters
    ----------
    app : ASGIApp
        What answers the requests that pass.
    names : frozenset[str], optional
        The names by which requests may call this API, besides the addresses of loopback. None: any name.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str] | None) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in ANSWER_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope["method"], scope["path"], Headers(scope=scope))
        await (refusal or self._app)(scope, receive, answer)

    def _refusal(self, method: str, path: str, headers: Headers) -> Response | None:
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may go by the other one, and would pass on what we take for a request of its own.
            answer = error_answer("not-http", "a body has a length or is in chunks, and not both")
            answer.headers["Connection"] = "close"
            return answer
        host = headers.get("host", "")
        if path != "/healthz" and not self._is_ours(host):
            return error_answer(
                "wrong-host",
                f"this API is not called {host[:300]!r}; use localhost, or name it in BERTH_API_HOSTS",
            )
        if self._is_foreign(method, host, headers):
            return error_answer("foreign-origin", "a web page of another site may not call this API")
        return None

    def _is_ours(self, netloc: str) -> bool:
        name = _name_of(netloc)
        return self._names is None or name in self._names or is_loopback(name)

    def _is_foreign(self, method: str, host: str, headers: Headers) -> bool:
        """Return whether the page of another site asks. A link on it may still lead here."""
        is_link = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not is_link:
            return True
        origin = headers.get("origin")
        if origin is None:
            return False
        netloc = origin.partition("://")[2]
        # A proxy may change the Host header. The settings then name the host that the page is from.
        name = _name_of(netloc)
        is_named = name in (self._names or ()) and not is_loopback(name)
        return netloc != host and not is_named


def check_media_type(request: Request) -> None:
    """Refuse a body that is not said to be JSON. A page may send plain text anywhere without asking first."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method in _WITH_BODY and media_type != "application/json":
        raise ApiError(
            "unsupported-media-type", "the body must be JSON: send `Content-Type: application/json`"
        )


def _name_of(netloc: str) -> str:
    """Return the name or address in ``name:port``; empty where it is neither."""
    found = _NETLOC.fullmatch(netloc)
    return found[1].strip("[]").lower() if found else ""


def is_proxied(headers: Headers) -> bool:
    """Return whether a proxy passed this request on."""
    return any(name in headers for name in PROXY_HEADERS)
