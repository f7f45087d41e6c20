"""Are days on which devices are given, promised, stated and taken over planned again with the same bytes?"""

from __future__ import annotations

from random import Random

import pytest

from tests.builders import Json
from tests.depth import some
from tests.property.device_team import asking, check, devices_of, gpu_node, gpu_pod
from tests.property.replays import mark, replay
from tests.property.team import Team, node_of


def stated(name: str, node: str, devices: str) -> Json:
    """Return a bound pod that says which devices it has."""
    manifest = gpu_pod(name, node=node, gpu=devices.count(",") + 1)
    manifest["metadata"]["annotations"] = {"berth.dev/devices": devices}
    return manifest


def live(seed: int) -> Team:
    random, team = Random(seed), Team([0, 1], preempts=True)
    mark(team)
    nodes = [node_of(team, shard, f"n{number}-") for number in range(2) for shard in (0, 1)]
    team.tell("ADDED", *(stated(f"early{i}", node, "3,1") for i, node in enumerate(nodes[:2])))
    team.tell("ADDED", *(gpu_node(name, random.choice((4, 8))) for name in nodes))
    team.tell("ADDED", *(stated(f"stated{i}", node, "0") for i, node in enumerate(nodes)))
    team.give(0, [1])
    team.join([1])
    team.rest()
    alive: dict[str, dict[str, int]] = {}
    for step in range(24):
        kind = random.choice(("pods", "pods", "high", "gone", "gone", "crash"))
        if kind in ("pods", "high"):
            asks = [
                random.choice(({"gpu": 1}, {"gpu": 2}, {"milli": 300}, {"milli": 700}))
                for _ in range(random.randint(1, 6))
            ]
            new = {f"{'-'.join(of)}{step}-{i}": of for i, of in enumerate(asks)}
            alive |= new
            manifests = [asking(name, of) for name, of in new.items()]
            for manifest in manifests:
                manifest["spec"]["priority"] = 10 if kind == "high" else 0
            team.tell("ADDED", *manifests)
        elif kind == "gone" and alive:
            name = random.choice(sorted(alive))
            team.tell("DELETED", asking(name, alive.pop(name), 2))
        elif kind == "crash":
            team.die(random.randrange(2))
            team.rest()
        check(team, is_full=True)
    team.rest()
    return team


@pytest.mark.parametrize("seed", some(range(6)))
def test_a_day_of_devices_is_planned_again_with_the_same_bytes(seed: int) -> None:
    team = live(seed)
    known = devices_of(team)
    assert {known[f"stated{i}"][1] for i in range(4)} == {(0,)}
    assert {known[f"early{i}"][1] for i in range(2)} == {(1, 3)}
    outcome = replay(team)
    assert outcome.difference is None
    assert outcome.progress.batches_count == len(team.database.journal)


@pytest.mark.wide
def test_days_have_promises_of_devices() -> None:
    """What the test above rests on."""
    told = [row for seed in range(6) for row in live(seed).decided()]
    assert {"nominated", "evicted"} <= {row["outcome"] for row in told}
    evicted = {row["pod"]["name"] for row in told if row["outcome"] == "evicted"}
    assert {name.rstrip("0123456789-") for name in evicted} >= {"milli", "gpu"}
