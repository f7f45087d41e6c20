"""Exports as they come: pieces into lines, lines into rows, pieces into a file that is whole or not there."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from berth.client.errors import UNREADABLE, unreadable

if TYPE_CHECKING:
    import pandas

Form = Literal["csv", "ndjson", "parquet"]
Row = dict[str, Any]
_UNFINISHED = ".unfinished"


class Lines:
    """Cuts pieces into rows, a JSON object a line."""

    def __init__(self) -> None:
        self._waiting = b""
        self._decode = msgspec.json.Decoder(Row).decode

    def feed(self, piece: bytes) -> Iterator[Row]:
        """Yield the rows that are whole by now; raise ``BadAnswer`` for what is no row."""
        *whole, self._waiting = (self._waiting + piece).split(b"\n")
        for line in whole:
            if line:
                try:
                    row = self._decode(line)
                except UNREADABLE as error:
                    raise unreadable(error) from None
                yield row

    def end(self) -> Iterator[Row]:
        """Yield the last row, where no line end comes behind it."""
        yield from self.feed(b"\n")


def form_of(path: Path) -> Form:
    """Return the form that a file's name asks for; CSV where it does not say."""
    forms: dict[str, Form] = {".ndjson": "ndjson", ".jsonl": "ndjson", ".parquet": "parquet"}
    return forms.get(path.suffix, "csv")


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Callable[[bytes], object]]:
    """Give what writes pieces to a file; it has its name only once it is whole."""
    unfinished = path.with_name(path.name + _UNFINISHED)
    try:
        with unfinished.open("wb") as file:
            yield file.write
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def reads_parquet() -> bool:
    """Return whether a Parquet file can be read here."""
    return importlib.util.find_spec("pyarrow") is not None


def frame_of_parquet(content: bytes) -> pandas.DataFrame:
    """Return a Parquet file as a frame, with the types that it names."""
    import pandas

    return pandas.read_parquet(io.BytesIO(content))


def frame_of_rows(rows: Iterable[Row]) -> pandas.DataFrame:
    """Return rows as a frame; columns whose names end in `_at` become times."""
    import pandas

    frame = pandas.DataFrame.from_records(list(rows))
    for name in frame.columns:
        if str(name).endswith("_at"):
            frame[name] = pandas.to_datetime(frame[name], utc=True, format="ISO8601")
    return frame
