"""The API that a command talks to: over HTTP, or in this process."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import ssl
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson

from services.address import ADDRESS_FILE, CHALLENGE_PATH, Instance, read_address, read_key
from services.cli.in_process import InProcess
from services.cli.options import CommandError, warn
from services.cli.output import say
from services.cli.reaching import reach_api, reach_ledger
from services.cli.web import httpx
from services.config import Settings, local_user
from services.listening import is_loopback
from services.secret import redacted

PAGE = 1000
_ANSWER_SECONDS_MAX = 120.0
_SILENT_SECONDS = 3.0
_PROOF_SECONDS_MAX = 10.0
_PROOF_BYTES_MAX = 1024
_TRIES_MAX = 10
_WAIT_SECONDS_MAX = 60


def _trusting(ca: Path | None) -> ssl.SSLContext | bool:
    """Return whose certificates are believed: those of a file, or the usual ones."""
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise CommandError(f"BERTH_API_CA={ca} holds no certificates: {error.strerror or error}") from None


def _refuse_untrusted(url: str, error: httpx.HTTPError) -> None:
    """Say it plainly if an API's certificate is why there is no answer."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        raise CommandError(
            f"the certificate of the API at {url} is not trusted here ({error}); "
            "set BERTH_API_CA to a file with the certificate that vouches for it"
        ) from None


class Refused(CommandError):
    """The API takes none of the events of a request; ``details`` says which are wrong."""

    def __init__(self, message: str, details: list[dict[str, Any]]) -> None:
        super().__init__(message)
        self.details, self.reasons, self.sent_count = details, [message], 0

    def about(self, events: list[Any], sent_count: int) -> None:
        """Name the objects of the events that are refused, and count the events that went before."""
        from services.cli.documents import named

        self.sent_count = sent_count
        self.reasons = [
            f"{named(events[each['index']])[2:-1] or 'an event'}: "
            f"{(each.get('path') or 'event').removeprefix('object.')}: {each['message']}"
            for each in self.details
        ]
        self.args = ("\n".join(self.reasons),)


class Source:
    """The API at an address, or (``app``) the application in this process.

    A proxy of the environment is used only for an address that the user named. An instance that berth found
    by itself is on this machine.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        app: Any = None,
        proxied: bool = False,
        ca: Path | None = None,
    ) -> None:
        self.in_process, self.app = app is not None, app
        self._url = url
        authorization = {"Authorization": f"Bearer {key}"} if key else {}
        self.client = httpx.AsyncClient(
            base_url=url,
            headers={"Content-Type": "application/json"} | authorization,
            timeout=_ANSWER_SECONDS_MAX,
            transport=httpx.ASGITransport(app) if self.in_process else None,
            trust_env=proxied,
            verify=_trusting(ca),
        )
        self._streaming = self.client
        if self.in_process:
            self._streaming = httpx.AsyncClient(base_url=url, transport=InProcess(app))

    async def request(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body. Where the API says that this key asks too much, wait and ask again."""
        for left in reversed(range(_TRIES_MAX)):
            try:
                answer = await self._answer(method, target, body)
            except httpx.HTTPError as error:
                _refuse_untrusted(self._url, error)
                cut = isinstance(error, httpx.RemoteProtocolError) and self._url.startswith("http://")
                raise CommandError(
                    f"the API at {self._url} does not answer ({str(error) or type(error).__name__}); "
                    f"{'is it https://? Else ' if cut else ''}"
                    "start it with `berth up` or `berth api`, or set BERTH_API_URL"
                ) from None
            if answer.status_code != 429 or not left:
                break
            wait = answer.headers.get("retry-after", "")
            seconds = min(int(wait), _WAIT_SECONDS_MAX) if wait.isdecimal() else 1
            if seconds > 1:
                say(f"asking again in {seconds} s: {_error(answer.content).get('message')}", err=True)
            await asyncio.sleep(seconds)
        return answer.status_code, answer.content

    async def _answer(self, method: str, target: str, body: bytes | None) -> httpx.Response:
        """Return the answer; say what is waited for where none comes for a moment."""
        waits = self.in_process or "wait=" in target  # it was told to wait
        notice = f"the API at {self._url} has not answered yet; it has {_ANSWER_SECONDS_MAX:g} s …"
        timer = asyncio.get_running_loop().call_later(
            _ANSWER_SECONDS_MAX if waits else _SILENT_SECONDS, partial(say, notice, err=True)
        )
        try:
            return await self.client.request(method, target, content=body)
        finally:
            timer.cancel()

    @contextlib.asynccontextmanager
    async def stream(self, target: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Give an answer piece by piece; raise ``CommandError`` where there is none, or where it breaks off.

        So what is not whole is never taken for the whole.
        """
        try:
            async with self._streaming.stream("GET", target) as answer:
                if answer.status_code >= 400:
                    answer_of(answer.status_code, await answer.aread())
                yield answer.aiter_bytes()
        except httpx.HTTPError as error:
            _refuse_untrusted(self._url, error)
            raise CommandError(
                f"the API at {self._url} broke off: {str(error) or type(error).__name__}; what was written "
                "is not whole. Its log says why; a shorter time by --since and --until may pass"
            ) from None

    async def aclose(self) -> None:
        """Close the connections."""
        if self._streaming is not self.client:
            await self._streaming.aclose()
        await self.client.aclose()


def in_process(app: Any) -> Source:
    """Return the application as a source, without a network."""
    return Source("http://berth", app=app)


def _error(body: bytes) -> dict[str, Any]:
    """Return what an answer says is wrong, if it is in the one shape of errors."""
    with contextlib.suppress(orjson.JSONDecodeError):
        found = orjson.loads(body)
        if isinstance(found, dict) and isinstance(found.get("error"), dict):
            return dict(found["error"])
    return {}


def answer_of(status: int, body: bytes) -> Any:
    """Return what the API answered; raise ``CommandError`` with its message if it is an error."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise CommandError(f"the answer (status {status}) is not JSON; is this a berth API?") from None
    if status < 400:
        return found
    error = _error(body)
    where = f"{error['path']}: " if error.get("path") else ""
    said = f"{where}{error.get('message', f'the API answered {status}')}"
    details = [each for each in error.get("details") or [] if each.get("index") is not None]
    raise Refused(said, details) if details else CommandError(said)


def target(path: str, *names: str, **params: object) -> str:
    """Return a request target with quoted names and the parameters that are not None."""
    query = urlencode({key: value for key, value in params.items() if value is not None})
    full = "/".join((path, *(quote(name, safe="") for name in names)))
    return f"{full}?{query}" if query else full


async def fetch(source: Source, where: str) -> Any:
    """Return the API's answer; raise ``CommandError`` with its message if it is an error."""
    return answer_of(*await source.request("GET", where))


async def fetch_all(
    source: Source,
    path: str,
    limit: int | None,
    keep: Callable[[dict[str, Any]], bool] | None = None,
    **params: object,
) -> list[dict[str, Any]]:
    """Return the items of a list that ``keep`` accepts, page by page, or the first ``limit`` of them."""
    pages = [page async for page in fetch_pages(source, path, limit, keep, **params)]
    return [item for page in pages for item in page]


async def fetch_pages(
    source: Source,
    path: str,
    limit: int | None,
    keep: Callable[[dict[str, Any]], bool] | None = None,
    **params: object,
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the same items, each page as it comes."""
    count = 0
    paged = path not in ("/v1/shards", "/v1/workers", "/v1/shadow")
    cursor: str | None = None
    while True:
        wanted = PAGE if limit is None or keep is not None else min(PAGE, limit - count)
        page = {"limit": wanted, "cursor": cursor} if paged else {}
        answer = await fetch(source, target(path, **params, **page))
        items = answer["items"] if keep is None else list(filter(keep, answer["items"]))
        yield items if limit is None else items[: limit - count]
        count += len(items)
        cursor = answer["next"]
        if cursor is None or (limit is not None and count >= limit):
            return


async def send_events(source: Source, events: list[Any], **params: object) -> dict[str, Any]:
    """Append events to the log in requests that the API takes; return its answers as one."""
    from domain.model import limits

    counts = {"accepted": 0, "duplicates": 0}
    sums: dict[str, Any] = {**counts, "folded": True, "decisions": [], "deadletters": [], "older": []}
    chunk: list[bytes] = []
    size = 0

    async def flush() -> None:
        body = b"[" + b",".join(chunk) + b"]"
        answered = await source.request("POST", target("/v1/events", **params), body)
        try:
            answer = answer_of(*answered)
        except Refused as refused:
            before = sums["accepted"] + sums["duplicates"]
            refused.about(events[before:], before)
            raise
        for key in counts:
            sums[key] += answer[key]
        for key in ("decisions", "deadletters", "older"):
            sums[key] += answer.get(key, [])
        sums["folded"] &= answer.get("folded", False)
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


async def running_instance(directory: Path, ca: Path | None = None) -> Instance | None:
    """Return the instance that runs on this directory, if there is one: it has proved that it is.

    Raises
    ------
    CommandError
        Something else listens at the address. It gets no key.
    """
    instance = read_address(directory)
    if instance is None:
        return None
    challenge = secrets.token_hex(32)
    client = httpx.AsyncClient(timeout=_PROOF_SECONDS_MAX, trust_env=False, verify=_trusting(ca))
    async with client:
        try:
            asked = client.stream("GET", f"{instance.url}{CHALLENGE_PATH}", params={"challenge": challenge})
            async with asyncio.timeout(_PROOF_SECONDS_MAX), asked as answer:
                start = await anext(answer.aiter_bytes(_PROOF_BYTES_MAX), b"")
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            _refuse_untrusted(instance.url, error)
            return None
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError):
            start = b""
    if hmac.compare_digest(start, orjson.dumps({"answer": instance.answer(challenge)})):
        return instance
    raise CommandError(
        f"what listens at {instance.url} is not the instance of {directory}, which was killed or does not "
        f"answer; no key was sent. Start `berth up` again, or remove {directory / ADDRESS_FILE}"
    )


def _proxied(url: str) -> bool:
    """Return whether the environment names a proxy for an address, which then alone has to be reached."""
    parts = urlsplit(url)
    return bool(getproxies().get(parts.scheme)) and not proxy_bypass(parts.hostname or "")


def _in_clear(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


@contextlib.asynccontextmanager
async def open_source(settings: Settings, *, make: bool = False) -> AsyncIterator[Source]:
    """Open the API that the settings name, else that of the running instance, else one on the ledger.

    With ``make`` the embedded ledger may be a new one: who only asks would be told that there is nothing.
    """
    from services import bootstrap

    url, key = settings.api_url, settings.api_key
    named = url is not None
    if not named and settings.postgres_dsn is None:
        directory = bootstrap.data_dir(settings)
        instance = await running_instance(directory, settings.api_ca)
        url, key = instance and instance.url, key or read_key(directory)
    elif url is not None and key is not None and _in_clear(url):
        warn([f"the key crosses the network in clear to {redacted(url)}: use https://"])
    if url is not None:
        if not named or not _proxied(url):
            await reach_api(url)
        async with contextlib.aclosing(Source(url, key, proxied=named, ca=settings.api_ca)) as source:
            yield source
        return
    await reach_ledger(settings)
    async with bootstrap.place(settings, make=make) as place:
        if settings.postgres_dsn is None:
            await bootstrap.initialise(place, settings.shards)
        async with bootstrap.open_app(place, keys_required=False, local_user=local_user()) as app:
            yield in_process(app)
