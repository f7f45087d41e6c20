"""Do threads change how long it takes, and nothing else?"""

from __future__ import annotations

from functools import partial
from random import Random

import numba
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.threads import measure_threads
from domain.cycle import slots as slots_module
from domain.cycle import windows
from domain.cycle.schedule import CycleResult, Placement, Scheduler
from domain.kernels.claiming import claim
from domain.manifests.profile import profile_from_manifest
from domain.model.decisions import Attempt
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.nodes import Taint
from services.worker.threads import threads_for
from tests.oracle.scenarios import Scenario, World, scenarios
from tests.values import node, pod, template

THREADS = [threads_for(count) for count in (1, 2, 4)]
Told = list[tuple[object, ...]]


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    scenario=scenarios(nodes_min=5, pods_max=300, groups_max=200),
    window=st.integers(2, 40),
    slots=st.sampled_from((2, 7, 4_096)),
)
def test_the_number_of_threads_decides_nothing(scenario: Scenario, window: int, slots: int) -> None:
    """With few slots a cycle takes many calls, each begun before the one before it is taken over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots_module, "_SLOTS_MIN", min(slots, 16))
        patch.setattr(slots_module, "_SLOTS_MAX", slots)
        patch.setattr(windows, "PODS_MIN", 1)
        patch.setattr(windows, "WINDOW", window)
        one, two, four = (played(scenario, threads) for threads in THREADS)
    assert two == four
    assert without_counts(one) == without_counts(two)


def played(scenario: Scenario, threads: windows.Threads) -> list[tuple[Told, Told]]:
    world = World(scenario)
    scheduler = Scheduler(world.profiles, seed=scenario.seed, threads=threads)
    told = []
    for event in world.first_nodes():
        scheduler.fold(event)
    for i in range(scenario.cycles):
        changes = world.changes(scenario.changes if i else 0)
        for event in (*world.new_pods(scenario.pods // scenario.cycles), *changes):
            scheduler.fold(event)
        told.append(everything(scheduler.cycle()))
    return told


def without_counts(told: list[tuple[Told, Told]]) -> list[tuple[Told, Told]]:
    """One thread looks at nothing ahead, so that no pod finds its row changed."""
    counts = [Attempt.__struct_fields__.index(name) for name in ("moved_count", "conflict_count")]
    return [
        (verdicts, [tuple(x for i, x in enumerate(facts) if i not in counts) for facts in attempts])
        for verdicts, attempts in told
    ]


def everything(result: CycleResult) -> tuple[Told, Told]:
    verdicts: Told = [
        (v.pod.key, v.attempt, v.node, v.node_version, v.score)
        if isinstance(v, Placement)
        else (v.pod.key, v.attempt)
        for v in result.verdicts
    ]
    attempts: Told = [
        tuple(getattr(attempt, name) for name in attempt.__struct_fields__) for attempt in result.attempts
    ]
    return verdicts, attempts


def test_pods_that_meet_on_a_node_are_counted_and_no_node_takes_too_much() -> None:
    """All groups want the same few nodes."""
    reports = measure_threads(nodes=40, groups=30, pods_per_group=4, turns=2)
    assert {report.scoring for report in reports} >= {"balanced", "packing"}
    assert sum(report.conflicts for report in reports) > 0
    assert sum(report.moved for report in reports) > 0
    assert [report.nodes_beyond_capacity for report in reports] == [0] * len(reports)


def test_where_lists_are_of_no_use_less_is_looked_ahead_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod fills the node of the highest raw score, and with it the extreme of all scores goes."""
    tried: list[int] = []
    note = windows.Governor.note

    def noted(governor: windows.Governor, lists_count: int, wasted_count: int) -> None:
        note(governor, lists_count, wasted_count)
        tried.append(governor.window)

    monkeypatch.setattr(windows.Governor, "note", noted)
    scores = [{"name": "NodeResourcesAllocatable", "args": {"mode": "Most"}}]
    profile = profile_from_manifest({"filters": ["NodeResourcesFit"], "scores": scores})
    scheduler = Scheduler({"default-scheduler": profile}, seed=0, threads=THREADS[1])
    for i in range(200):
        scheduler.fold(NodeUpserted(node(f"n{i}", cpu=1_000 + i, pods=1)))
    for i in range(150):
        scheduler.fold(PodUpserted(pod(f"p{i}", template(1 + i))))
    scheduler.cycle()
    assert min(tried) < windows.WINDOW // 8


def test_the_governor_widens_the_window_again() -> None:
    governor = windows.Governor()
    governor.note(40, 11)
    assert governor.window == windows.WINDOW // 2
    governor.note(20, 5)
    governor.note(40, 0)
    assert governor.window == windows.WINDOW


def test_work_is_done_once_it_was_waited_for() -> None:
    done: list[int] = []
    THREADS[2].start([partial(done.append, i) for i in range(9)])()
    assert sorted(done) == list(range(9))


def test_an_error_of_a_thread_is_not_lost() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        THREADS[1].start([fail])()


@numba.njit(nogil=True)
def _claim_all(counter: np.ndarray, owner: np.ndarray, name: int) -> None:
    k = claim(counter)
    while k < len(owner):
        owner[k] += name
        k = claim(counter)


def test_what_one_thread_claims_no_other_does() -> None:
    counter, owner = np.zeros(1, dtype=np.int64), np.zeros(2_000_000, dtype=np.int64)
    _claim_all(counter, owner[:0], 1)  # compiles
    counter[0] = 0
    THREADS[2].start([partial(_claim_all, counter, owner, 1 << (8 * name)) for name in range(3)])()
    assert set(owner.tolist()) <= {1, 1 << 8, 1 << 16}
    assert counter[0] == len(owner) + 3


@pytest.mark.parametrize("threads", THREADS[:2], ids=("one", "two"))
def test_a_list_ends_when_the_last_extreme_of_a_normalised_score_leaves(threads: windows.Threads) -> None:
    """Once the worst node is full, the second worst is the worst, and loses all it had been granted.

    That holds for each pod of the group that follows.
    """
    fit = {
        "name": "NodeResourcesFit",
        "args": {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 1}]}},
    }
    profile = profile_from_manifest(
        {"filters": ["NodeAffinity", "NodeResourcesFit"], "scores": ["TaintToleration", fit]}
    )
    scheduler = Scheduler({"default-scheduler": profile}, seed=1, threads=threads)
    bad, worse = (Taint(key, "x", "PreferNoSchedule") for key in ("bad", "worse"))
    for spec in (
        node("worst", cpu=1_000, pods=1, labels={"name": "worst"}, taints=(bad, worse)),
        node("large", cpu=10_000, taints=(bad,)),
        node("small", cpu=1_000),
        node("small too", cpu=1_000),
    ):
        scheduler.fold(NodeUpserted(spec))
    scheduler.fold(PodUpserted(pod("first", template(100, node_selector={"name": "worst"}), version=1)))
    for version, name in ((2, "second"), (3, "third")):
        scheduler.fold(PodUpserted(pod(name, template(700), version=version)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "PODS_MIN", 1)
        result = scheduler.cycle()
    first, *others = [getattr(verdict, "node", "") for verdict in result.verdicts]
    assert (first, sorted(others)) == ("worst", ["small", "small too"])


@pytest.mark.parametrize("seed", range(40))
def test_lists_of_normalised_scores_are_right_while_nodes_fill_up(seed: int) -> None:
    """Nodes for one or two pods, so that the extremes leave often, and groups of many pods in a window."""
    random = Random(seed)
    kind = random.choice(("LeastAllocated", "MostAllocated"))
    fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": kind}}}
    profile = profile_from_manifest(
        {"filters": ["NodeAffinity", "NodeResourcesFit"], "scores": ["TaintToleration", fit]}
    )
    repelling = [Taint(key, "x", "PreferNoSchedule") for key in "abcd"]
    nodes = [
        node(
            f"n{i}",
            cpu=random.choice((1_000, 2_000, 10_000)),
            pods=random.choice((1, 1, 2, 110)),
            labels={"name": f"n{i % 4}"},
            taints=tuple(random.sample(repelling, random.choice((0, 0, 1, 2, 3, 4)))),
        )
        for i in range(random.choice((4, 8, 30)))
    ]
    shapes = [
        template(cpu, node_selector={"name": f"n{random.randrange(4)}"} if random.random() < 0.5 else {})
        for cpu in random.choices((100, 300, 700), k=random.choice((2, 4, 12)))
    ]
    pods = [pod(f"p{i}", random.choice(shapes)) for i in range(random.choice((10, 30, 60)))]
    told = []
    for threads in (windows.IN_LINE, windows.Threads(count=2)):
        scheduler = Scheduler({"default-scheduler": profile}, seed=1, threads=threads)
        for spec in nodes:
            scheduler.fold(NodeUpserted(spec))
        for each in pods:
            scheduler.fold(PodUpserted(each))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(windows, "PODS_MIN", 1)
            told.append(everything(scheduler.cycle())[0])
    assert told[0] == told[1]
