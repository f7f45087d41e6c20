"""A client of the stream of events inside this process, and small batches for it to read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.ledger import MemoryLedger
from services.codec.feed import pack_feed
from services.ports.journal import JournalRow
from services.ports.ledger import CommitBatch, Committed, Lease
from tests.batches import batch_of, changed
from tests.contract.batches import AT_MS, advance, decision, record
from tests.contract.ledgers import ManualClock, start


def made(lease: Lease, seqs: range, number: int, **more: Any) -> CommitBatch:
    """Return batch ``number`` of a shard, which decides one pod per seq; ``owned`` is of its journal."""
    decisions = more.pop("decisions", None) or [decision(lease, seq, f"p{seq}") for seq in seqs]
    owned, at_ms = more.pop("owned", ()), AT_MS + number * 1000
    batch = batch_of(
        advances=[advance(lease, seqs.start - 1, seqs.stop - 1)],
        made=[record(each) for each in decisions],
        seq_next={lease.shard: seqs.stop},
        log_time_ms=at_ms,
        **more,
    )
    row = JournalRow(
        shard=lease.shard,
        batch=number,
        worker="w",
        owned=owned,
        log_time_ms=at_ms,
        seqs={lease.shard: (seqs.start, seqs.stop)},
        decisions_hash=b"".join(payload for _, payload in batch.decisions.made)[-32:],
        feed=pack_feed(batch),
    )
    return changed(batch, row=row)


class Writer:
    """Commits batches of several shards to a ledger in memory."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._ledger = MemoryLedger(database, ManualClock())
        self._leases: list[Lease] = []
        self._next: dict[int, tuple[int, int]] = {}
        self._shards = len(database.shards)

    async def begin(self) -> None:
        """Take the shards."""
        self._leases = list(await start(self._ledger, self._shards))
        self._next = {lease.shard: (1, 1) for lease in self._leases}

    def lease(self, shard: int = 0) -> Lease:
        """Return the lease of a shard."""
        return self._leases[shard]

    def seq(self, shard: int = 0) -> int:
        """Return the seq that the next decision of a shard has."""
        return self._next[shard][0]

    async def write(self, count: int = 1, shard: int = 0, **more: Any) -> None:
        """Commit a batch of so many decisions."""
        seq, number = self._next[shard]
        batch = made(self._leases[shard], range(seq, seq + count), number, **more)
        assert await self._ledger.commit(batch) == Committed()
        self._next[shard] = seq + count, number + 1


class Seen(NamedTuple):
    """An event that a client got."""

    id: str
    kind: str
    data: Any


class StreamClient:
    """Opens one stream of an ASGI application and reads it as fast as the test lets it.

    ``pause`` is cleared while it takes nothing: the server's ``send`` then waits, as on a full connection.
    """

    def __init__(
        self, app: Any, key: str | None = None, *, last_id: str | None = None, **params: object
    ) -> None:
        self._app = app
        headers = [(b"host", b"localhost")]
        headers += [(b"authorization", f"Bearer {key}".encode())] if key else []
        headers += [(b"last-event-id", last_id.encode())] if last_id else []
        self._scope: Mapping[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": "/v1/events",
            "raw_path": b"/v1/events",
            "query_string": urlencode(params).encode(),
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
            "root_path": "",
        }
        self.status = 0
        self.last_id = last_id or ""
        self.events: list[Seen] = []
        self.body = b""
        self.keeps = True
        self.frames_count = 0
        self.is_over = False  # whether the server has ended the answer
        self.pause = asyncio.Event()
        self.pause.set()
        self._left = asyncio.Event()
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> StreamClient:
        """Send the request."""
        self._task = asyncio.create_task(self._app(dict(self._scope), self._receive, self._send))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        assert self._task is not None
        self._left.set()
        self.pause.set()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def cut(self) -> None:
        """End the answer as a server does whose connection was lost."""
        assert self._task is not None
        self._task.cancel()

    async def _receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            await self.pause.wait()
            self.frames_count += 1
            if self.keeps:
                self._take(message.get("body", b""))
            self.is_over = not message.get("more_body", False)
        self._moved.set()
        self._moved = asyncio.Event()

    def _take(self, frame: bytes) -> None:
        self.body += frame
        if self.status != 200:
            return
        for part in frame.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in part.splitlines() if not line.startswith(":"))
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                data = msgspec.json.decode(fields["data"])
                self.events.append(Seen(fields.get("id", ""), fields["event"], data))

    async def until(self, count: int, seconds: float = 10.0) -> list[Seen]:
        """Return the events once there are so many."""
        async with asyncio.timeout(seconds):
            while len(self.events) < count and not self.is_over:
                await self._moved.wait()
        return self.events

    async def begun(self, seconds: float = 10.0) -> None:
        """Wait until the stream is open."""
        async with asyncio.timeout(seconds):
            while not self.body and not self.is_over:
                await self._moved.wait()

    async def over(self, seconds: float) -> None:
        """Wait until the server ends the answer, for so long."""
        async with asyncio.timeout(seconds):
            while not self.is_over:
                await self._moved.wait()

    async def ended(self, seconds: float = 10.0) -> Seen:
        """Wait until the stream ends; return its last event."""
        assert self._task is not None
        async with asyncio.timeout(seconds):
            await asyncio.wait([self._task])
        return self.events[-1]

    async def ended_without_events(self) -> None:
        """Wait for an answer that is no stream."""
        assert self._task is not None
        async with asyncio.timeout(10):
            await asyncio.wait([self._task])

    @property
    def error(self) -> Any:
        """The error of an answer that is no stream."""
        return msgspec.json.decode(self.body)["error"]


def ids(events: list[Seen]) -> list[str]:
    """Return the ids of the decisions of events."""
    return [each.data["id"] for each in events if each.kind != "end"]
