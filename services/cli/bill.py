"""`berth bill`: what pods used, what it cost and what was saved."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli import output
from services.cli.options import CLIENT, check_times, with_settings
from services.cli.output import Column, Format, Output, say
from services.config import Settings
from services.ports.bills import BillBy
from services.times import TIMES

TOTAL = "total"


def _number(title: str, name: str, *, wide: bool = False) -> Column:
    """Return a column of numbers: for a person without the digits that are of no interest."""
    return Column(
        title,
        lambda item: f"{item[name]:.6f}",
        wide=wide,
        right=True,
        lines=lambda item: [f"{item[name]:,.{0 if item[name] >= 1_000 else 3}f}"],
    )


def columns(by: str) -> tuple[Column, ...]:
    """Return the columns of a bill by namespace, quality or day."""
    return (
        Column(by.upper(), lambda item: item["name"]),
        _number("CORE HOURS", "cpu_core_hours"),
        _number("LENT", "lent_cpu_core_hours"),
        _number("GIB HOURS", "memory_gib_hours"),
        _number("LENT GIB", "lent_memory_gib_hours", wide=True),
        _number("BILLED", "billed"),
        _number("SAVED", "saved"),
    )


@with_settings(*CLIENT)
async def bill(
    settings: Settings,
    by: Annotated[BillBy, typer.Option("--by", help="A line for each of these.")] = BillBy.NAMESPACE,
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Only what pods of this namespace used.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help=f"From the hour of this time on: {TIMES}.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only hours that begin before this time.")
    ] = None,
    form: Output = Format.TABLE,
) -> None:
    """Bill what pods used: how much, how much of it was lent, what it costs and what was saved."""
    from berth.client.requests import PAGE
    from services.cli.source import fetch, open_source, target

    check_times(since=since, until=until)
    asked = {"by": by.value, "namespace": namespace, "since": since, "until": until}
    async with open_source(settings) as source:
        found = await fetch(source, target("/v1/bill", limit=PAGE, **asked))
        following = found.pop("next", None)
        while following:
            page = await fetch(source, target("/v1/bill", limit=PAGE, cursor=following, **asked))
            found["items"] += page["items"]
            following = page["next"]
    if form in (Format.JSON, Format.YAML):
        output.print_value(found, form)
    elif found["items"]:
        items = [*found["items"], {"name": TOTAL} | found["total"]]
        output.print_items("bill", columns(by), items, form)
    else:
        say(
            "nothing is billed; what pods used is told by `berth agent`, or by a NodeUsage "
            "with `quality` and `pods`"
        )
