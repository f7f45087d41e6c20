"""`berth get --watch`: prints a list, then each item again when it changes, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from services.cli.get import Kind
from services.cli.output import Json, Table, print_yaml
from services.cli.shapes import Shape, print_line
from services.cli.source import Source, fetch_all
from services.cli.streaming import changes, follow
from services.cli.tables import TABLES
from services.times import moment_ms

POLL_SECONDS = 1.0
QUIET_SECONDS = 10.0
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

_TOLD = (Kind.NODES, Kind.PODS, Kind.PENDING, Kind.NOMINATIONS, Kind.GANGS)
"""The lists of which the stream of events says when they change."""

Show = Callable[[Sequence[Json]], None]


async def watch_list(
    kind: Kind, items: Callable[[], Awaitable[list[Json]]], shape: Shape, source: Source | None = None
) -> None:
    """Print what ``items`` returns, then each change.

    It is asked for again when something happens, as far as the stream of ``source`` tells of that, and now
    and then all the same.
    """
    show = _shower(kind, shape)
    columns = [column for column in TABLES[kind] if shape.form == "wide" or not column.wide]

    def seen_as(item: Json) -> object:
        """Return the shown fields of an item. The renewal of a lease is no change."""
        return item if shape.form in _DOCUMENTS else [column.read(item) for column in columns]

    known: dict[tuple[Any, ...], Json] = {}
    changed = await items()
    show(changed)
    told = source if kind in _TOLD else None
    async for _ in _every(POLL_SECONDS) if told is None else changes(told, POLL_SECONDS, QUIET_SECONDS):
        known |= {tuple(item[field] for field in KEYS[kind]): item for item in changed}
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
    """Print the latest decisions, then each new one as it is committed."""
    show = _shower(Kind.DECISIONS, shape)
    asked = {name: parameters.get(name) for name in ("namespace", "node", "pod")}
    async with contextlib.aclosing(follow(source, kinds=_OF_PODS, **asked)) as events:
        await anext(events)  # what is committed from here on comes by the stream
        newest = {**parameters, "order": "newest"}
        latest = await fetch_all(source, "/v1/decisions", limit or FIRST_DECISIONS, None, **newest)
        show(list(reversed(latest)))
        shown = {item["id"] for item in latest}
        async for seen in events:
            if seen.data["id"] in shown or not _is_asked_for(seen.data, parameters):
                continue
            show([seen.data])


_OF_PODS = "decisions,releases,pending"


def _is_asked_for(item: Json, parameters: Mapping[str, Any]) -> bool:
    """Return whether a decision is one of those that a list with these parameters has."""
    fields = {"outcome": "outcome", "shard": "shard", "signature": "signature", "profile": "profile"}
    fields["revision"] = "profile_revision"
    equal = all(item[of] == parameters[name] for name, of in fields.items() if name in parameters)
    until = parameters.get("until")
    return equal and (until is None or moment_ms("", item["decided_at"]) < moment_ms("--until", until))


async def _every(seconds: float) -> AsyncIterator[None]:
    while True:
        await asyncio.sleep(seconds)
        yield


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
