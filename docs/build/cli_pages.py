"""Writes docs/cli-reference.md from the commands and settings: `python -m docs.build.cli_pages [--check]`."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import typer
from rich.text import Text

from docs.build.writing import write_or_check
from services.cli.main import app
from services.cli.options import SETTINGS_PANEL
from services.config import SETTINGS, Setting

PAGE = Path(__file__).parent.parent / "cli-reference.md"
COMMAND = "python -m docs.build.cli_pages"
ON_EVERY_COMMAND = ("help", "help_all")
OF_THE_SHELL = ("install_completion", "show_completion")
"""Options of Typer, whose help names the shell in which it runs: the page is the same everywhere."""

_TYPES = {bool: "flag", int: "integer", float: "number", str: "text", Path: "path"}
_HEAD = f"""# Reference of the commands

Made from the commands by `{COMMAND}`; edit those, not this page. [The command
line](cli.md) is the guide, with examples and their output.

Each command takes `-h` or `--help`, and those with settings `--help-all`, which shows all of them. What is in
`[…]` may be left out, and `…` stands for more of the same. An option that can be repeated is given once for
each value.

`berth --install-completion` makes the shell complete commands and options, and `berth --show-completion`
prints what that would add.
"""


def page() -> str:
    """Return the whole page."""
    sections = ["\n\n".join(_section(name, command)) for name, command in commands()]
    return "\n\n".join([_HEAD.rstrip(), *sections, "\n\n".join(_settings())]) + "\n"


def commands() -> Iterator[tuple[str, Any]]:
    """Yield all commands with their full names, each group before what is in it."""

    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield name, command
        for part, found in getattr(command, "commands", {}).items():
            yield from walk(f"{name} {part}", found)

    return walk("berth", typer.main.get_command(app))


def _section(name: str, command: Any) -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and _is_own(each)]
    settings = [each for each in command.params if getattr(each, "rich_help_panel", None) == SETTINGS_PANEL]
    parts = getattr(command, "commands", {})
    yield f"## {name}"
    yield sentence(command.help)
    words = [name, "[OPTIONS]", *map(_argument, arguments), *(["COMMAND"] if parts else [])]
    yield f"Usage: `{' '.join(words)}`"
    if parts:
        listed = (f"[{part}](#{f'{name} {part}'.replace(' ', '-')})" for part in parts)
        yield f"Commands: {', '.join(listed)}"
    if arguments:
        rows = ((f"`{_named(each)}`", _type(each), _plain(each.help)) for each in arguments)
        yield _table(("argument", "type", "what it is"), rows)
    if options:
        shown = ((_flags(each), _type(each), _default(each), _plain(each.help)) for each in options)
        yield _table(("option", "type", "default", "what it does"), shown)
    if settings:
        flags = ", ".join(f"`{each.opts[0]}`" for each in settings)
        yield f"[Settings](#settings): {flags}"


def _is_own(option: Any) -> bool:
    """Return whether an option is of one command alone, and no setting."""
    name, panel = option.name, option.rich_help_panel
    return name not in (*ON_EVERY_COMMAND, *OF_THE_SHELL) and panel != SETTINGS_PANEL and not option.hidden


def _settings() -> Iterator[str]:
    yield "## Settings"
    yield (
        "Each is a variable of the environment and, but for secrets, an option of the commands that name it\n"
        "above; the option wins. A variable that ends in `_FILE` names a file with the value."
    )
    rows = (
        (", ".join(_ways(each)), each.metavar, _code(each.default), _plain(each.help)) for each in SETTINGS
    )
    yield _table(("setting", "value", "default", "what it does"), rows)


def _ways(setting: Setting) -> Iterator[str]:
    """Yield the names by which a setting is given."""
    for name in (*setting.flags, setting.file_flag, setting.env, setting.env_file):
        if name:
            yield f"`{name}`"


def sentence(text: str) -> str:
    """Return the first sentence of a help text."""
    first, end, _ = _plain(text.split("\n\n")[0]).partition(". ")
    return first + end.strip()


def _plain(text: str) -> str:
    """Return a help text without its colours, as one line."""
    return " ".join(Text.from_markup(text).plain.split())


def _argument(argument: Any) -> str:
    name = _named(argument)
    return name if argument.required else f"[{name}]"


def _named(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return f"{name}…" if argument.nargs == -1 and not name.endswith("…") else name


def _flags(option: Any) -> str:
    *others, last = option.opts
    value = f" {option.metavar}" if option.metavar else ""
    return ", ".join((*(f"`{each}`" for each in others), f"`{last}{value}`"))


def _type(param: Any) -> str:
    """Return what a value may be: its choices, or its type with the least and the greatest value."""
    annotation = param.type_descriptor.annotation
    of = next(iter(get_args(annotation)), annotation)
    if issubclass(of, enum.Enum):
        said = ", ".join(f"`{each.value}`" for each in of)
    else:
        said = _TYPES[of] + _limits(param.min, param.max)
    return f"{said}; can be repeated" if param.multiple else said


def _limits(least: float | None, most: float | None) -> str:
    if most is not None:
        return f", {least} to {most}"
    return "" if least is None else f", {least} or more"


def _default(option: Any) -> str:
    if option.required:
        return "required"
    value = option.default
    return "" if value is None or value is False else _code(value)


def _code(value: object) -> str:
    text = (
        value.value if isinstance(value, enum.Enum) else f"{value:g}" if isinstance(value, float) else value
    )
    return f"`{text}`" if text != "" else ""


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    escaped = (tuple(cell.replace("|", r"\|") for cell in row) for row in rows)
    lines = [titles, ("---",) * len(titles), *escaped]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: list[str]) -> int:
    """Write the page; with ``--check`` only say whether it is as the commands are."""
    return write_or_check(PAGE, page(), arguments, source="the commands say", command=COMMAND)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
