"""A stream of small pods that leaves no room for a large one, nor for a gang."""

from __future__ import annotations

from collections import deque

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement, Preemption
from domain.model.events import Event, NodeUpserted, PodDeleted, PodUpserted
from domain.model.profiles import BUILT_IN_PROFILES
from domain.state.changes import NominationEnded
from tests.values import node, pod, template

SMALL = template(1_000)
WAIT_SECONDS = 30


class Stream:
    """Two nodes on which small pods run for some seconds; as many come as leave, at the same moment."""

    def __init__(self, wait_seconds: int = WAIT_SECONDS, *, preempts: bool = False) -> None:
        self.scheduler = Scheduler(
            BUILT_IN_PROFILES,
            seed=1,
            backoff_ms=(1_000, 10_000),
            preempts=preempts,
            reservation_seconds=wait_seconds,
        )
        self.now_ms = 0
        self.running: deque[str] = deque()
        self.promised: list[tuple[str, str]] = []
        self.ended: list[str] = []
        self._count = 0
        self.tell(NodeUpserted(node("a")), NodeUpserted(node("b")))
        for _ in range(8):
            self.come()
        self.cycle()

    def tell(self, *events: Event) -> None:
        for event in events:
            changes = self.scheduler.fold(event)
            self.ended += [each.reason for each in changes if isinstance(each, NominationEnded)]

    def come(self) -> None:
        self.tell(PodUpserted(pod(f"small-{self._count}", SMALL)))
        self._count += 1

    def cycle(self) -> set[str]:
        """Return who was placed."""
        placed = set()
        while True:
            result = self.scheduler.cycle(self.now_ms)
            for each in result.verdicts:
                if isinstance(each, Preemption):
                    assert not each.victims
                    self.promised.append((each.pod.name, each.node))
                elif isinstance(each, NominationEnded) and each.reason != "bound":
                    self.ended.append(each.reason)
            names = [each.pod.name for each in result.verdicts if isinstance(each, Placement)]
            self.running += [name for name in names if name.startswith("small")]
            placed |= set(names)
            if not self.scheduler.has_work:
                return placed

    def second(self) -> set[str]:
        """Let a second pass: the oldest small pod leaves, and another comes right before it."""
        self.now_ms += 1_000
        self.come()
        if self.running:
            self.tell(PodDeleted("default", self.running.popleft()))
        return self.cycle()

    def until_placed(self, name: str, seconds: int) -> int | None:
        for passed in range(1, seconds + 1):
            if name in self.second():
                return passed
        return None


def large(name: str = "large", priority: int = 0) -> Event:
    return PodUpserted(pod(name, template(4_000, priority=priority)))
