"""The settings as options of commands, and how a command says what is wrong."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Annotated, Any, TypeVar

import typer

from domain.model.errors import BerthError
from services.cli.terminal import echo
from services.config import SETTINGS, Settings

WARNINGS_SHOWN_MAX = 20
CLIENT = ("dir", "api_url", "api_key", "postgres_dsn", "kafka_bootstrap")
"""The settings of a command that talks to the API."""

T = TypeVar("T")


class CommandError(BerthError):
    """A command cannot do its work; the message says what is wrong and what to do."""

    code = "command"


def settings(**flags: str | None) -> Settings:
    """Return the settings of this command: flags over environment over defaults."""
    found = Settings.from_env(None, **flags)
    logging.basicConfig(
        level=found.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s  %(message)s", force=True
    )
    return found


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Give a command an option per named setting. The command gets all settings as its first argument.

    A command that is a coroutine function is run.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(command)
        def called(**given: Any) -> None:
            found = settings(**{name: given.pop(name) for name in names})
            result = command(found, **given)
            if inspect.iscoroutine(result):
                run(result)

        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        added = [
            inspect.Parameter(
                setting.field,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[
                    str | None,
                    typer.Option(
                        *setting.flags,
                        envvar=setting.env,
                        help=setting.help,
                        metavar=setting.metavar,
                        rich_help_panel="Settings",
                    ),
                ],
            )
            for setting in SETTINGS
            if setting.field in names
        ]
        called.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        called.__annotations__ = {}
        return called

    return decorate


def warn(texts: Iterable[str]) -> None:
    """Print the first few warnings on standard error."""
    from services.cli.output import say

    found = list(texts)
    for text in found[:WARNINGS_SHOWN_MAX]:
        say(f"warning: {text}", err=True)
    if (more := len(found) - WARNINGS_SHOWN_MAX) > 0:
        echo(f"warning: and {more:,} more", err=True)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine."""
    return asyncio.run(work)
