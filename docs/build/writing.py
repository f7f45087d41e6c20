"""Writes a generated page, or checks that it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path


def write_or_check(page: Path, text: str, arguments: list[str], *, source: str, command: str) -> int:
    """Write the text; with ``--check`` write nothing, and return 1 where the page holds another text."""
    if arguments == ["--check"]:
        if page.exists() and page.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write(f"{page.name} is not what {source}; run `{command}`\n")
        return 1
    page.write_text(text, encoding="utf-8")
    return 0
