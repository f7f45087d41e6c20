"""`berth history`: all that happened to a pod, a node, a shard or a profile, in one order."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.get import split_pod
from services.cli.options import CLIENT, with_settings
from services.cli.output import Column, Format, Json, Output, print_items, print_value
from services.cli.tables import moment
from services.cli.terminal import echo
from services.config import Settings

KINDS = {
    "pod": ("pods", "pod", "po"),
    "node": ("nodes", "node", "no"),
    "shard": ("shards", "shard"),
    "profile": ("profiles", "profile", "prof"),
}
PAGE = 1000

COLUMNS = (
    moment("AT", "at"),
    Column("WHAT", lambda item: _what(item), keep=True, coloured=True),
    Column("ID", lambda item: item["id"], keep=True),
    Column("SAYS", lambda item: item["says"]),
    moment("RECORDED", "recorded_at", wide=True),
    Column("LINKS", lambda item: " ".join(f"{of}={to}" for of, to in item["links"].items()), wide=True),
)


def _what(item: Json) -> str:
    return str(item["decision"]["outcome"] if item["decision"] else item["kind"])


def kind_of(text: str) -> str:
    """Return the plural by which the API knows a kind."""
    for plural, *others in KINDS.values():
        if text.lower() in (plural, *others):
            return plural
    raise typer.BadParameter(f"{text!r} has no history; allowed are {', '.join(KINDS)}")


@with_settings(*CLIENT)
async def history(
    settings: Settings,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="pod, node, shard or profile.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name, NAMESPACE/NAME, or a shard's number.")],
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="The namespace of the pod.")
    ] = None,
    newest: Annotated[bool, typer.Option("--newest", help="The latest first.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="At most so many; all without it.")
    ] = None,
    form: Output = Format.TABLE,
) -> None:
    """Tell what happened to a pod, a node, a shard or a profile, and what made room for a pod that waited."""
    from services.cli.source import fetch, open_source, target

    plural = kind_of(kind)
    names = split_pod(name, namespace) if plural == "pods" else (name,)
    items: list[Json] = []
    page: Json = {"next": None}
    first: Json | None = None
    async with open_source(settings) as source:
        while first is None or (page["next"] and (limit is None or len(items) < limit)):
            wanted = PAGE if limit is None else min(PAGE, limit - len(items))
            order = "newest" if newest else "oldest"
            asked = {"limit": wanted, "cursor": page["next"], "order": order}
            page = await fetch(source, target(f"/v1/history/{plural}", *names, **asked))
            first = first or page
            items += page["items"]
    if form in (Format.JSON, Format.YAML):
        print_value({**first, "items": items, "next": page["next"]}, form)
        return
    print_items(f"history of {first['of']}", COLUMNS, items, form)
    if first["why_now"]:
        echo(f"\nWhy now: {first['why_now']['summary']}")
    if first["journal"] and first["journal"]["missing"]:
        kept = first["journal"]
        echo(f"\nOf its batches {kept['first']} to {kept['last']}, {kept['missing']} are not kept.")
