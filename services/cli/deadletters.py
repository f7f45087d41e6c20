"""`berth deadletters`: list, show and send again what could not be accepted."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from services.cli import output
from services.cli.options import CLIENT, with_settings
from services.cli.output import Format, Output
from services.cli.tables import TABLES
from services.cli.terminal import echo
from services.config import Settings

app = typer.Typer(
    help="List, show and send again records that could not be accepted.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
_PATH = "/v1/deadletters"
Id = Annotated[str, typer.Argument(metavar="ID", help="Its id, SHARD-SEQ, as the list shows it.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many; all without it.")]


@app.command("list")
@with_settings(*CLIENT)
async def list_(settings: Settings, limit: Limit = None, form: Output = Format.TABLE) -> None:
    """List dead letters, as `berth get deadletters` does."""
    from services.cli.source import fetch_all, open_source

    async with open_source(settings) as source:
        found = await fetch_all(source, _PATH, limit)
    output.print_items("deadletters", TABLES["deadletters"], found, form)


@app.command("show")
@with_settings(*CLIENT)
async def show(settings: Settings, letter: Id, form: Output = Format.YAML) -> None:
    """Show a dead letter whole."""
    from services.cli.source import fetch, open_source, target

    async with open_source(settings) as source:
        found = dict(await fetch(source, target(_PATH, letter)))
    if form in (Format.JSON, Format.YAML):
        output.print_value(found, form)
    else:
        output.print_items("deadletters", TABLES["deadletters"], [found], form)


@app.command("resend")
@with_settings(*CLIENT)
async def resend(
    settings: Settings,
    letters: Annotated[list[str], typer.Argument(metavar="ID…", help="Their ids, SHARD-SEQ.")],
) -> None:
    """Send the events of dead letters again, as the log has them, in your name and by your rights."""
    from services.cli.source import answer_of, open_source, target

    async with open_source(settings) as source:
        for letter in letters:
            answer_of(*await source.request("POST", target(f"{_PATH}/{letter}/resend"), orjson.dumps({})))
            echo(f"{letter}: sent again")
