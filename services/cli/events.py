"""`berth events`: what is decided and what changes, as it happens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Annotated

import typer

from services.cli.options import CLIENT, check_times, with_settings
from services.cli.output import Column, Json, Table, print_yaml
from services.cli.shapes import print_line
from services.cli.tables import moment
from services.config import Settings
from services.times import TIMES

FORMS = ("table", "wide", "json", "jsonl", "yaml")


def _what(item: Json) -> str:
    data = item["data"]
    if "pod" in data:
        return f"{data['pod']['namespace']}/{data['pod']['name']}"
    return str(data.get("name", f"shard {data.get('shard')}"))


def _said(item: Json) -> str:
    data = item["data"]
    if "outcome" in data:
        return str(data["outcome"])
    if "owner" in data:
        return f"taken by {data['owner']}"
    return "deleted" if data["deleted"] else "cordoned" if data["unschedulable"] else "changed"


def _where_or_why(item: Json) -> str:
    return str(item["data"].get("node") or item["data"].get("reason") or "")


def _at(item: Json) -> Json:
    data = item["data"]
    at = data.get("decided_at") or data.get("spec_changed_at") or data.get("first_batch_at")
    return {**item, "at": at}


COLUMNS = (
    moment("AT", "at"),
    Column("EVENT", lambda item: item["event"], keep=True),
    Column("OF", _what),
    Column("WHAT", _said, keep=True, coloured=True),
    Column("NODE OR WHY", _where_or_why),
    Column("DECISION", lambda item: item["data"].get("id"), wide=True),
    Column("ID", lambda item: item["id"], wide=True, keep=True),
)


def printer(form: str) -> Callable[[Json], None]:
    """Return what prints one event: a row of a table, or a document of its own."""
    if form in ("table", "wide"):
        table = Table(COLUMNS, wide=form == "wide")
        return lambda item: table.add([_at(item)])
    return print_line if form in ("json", "jsonl") else lambda item: print_yaml([item])


@with_settings(*CLIENT)
async def events(
    settings: Settings,
    kinds: Annotated[
        str | None,
        typer.Option("--kinds", help="Only these: decisions, releases, pending, nodes, shards; with commas."),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Only of this namespace.")
    ] = None,
    node: Annotated[str | None, typer.Option("--node", help="Only of this node.")] = None,
    pod: Annotated[str | None, typer.Option("--pod", help="Only about NAMESPACE/NAME.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help=f"Begin at this log time: {TIMES}.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="ID", help="Begin behind the event with this id.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="End after so many.")] = None,
    form: Annotated[
        str, typer.Option("-o", "--output", metavar="FORM", help=f"{', '.join(FORMS)}: one document each.")
    ] = "table",
) -> None:
    """Print what is decided and what changes as it happens, until Ctrl-C."""
    from services.cli.source import open_source
    from services.cli.streaming import follow

    check_times(since=since)
    if form not in FORMS:
        raise typer.BadParameter(f"-o {form}: allowed are {', '.join(FORMS)}")
    if since and after:
        raise typer.BadParameter("--since and --after both say where to begin; leave one out")
    show, shown_count = printer(form), 0
    asked = {"kinds": kinds, "namespace": namespace, "node": node, "pod": pod, "since": since}
    async with (
        open_source(settings) as source,
        contextlib.aclosing(follow(source, after, **asked)) as found,
    ):
        async for seen in found:
            if not seen.kind:
                continue
            show({"id": seen.id, "event": seen.kind, "data": seen.data})
            shown_count += 1
            if shown_count == limit:
                return
