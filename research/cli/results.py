"""What a command leaves in a folder of results: figures, and a manifest that says how they came about."""

from __future__ import annotations

import csv
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
_LIBRARIES = ("numpy", "numba", "scipy", "matplotlib")


def write_table(path: Path, titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write figures, a line a row; numbers with all digits, columns with the names that tables show."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(titles)
        lines.writerows([repr(cell) if isinstance(cell, float) else cell for cell in row] for row in rows)


def write_manifest(
    folders: Iterable[Path | None], command: str, seeds: Sequence[int], settings: Mapping[str, Any]
) -> None:
    """Say in each folder which build, seeds and settings gave its files; equal runs give equal bytes."""
    from services.build import build

    made = {
        "command": command,
        "berth": build(),
        "python": platform.python_version(),
        "libraries": {name: found for name in _LIBRARIES if (found := _version(name))},
        "seeds": list(seeds),
        "settings": dict(settings),
    }
    for folder in {each for each in folders if each is not None}:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).write_text(json.dumps(made, indent=2) + "\n")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
