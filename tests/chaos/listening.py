"""Follows the stream of events through a day, as a reader does that keeps the last id."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import NamedTuple

from services.api.stream_ids import parse_id
from services.bootstrap import Place, open_app
from tests.chaos.judging import Found
from tests.streaming import Seen, StreamClient

_LEAVES_SECONDS = (0.2, 3.0)
"""The reader goes away after so long, and comes back."""
_PAUSE_SECONDS = 0.1
_DECIDED = ("decisions", "releases", "pending")


class Read(NamedTuple):
    """A decision, and where its batch is in the order of all batches."""

    position: int
    shard: int
    seq: int


class Listener:
    """Reads all decisions from the API; begins anew only where the API says that the ledger is another one.

    Attributes
    ----------
    parts : list
        The decisions that were read, in the order of the stream; a part per life of the ledger.
    streams_count : int
        How often a stream was opened.
    begun : asyncio.Event
        Set once a stream is open: what is decided from then on has to come.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._last: str | None = None
        self.parts: list[list[Read]] = [[]]
        self.streams_count = 0
        self.begun = asyncio.Event()

    async def listen(self, place: Place) -> None:
        """Read until cancelled."""
        async with open_app(place, keys_required=False) as app:
            while True:
                await self._read(StreamClient(app, last_id=self._last))
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _read(self, client: StreamClient) -> None:
        async with client:
            with contextlib.suppress(TimeoutError):
                await client.begun()
                self.begun.set()
                await client.over(self._rng.uniform(*_LEAVES_SECONDS))
        self.streams_count += 1
        if client.status == 200:
            self.parts[-1] += [_read_of(event) for event in client.events if event.kind in _DECIDED]
            self._last = client.last_id or None
        elif client.status and client.error["code"] == "another-ledger":
            self._last = next(each["message"] for each in client.error["details"] if each["path"] == "id")
            self.parts.append([])

    async def caught_up(self, lasts: Mapping[int, int], seconds: float) -> None:
        """Wait until the last decision of each shard was read, but no longer than so."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not {at for at in lasts.items() if at[1]} <= self._all().keys():
                    await asyncio.sleep(_PAUSE_SECONDS)

    def _all(self) -> Counter[tuple[int, int]]:
        return Counter(each[1:] for part in self.parts for each in part)

    def judge(self, lasts: Mapping[int, int]) -> Found:
        """Return what is wrong: every decision comes once, and a part leaves none out.

        What was decided between two lives of the ledger may be missing: a reader is told to read the state.
        """
        found = [f"{each} came {count} times" for each, count in self._all().items() if count > 1]
        for shard, last in lasts.items():
            found += self._missing(shard, last)
        return [("STREAM_APART", each) for each in found]

    def _missing(self, shard: int, last: int) -> Iterator[str]:
        before = 0
        for number, part in enumerate(self.parts):
            is_last = number == len(self.parts) - 1
            # The other life began while a batch was read.
            whole = part if is_last else [each for each in part if each.position != part[-1].position]
            seqs = sorted(each.seq for each in whole if each.shard == shard)
            if number and not seqs:
                continue
            first = min(seqs) if number else 1
            end = last if is_last else max(seqs, default=0)
            if first <= before or seqs != list(range(first, end + 1)):
                yield f"of shard {shard} part {number} has {seqs}, behind {before}; the last one is {end}"
            before = max(before, end)


def _read_of(event: Seen) -> Read:
    return Read(parse_id(event.id, "id").position, event.data["shard"], event.data["seq"])


@contextlib.asynccontextmanager
async def listened(listener: Listener, place: Place) -> AsyncIterator[None]:
    """Let somebody listen, from before anything happens."""
    listening = asyncio.create_task(listener.listen(place))
    begun = asyncio.create_task(listener.begun.wait())
    try:
        await asyncio.wait((listening, begun), return_when=asyncio.FIRST_COMPLETED)
        yield
    finally:
        begun.cancel()
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
