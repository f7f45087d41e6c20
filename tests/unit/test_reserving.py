"""Does a stream of small pods not hold off a large one for ever, and is a node kept free for nothing else?"""

from __future__ import annotations

from collections import deque

from domain.cycle.schedule import Scheduler
from domain.cycle.verdicts import Placement, Preemption
from domain.model.events import Event, NodeUpserted, PodDeleted, PodUpserted
from domain.model.profiles import BUILT_IN_PROFILES
from domain.state.changes import NominationEnded
from services.adapters.memory.ledger import state_of
from services.ports.log import TopicPartition
from tests.builders import Json, node_manifest, pod_manifest
from tests.property.site import Site, audit, planner_at
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
            self.scheduler.fold(event)

    def come(self) -> None:
        self.tell(PodUpserted(pod(f"small-{self._count}", SMALL)))
        self._count += 1

    def cycle(self) -> set[str]:
        """Return who was placed."""
        placed = set()
        while True:
            result = self.scheduler.cycle(self.now_ms)
            for _, each in result.promises:
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


def test_without_a_reservation_a_large_pod_starves() -> None:
    stream = Stream(wait_seconds=0)
    stream.tell(large())
    assert stream.until_placed("large", 600) is None


def test_a_node_is_kept_free_for_a_large_pod_after_a_while() -> None:
    stream = Stream()
    stream.tell(large())
    took = stream.until_placed("large", 600)
    assert took is not None
    assert WAIT_SECONDS < took < WAIT_SECONDS + 20
    ((name, node_name),) = stream.promised
    assert (name, stream.ended) == ("large", [])
    assert stream.scheduler.state.pods["default/large"].node == node_name


def test_one_at_a_time_and_the_highest_priority_first() -> None:
    stream = Stream()
    stream.tell(large("old"), large("high", priority=5), large("young"))
    for name in ("high", "old", "young"):
        assert stream.until_placed(name, 120) is not None, name
        stream.tell(PodDeleted("default", name))
    assert [name for name, _ in stream.promised] == ["high", "old", "young"]


def test_a_pod_that_no_node_could_hold_has_none_and_keeps_it_from_nobody() -> None:
    stream = Stream()
    stream.tell(PodUpserted(pod("huge", template(5_000, priority=9))), large())
    assert stream.until_placed("large", 120) is not None
    assert {name for name, _ in stream.promised} == {"large"}


def test_room_on_another_node_ends_it() -> None:
    stream = Stream()
    stream.tell(large())
    while not stream.promised:
        assert stream.until_placed("large", 1) is None
    stream.tell(NodeUpserted(node("c", cpu=12_000)))
    took = stream.until_placed("large", 15)
    assert took is not None
    assert stream.ended == ["elsewhere"]
    assert stream.scheduler.state.pods["default/large"].node == "c"


def test_a_node_that_can_hold_the_pod_no_longer_is_kept_no_longer() -> None:
    stream = Stream()
    stream.tell(large())
    while not stream.promised:
        stream.second()
    ((_, kept),) = stream.promised
    stream.tell(NodeUpserted(node(kept, cpu=3_000, version=2)))
    stream.second()
    stream.second()
    assert stream.ended == ["not-held"]


def test_who_is_more_important_is_not_held_off() -> None:
    stream = Stream()
    stream.tell(large())
    while not stream.promised:
        stream.second()
    stream.tell(PodUpserted(pod("urgent", template(1_000, priority=1))))
    assert stream.until_placed("urgent", 2) is not None


def test_nothing_is_kept_for_pods_that_are_placed_in_time() -> None:
    stream = Stream()
    for _ in range(120):
        stream.second()
    assert stream.promised == []


def test_a_replay_keeps_the_same_node_free_at_the_same_time() -> None:
    """Cycles that leave no trace are not in the journal: they must decide nothing that comes later."""
    first, again = Site(), Site()
    for site in (first, again):
        state = state_of(site.database, site.leases)
        settings = {"seed": 3, "backoff_ms": (1_000, 10_000), "reservation_seconds": 10}
        site.planner = planner_at(site.leases, state, **settings)

    def live(events: list[tuple[str, Json, int]]) -> None:
        fresh = records = first.records(events)
        for _ in range(9):
            if (batch := first.planner.plan(fresh)) is not None:
                first.database.apply(batch)
                ends, until_ms = first.planner.positions(), batch.log_time_ms
                told = [r for r in records if r.offset < ends[TopicPartition(r.topic, r.partition)]]
                records = records[len(told) :]
                again.database.apply(again.planner.plan_batch(told, is_recorded=True, until_ms=until_ms))
            fresh = []

    def small(number: int) -> Json:
        return pod_manifest(f"small-{number}", cpu="1")

    at_ms = 1_700_000_000_000
    live([("ADDED", node_manifest("n", cpu=4), at_ms)])
    live([("ADDED", small(i), at_ms) for i in range(4)])
    live([("ADDED", pod_manifest("large", cpu="4"), at_ms)])
    for number in range(4, 60):
        at_ms += 700
        live([("ADDED", small(number), at_ms)])
        placed = [row.opened.name for row in first.database.open_placements.values()]
        if placed != ["large"]:
            live([("DELETED", pod_manifest(min(placed, key=lambda e: int(e[6:])), cpu="1"), at_ms)])
    promised = [each for each in first.decided() if each["outcome"] == "nominated"]
    assert promised[0]["pod"]["name"] == "large"
    assert promised[0]["reason"].startswith("n is kept free for it; ")
    assert "large" in {each["pod"]["name"] for each in first.decided() if each["outcome"] == "bound"}
    assert again.database.decisions == first.database.decisions
    audit(first)
