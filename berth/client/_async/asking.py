"""What the questions of a client that awaits are asked through."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from berth.client._async.connection import AsyncConnection
from berth.client.errors import NOT_YET, Unavailable
from berth.client.objects import Written, wait_text
from berth.client.requests import Page, Request

_Answer = TypeVar("_Answer")
_Item = TypeVar("_Item")


class AsyncAsker:
    """Asks through a connection: of now, or (``moment``) as it was then, and never less than was written."""

    def __init__(self, connection: AsyncConnection, written: Written, moment: str | None = None) -> None:
        self._connection, self._written, self._moment = connection, written, moment

    async def ask(self, request: Request[_Answer]) -> _Answer:
        """Return the answer to a question.

        A question of now waits until the ledger has what this client wrote.

        Raises
        ------
        ValueError
            This is a view of the past, and the question has none.
        BerthError
            What the API says is wrong, or that it does not answer.
        """
        if self._moment is not None:
            if not request.has_past:
                raise ValueError(f"{request.path} cannot be asked of the past; ask the client itself")
            if request.params.get("at") is None:
                request = request.asking(at=self._moment)
        return await self._answer(request)

    async def _answer(self, request: Request[_Answer]) -> _Answer:
        """Return the answer to a question that says itself of when it is.

        What the ledger did not get in time is not waited for again: the next question says how things are.
        """
        waits = request.may_wait and request.params.get("at") is None
        while True:
            positions = self._written.taken() if waits else {}
            is_all = not waits or len(positions) == len(self._written.ends)
            try:
                answer = await self._connection.ask(request.asking(wait=wait_text(positions)))
            except Unavailable as error:
                if error.code == NOT_YET:
                    self._written.seen(positions)
                raise
            self._written.seen(positions)
            if is_all:
                return answer

    async def pages(self, request: Request[Page[_Item]], limit: int | None = None) -> AsyncIterator[_Item]:
        """Yield the items of a list, page by page; a page that fails is asked for again."""
        count, cursor = 0, None
        while limit is None or count < limit:
            page = await self.ask(request.asking(cursor=cursor) if cursor else request)
            for item in page.items:
                if limit is not None and count >= limit:
                    return
                yield item
                count += 1
            cursor = page.next
            if cursor is None:
                return


class AsyncResource:
    """Asks about one kind of things."""

    def __init__(self, asker: AsyncAsker) -> None:
        self._asker = asker
