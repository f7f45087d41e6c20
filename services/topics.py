"""Looks whether the log's topics are those that berth reads and writes, at the start and while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NoReturn

from domain.model.errors import LogReplaced, TopicMismatch, Unavailable
from services.phrases import plural
from services.ports.log import (
    TOPICS_BY_SHARD,
    Log,
    TopicSpec,
    TopicState,
    no_topic,
    topic_specs,
)

CHECK_SECONDS = 10.0


async def check_topics(
    log: Log, names: Sequence[str], shards: int, *, drain: bool = False
) -> Mapping[str, TopicState]:
    """Return the topics as they are. A drain reads those that have partitions for more shards, too.

    Raises
    ------
    TopicMismatch
        One has another number of partitions than a deployment with so many shards.
    Unavailable
        One does not exist.
    """
    found = await log.topics(names)
    for spec in topic_specs(shards):
        if spec.name not in names:
            continue
        if spec.name not in found:
            raise no_topic(spec.name)
        there = found[spec.name].partitions
        is_drained = drain and spec.name in TOPICS_BY_SHARD and there > spec.partitions
        if there != spec.partitions and not is_drained:
            raise TopicMismatch(_mismatch(spec, there))
    return found


def _mismatch(spec: TopicSpec, partitions: int) -> str:
    problem = f"topic {spec.name} has {plural(partitions, 'partition')}, and berth uses {spec.partitions}"
    if partitions < spec.partitions:
        return f"{problem}: it was made anew with fewer; give it {spec.partitions} again"
    if spec.name in TOPICS_BY_SHARD:
        init = f"`berth init --shards {partitions}`"
        return (
            f"{problem}, the number of its shards when this process began. Where {init} runs or has run "
            "since, wait until it has ended, and start this process again. Else the partitions were added "
            f"by hand: stop the producers, all workers and relays, and run {init}. Until then "
            "nothing is decided, since events in the new partitions would be missed"
        )
    return f"{problem}. Delete it, and run `berth init`, which makes it anew; then send its objects again"


async def watch_topics(
    log: Log, before: Mapping[str, TopicState], shards: int, seconds: float, *, drain: bool = False
) -> NoReturn:
    """Look at the topics now and then. A log that does not answer is reported elsewhere.

    Raises
    ------
    TopicMismatch
        As ``check_topics``.
    LogReplaced
        A topic was made anew.
    """
    while True:
        await asyncio.sleep(seconds)
        try:
            found = await check_topics(log, list(before), shards, drain=drain)
        except Unavailable:
            continue
        for name, state in found.items():
            if state.id != before[name].id:
                raise LogReplaced(f"topic {name} was deleted and made anew")


async def until_first(*works: Coroutine[Any, Any, None]) -> None:
    """Run all at once until one of them ends or fails; end the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
