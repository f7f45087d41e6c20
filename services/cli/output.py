"""How answers are shown: a table on a terminal, tab-separated in a pipe, or JSON and YAML for programs."""

from __future__ import annotations

import datetime
import enum
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from services.cli.terminal import echo

if TYPE_CHECKING:
    from rich.console import Console

Json = dict[str, Any]
GAP = 2
WORD_MIN = 8
STYLES = {
    "bound": "green",
    "adopted": "green",
    "returned": "green",
    "resized": "cyan",
    "ready": "green",
    "starting": "yellow",
    "silent": "red",
    "stopped": "bright_black",
    "Ready": "green",
    "pending": "yellow",
    "unschedulable": "yellow",
    "gang-waiting": "yellow",
    "conflict": "yellow",
    "bind-failed": "yellow",
    "nominated": "yellow",
    "cleared": "yellow",
    "evicted": "red",
    "spared": "green",
    "cordoned": "yellow",
    "unresolvable": "red",
    "orphaned": "red",
    "overcommitted": "red",
    "NotReady": "red",
    "released": "bright_black",
    "deleted": "bright_black",
}
"""The colours of outcomes, phases and states of a node."""


class Format(enum.StrEnum):
    """What `-o` takes."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[Format, typer.Option("-o", "--output", help="How to show it.")]


class Column(NamedTuple):
    """A column: its title, how to read it from an item, and how it is shown."""

    title: str
    read: Callable[[Json], object]
    wide: bool = False  # only `-o wide` shows it
    right: bool = False
    lines: Callable[[Json], list[str]] | None = None  # instead of ``read``, for a person with little room
    keep: bool = False  # never shortened, as ids, times and search words; numbers never are either
    coloured: bool = False  # by ``STYLES``
    paths: bool = False  # of fields: one that is too long goes on in the next line, behind a dot


def on_terminal() -> bool:
    """Return whether a person is likely to read standard output."""
    return sys.stdout.isatty()


def short_time(text: str | None) -> str:
    """Return the time of day if it is today, the day and the time if it is this year, else the date."""
    if text is None:
        return "-"
    now = datetime.datetime.now(datetime.UTC).date().isoformat()
    if text[:10] == now:
        return f"{text[11:19]}Z"
    return f"{text[5:10]} {text[11:16]}Z" if text[:4] == now[:4] else text[:10]


def cell(value: object) -> str:
    """Return a value on one line."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def shortened(text: str, width: int) -> str:
    """Return a text with an ellipsis inside where it is too long; names differ most at their end."""
    if len(text) <= width:
        return text
    head = (width - 1) // 3
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def wrapped(text: str, width: int, *, paths: bool = False) -> list[str]:
    """Return lines that break no word. One that is too long breaks behind its commas, as codes have them.

    With ``paths`` it then breaks behind its dots. What is still too long is shortened in its middle.
    """
    fitting = (word if len(word) <= width else word.replace(",", ", ") for word in text.split(" "))
    parts = (part for each in fitting for word in each.split(" ") for part in _parts(word, width, paths))
    words = " ".join(shortened(part, width) for part in parts)
    return textwrap.wrap(words, width, break_long_words=False, break_on_hyphens=False) or [""]


def _parts(word: str, width: int, paths: bool) -> list[str]:
    """Return a path of fields in parts as long as fit, where it does not fit itself; else the word."""
    if not paths or len(word) <= width:
        return [word]
    parts = [""]
    for step in re.findall(r"[^.]*\.|[^.]+$", word):
        if parts[-1] and len(parts[-1]) + len(step) > width:
            parts.append("")
        parts[-1] += step
    return parts


def say(text: str, *, err: bool = False) -> None:
    """Print sentences. On a terminal a line breaks between words."""
    if (sys.stderr if err else sys.stdout).isatty():
        width = shutil.get_terminal_size().columns
        lines = [
            textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
            for line in text.split("\n")
        ]
        text = "\n".join(lines)
    echo(text, err=err)


class Table:
    """A table that is printed piece by piece under one header, tab-separated where it is not ``aligned``.

    It fits the terminal if it can: texts wrap between words, and texts that are still too wide are shortened
    in their middle. With ``wide`` nothing is shortened.
    """

    def __init__(
        self, columns: Sequence[Column], *, wide: bool = False, aligned: bool | None = None, indent: int = 0
    ) -> None:
        self._columns = [column for column in columns if wide or not column.wide]
        self._wide = wide
        self._aligned = on_terminal() if aligned is None else aligned
        self._indent = indent
        self._started = False
        titles = [len(column.title) for column in self._columns]
        self._needed, self._words = list(titles), list(titles)  # widths: of all, of the longest word
        self._least = [max(title, WORD_MIN) for title in titles]

    def add(self, items: Sequence[Json]) -> None:
        """Print items; the columns are as wide as all items so far need."""
        header, self._started = not self._started, True
        if not self._aligned:
            lines = ["\t".join(cell(column.read(item)) for column in self._columns) for item in items]
            for line in ["\t".join(column.title for column in self._columns)] * header + lines:
                echo(line)
            return
        from rich.console import Console

        console = Console(highlight=False)
        rows = [[self._lines(column, item) for column in self._columns] for item in items]
        for row in rows:
            for at, lines in enumerate(row):
                self._needed[at] = max(self._needed[at], *map(len, lines))
                self._words[at] = max(self._words[at], *map(len, " ".join(lines).split()))
        widths = self._needed if self._wide else self._widths(console.width - self._indent)
        if header:
            self._print(console, [[column.title] for column in self._columns], widths, "bold")
        for row in rows:
            self._print(console, row, widths)

    def _lines(self, column: Column, item: Json) -> list[str]:
        if column.lines is None or self._wide:
            return [cell(column.read(item))]
        return [cell(line) for line in column.lines(item)] or ["-"]

    def _widths(self, room: int) -> list[int]:
        """Return widths that fit. Texts shrink first, down to their longest word, then names."""
        widths = list(self._needed)
        excess = sum(widths) + GAP * (len(widths) - 1) - room
        loose = [at for at, column in enumerate(self._columns) if not (column.right or column.keep)]
        for least in (self._words, self._least):
            while excess > 0 and (able := [at for at in loose if widths[at] > least[at]]):
                widths[max(able, key=widths.__getitem__)] -= 1
                excess -= 1
        return widths

    def _print(self, console: Console, row: list[list[str]], widths: list[int], style: str = "") -> None:
        from rich.text import Text

        cells = [
            lines
            if self._wide
            else [part for line in lines for part in wrapped(line, width, paths=column.paths)]
            for column, lines, width in zip(self._columns, row, widths, strict=True)
        ]
        for height in range(max(map(len, cells))):
            line = Text(" " * self._indent, style)
            for column, lines, width in zip(self._columns, cells, widths, strict=True):
                text = lines[height] if height < len(lines) else ""
                padding = " " * (width - len(text))
                line.append(padding if column.right else "")
                for word in re.split(r"([\w-]+)", text):
                    line.append(word, STYLES.get(word) if column.coloured else None)
                line.append(" " * GAP if column.right else padding + " " * GAP)
            line.rstrip()
            console.print(line, soft_wrap=True)


def print_table(title: str, columns: Sequence[Column], items: Sequence[Json], *, wide: bool = False) -> None:
    """Print items as a table on a terminal, else one tab-separated line each after a header."""
    if items or not on_terminal():
        Table(columns, wide=wide).add(items)
    else:
        echo(f"no {title}")


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    import orjson

    echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def print_yaml(value: object) -> None:
    """Print a value as YAML."""
    import yaml

    echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110).rstrip())


def print_value(value: object, form: Format) -> None:
    """Print a value as JSON or YAML."""
    (print_json if form is Format.JSON else print_yaml)(value)


def print_items(title: str, columns: Sequence[Column], items: Sequence[Json], form: Format) -> None:
    """Print a list in the wanted form."""
    if form in (Format.JSON, Format.YAML):
        print_value(list(items), form)
    else:
        print_table(title, columns, items, wide=form is Format.WIDE)
