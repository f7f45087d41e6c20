"""What other packages register: commands beside the product's own, and packers of traces for `optimise`.

A package names them in the entry points of its distribution. The product knows none of these packages: it
offers those that are installed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, MutableMapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

import typer

COMMANDS = "berth.commands"
"""The group of commands: name = a function, or a ``typer.Typer`` with commands of its own."""

TRACES = "berth.traces"
"""The group of traces that `berth optimise --trace` packs: name = a function of a folder."""


def registered(group: str) -> dict[str, EntryPoint]:
    """Return what is registered in a group, by name; without what names a package that was left out."""
    found = sorted(entry_points(group=group), key=lambda each: each.name)
    return {each.name: each for each in found if find_spec(each.module.partition(".")[0]) is not None}


class Commands(MutableMapping[str, Any]):
    """The commands of the product, then the registered ones; one of these is imported when it is looked up.

    Of two commands with one name the product's own counts.
    """

    def __init__(self, own: Mapping[str, Any], panel: str) -> None:
        self._commands = dict(own)
        self._panel = panel

    @functools.cached_property
    def _registered(self) -> dict[str, EntryPoint]:
        return registered(COMMANDS)

    def __getitem__(self, name: str) -> Any:
        if name not in self._commands:
            return _command(name, self._registered[name].load(), self._panel)
        return self._commands[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._commands
        yield from (name for name in self._registered if name not in self._commands)

    def __len__(self) -> int:
        return len(self._commands.keys() | self._registered.keys())


def _command(name: str, value: Any, panel: str) -> Any:
    """Return what is registered as a command; its help is listed in a panel."""
    holder = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False)
    if isinstance(value, typer.Typer):
        holder.add_typer(value, name=name, rich_help_panel=panel)
    else:
        holder.command(name, rich_help_panel=panel)(value)
    return typer.main.get_group(holder).commands[name]
