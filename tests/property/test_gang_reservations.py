"""Does everybody start who could, beside a stream of small pods, and is one reservation kept at a time?"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement, Preemption
from domain.model.config import POD_GROUP, PodGroup
from domain.model.events import ConfigUpserted, NodeUpserted, PodDeleted, PodUpserted
from domain.model.profiles import BUILT_IN_PROFILES
from domain.state.changes import NominationEnded
from tests.depth import some
from tests.values import node, pod, template

SEEDS = some(range(60))
WAIT_SECONDS, RUN_SECONDS = 10, 8
PER_CLAIM_SECONDS = WAIT_SECONDS + RUN_SECONDS + 20
"""A wait, until those have left who run, the longest backoff, and some looks."""

SMALL = template(1_000)


class Stream:
    """Random nodes full of small pods that run for seconds, and larger pods and gangs among them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.scheduler = Scheduler(
            BUILT_IN_PROFILES, seed=seed, backoff_ms=(1_000, 10_000), reservation_seconds=WAIT_SECONDS
        )
        self.now_ms = 0
        self.count = 0
        self.ends_ms: dict[str, int] = {}
        self.least: dict[str, int] = {}
        self.started: set[str] = set()
        self.seen: Counter[str] = Counter()
        self.cpus = [self.random.choice((4, 6, 8)) for _ in range(self.random.randint(2, 4))]
        for i, cpu in enumerate(self.cpus):
            self.scheduler.fold(NodeUpserted(node(f"n{i}", cpu=cpu * 1_000)))

    def small(self) -> None:
        for _ in range(sum(self.cpus) // 4):
            self.scheduler.fold(PodUpserted(pod(f"small-{self.count}", SMALL)))
            self.count += 1

    def claim(self, name: str) -> None:
        """Let a larger pod come, or a gang, most often one that all nodes together could hold."""
        cpu, least = self.random.randint(2, 8), self.random.choice((0, 1, 2, 3, 5))
        gang = f"default/{name}" if least else ""
        if gang:
            spec = PodGroup(min_member=least)
            self.scheduler.fold(ConfigUpserted(POD_GROUP, "default", name, spec, 1))
        of = template(cpu * 1_000, priority=self.random.choice((0, 0, 5)), gang=gang)
        for i in range(max(least, 1) + self.random.choice((0, 0, 1)) * bool(gang)):
            self.scheduler.fold(PodUpserted(pod(f"{name}-{i}", of)))
        if sum(each // cpu for each in self.cpus) >= max(least, 1):
            self.least[name] = max(least, 1)
        else:
            self.seen["hopeless"] += 1

    def second(self) -> None:
        self.now_ms += 1_000
        self.small()  # they come before those leave whose room they want
        for name in [name for name, end_ms in self.ends_ms.items() if end_ms <= self.now_ms]:
            del self.ends_ms[name]
            self.scheduler.fold(PodDeleted("default", name))
        while True:
            placed = Counter[str]()
            result = self.scheduler.cycle(self.now_ms)
            for verdict in result.verdicts:
                if isinstance(verdict, Placement):
                    name = verdict.pod.name
                    placed[name.partition("-")[0]] += 1
                    run_ms = 1_000 * self.random.randint(1, RUN_SECONDS)
                    self.ends_ms[name] = self.now_ms + run_ms
            for each in result.verdicts:
                if isinstance(each, Preemption):
                    assert not each.victims
                    self.seen["gang" if each.pod.template.gang else "pod"] += 1
                elif isinstance(each, NominationEnded):
                    self.seen[each.reason] += 1
            self.check(placed)
            if not self.scheduler.has_work:
                break

    def check(self, placed: Mapping[str, int]) -> None:
        for name in placed.keys() & self.least.keys() - self.started:
            assert placed[name] >= self.least[name], f"a part of {name} started"
            self.started.add(name)
        kept = Counter(key.partition("/")[2].partition("-")[0] for key in self.kept())
        assert len(kept) <= 1, f"more than one reservation: {kept}"
        for name, count in kept.items():
            assert count == self.least[name], f"a part of {name} has nodes"

    def kept(self) -> list[str]:
        return list(self.scheduler.state.nominations.entries)


@functools.cache
def live(seed: int) -> Counter[str]:
    """Live a day on which everybody starts who could; return what was promised, and how that ended."""
    stream = Stream(seed)
    for _ in range(4):
        stream.second()
    names = [f"c{i}" for i in range(stream.random.randint(1, 4))]
    for name in names:
        stream.claim(name)
        for _ in range(stream.random.randint(0, 5)):
            stream.second()
    for _ in range(PER_CLAIM_SECONDS * (len(names) + 1)):
        stream.second()
        if stream.started >= stream.least.keys():
            break
    assert stream.started == stream.least.keys(), stream.least.keys() - stream.started
    return stream.seen


@pytest.mark.parametrize("seed", SEEDS)
def test_everybody_starts_and_one_at_a_time_has_nodes_kept_free(seed: int) -> None:
    live(seed)


@pytest.mark.deep
def test_pods_and_gangs_have_had_nodes_kept_free_and_some_could_not() -> None:
    seen = sum((live(seed) for seed in SEEDS), Counter())
    assert min(seen[each] for each in ("pod", "gang", "bound", "hopeless")) > 5, seen
