"""Does the executor make as many pods of a hosted workload as are wanted, also when it begins again?"""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from domain.model.hosting import ReplicasSaid
from services.adapters.memory.log import MemoryLog
from services.codec.encode import encode_scale
from services.executor.scaling import ScaledFile, Scaler, templates_of
from services.ports.log import PODS_TOPIC, SCALES_TOPIC, Entry, TopicPartition, topic_specs
from tests.builders import Json, pod_manifest
from tests.contract.conftest import SteppingClock
from tests.hosted import member_manifest

TEMPLATES = templates_of([member_manifest("template", cpu=1, labels={"app": "web"})])


def scale(seq: int, wanted: int, workload: str = "web") -> Entry:
    said = ReplicasSaid(
        namespace="default",
        name="hosted",
        kind="ReplicaSet",
        workload=workload,
        least=1,
        most=9,
        wanted=wanted,
        running=0,
        waiting_since_ms=None,
        load_percent=None,
        reason="",
        at_ms=1,
        seq=seq,
    )
    return Entry(b"default/hosted", encode_scale(said))


class World:
    def __init__(self, path: Path) -> None:
        self.log, self.path = MemoryLog(SteppingClock()), path / "scaled"

    async def told(self, *scales: Entry) -> list[tuple[str, str, str | None]]:
        """Let an executor read these scales and end; return all events that pods have had."""
        await self.log.ensure_topics(topic_specs(1))
        self.log.add(TopicPartition(SCALES_TOPIC, 0), list(scales))
        task = asyncio.create_task(Scaler(self.log, TEMPLATES, ScaledFile(self.path)).run())
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        found = self.log.partition(TopicPartition(PODS_TOPIC, 0)).records
        return [_said(orjson.loads(record.value or b"")) for record in found]


def _said(told: Json) -> tuple[str, str, str | None]:
    meta = told["object"]["metadata"]
    return told["type"], meta["name"], meta.get("uid")


async def test_pods_come_and_the_latest_go(tmp_path: Path) -> None:
    world = World(tmp_path)
    told = await world.told(scale(1, 2), scale(2, 3), scale(3, 1), scale(4, 2))
    assert told == [
        ("ADDED", "web-0", "default-web-0-1"),
        ("ADDED", "web-1", "default-web-1-1"),
        ("ADDED", "web-2", "default-web-2-2"),
        ("DELETED", "web-2", None),
        ("DELETED", "web-1", None),
        ("ADDED", "web-1", "default-web-1-4"),
    ]


async def test_it_goes_on_where_it_was_and_drops_what_it_has_seen(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert len(await world.told(scale(1, 2))) == 2
    assert len(await world.told()) == 2
    assert len(await world.told(scale(1, 2), scale(2, 4), scale(3, 9, "other"))) == 4


def test_a_template_is_a_pod_that_an_object_controls() -> None:
    with pytest.raises(ValueError, match="Pod alone is no pod that an object controls"):
        templates_of([pod_manifest("alone")])
