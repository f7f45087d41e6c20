"""Rows of an export as bytes: CSV, JSON lines or Parquet, piece by piece.

CSV is quoted as RFC 4180 says, with ``\\n`` at the end of a line. A text that a spreadsheet would take for a
formula gets an apostrophe before it; numbers, times and JSON do not, and neither do the other formats.
"""

from __future__ import annotations

import enum
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import orjson

from domain.model.errors import BerthError
from domain.model.timestamps import format_ms
from services.ports.exports import Column, ExportRow, Kind, Schema, Value

READS_PER_GROUP = 10
"""How often rows are read for a row group of a Parquet file, which its writer holds."""

_QUOTE = '"'
_TO_QUOTE = re.compile(r'[",\r\n]').search
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class NoParquet(BerthError):
    """Parquet was asked for where its library is not installed."""

    code = "no-parquet"

    def __init__(self) -> None:
        super().__init__(
            "Parquet needs pyarrow where the API runs: install berth[parquet] there, or take csv or ndjson"
        )


class ExportFormat(enum.StrEnum):
    """How an export is written."""

    CSV = "csv"
    NDJSON = "ndjson"
    PARQUET = "parquet"

    @property
    def media_type(self) -> str:
        """The type of its content."""
        return _MEDIA_TYPES[self]


_MEDIA_TYPES = {
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.NDJSON: "application/x-ndjson",
    ExportFormat.PARQUET: "application/vnd.apache.parquet",
}


class ExportWriter(Protocol):
    """Writes an export. Each call returns the bytes that follow, which may be none."""

    def rows(self, rows: Sequence[ExportRow]) -> bytes:
        """Add rows."""

    def end(self) -> bytes:
        """Add what comes after the last row."""


def export_writer(schema: Schema, form: ExportFormat) -> ExportWriter:
    """Return what writes an export.

    Raises
    ------
    NoParquet
        The library is not installed.
    """
    match form:
        case ExportFormat.CSV:
            return _Csv(schema)
        case ExportFormat.NDJSON:
            return _JsonLines(schema)
        case ExportFormat.PARQUET:
            return _Parquet(schema)


def guarded(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def csv_line(cells: Iterable[object]) -> str:
    """Return a line of CSV: a cell with a comma, a quote or a line break is quoted.

    The library's writer does not quote a carriage return where lines end without one.
    """
    texts = map(str, cells)
    return (
        ",".join(f'"{text.replace(_QUOTE, _QUOTE * 2)}"' if _TO_QUOTE(text) else text for text in texts)
        + "\n"
    )


def _as_is(value: Value) -> Any:
    return value


def _time(value: Value) -> str:
    assert isinstance(value, int)
    return format_ms(value)


def _truth(value: Value) -> str:
    return "true" if value else "false"


def _text(value: Value) -> str:
    return guarded(str(value))


def _json(value: Value) -> Any:
    return orjson.Fragment(str(value))


_IN_CSV: Mapping[Kind, Callable[[Value], Any]] = {Kind.TIME: _time, Kind.BOOL: _truth, Kind.TEXT: _text}
_IN_JSON: Mapping[Kind, Callable[[Value], Any]] = {Kind.TIME: _time, Kind.JSON: _json}


class _Csv:
    def __init__(self, schema: Schema) -> None:
        self._write = [_IN_CSV.get(each.kind, _as_is) for each in schema.columns]
        self._header: Sequence[str] | None = schema.names

    def rows(self, rows: Sequence[ExportRow]) -> bytes:
        lines = [] if self._header is None else [csv_line(self._header)]
        self._header = None
        for row in rows:
            pairs = zip(self._write, row, strict=True)
            lines.append(csv_line("" if value is None else write(value) for write, value in pairs))
        return "".join(lines).encode()

    def end(self) -> bytes:
        return self.rows(())  # the header, where there was no row


class _JsonLines:
    def __init__(self, schema: Schema) -> None:
        self._columns = [(each.name, _IN_JSON.get(each.kind, _as_is)) for each in schema.columns]

    def rows(self, rows: Sequence[ExportRow]) -> bytes:
        return b"".join(
            orjson.dumps(
                {
                    name: None if value is None else write(value)
                    for (name, write), value in zip(self._columns, row, strict=True)
                },
                option=orjson.OPT_APPEND_NEWLINE,
            )
            for row in rows
        )

    def end(self) -> bytes:
        return b""


class _Sink(io.RawIOBase):
    """A file that only grows, and whose beginning is taken away."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._bytes_count = 0

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:
        self._parts.append(bytes(part))
        self._bytes_count += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._bytes_count

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


class _Parquet:
    """Keeps the rows of a row group."""

    def __init__(self, schema: Schema) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise NoParquet from None
        self._arrow, self._schema = pyarrow, arrow_schema(schema)
        self._sink = _Sink()
        self._writer = parquet.ParquetWriter(self._sink, self._schema, compression="zstd")
        self._rows_max = READS_PER_GROUP * schema.rows_at_once
        self._kept: list[ExportRow] = []

    def rows(self, rows: Sequence[ExportRow]) -> bytes:
        self._kept += rows
        if len(self._kept) >= self._rows_max:
            self._write()
        return self._sink.taken()

    def _write(self) -> None:
        columns = zip(*self._kept, strict=True)
        arrays = [
            self._arrow.array(values, field.type) for field, values in zip(self._schema, columns, strict=True)
        ]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._kept = []

    def end(self) -> bytes:
        if self._kept:
            self._write()
        self._writer.close()
        return self._sink.taken()


def arrow_schema(schema: Schema) -> Any:
    """Return the schema of a Parquet file: with its name and version, and what each column means."""
    import pyarrow as pa

    types = {
        Kind.TEXT: pa.string(),
        Kind.JSON: pa.string(),
        Kind.INT: pa.int64(),
        Kind.REAL: pa.float64(),
        Kind.BOOL: pa.bool_(),
        Kind.TIME: pa.timestamp("ms", tz="UTC"),
    }
    fields = [pa.field(each.name, types[each.kind], metadata=_about_column(each)) for each in schema.columns]
    return pa.schema(fields, metadata={"berth.schema": schema.label})


def _about_column(column: Column) -> dict[str, str]:
    about = {"berth.kind": column.kind.value, "berth.unit": column.unit, "berth.about": column.about}
    return {name: text for name, text in about.items() if text}
