"""`berth accesses`: who asked the API for what."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli import output
from services.cli.options import CLIENT, check_times, with_settings
from services.cli.output import Column, Format, Json, Output
from services.cli.tables import moment
from services.config import Settings
from services.times import TIMES


def _spans(item: Json) -> str:
    parts = (f"{at['topic']}/{at['partition']}:{at['first']}-{at['last']}" for at in item["positions"])
    return " ".join(parts)


COLUMNS = (
    moment("AT", "at"),
    Column("CALLER", lambda item: item["caller"] or "nobody"),
    Column("FROM", lambda item: item["address"]),
    Column("ASKED", lambda item: f"{item['method']} {item['target'] or item['route']}".strip()),
    Column("OUTCOME", lambda item: f"{item['status']} {item['code']}".strip()),
    Column("TIMES", lambda item: item["times"], right=True, keep=True),
    moment("LAST AT", "last_at", wide=True),
    Column("ROLES", lambda item: " ".join(item["roles"]), wide=True),
    Column("ROUTE", lambda item: item["route"], wide=True),
    Column("EVENTS", lambda item: item["events"], wide=True, right=True),
    Column("POSITIONS", _spans, wide=True),
    Column("SLOWEST MS", lambda item: item["duration_ms"], wide=True, right=True),
)


def latest_first(found: list[Json]) -> list[Json]:
    """Sort requests by time. The API sorts by the minute alone, as its pages need it."""
    return sorted(found, key=lambda item: str(item["at"]), reverse=True)


@with_settings(*CLIENT)
async def accesses(
    settings: Settings,
    key: Annotated[str | None, typer.Option("--key", help="Only with the keys of this name.")] = None,
    status: Annotated[
        int | None,
        typer.Option("--status", min=0, max=599, help="Only with this one; 401: failed logins."),
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help=f"At or after this time: {TIMES}.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Before this time.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 100,
    form: Output = Format.TABLE,
) -> None:
    """List who asked the API for what, the latest first; failed logins too."""
    from services.cli.source import fetch_all, open_source

    check_times(since=since, until=until)
    async with open_source(settings) as source:
        found = await fetch_all(
            source, "/v1/accesses", limit, key=key, status=status, since=since, until=until
        )
    output.print_items("requests", COLUMNS, latest_first(found), form)
