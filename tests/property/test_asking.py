"""Does asking a scheduler whether there is work, which a replay does not do, change what it decides?"""

from __future__ import annotations

from random import Random

import pytest

from domain.cycle.schedule import Scheduler
from domain.model.config import POD_GROUP, PodGroup
from domain.model.events import (
    ConfigDeleted,
    ConfigUpserted,
    Event,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
)
from domain.model.profiles import BUILT_IN_PROFILES
from tests.depth import some
from tests.values import node, pod, template

STEPS = 60


def drawn(random: Random) -> Event:
    """Return what may happen to nodes, pods and gangs."""
    which = random.random()
    if which < 0.15:
        return NodeUpserted(node(f"n{random.randrange(3)}", cpu=random.choice((1_000, 4_000))))
    if which < 0.2:
        return NodeDeleted(f"n{random.randrange(3)}")
    gang = random.choice("ab")
    if which < 0.45:
        return ConfigUpserted(POD_GROUP, "default", gang, PodGroup(min_member=random.randrange(1, 5)))
    if which < 0.5:
        return ConfigDeleted(POD_GROUP, "default", gang)
    name = f"p{random.randrange(8)}"
    if which < 0.6:
        return PodDeleted("default", name)
    of = "" if name > "p5" else f"default/{'a' if name < 'p3' else 'b'}"
    return PodUpserted(pod(name, template(random.choice((500, 3_000)), gang=of)))


def scheduler() -> Scheduler:
    return Scheduler(BUILT_IN_PROFILES, seed=1, backoff_ms=(1_000, 10_000))


@pytest.mark.parametrize("seed", some(range(60)))
def test_to_ask_changes_nothing_and_the_answer_is_right(seed: int) -> None:
    random = Random(seed)
    asked, unasked = scheduler(), scheduler()
    now_ms = 0
    for _ in range(STEPS):
        for _ in range(random.randrange(4)):
            event = drawn(random)
            asked.fold(event)
            unasked.fold(event)
            if random.random() < 0.7:
                _ = asked.has_work
        now_ms += random.choice((0, 100, 400, 1_500))
        says = asked.queue.has_work
        first, second = asked.cycle(now_ms), unasked.cycle(now_ms)
        assert first.verdicts == second.verdicts
        assert first.attempts == second.attempts
        if says:
            assert first.attempts, "what has a turn is tried, or told why not"
        assert asked.queue.due_ms == unasked.queue.due_ms
