"""Does a node's answer say how many of its GPUs are free as a pod could have them?"""

from __future__ import annotations

import asyncio

import pytest

from services.adapters.memory.store import MemoryStore
from services.api.views import list_nodes
from tests.property.device_team import GPU, asking, gpu_node
from tests.property.team import Team


@pytest.mark.parametrize(
    ("count", "asks", "free", "devices"),
    [
        (4, [{"milli": 300}, {"gpu": 1}], "2", [300, 1000, 0, 0]),
        (2, [{"milli": 300}, {"gpu": 1}], "0", [300, 1000]),
        (17, [{"gpu": 2}], "15", []),
        (0, [], "0", []),
    ],
)
def test_free_are_the_devices_of_which_nothing_is_taken(
    count: int, asks: list[dict[str, int]], free: str, devices: list[int]
) -> None:
    team = Team([0])
    team.tell("ADDED", gpu_node("n0", count))
    for i, each in enumerate(asks):
        team.tell("ADDED", asking(f"p{i}", each))
    (node,) = asyncio.run(list_nodes(MemoryStore(team.database), limit=10, at=None, name=None)).items
    assert (node.free[GPU], node.devices) == (free, devices)
