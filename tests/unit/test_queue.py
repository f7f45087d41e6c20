"""Are waiting pods tried at the right moment, in the right order, and not before?"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import CycleResult, Failure, Placement
from domain.model.events import Event, NodeDeleted, NodeUpserted, PodDeleted, PodUpserted
from domain.model.nodes import Taint
from domain.model.pods import NodeAffinity, NodeSelectorTerm, PodTemplate, Requirement
from domain.model.profiles import BUILT_IN_PROFILES
from tests.values import node, pod, template


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler(BUILT_IN_PROFILES, seed=1)


def run(scheduler: Scheduler, *events: Event) -> CycleResult:
    for event in events:
        scheduler.fold(event)
    return scheduler.cycle()


def placed(result: CycleResult) -> dict[str, str]:
    return {v.pod.name: v.node for v in result.verdicts if isinstance(v, Placement)}


def failed(result: CycleResult) -> dict[str, dict[str, int]]:
    return {
        v.pod.name: result.attempts[v.attempt].reasons_at_failure
        for v in result.verdicts
        if isinstance(v, Failure)
    }


SMALL, LARGE = template(1_000), template(4_000)
IN_ZONE_A = template(
    1_000,
    node_affinity=NodeAffinity(required=(NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),)),
)


@pytest.mark.parametrize(
    ("waits", "reason", "cure"),
    [
        (LARGE, "insufficient:cpu", PodDeleted("default", "first")),
        (LARGE, "insufficient:cpu", PodUpserted(pod("first", LARGE, version=2, finished=True))),
        (LARGE, "insufficient:cpu", NodeUpserted(node("b"))),
        (LARGE, "insufficient:cpu", NodeUpserted(node("a", cpu=8_000, version=2))),
        (template(0, 0, 80), "host-port-conflict", PodDeleted("default", "first")),
        (template(1), "too-many-pods", NodeUpserted(node("a", pods=2, version=2))),
        (SMALL, "node-unschedulable", NodeUpserted(node("a", version=2))),
        (SMALL, "untolerated-taint", NodeUpserted(node("a", version=2))),
        (IN_ZONE_A, "node-affinity", NodeUpserted(node("a", version=2, labels={"zone": "a"}))),
        (SMALL, "no-nodes", NodeUpserted(node("a"))),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_event_that_cures_wakes(
    scheduler: Scheduler, waits: PodTemplate, reason: str, cure: Event
) -> None:
    before: list[Event] = []
    match reason:
        case "insufficient:cpu":
            before = [NodeUpserted(node("a")), PodUpserted(pod("first", LARGE))]
        case "host-port-conflict":
            before = [NodeUpserted(node("a")), PodUpserted(pod("first", waits))]
        case "too-many-pods":
            before = [NodeUpserted(node("a", pods=1)), PodUpserted(pod("first"))]
        case "node-unschedulable":
            before = [NodeUpserted(node("a", unschedulable=True))]
        case "untolerated-taint":
            before = [NodeUpserted(node("a", taints=(Taint("t"),)))]
        case "node-affinity":
            before = [NodeUpserted(node("a", labels={"zone": "b"}))]
    result = run(scheduler, *before, PodUpserted(pod("p", waits)))
    assert [list(reasons) for reasons in failed(result).values()] == [[reason]]
    assert not scheduler.has_work
    assert list(placed(run(scheduler, cure))) == ["p"]
    assert not scheduler.queue.groups


@pytest.mark.parametrize(
    "event",
    [
        PodDeleted("default", "tiny"),
        NodeUpserted(node("b", cpu=3_999)),
        NodeUpserted(node("a", cpu=4_500, version=2)),
        NodeUpserted(node("a", version=2, labels={"zone": "a"})),
        NodeDeleted("a"),
        PodUpserted(pod("other", template(10))),
        PodUpserted(pod("bound", template(10), on="a")),
    ],
    ids=["pod-deleted", "node-added", "node-larger", "label", "node-gone", "pod-added", "pod-bound"],
)
def test_an_event_that_gives_no_room_costs_no_attempt(scheduler: Scheduler, event: Event) -> None:
    tiny, large = pod("tiny", template(100)), pod("p", LARGE)
    others = pod("other", template(10)).signature
    result = run(
        scheduler,
        NodeUpserted(node("a")),
        PodUpserted(pod("large", LARGE, on="a")),
        PodUpserted(pod("tiny", template(100), on="a")),
        PodUpserted(large),
    )
    assert list(failed(result)) == ["p"]
    assert tiny.signature != large.signature
    after = run(scheduler, event)
    assert [a.signature for a in after.attempts if a.signature != others] == []
    assert not scheduler.has_work


@pytest.mark.parametrize("is_kept", [True, False])
def test_room_on_a_node_that_the_group_may_not_use_costs_one_attempt_and_no_more(
    scheduler: Scheduler, is_kept: bool
) -> None:
    """Whether the group's program is still kept: a replay may keep others, and must try the same groups."""
    run(scheduler, NodeUpserted(node("a", cpu=0)), PodUpserted(pod("p", IN_ZONE_A)))
    if not is_kept:
        scheduler._slots.forget()
    result = run(scheduler, NodeUpserted(node("b")), PodUpserted(pod("other", template(10), on="b")))
    assert [(a.pods_count, a.bound_count) for a in result.attempts] == [(1, 0)]
    assert result.verdicts == []
    assert not scheduler.has_work
    assert run(scheduler).attempts == []
    if not is_kept:
        scheduler._slots.forget()
    assert run(scheduler, PodDeleted("default", "other")).attempts == []


def test_room_taken_in_the_same_batch_wakes_nobody(scheduler: Scheduler) -> None:
    run(
        scheduler,
        NodeUpserted(node("a")),
        PodUpserted(pod("one", LARGE, on="a")),
        PodUpserted(pod("p", LARGE)),
    )
    two = pod("two", LARGE, on="a")
    assert run(scheduler, PodDeleted("default", "one"), PodUpserted(two)).attempts == []


def test_an_improved_row_is_followed_when_rows_are_renumbered(scheduler: Scheduler) -> None:
    full = [NodeUpserted(node(name, cpu=4_000)) for name in "abc"]
    holders = [PodUpserted(pod(f"on-{name}", LARGE, on=name)) for name in "abc"]
    assert list(failed(run(scheduler, *full, *holders, PodUpserted(pod("p", LARGE))))) == ["p"]
    result = run(scheduler, PodDeleted("default", "on-c"), NodeDeleted("a"))
    assert placed(result) == {"p": "c"}


@pytest.mark.parametrize("gone", ["a", "b", "d"])
@pytest.mark.parametrize("reasons", [{"node-affinity"}, {"node-affinity", "insufficient:cpu"}])
def test_it_does_not_matter_who_wakes_which_row_a_node_has(
    scheduler: Scheduler, gone: str, reasons: set[str]
) -> None:
    """The last node takes the row of one that is gone. Which one is last depends on what came before."""
    zones = {"d": "b", "a": "b", "b": "b", "c": "b", "keep": "a" if len(reasons) > 1 else "b"}
    nodes = [NodeUpserted(node(name, cpu=4_000, labels={"zone": zone})) for name, zone in zones.items()]
    last = "c" if gone == "d" else "keep"
    nodes.sort(key=lambda event: event.node.name == last)
    held = [PodUpserted(pod(f"on-{name}", LARGE, on=name)) for name in ("c", "keep")]
    result = run(scheduler, *nodes, *held, PodUpserted(pod("p", IN_ZONE_A)))
    assert failed(result)["p"].keys() == reasons
    after = run(scheduler, PodDeleted("default", "on-c"), NodeDeleted(gone))
    assert after.attempts == []


def test_order_is_priority_then_arrival(scheduler: Scheduler) -> None:
    one_each = [NodeUpserted(node("a", pods=3))]
    pods = [
        pod("low", template(10, priority=-1)),
        pod("second", template(10)),
        pod("third", template(20)),
        pod("high", template(10, priority=100)),
        pod("fourth", template(10)),
    ]
    result = run(scheduler, *one_each, *(PodUpserted(p) for p in pods))
    assert [v.pod.name for v in result.verdicts] == ["high", "second", "third", "fourth", "low"]
    assert list(placed(result)) == ["high", "second", "third"]


def test_older_pods_of_a_woken_group_go_before_newer_ones(scheduler: Scheduler) -> None:
    run(scheduler, *(PodUpserted(pod(f"old-{i}", SMALL)) for i in range(3)))
    result = run(scheduler, PodUpserted(pod("new", SMALL)), NodeUpserted(node("a", cpu=2_000)))
    assert list(placed(result)) == ["old-0", "old-1"]
    assert list(failed(result)) == ["new"]


def test_woken_pods_are_tried_in_bounded_portions(scheduler: Scheduler) -> None:
    scheduler.cycle_pods_max = 2
    run(scheduler, *(PodUpserted(pod(f"p{i}", SMALL)) for i in range(5)))
    while scheduler.has_work:  # they are told why they wait
        run(scheduler)
    portions = [list(placed(run(scheduler, NodeUpserted(node("a", cpu=9_000)))))]
    while scheduler.has_work:
        portions.append(list(placed(run(scheduler))))
    assert portions == [["p0", "p1"], ["p2", "p3"], ["p4"]]


def test_later_pods_of_a_parked_group_are_told_why_without_an_attempt(scheduler: Scheduler) -> None:
    first = run(scheduler, NodeUpserted(node("a", cpu=500)), PodUpserted(pod("p", SMALL)))
    second = run(scheduler, PodUpserted(pod("q", SMALL)), PodUpserted(pod("r", SMALL)))
    assert failed(second) == {"q": {"insufficient:cpu": 1}, "r": {"insufficient:cpu": 1}}
    assert [a.generation for a in second.attempts] == [a.generation for a in first.attempts]
    assert [a.pods_count for a in second.attempts] == [2]


@pytest.mark.parametrize(
    ("shape", "reasons"),
    [
        (template(10, profile="nobody"), {"unknown-profile:nobody": 1}),
        (template(10, gates=("wait",)), {"scheduling-gated:wait": 1}),
        (template(10, unsupported=("volume-claims",)), {"unsupported:volume-claims": 1}),
    ],
    ids=["profile", "gate", "unsupported"],
)
def test_what_must_not_be_placed_waits_with_the_reason(
    scheduler: Scheduler, shape: PodTemplate, reasons: dict[str, int]
) -> None:
    result = run(scheduler, NodeUpserted(node("a")), PodUpserted(pod("p", shape)))
    assert failed(result) == {"p": reasons}
    assert result.attempts[0].unresolvable
    assert run(scheduler, NodeUpserted(node("b"))).attempts == []


def test_a_gate_that_is_lifted_lets_the_pod_go(scheduler: Scheduler) -> None:
    run(scheduler, NodeUpserted(node("a")), PodUpserted(pod("p", template(10, gates=("wait",)))))
    assert placed(run(scheduler, PodUpserted(pod("p", template(10), version=2)))) == {"p": "a"}


@pytest.mark.parametrize(
    "leave",
    [
        lambda: PodDeleted("default", "p"),
        lambda: PodUpserted(pod("p", LARGE, version=2, finished=True)),
        lambda: PodUpserted(pod("p", LARGE, version=2, on="elsewhere")),
    ],
    ids=["deleted", "finished", "bound by another"],
)
@pytest.mark.parametrize("fresh", [True, False])
def test_a_pod_that_leaves_is_not_tried_again(
    scheduler: Scheduler, leave: Callable[[], Event], fresh: bool
) -> None:
    scheduler.fold(PodUpserted(pod("p", LARGE)))
    if not fresh:
        scheduler.cycle()
    scheduler.fold(leave())
    assert scheduler.queue.groups == {}
    assert run(scheduler, NodeUpserted(node("a"))).verdicts == []


def test_a_restored_pod_is_tried_once_and_is_no_news(scheduler: Scheduler) -> None:
    """Its failure was recorded before the restart."""
    scheduler.state.restore_node(name="a", ordinal=1, version=1, spec=node("a", cpu=0), deleted=False)
    scheduler.restore_pod(pod("p", template(10, requests={f"x.io/{i}": 1 for i in range(9)})))
    result = scheduler.cycle()
    assert (len(result.attempts), result.verdicts) == (1, [])
    assert not scheduler.has_work


@pytest.mark.parametrize("is_asked", [False, True], ids=["unasked", "asked"])
def test_to_ask_whether_there_is_work_changes_nothing(is_asked: bool) -> None:
    """A worker asks between two batches, and a replay of these does not."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1, backoff_ms=(1_000, 10_000))
    scheduler.fold(NodeUpserted(node("a", cpu=2_000)))
    scheduler.fold(PodUpserted(pod("p", LARGE)))
    assert list(failed(scheduler.cycle(100))) == ["p"]
    scheduler.fold(NodeUpserted(node("b")))
    scheduler.fold(PodUpserted(pod("fresh", LARGE)))
    if is_asked:
        assert scheduler.has_work
    scheduler.fold(PodDeleted("default", "fresh"))
    assert placed(scheduler.cycle(200)) == {}, "it backs off: no pod is left that came since"
    assert placed(scheduler.cycle(1_100)) == {"p": "b"}
