"""Reads the files of traces that do not come with berth."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

from services.traces.openb import TraceError


def lines_of(folder: Path | None, name: str) -> Iterator[str]:
    """Yield the lines of a file that lies in a folder, or in a folder directly in it; ``.gz`` is read, too.

    Raises
    ------
    TraceError
        The file is not there or cannot be read.
    """
    if folder is None:
        raise TraceError(f"the trace does not come with berth: name the folder with {name} by --data")
    found = [
        path
        for each in (name, f"{name}.gz")
        for pattern in (each, f"*/{each}")
        for path in folder.glob(pattern)
    ]
    if not found:
        raise TraceError(f"{name} (or {name}.gz) is neither in {folder} nor in a folder of it")
    try:
        with gzip.open(found[0], "rt") if found[0].suffix == ".gz" else found[0].open() as lines:
            for line in lines:
                yield line.rstrip("\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TraceError(f"{found[0]} does not read: {error}") from None


def unreadable(name: str, number: int, error: Exception) -> TraceError:
    """Return what is wrong with a line of a file."""
    return TraceError(f"{name}, line {number} does not read: {error!r}")
