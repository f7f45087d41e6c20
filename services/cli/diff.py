"""`berth diff`: what differs between two moments."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from services.cli import output
from services.cli.options import CLIENT, moment_of, with_settings
from services.cli.output import Column, Format, Json, Output, Table, say
from services.cli.tables import TABLES, moment
from services.cli.terminal import echo
from services.config import Settings
from services.phrases import plural
from services.times import MOMENTS

PODS = (
    Column("CHANGE", lambda item: item["change"], keep=True),
    Column("POD", lambda item: f"{item['namespace']}/{item['name']}"),
    Column("BEFORE", lambda item: item["before"]),
    Column("AFTER", lambda item: item["after"]),
    Column("UID", lambda item: item["uid"], wide=True),
)
NODES = (
    Column("CHANGE", lambda item: item["change"], keep=True),
    Column("NODE", lambda item: item["name"]),
    Column("FIELDS", lambda item: "; ".join(_field(name, each) for name, each in item["fields"].items())),
)
TOTALS = (moment("AT", "at"), *(column for column in TABLES["totals"] if column.title != "AT"))


@with_settings(*CLIENT)
async def diff(
    settings: Settings,
    begin: Annotated[str, typer.Argument(metavar="FROM", help=f"The first moment: {MOMENTS}.")],
    until: Annotated[
        str, typer.Argument(metavar="[UNTIL]", help="The second moment; without it, now.")
    ] = "now",
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Only pods of this namespace.")
    ] = None,
    form: Output = Format.TABLE,
) -> None:
    """Say what differs between two moments: nodes that came, went or changed, pods that moved, totals."""
    from services.cli.source import fetch, open_source, target

    asked = {"from": moment_of(begin, "FROM"), "until": moment_of(until, "UNTIL"), "namespace": namespace}
    async with open_source(settings) as source:
        found = await fetch(source, target("/v1/diff", **asked))
    if form in (Format.JSON, Format.YAML):
        output.print_value(found, form)
    else:
        _print(found, is_wide=form is Format.WIDE)


def _print(found: Json, *, is_wide: bool) -> None:
    pods, nodes = (Counter(each["change"] for each in found[of]) for of in ("pods", "nodes"))
    told = [f"{count:,} {change}" for change, count in sorted(pods.items())]
    told += [f"{plural(count, 'node')} {change}" for change, count in sorted(nodes.items())]
    what = ", ".join(told) or "nothing"
    say(f"From {found['from'] or 'the beginning'} to {found['until'] or 'the beginning'}: {what}.")
    if found["more"]:
        say("There is more than is shown: ask for a shorter time, or for a namespace.")
    for title, columns, rows in (("node", NODES, found["nodes"]), ("pod", PODS, _ordered(found["pods"]))):
        if rows:
            echo(f"\n{plural(len(rows), title)}")
            Table(columns, aligned=True, indent=2, wide=is_wide).add(rows)
    echo("\nTotals")
    Table(TOTALS, aligned=True, indent=2, wide=is_wide).add([found["before"], found["after"]])


def _ordered(pods: list[Json]) -> list[Json]:
    return sorted(pods, key=lambda each: (each["change"], each["namespace"], each["name"]))


def _field(name: str, change: Any) -> str:
    return f"{name}: {change['before']} -> {change['after']}"
