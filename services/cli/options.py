"""The settings as options of commands, and how a command says what is wrong."""

from __future__ import annotations

import asyncio
import datetime
import functools
import inspect
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Annotated, Any, TypeVar

import typer

from domain.model.errors import BerthError, FieldError
from services.cli.terminal import echo
from services.config import SETTINGS, Setting, Settings, unknown_variables
from services.log_format import formatter
from services.times import as_of, moment_ms

WARNINGS_SHOWN_MAX = 20
ERRORS_SHOWN_MAX = 20
_KAFKA = tuple(setting.field for setting in SETTINGS if setting.field.startswith("kafka_"))
PLACE = (*_KAFKA, "postgres_dsn", "postgres_password", "dir", "log_level", "log_format")
"""The settings of a command that opens the ledger and the log."""

CLIENT = ("dir", "api_url", "api_key", "api_ca", "postgres_dsn", "postgres_password", *_KAFKA)
"""The settings of a command that talks to the API."""

SETTINGS_PANEL = "Settings"
FIRST_SETTINGS = ("dir", "api_url", "api_host", "api_port", "postgres_dsn", "kafka_bootstrap", "shards")
"""The settings that `--help` shows; `--help-all` shows the others too."""

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class CommandError(BerthError):
    """A command cannot do its work; the message says what is wrong and what to do."""

    code = "command"


def settings(**flags: str | None) -> Settings:
    """Return the settings of this command: flags over environment over defaults."""
    logging.basicConfig(format="warning: %(message)s", force=True)  # while the settings are read
    found = Settings.from_env(None, **flags)
    warn(unknown_variables(os.environ))
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(found.log_format))
    logging.basicConfig(level=found.log_level.upper(), handlers=[handler], force=True)
    return found


def with_settings(*names: str) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Give a command an option per named setting. The command gets all settings as its first argument.

    A command that is a coroutine function is run.
    """

    options = [option for setting in SETTINGS if setting.field in names for option in _options(setting)]

    def decorate(command: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(command)
        def called(**given: Any) -> None:
            given.pop(HELP_ALL.name)
            found = settings(**{option.name: given.pop(option.name) for option in options})
            result = command(found, **given)
            if inspect.iscoroutine(result):
                run(result)

        flowing(called)
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        called.__signature__ = inspect.Signature([*own, *options, HELP_ALL])  # type: ignore[attr-defined]
        called.__annotations__ = {}
        return called

    return decorate


def show_help(context: typer.Context) -> None:
    """Print the help of a command, with the settings that `--help` leaves out, and end."""
    for parameter in context.command.params:
        if getattr(parameter, "rich_help_panel", None) == SETTINGS_PANEL:
            parameter.hidden = False  # type: ignore[attr-defined]
    context.get_help()  # Typer prints it
    raise typer.Exit


def _help_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        show_help(context)


HELP_ALL = inspect.Parameter(
    "help_all",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option("--help-all", callback=_help_all, is_eager=True, help="Show this and all settings."),
    ],
)


def flowing(command: F) -> F:
    """Let the help of a command break lines where the terminal ends, not where the source does."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    return command


def _options(setting: Setting) -> Iterator[inspect.Parameter]:
    """Yield the options of a setting. Its variables are read by ``Settings``, which tells them from flags."""
    named = [(setting.field, setting.flags, setting.env, setting.help, setting.metavar)]
    if setting.file_flag and setting.env_file:
        about = f"File with the value of {setting.env}."
        named.append((f"{setting.field}_file", (setting.file_flag,), setting.env_file, about, "FILE"))
    for name, flags, variable, about, metavar in named:
        if not flags:
            continue
        option = typer.Option(
            *flags,
            help=f"{about} (env: {variable})",
            metavar=metavar,
            rich_help_panel=SETTINGS_PANEL,
            hidden=setting.field not in FIRST_SETTINGS or name != setting.field,
        )
        annotation = Annotated[str | None, option]
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def warn(texts: Iterable[str]) -> None:
    """Print the first few warnings on standard error."""
    from services.cli.output import say

    found = list(texts)
    for text in found[:WARNINGS_SHOWN_MAX]:
        say(f"warning: {text}", err=True)
    if (more := len(found) - WARNINGS_SHOWN_MAX) > 0:
        echo(f"warning: and {more:,} more", err=True)


def check_times(**given: str | None) -> None:
    """Refuse what is no time before anything is asked; the API that answers reads it, by its own clock."""
    for name, text in given.items():
        if text is not None:
            try:
                moment_ms(f"--{name}", text)
            except FieldError as error:
                raise typer.BadParameter(str(error)) from None


def moment_of(text: str | None, path: str = "--at") -> str | None:
    """Return a moment of the past as the API takes it; an age becomes a time, one for all pages of a list.

    ``path`` is where the text stands, for the error.
    """
    if text is None:
        return None
    try:
        found = as_of(path, text)
    except FieldError as error:
        raise typer.BadParameter(str(error)) from None
    if isinstance(found, int):
        return datetime.datetime.fromtimestamp(found / 1000, datetime.UTC).isoformat(timespec="milliseconds")
    return f"batch:{found.shard}:{found.batch}"


def some(wrong: list[str]) -> list[str]:
    """Return the first few errors, and how many more there are."""
    more = len(wrong) - ERRORS_SHOWN_MAX
    return wrong[:ERRORS_SHOWN_MAX] + ([f"and {more} more"] if more > 0 else [])


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine."""
    return asyncio.run(work)
