"""Do the messages about topics that are missing, or not as berth made them, name what to do?"""

from __future__ import annotations

import pytest

from domain.model.errors import TopicMismatch, Unavailable
from services.adapters.memory.log import MemoryLog
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, topic_specs
from services.topics import check_topics
from tests.contract.ledgers import ManualClock

NAMES = [spec.name for spec in topic_specs(2)]


async def made() -> MemoryLog:
    """Return a log with the topics of two shards."""
    log = MemoryLog(ManualClock())
    await log.ensure_topics(topic_specs(2))
    return log


async def test_a_topic_that_is_missing_is_named_with_the_command_that_makes_it() -> None:
    log = MemoryLog(ManualClock())
    await log.ensure_topics([spec for spec in topic_specs(2) if spec.name != NODES_TOPIC])
    with pytest.raises(Unavailable, match=f"^topic {NODES_TOPIC} does not exist; `berth init` makes it$"):
        await check_topics(log, NAMES, 2)
    assert set(await check_topics(log, [PODS_TOPIC], 2)) == {PODS_TOPIC}


async def test_a_topic_with_fewer_partitions_is_to_have_those_again_that_it_had() -> None:
    log = await made()
    log.recreate(PODS_TOPIC, 1)
    said = (
        f"topic {PODS_TOPIC} has 1 partition, and berth uses 2: it was made anew with fewer; give it 2 again"
    )
    with pytest.raises(TopicMismatch, match=said):
        await check_topics(log, NAMES, 2)


async def test_a_topic_with_more_partitions_names_the_command_for_so_many_shards() -> None:
    log = await made()
    log.grow(PODS_TOPIC, 3)
    with pytest.raises(TopicMismatch, match=r"stop the producers, .* and run `berth init --shards 3`"):
        await check_topics(log, NAMES, 2)
    assert set(await check_topics(log, NAMES, 2, drain=True)) == set(NAMES)


async def test_a_topic_of_one_partition_that_has_more_is_to_be_made_anew() -> None:
    log = await made()
    log.grow(CONFIG_TOPIC, 2)
    with pytest.raises(TopicMismatch, match=r"Delete it, and run `berth init`, which makes it anew"):
        await check_topics(log, NAMES, 2)
