"""The API that a command talks to, by the client of berth: over HTTP, or in this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson

from berth.client import requests
from berth.client.errors import BerthError as ClientError
from berth.client.errors import NoAnswer, NotTrusted, error_of
from berth.client.objects import batches
from berth.client.requests import PAGE
from berth.client.retrying import Retry
from berth.client.settings import Address, in_clear
from services.address import ADDRESS_FILE, Instance, read_address, read_key
from services.cli.in_process import InProcess
from services.cli.options import CommandError, warn
from services.cli.output import say
from services.cli.reaching import reach_api, reach_ledger
from services.cli.web import AsyncConnection, httpx, proves
from services.config import Settings, local_user
from services.secret import redacted

if TYPE_CHECKING:
    from berth.client.models import ErrorDetail

_ANSWER_SECONDS_MAX = 120.0
_SILENT_SECONDS = 3.0
_PROOF_SECONDS_MAX = 10.0
_RETRY = Retry(
    tries=10,
    total_seconds=float("inf"),
    seconds_min=1,
    seconds_max=1,
    statuses=frozenset((429,)),
    reconnects=False,
)
"""A command that is not answered says so at once; one that asks too much waits and asks again."""


class Refused(CommandError):
    """The API takes none of the events of a request; ``details`` says which are wrong."""

    def __init__(self, message: str, details: Sequence[ErrorDetail]) -> None:
        super().__init__(message)
        self.details, self.reasons, self.sent_count = details, [message], 0

    def about(self, events: list[Any], sent_count: int) -> None:
        """Name the objects of the events that are refused, and count the events that went before."""
        from services.cli.documents import named

        self.sent_count = sent_count
        self.reasons = [
            f"{named(events[each.index or 0])[2:-1] or 'an event'}: "
            f"{(each.path or 'event').removeprefix('object.')}: {each.message}"
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
        self._is_here = app is not None
        self._url = url
        address = Address(url, key, ca, is_named=proxied)
        with _in_words():
            address.trusted()  # a file that holds no certificates is said before anything is asked
        self.connection = AsyncConnection(
            address,
            retry=_RETRY,
            timeout_seconds=_ANSWER_SECONDS_MAX,
            transport=InProcess(app) if self._is_here else None,
            told=_waits,
        )

    async def request(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body. Where the API says that this key asks too much, wait and ask again."""
        waits = self._is_here or "wait=" in target  # it was told to wait
        notice = f"the API at {self._url} has not answered yet; it has {_ANSWER_SECONDS_MAX:g} s …"
        timer = asyncio.get_running_loop().call_later(
            _ANSWER_SECONDS_MAX if waits else _SILENT_SECONDS, partial(say, notice, err=True)
        )
        try:
            with _in_words():
                answer = await self.connection.exchange(method, target, body)
        finally:
            timer.cancel()
        return answer.status, answer.content

    @contextlib.asynccontextmanager
    async def stream(self, target: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Give an answer piece by piece; raise ``CommandError`` where there is none, or where it breaks off.

        So what is not whole is never taken for the whole.
        """
        try:
            async with self.connection.stream(target) as pieces:
                yield pieces
        except NotTrusted as error:
            raise CommandError(error.message) from None
        except NoAnswer as error:
            raise CommandError(
                f"the API at {self._url} broke off: {why_of(error)}; what was written "
                "is not whole. Its log says why; a shorter time by --since and --until may pass"
            ) from None
        except ClientError as error:
            raise _command_error(error) from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self.connection.aclose()


def _waits(seconds: float, why: str) -> None:
    if seconds > 1.5:
        say(f"asking again in {seconds:.0f} s: {why}", err=True)


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    """Say what the client says, as a command does."""
    try:
        yield
    except ClientError as error:
        raise _command_error(error) from None


def why_of(error: ClientError) -> str:
    """Return what is behind an error of the client: what the network said, where it was that."""
    cause = error.__cause__
    return str(error) if cause is None else str(cause) or type(cause).__name__


def _command_error(error: ClientError) -> CommandError:
    """Return what the API says is wrong, as an error of the command."""
    said = f"{error.path}: {error.message}" if error.path else error.message
    details = [each for each in error.details if each.index is not None]
    return Refused(said, details) if details else CommandError(said)


def in_process(app: Any) -> Source:
    """Return the application as a source, without a network."""
    return Source("http://berth", app=app)


def answer_of(status: int, body: bytes) -> Any:
    """Return what the API answered; raise ``CommandError`` with its message if it is an error."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise CommandError(f"the answer (status {status}) is not JSON; is this a berth API?") from None
    if status < 400:
        return found
    raise _command_error(error_of(status, body))


def target(path: str, *names: str, **params: object) -> str:
    """Return a request target with quoted names and the parameters that are not None."""
    return requests.target(requests.path(path, *names), params)


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
    counts = {"accepted": 0, "duplicates": 0}
    sums: dict[str, Any] = {**counts, "folded": True, "decisions": [], "deadletters": [], "older": []}
    before = 0
    for batch in batches(events):
        answered = await source.request("POST", target("/v1/events", **params), batch.body)
        try:
            answer = answer_of(*answered)
        except Refused as refused:
            refused.about(events[before:], before)
            raise
        before += batch.length
        for key in counts:
            sums[key] += answer[key]
        for key in ("decisions", "deadletters", "older"):
            sums[key] += answer.get(key, [])
        sums["folded"] &= answer.get("folded", False)
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
    try:
        with _in_words():
            verify = Address(instance.url, ca=ca).trusted(instance.url)
        async with asyncio.timeout(_PROOF_SECONDS_MAX):
            is_there = await proves(instance, verify)
    except NotTrusted as error:
        raise CommandError(error.message) from None
    except NoAnswer as error:
        if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout):
            return None
        is_there = False
    except (httpx.InvalidURL, TimeoutError):
        is_there = False
    if is_there:
        return instance
    raise CommandError(
        f"what listens at {instance.url} is not the instance of {directory}, which was killed or does not "
        f"answer; no key was sent. Start `berth up` again, or remove {directory / ADDRESS_FILE}"
    )


def _proxied(url: str) -> bool:
    """Return whether the environment names a proxy for an address, which then alone has to be reached."""
    parts = urlsplit(url)
    return bool(getproxies().get(parts.scheme)) and not proxy_bypass(parts.hostname or "")


@contextlib.asynccontextmanager
async def open_source(settings: Settings, *, make: bool = False) -> AsyncIterator[Source]:
    """Open the API that the settings name, else that of the running instance, else one on the ledger.

    With ``make`` the embedded ledger may be a new one. A mere question would find nothing there.
    """
    from services import bootstrap

    url, key = settings.api_url, settings.api_key
    named = url is not None
    if not named and settings.postgres_dsn is None:
        directory = bootstrap.data_dir(settings)
        instance = await running_instance(directory, settings.api_ca)
        url, key = instance and instance.url, key or read_key(directory)
    elif url is not None and key is not None and in_clear(url):
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
