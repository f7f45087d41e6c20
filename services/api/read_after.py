"""Lets a read wait until the ledger has what its caller knows of already: `?wait=` of every GET."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from fastapi import Query

from domain.model.errors import FieldError
from domain.model.limits import INT64_MAX
from domain.model.validation import shown
from services.api.failures import ApiError
from services.api.live import Live
from services.api.stream import check_place
from services.api.stream_ids import parse_id
from services.api.waiting import Folding
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, TopicPartition
from services.ports.store import Store

READ_SECONDS_MAX = 30.0
POSITIONS_MAX = 50
_WAIT_MAX = 2_000
_POSITION = re.compile(r"([a-z.]{1,50})/([0-9]{1,6})/([0-9]{1,19})")

Waited = Annotated[
    str | None,
    Query(
        description="Answer once the ledger has this: an id of the stream of events, or positions as POST "
        "/v1/events answers them, topic/partition/offset with commas; after 30 s 503",
        max_length=_WAIT_MAX,
    ),
]


def parse_positions(text: str) -> Mapping[TopicPartition, int]:
    """Return the offsets behind positions of the log."""
    ends: dict[TopicPartition, int] = {}
    parts = text.split(",")
    if len(parts) > POSITIONS_MAX:
        raise FieldError("wait", f"has {len(parts)} positions; {POSITIONS_MAX} are allowed")
    for part in parts:
        found = _POSITION.fullmatch(part)
        if found is None or int(found[3]) >= INT64_MAX:
            allowed = "topic/partition/offset as POST /v1/events answers them, or an id of the stream"
            raise FieldError("wait", f"{shown(part)} is nothing to wait for; {allowed}")
        at = TopicPartition(found[1], int(found[2]))
        ends[at] = max(ends.get(at, 0), int(found[3]) + 1)
    return ends


async def check_positions(store: Store, ends: Mapping[TopicPartition, int]) -> None:
    """Raise ``FieldError`` for a partition that no event is ever sent to; to wait for it would be in vain."""
    shards = len(await store.processes.shards())
    counts = {NODES_TOPIC: shards, PODS_TOPIC: shards, CONFIG_TOPIC: 1, USAGE_TOPIC: 1}
    for topic, partition in ends:
        if partition >= counts.get(topic, 0):
            known = ", ".join(f"{each}/0" + (f" to {n - 1}" if n > 1 else "") for each, n in counts.items())
            raise FieldError("wait", f"{topic}/{partition} takes no events; these do: {known}")


async def wait_until_there(store: Store, live: Live, folding: Folding, text: str) -> None:
    """Wait until the ledger has what ``text`` says; raise ``ApiError`` where it has not in time."""
    if "/" in text:
        ends = parse_positions(text)
        await check_positions(store, ends)
        reached = await folding.reached(ends, READ_SECONDS_MAX)
    else:
        place = parse_id(text, "wait")
        async with live.following():
            if place.ledger == live.ledger:
                reached = await live.reached(place.position, READ_SECONDS_MAX)
            else:
                reached = True
            if reached:
                await check_place(live, place)
    if not reached:
        told = f"the ledger has not what `wait` names after {READ_SECONDS_MAX:g} s; ask again"
        raise ApiError("not-yet", told)
