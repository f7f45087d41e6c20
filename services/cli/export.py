"""`berth export`: whole tables for other programs."""

from __future__ import annotations

import codecs
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from berth.client.rows import written_whole
from services.cli.options import CLIENT, CommandError, check_times, with_settings
from services.cli.output import on_terminal
from services.cli.terminal import printable
from services.codec.exported import ExportFormat
from services.config import Settings
from services.ports.exports import What
from services.times import TIMES


def _format_of(form: ExportFormat | None, to: Path | None) -> ExportFormat:
    """Return the format that is named, else that of the file's name, else CSV."""
    if form is not None or to is None:
        return form or ExportFormat.CSV
    suffix = to.suffix.removeprefix(".").replace("jsonl", "ndjson")
    return ExportFormat(suffix) if suffix in list(ExportFormat) else ExportFormat.CSV


@contextlib.contextmanager
def written(to: Path | None) -> Iterator[Callable[[bytes], object]]:
    """Give what writes pieces. A file has its name only once it is whole."""
    if to is None:
        yield _shown() if on_terminal() else sys.stdout.buffer.write
        sys.stdout.flush()
        return
    try:
        with written_whole(to) as write:
            yield write
    except OSError as error:
        raise CommandError(f"{to} cannot be written: {error.strerror or error}") from None


def _shown() -> Callable[[bytes], object]:
    """Return what writes on a terminal: what stands in the rows cannot steer it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda piece: sys.stdout.write(printable(decoder.decode(piece)))


async def _copy(pieces: AsyncIterator[bytes], write: Callable[[bytes], object]) -> None:
    async for piece in pieces:
        write(piece)


@with_settings(*CLIENT)
async def export(
    settings: Settings,
    what: Annotated[str, typer.Argument(metavar="WHAT", help=f"One of {', '.join(What)}.")],
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help=f"Only at or after this time: {TIMES}.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only before this time.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Only rows of this namespace.")
    ] = None,
    form: Annotated[
        ExportFormat | None,
        typer.Option(
            "--format",
            metavar="FORM",
            help="csv, ndjson or parquet; without it as the name of --to ends, or csv.",
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Write it there, not on standard output.")
    ] = None,
) -> None:
    """Export decisions, attempts, placements, nodes or configuration as CSV, JSON lines or Parquet.

    All rows are of one moment. docs/export.md says what the columns mean.
    """
    from services.cli.source import open_source, target

    if what not in list(What):
        raise typer.BadParameter(f"{what!r} cannot be exported; allowed are {', '.join(What)}")
    check_times(since=since, until=until)
    written_as = _format_of(form, to)
    if written_as is ExportFormat.PARQUET and to is None and on_terminal():
        raise typer.BadParameter("parquet is nothing for a terminal; name a file with --to")
    asked = {"format": written_as.value, "since": since, "until": until, "namespace": namespace}
    async with open_source(settings) as source, source.stream(target("/v1/export", what, **asked)) as pieces:
        with written(to) as write:
            await _copy(pieces, write)
