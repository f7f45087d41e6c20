"""A table of an API as a client that awaits reads it: rows, pieces, a file, or a frame of pandas."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from berth.client._async.connection import AsyncConnection
from berth.client.errors import Refused
from berth.client.requests import path, target
from berth.client.rows import (
    Form,
    Lines,
    Row,
    form_of,
    frame_of_parquet,
    frame_of_rows,
    reads_parquet,
    written_whole,
)

if TYPE_CHECKING:
    import pandas


class AsyncExport:
    """A table, asked for anew each time that it is read. All rows of a reading are of one moment.

    Iterate over it for rows, a mapping each. docs/export.md says what the columns mean.
    """

    def __init__(self, connection: AsyncConnection, what: str, params: Mapping[str, object]) -> None:
        self._connection, self._what, self._params = connection, what, params

    async def __aiter__(self) -> AsyncIterator[Row]:
        lines = Lines()
        async for piece in self.pieces("ndjson"):
            for row in lines.feed(piece):
                yield row
        for row in lines.end():
            yield row

    async def pieces(self, form: Form) -> AsyncIterator[bytes]:
        """Yield the bytes of a file, piece by piece.

        Raises
        ------
        BerthError
            The API refuses it, or it broke off: what came is then not the whole.
        """
        asked = target(path("/v1/export", self._what), {**self._params, "format": form})
        async with self._connection.stream(asked) as parts:
            async for part in parts:
                yield part

    async def save(self, to: str | os.PathLike[str], form: Form | None = None) -> Path:
        """Write a file, in the form that its name ends with (CSV else); it is there once it is whole."""
        place = Path(to)
        with written_whole(place) as write:
            async for piece in self.pieces(form or form_of(place)):
                write(piece)
        return place

    async def to_pandas(self) -> pandas.DataFrame:
        """Return all rows as a frame of pandas, with types as Parquet has them where that can be had."""
        if reads_parquet():
            try:
                return frame_of_parquet(b"".join([piece async for piece in self.pieces("parquet")]))
            except Refused as error:
                if error.code != "no-parquet":
                    raise
        return frame_of_rows([row async for row in self])
