"""Does a request that waits for its events learn when all of them are folded, and not before?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from services.api.waiting import Folding
from services.ports.inbox import handed_topic, inbox_topic
from services.ports.log import CONFIG_TOPIC, PODS_TOPIC, TopicPartition
from services.ports.store import ShardOffset, Store


class Offsets:
    """A store that knows offset rows alone."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, str, int], int] = {}
        self.processes = self

    async def offsets(self) -> Sequence[ShardOffset]:
        return [ShardOffset(*at, count) for at, count in self.rows.items()]


async def is_folded(store: Offsets, ends: dict[TopicPartition, int]) -> bool:
    """Say whether a request that waits for these offsets would be told so now."""
    return await Folding(cast(Store, store)).reached(ends, 0.1)


async def test_it_waits_for_every_partition() -> None:
    store, ends = Offsets(), {TopicPartition(PODS_TOPIC, 1): 7, TopicPartition(CONFIG_TOPIC, 0): 3}
    store.rows = {(1, PODS_TOPIC, 1): 7, (0, CONFIG_TOPIC, 0): 2}
    assert not await is_folded(store, ends)
    store.rows[0, CONFIG_TOPIC, 0] = 3
    assert await is_folded(store, ends)


async def test_what_was_handed_over_is_folded_when_the_home_of_its_gang_has_taken_it() -> None:
    store, ends = Offsets(), {TopicPartition(PODS_TOPIC, 1): 7}
    store.rows = {(1, PODS_TOPIC, 1): 7, (1, handed_topic(0), 1): 2, (1, handed_topic(2), 1): 1}
    assert not await is_folded(store, ends)
    store.rows[0, inbox_topic(1), 0] = 2
    assert not await is_folded(store, ends), "another home has not"
    store.rows[2, inbox_topic(1), 2] = 1
    assert await is_folded(store, ends)
    store.rows[3, handed_topic(0), 3] = 9
    assert await is_folded(store, ends), "what is of another partition is not waited for"


async def test_what_is_handed_over_later_is_not_waited_for() -> None:
    store, ends = Offsets(), {TopicPartition(PODS_TOPIC, 1): 7}
    store.rows = {(1, PODS_TOPIC, 1): 7, (1, handed_topic(0), 1): 2}
    waiting = asyncio.create_task(Folding(cast(Store, store)).reached(ends, 30))
    await asyncio.sleep(0.1)
    store.rows[1, handed_topic(0), 1] = 5
    await asyncio.sleep(0.1)
    assert not waiting.done()
    store.rows[0, inbox_topic(1), 0] = 2
    assert await waiting
