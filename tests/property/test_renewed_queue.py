"""Is the queue behind a checkpoint the one that a restart makes, pod by pod, of the same pods?"""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

import pytest

from domain.cycle.schedule import Scheduler
from domain.model.config import POD_GROUP, PodGroup
from domain.model.events import (
    BindFailed,
    ConfigUpserted,
    Event,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
)
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.selectors import LabelRequirement, LabelSelector, SpreadConstraint
from domain.queue.groups import Line
from domain.queue.queue import Queue
from tests.depth import some
from tests.values import node, pod, template

STEPS = 40
SPREAD = SpreadConstraint(
    topology_key="zone", selector=LabelSelector((LabelRequirement("app", "In", ("x",)),))
)


@dataclasses.dataclass
class Draws:
    """Draws what may happen to nodes, pods and gangs, and where pods could not be bound."""

    random: Random
    scheduler: Scheduler
    version: int = 1

    def event(self) -> Event:
        random, which = self.random, self.random.random()
        if which < 0.15:
            return NodeUpserted(node(f"n{random.randrange(4)}", cpu=random.choice((1_000, 4_000))))
        if which < 0.2:
            return NodeDeleted(f"n{random.randrange(4)}")
        if which < 0.3:
            size = random.randrange(1, 5)
            return ConfigUpserted(POD_GROUP, "default", random.choice("ab"), PodGroup(min_member=size))
        namespace, name = random.choice(("default", "other")), f"p{random.randrange(12)}"
        if which < 0.4:
            return PodDeleted(namespace, name)
        placed = [each for each in self.scheduler.state.pods.values() if each.node and not each.adopted]
        if which < 0.5 and placed:
            entry = random.choice(sorted(placed, key=lambda each: each.spec.key))
            return BindFailed(PodUpserted(entry.spec), entry.node)
        gang = f"{namespace}/{random.choice('ab')}" if name < "p3" else ""
        ports = (80,) if name > "p8" else ()
        self.version += 1
        spread = (SPREAD,) if "p5" < name < "p8" else ()
        of = template(random.choice((500, 3_000, 9_000)), 0, *ports, gang=gang, spread=spread)
        labels = {"app": random.choice("xy")}
        return PodUpserted(pod(name, of, namespace=namespace, version=self.version, labels=labels))


def rebuilt(scheduler: Scheduler, backoff_ms: tuple[int, int]) -> Queue:
    """Return the queue that a restart makes of the pods that wait, one by one."""
    queue = Queue(scheduler.state, scheduler.profiles.plans, backoff_ms)
    waiting = [entry for entry in scheduler.state.pods.values() if not entry.node]
    for entry in sorted(waiting, key=lambda each: (each.arrival, each.shard, each.spec.uid)):
        if entry.spec.key not in scheduler.state.nominations.entries:
            queue.add(entry.spec, entry.arrival, fresh=scheduler.queue.is_fresh(entry.spec.key))
    return queue


def shape(queue: Queue) -> dict[str, Any]:
    """Return all of a queue that has a say in what is tried when, in its order."""
    return {
        "groups": [
            (key, group.template, group.plan, group.gang and group.gang.key, group.held_by)
            for key, group in queue.groups.items()
        ],
        "tried": [(g.parked, g.attempt, g.woken, g.failures, g.due_ms) for g in queue.groups.values()],
        "lines": [[shape_of(line) for line in group.lines.values()] for group in queue.groups.values()],
        "changed": [shape_of(line) for line in queue._changed],
        "of": {key: (line.group.key, line.namespace) for key, line in queue._line_of.items()},
        "signatures": dict(queue.signatures),
        "gangs": [(key, list(gang.groups)) for key, gang in queue.gangs.known.items()],
        "gangs changed": list(queue.gangs.changed),
        "due": queue.due_ms,
    }


def shape_of(line: Line) -> tuple[Any, ...]:
    turns = line.latest, line.is_sorted, line.entry, line.most, line.lost_count
    return line.group.key, line.namespace, [*line.pods.items()], [*line.fresh.items()], *turns


@pytest.mark.parametrize("seed", some(range(60)))
def test_a_renewed_queue_is_the_one_of_a_restart(seed: int) -> None:
    random, backoff_ms, now_ms = Random(seed), (1_000, 10_000), 0
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1, backoff_ms=backoff_ms)
    draws = Draws(random, scheduler)
    for _ in range(STEPS):
        for _ in range(random.randrange(8)):
            scheduler.fold(draws.event())
        if random.random() < 0.8:
            now_ms += random.choice((0, 400, 1_500))
            scheduler.cycle(now_ms)
        if random.random() < 0.3:
            expected = shape(rebuilt(scheduler, backoff_ms))
            waiting = [entry for entry in scheduler.state.pods.values() if not entry.node]
            assert scheduler.renew_queue() == {(entry.spec.signature, entry.shard) for entry in waiting}
            assert shape(scheduler.queue) == expected


def test_pods_of_one_arrival_come_by_shard_and_uid() -> None:
    """Two shards that were taken from different workers may have pods of one arrival."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    of = template(500)
    for name, shard in (("late", 1), ("third", 0), ("second", 0)):
        scheduler.restore_pod(pod(name, of, uid=name), arrival=7, shard=shard, fresh=name == "late")
    scheduler.restore_pod(pod("first", of), arrival=6, shard=1)
    expected = shape(rebuilt(scheduler, (0, 0)))
    scheduler.renew_queue()
    assert shape(scheduler.queue) == expected
    (line,) = scheduler.queue.groups[of_first(scheduler)].lines.values()
    assert list(line.pods) == [f"default/{name}" for name in ("first", "second", "third", "late")]


def of_first(scheduler: Scheduler) -> tuple[bytes, int]:
    return next(iter(scheduler.queue.groups))
