"""`berth get --watch`: prints a list, then each item again when it changes, until Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from services.cli.get import Kind
from services.cli.output import Json, Table, print_yaml
from services.cli.shapes import Shape, print_line
from services.cli.source import Source, fetch_all
from services.cli.tables import TABLES

POLL_SECONDS = 1.0
FIRST_DECISIONS = 10
_DOCUMENTS = ("json", "jsonl", "yaml")
KEYS: dict[Kind, tuple[str, ...]] = {
    Kind.NODES: ("name",),
    Kind.PODS: ("uid",),
    Kind.PENDING: ("shard", "signature"),
    Kind.NOMINATIONS: ("uid", "shard"),
    Kind.GANGS: ("namespace", "name"),
    Kind.PROFILES: ("name",),
    Kind.CONFIG: ("kind", "namespace", "name"),
    Kind.SHARDS: ("shard",),
    Kind.WORKERS: ("incarnation",),
    Kind.ACTIONS: ("id",),
    Kind.DEADLETTERS: ("id",),
}
GONE: dict[Kind, Json] = {
    Kind.NODES: {"deleted": True},
    Kind.PODS: {"phase": "released", "node": None},
    Kind.PENDING: {"count": 0},
    Kind.NOMINATIONS: {"node": None},
    Kind.GANGS: {"min_member": None, "placed": 0, "waiting": 0, "why": None},
    Kind.CONFIG: {"object": None},
}
"""The mark of an item that has left its list. The other lists only grow."""

Show = Callable[[Sequence[Json]], None]


async def watch_list(kind: Kind, items: Callable[[], Awaitable[list[Json]]], shape: Shape) -> None:
    """Print what ``items`` returns, then each change."""
    show = _shower(kind, shape)
    columns = [column for column in TABLES[kind] if shape.form == "wide" or not column.wide]

    def seen_as(item: Json) -> object:
        """Return the shown fields of an item. The renewal of a lease is no change."""
        return item if shape.form in _DOCUMENTS else [column.read(item) for column in columns]

    known: dict[tuple[Any, ...], Json] = {}
    changed = await items()
    show(changed)
    while True:
        known |= {tuple(item[field] for field in KEYS[kind]): item for item in changed}
        await asyncio.sleep(POLL_SECONDS)
        found = {tuple(item[field] for field in KEYS[kind]): item for item in await items()}
        gone = [known.pop(key) | GONE[kind] for key in [*known] if key not in found and kind in GONE]
        changed = [
            item for key, item in found.items() if key not in known or seen_as(item) != seen_as(known[key])
        ]
        if gone or changed:
            show(gone + changed)


async def watch_decisions(
    source: Source, parameters: Mapping[str, Any], limit: int | None, shape: Shape
) -> None:
    """Print the latest decisions, then each new one, in the order of their shard."""
    show = _shower(Kind.DECISIONS, shape)
    seen = await _committed(source)
    newest = {**parameters, "order": "newest"}
    latest = await fetch_all(source, "/v1/decisions", limit or FIRST_DECISIONS, None, **newest)
    show([item for item in reversed(latest) if item["seq"] <= seen[item["shard"]]])
    while True:
        await asyncio.sleep(POLL_SECONDS)
        committed = await _committed(source)
        for shard, last in committed.items():
            new = last - seen.get(shard, 0)
            if new <= 0 or parameters.get("shard", shard) != shard:
                continue
            found = await fetch_all(source, "/v1/decisions", new, None, **{**newest, "shard": shard})
            fresh = [item for item in reversed(found) if seen.get(shard, 0) < item["seq"] <= last]
            if fresh:
                show(fresh)
        seen = committed


async def _committed(source: Source) -> dict[int, int]:
    """Return the number of the last decision of each shard."""
    return {item["shard"]: item["decisions"] for item in await fetch_all(source, "/v1/shards", None)}


def _shower(kind: Kind, shape: Shape) -> Show:
    """Return a function that prints items as they come: rows under one header, or one document each."""
    if shape.form not in _DOCUMENTS:
        return Table(TABLES[kind], wide=shape.form == "wide").add

    def show(items: Sequence[Json]) -> None:
        for item in items:
            if shape.form == "yaml":
                print_yaml([item])
            else:
                print_line(item)

    return show
