"""Where a command reads from and writes to: an API over HTTP, or the same one in this process."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlsplit

import orjson

from services.cli.options import CommandError
from services.config import Settings

ADDRESS_FILE = "api.json"
PAGE = 1000


class Source(Protocol):
    """Something that answers requests as the API does."""

    async def request(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body."""


class HttpSource:
    """An API at an address."""

    def __init__(self, url: str, key: str | None) -> None:
        self._url = url
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=120)
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    async def request(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Ask over HTTP; a command does one thing at a time, so blocking harms nobody."""
        try:
            self._connection.request(method, self._prefix + target, body, self._headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise CommandError(
                f"the API at {self._url} does not answer ({error or type(error).__name__}); "
                "start it with `berth up` or `berth api`, or set BERTH_API_URL"
            ) from None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class AppSource:
    """The API's application, called without a network."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def request(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Call the application as a server would."""
        parts = urlsplit(target)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": _decoded(parts.path),
            "raw_path": parts.path.encode(),
            "root_path": "",
            "query_string": parts.query.encode(),
            "headers": [(b"content-type", b"application/json")],
            "client": None,
            "server": None,
        }
        status, chunks = 500, []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body or b"", "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                chunks.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return status, b"".join(chunks)


def _decoded(path: str) -> str:
    from urllib.parse import unquote

    return unquote(path)


def _answer(status: int, body: bytes) -> Any:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise CommandError(f"the answer (status {status}) is not JSON; is this a berth API?") from None
    if status < 400:
        return found
    error = found.get("error", {}) if isinstance(found, dict) else {}
    where = f"{error['path']}: " if error.get("path") else ""
    raise CommandError(f"{where}{error.get('message', f'the API answered {status}')}")


def target(path: str, *names: str, **params: object) -> str:
    """Return a request target with quoted names and the parameters that are not None."""
    query = urlencode({key: value for key, value in params.items() if value is not None})
    full = "/".join((path, *(quote(name, safe="") for name in names)))
    return f"{full}?{query}" if query else full


async def fetch(source: Source, where: str) -> Any:
    """Return what the API answers; raise ``CommandError`` with its message otherwise."""
    return _answer(*await source.request("GET", where))


async def fetch_all(source: Source, path: str, limit: int | None, **params: object) -> list[dict[str, Any]]:
    """Return all items of a list, page by page, or the first ``limit``."""
    items: list[dict[str, Any]] = []
    page_max = 100 if path == "/v1/deadletters" else PAGE
    paged = path not in ("/v1/pending", "/v1/shards")
    cursor: str | None = None
    while True:
        wanted = page_max if limit is None else min(page_max, limit - len(items))
        page = {"limit": wanted, "cursor": cursor} if paged else {}
        answer = await fetch(source, target(path, **params, **page))
        items += answer["items"]
        cursor = answer["next"]
        if cursor is None or (limit is not None and len(items) >= limit):
            return items if limit is None else items[:limit]


async def send_events(source: Source, events: list[Any]) -> dict[str, int]:
    """Append events to the log in requests that the API takes; return the sums of its counts."""
    from domain.model import limits

    sums = {"accepted": 0, "duplicates": 0}
    chunk: list[bytes] = []
    size = 0

    async def flush() -> None:
        body = b"[" + b",".join(chunk) + b"]"
        answer = _answer(*await source.request("POST", "/v1/events", body))
        for key in sums:
            sums[key] += answer[key]
        chunk.clear()

    for event in events:
        raw = orjson.dumps(event)
        if chunk and (len(chunk) >= PAGE or size + len(raw) > limits.request_bytes_max // 2):
            await flush()
            size = 0
        chunk.append(raw)
        size += len(raw) + 1
    if chunk:
        await flush()
    return sums


def write_address(directory: Path, url: str) -> None:
    """Note where this directory's API is."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / ADDRESS_FILE).write_bytes(orjson.dumps({"url": url}))


def remove_address(directory: Path) -> None:
    """Forget where this directory's API was."""
    (directory / ADDRESS_FILE).unlink(missing_ok=True)


async def running_api(directory: Path) -> str | None:
    """Return the address of the API that runs on this directory, if one answers."""
    try:
        url = str(orjson.loads((directory / ADDRESS_FILE).read_bytes())["url"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None
    source = HttpSource(url, None)
    try:
        status, _ = await source.request("GET", "/healthz")
    except CommandError:
        return None
    finally:
        source.close()
    return url if status == 200 else None


@contextlib.asynccontextmanager
async def open_source(settings: Settings) -> AsyncIterator[Source]:
    """Open the API that the settings name, that of the running instance, or one on the ledger itself."""
    from services import bootstrap

    url = settings.api_url
    if url is None and settings.postgres_dsn is None:
        url = await running_api(bootstrap.data_dir(settings))
    if url is not None:
        remote = HttpSource(url, settings.api_key)
        try:
            yield remote
        finally:
            remote.close()
        return
    async with bootstrap.place(settings) as place:
        if settings.postgres_dsn is None:
            await bootstrap.initialise(place, settings.shards)
        async with bootstrap.open_app(place, keys_required=False, open_to_all=True) as app:
            yield AppSource(app)
