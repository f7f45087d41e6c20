"""Does the queue draw the same pods in the same order as one that sorts all of them for each cycle?"""

from __future__ import annotations

from operator import itemgetter
from random import Random

import pytest

from domain.cycle.schedule import Scheduler
from domain.model.decisions import Attempt
from domain.model.events import PodDeleted, PodUpserted
from domain.model.pods import DEFAULT_PROFILE
from domain.model.profiles import BUILT_IN_PROFILES
from domain.queue.groups import Line, Tried, WaitingGroup
from domain.queue.turns import Budget, Works
from tests.depth import some
from tests.oracle.plain_queue import Plain, plain_draw
from tests.values import pod, template

SHAPES = [
    template(100 * i, priority=priority, gates=("wait",) if i == 3 else ())
    for i in range(1, 5)
    for priority in (-1, 0, 7)
]
SHAPES += [template(100 + i, priority=i % 3, qos_class="Guaranteed") for i in range(3)]


class Pair:
    """A queue and a plain one over the same pods."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.scheduler = Scheduler(BUILT_IN_PROFILES, seed=0)
        self.queue = self.scheduler.queue
        self.works = Works(self.scheduler.state)
        for plan in self.scheduler.profiles.plans.values():
            plan.colocates = True
        self.added = self.drawn = self.cuts = self.refused = 0

    def change(self) -> None:
        """Let pods come and go, lose their node, and groups wake."""
        random, pods = self.random, self.scheduler.state.pods
        for key in random.sample(sorted(pods), min(len(pods), random.randrange(4))):
            namespace, name = key.split("/")
            self.scheduler.fold(PodDeleted(namespace, name))
        for key in random.sample(sorted(pods), min(len(pods), random.randrange(3))):
            self.queue.remove_pods((key,))  # as if it had been placed, and lost its node
            self.queue.add(pods[key].spec, pods[key].arrival, fresh=True)
        for _ in range(random.choice((0, 3, 9, 40))):
            self.added += 1
            new = pod(f"p{self.added}", random.choice(SHAPES), namespace=random.choice("abc"))
            self.scheduler.fold(PodUpserted(new))
        groups = list(self.queue.groups.values())
        for group in random.sample(groups, min(len(groups), random.randrange(4))):
            self.queue.wake_group(group)

    def draw(self) -> None:
        """Draw pods of both lanes and compare; some of the groups find no node, the others' pods leave."""
        self.queue.begin_cycle()
        for is_low in (False, True):
            work_max = self.random.choice((0, 200, 900, 10_000))
            self._draw_lane(Budget(work_max, self.random.choice((1, 3, 12, 400))), is_low=is_low)

    def _draw_lane(self, budget: Budget, *, is_low: bool) -> None:
        waiting = [
            Plain(-group.template.priority, arrival, key, group)
            for group in self.queue.groups.values()
            for line in group.lines.values()
            for key, arrival in having_turns(line)
            if (group.template.qos_class == "BestEffort") == is_low
        ]
        to_try = [each for each in waiting if each.group.is_active]
        expected = [x.key for x in plain_draw(to_try, self.works, budget.work_max, budget.first_max)]
        [(tried, _)], turns = self.queue.draw(budget.work_max, budget.first_max, is_low=is_low)
        assert [key for key, _ in tried] == expected
        assert turns.pods_count == len(expected)
        self._tell([each for each in waiting if each not in to_try], budget.pods_max - len(tried), is_low)
        self.drawn += len(expected)
        self.cuts += len(expected) < len(to_try)
        self._end(tried)

    def _tell(self, waiting: list[Plain], pods_max: int, is_low: bool) -> None:
        """Draw pods that are only told why they wait."""
        told = {key for _, keys in self.queue.draw_told(pods_max, is_low=is_low) for key in keys}
        assert told == {each.key for each in plain_draw(waiting, None, 1 << 40, pods_max)}
        self.refused += len(told)

    def _end(self, tried: list[Tried]) -> None:
        """Let some of the groups find no node, and the others' pods leave."""
        self.queue.note_tried(key for key, _ in tried)
        for group in {group: None for _, group in tried}:
            if self.random.random() < 0.6:
                self.queue.park(group, attempt_of(group))
        for key, group in tried:
            if group.is_active and self.random.random() < 0.7:
                self.queue.remove_pods((key,))
                entry = self.scheduler.state.pods[key]
                self.queue.add(entry.spec, entry.arrival, fresh=False)


def having_turns(line: Line) -> list[tuple[str, int]]:
    """Return the pods of a line that have a turn: the oldest, as many as it says; or to be told, all."""
    if not line.group.is_active:
        return list(line.fresh.items())
    return sorted(line.pods.items(), key=itemgetter(1))[: line.most or None]


def attempt_of(group: WaitingGroup) -> Attempt:
    return Attempt(
        signature=group.signature,
        profile=DEFAULT_PROFILE,
        profile_revision=1,
        seed=0,
        generation=0,
        nodes_count=0,
        reasons_at_failure={"no-nodes": 0},
    )


@pytest.mark.parametrize("seed", some(range(30)))
def test_the_queue_draws_what_a_plain_one_draws(seed: int) -> None:
    pair = Pair(seed)
    for _ in range(60):
        pair.change()
        pair.draw()
    assert min(pair.drawn, pair.cuts, pair.refused) > 10
