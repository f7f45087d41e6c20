"""The connection to an API that awaits: requests, answers piece by piece, and trying again."""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx
from msgspec import Struct

from berth.client.errors import (
    NOT_YET,
    BadAnswer,
    BerthError,
    NoAnswer,
    NotConfigured,
    NotTrusted,
    decoded,
    error_of,
)
from berth.client.local import CHALLENGE_PATH, Instance, read_instance, read_instance_key
from berth.client.requests import Request
from berth.client.retrying import Retry, Told
from berth.client.settings import Address, without_user

_log = logging.getLogger("berth.client")

PROOF_SECONDS_MAX = 10.0
_PROOF_BYTES_MAX = 1024
_Answer = TypeVar("_Answer")


class Answer(Struct, frozen=True):
    """An answer as it came."""

    status: int
    content: bytes
    retry_after: str | None = None

    @property
    def is_error(self) -> bool:
        """Whether it is not what was asked for: an error, or a way to somewhere else."""
        return not 200 <= self.status < 300


def _no_answer(url: str, error: httpx.HTTPError) -> NoAnswer:
    why = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in why:
        return NotTrusted(
            f"the certificate of the API at {url} is not trusted here ({why}); "
            "set BERTH_API_CA to a file with the certificate that vouches for it",
            code="not-trusted",
        )
    cut = isinstance(error, httpx.RemoteProtocolError) and url.startswith("http://")
    return NoAnswer(
        f"the API at {url} does not answer ({why}); {'is it https://? Else ' if cut else ''}"
        "start it with `berth up` or `berth api`, or set BERTH_API_URL",
        code="no-answer",
    )


def _check_media(found: str, wanted: str | None) -> None:
    """Raise ``BadAnswer`` where an answer is of another media type, as the page of a proxy is."""
    kind = found.partition(";")[0].strip().lower()
    if kind and (kind != wanted if wanted else kind == "text/html"):
        raise BadAnswer(
            f"the answer is {kind}, not {wanted or 'data'}; is this a berth API?",
            code="bad-answer",
        )


class AsyncConnection:
    """Asks an API. It opens with the first question, and has to be closed.

    Where the address is that of the instance on this machine, the instance proves first that it is that one,
    and is looked for again when it is gone: it may come back at another port.
    """

    def __init__(
        self,
        address: Address,
        *,
        retry: Retry | None = None,
        timeout_seconds: float = 120.0,
        transport: httpx.AsyncBaseTransport | None = None,
        told: Told | None = None,
    ) -> None:
        self._address = address
        self.retry = Retry() if retry is None else retry
        self._timeout_seconds = timeout_seconds
        self._transport = transport
        self._told = told
        self._http: httpx.AsyncClient | None = None
        self.has_answered = False
        self.url = without_user(address.url or "this machine")

    async def ask(self, request: Request[_Answer]) -> _Answer:
        """Return the answer to a question.

        Raises
        ------
        BerthError
            One of its kinds: what the API says is wrong, or that it does not answer.
        """
        answer = await self.exchange(
            request.method,
            request.target,
            request.content,
            is_repeatable=request.is_repeatable,
            accepts=request.accepts,
        )
        if answer.is_error and answer.status not in request.accepts:
            raise error_of(answer.status, answer.content)
        found: _Answer = decoded(answer.content, request.answer)
        return found

    async def exchange(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        *,
        is_repeatable: bool = True,
        accepts: Collection[int] = (),
    ) -> Answer:
        """Return status and body, whatever they say; try again where that may help.

        What is not repeatable is sent again only where it cannot have arrived, or was too much (429): a 503
        may come from a database that went away after it had taken it. ``accepts`` are statuses that are an
        answer, and nothing to try again for.
        """
        passing = self.retry.statuses.difference(accepts) & (self.retry.statuses if is_repeatable else {429})
        began, tried = time.monotonic(), 0
        while True:
            tried += 1
            passed = time.monotonic() - began
            try:
                answer = await self._once(method, target, body)
            except NoAnswer as error:
                if not self._may_reconnect(error, tried, passed, is_repeatable=is_repeatable):
                    raise
                await self._pause(self.retry.wait(tried), str(error))
                continue
            if answer.status not in passing or not self.retry.goes_on(tried, passed):
                return answer
            told = error_of(answer.status, answer.content)
            if told.code == NOT_YET:  # it was waited for already
                return answer
            await self._pause(self.retry.wait(tried, answer.retry_after), told.message)

    def _may_reconnect(self, error: NoAnswer, tried: int, passed: float, *, is_repeatable: bool) -> bool:
        """Return whether to try again; an API that was never there is not waited for."""
        if isinstance(error, NotTrusted) or not (self.retry.reconnects and self.has_answered):
            return False
        never_arrived = isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)
        return (is_repeatable or never_arrived) and self.retry.goes_on(tried, passed)

    async def _pause(self, seconds: float, why: str) -> None:
        _log.info("asking again in %.1f s: %s", seconds, why)
        if self._told is not None:
            self._told(seconds, why)
        await asyncio.sleep(seconds)

    async def _once(self, method: str, target: str, body: bytes | None) -> Answer:
        http = await self._opened()
        try:
            found = await http.request(method, target, content=body)
        except httpx.HTTPError as error:
            await self._lost(error)
            raise _no_answer(self.url, error) from error
        self.has_answered = True
        return Answer(found.status_code, found.content, found.headers.get("retry-after"))

    @asynccontextmanager
    async def stream(
        self, target: str, *, silent_seconds: float | None = None, media: str | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Give an answer piece by piece, of a media type where one is named; a page for people is none.

        Raises
        ------
        BerthError
            There is none, it is an error, or it broke off: so what is not whole is never taken for the whole.
        """
        http = await self._opened()
        timeout = httpx.Timeout(self._timeout_seconds, read=silent_seconds or self._timeout_seconds)
        try:
            async with http.stream("GET", target, timeout=timeout) as answer:
                self.has_answered = True
                if answer.status_code != 200:
                    raise error_of(answer.status_code, await answer.aread())
                _check_media(answer.headers.get("content-type", ""), media)
                yield answer.aiter_bytes()
        except httpx.HTTPError as error:
            await self._lost(error)
            raise _no_answer(self.url, error) from error

    async def _opened(self) -> httpx.AsyncClient:
        if self._http is None:
            url, key = self._address.url, self._address.key
            if url is None:
                url, found = await self._instance()
                key = key or found
            self.url = without_user(url)
            shown = {"Authorization": f"Bearer {key}"} if key else {}
            by_proxy = self._address.is_named and self._transport is None
            try:
                made = httpx.AsyncClient(
                    base_url=url,
                    headers={"Content-Type": "application/json", **shown},
                    timeout=self._timeout_seconds,
                    transport=self._transport,
                    trust_env=by_proxy,
                    verify=self._address.trusted(url, by_proxy=by_proxy),
                )
            except (httpx.InvalidURL, ValueError) as error:  # ValueError: of a proxy of the environment
                raise NotConfigured(f"the address of the API or of a proxy is none: {error}") from None
            if self._http is not None:  # another request was quicker to find the instance
                await made.aclose()
                return self._http
            self._http = made
        return self._http

    async def _instance(self) -> tuple[str, str | None]:
        """Return address and key of the instance on this machine, once it has proved to be that one."""
        directory = self._address.directory
        instance = None if directory is None else read_instance(directory)
        if directory is None or instance is None:
            raise NotConfigured("no instance runs here any more; start it with `berth up`", code="no-address")
        self.url = instance.url
        if not await proves(instance, self._address.trusted(instance.url)):
            raise NotTrusted(
                f"what listens at {instance.url} is not the instance of {directory}; no key was sent",
                code="not-trusted",
            )
        return instance.url, read_instance_key(directory)

    async def _lost(self, error: httpx.HTTPError) -> None:
        """Forget the connections to an instance that is gone: it may come back elsewhere."""
        if self._address.url is None and isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()


async def proves(instance: Instance, verify: ssl.SSLContext | bool) -> bool:
    """Return whether what listens at the address of an instance is that instance; raise ``NoAnswer``."""
    challenge = secrets.token_hex(32)
    target = f"{instance.url}{CHALLENGE_PATH}?challenge={challenge}"
    start = b""
    async with httpx.AsyncClient(timeout=PROOF_SECONDS_MAX, trust_env=False, verify=verify) as http:
        try:
            async with http.stream("GET", target) as answer:
                async for part in answer.aiter_bytes(_PROOF_BYTES_MAX):
                    start = part
                    break
        except httpx.HTTPError as error:
            raise _no_answer(instance.url, error) from error
    return instance.is_proved_by(challenge, start)


def is_passing(error: BerthError) -> bool:
    """Return whether an error may go away by itself: nothing answers, or the API cannot now."""
    return (isinstance(error, NoAnswer) and not isinstance(error, NotTrusted)) or (
        error.status in (429, 500, 502, 503, 504)
    )
