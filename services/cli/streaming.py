"""Reads the stream of events of an API, by the client of berth."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import NamedTuple

import orjson

from berth.client.errors import BerthError as ClientError
from berth.client.errors import NoAnswer, NotTrusted
from services.cli.options import CommandError
from services.cli.output import Json, say
from services.cli.source import Source, why_of
from services.cli.web import frames


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
    has_begun = False
    try:
        async with contextlib.aclosing(
            frames(source.connection, {**params, "after": last_id}, lost=_lost)
        ) as stream:
            async for frame in stream:
                if frame.kind or not has_begun:
                    yield Seen(frame.id, frame.kind, orjson.loads(frame.data) if frame.data else {})
                has_begun = True
    except NotTrusted as error:
        raise CommandError(str(error)) from None
    except NoAnswer as error:
        raise CommandError(f"the API does not answer ({why_of(error)})") from None
    except ClientError as error:
        raise CommandError(str(error)) from None


def _lost(error: ClientError) -> None:
    say(f"the stream broke off ({why_of(error)}); going on …", err=True)


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
