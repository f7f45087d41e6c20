"""Reads the commands of README.md and docs/*.md out of their blocks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parent.parent.parent
PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md")))
PROGRAMS = (
    "berth",
    "cat",
    "cp",
    "curl",
    "docker",
    "export",
    "helm",
    "kubectl",
    "make",
    "psql",
    "python",
    "sed",
)
_SHELLS = ("", "sh", "bash", "console")


class Command(NamedTuple):
    """A command as a page prints it, with its page and line."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def blocks(text: str) -> Iterator[tuple[int, bool, list[str]]]:
    """Yield the first line, whether it shows prompts, and the lines of each block of commands."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if fence := re.fullmatch(r" *```(\w*)", lines[at]):
            end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "```")
            if fence[1] in _SHELLS:
                yield at + 2, fence[1] == "console", lines[at + 1 : end]
            at = end + 1
        elif lines[at].startswith("    ") and (at == 0 or not lines[at - 1].strip()):
            end = at
            while end < len(lines) and lines[end].startswith("    "):
                end += 1
            yield at + 1, False, [line[4:] for line in lines[at:end]]
            at = end
        else:
            at += 1


def commands_of(page: Path) -> Iterator[Command]:
    """Yield the commands of a page. One that a line does not end goes on in the next."""
    for first, prompts, lines in blocks(page.read_text()):
        at = 0
        while at < len(lines):
            line, began = lines[at], at
            at += 1
            text = line[2:] if prompts and line.startswith("$ ") else line
            if (prompts and not line.startswith("$ ")) or text.split(" ", 1)[0] not in PROGRAMS:
                continue
            while _goes_on(text) and at < len(lines):
                text += "\n" + lines[at]
                at += 1
            yield Command(str(page.relative_to(REPOSITORY)), first + began, text)


def _goes_on(text: str) -> bool:
    here = re.search(r"<<'(\w+)'", text)
    if here is not None:
        return text.split("\n")[-1] != here[1]
    if text.endswith("\\"):
        return True
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True  # a quotation is open
    return False


def all_commands() -> list[Command]:
    """Return the commands of all pages."""
    return [command for page in PAGES for command in commands_of(page)]
