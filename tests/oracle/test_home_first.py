"""Does a worker of some shards place as two plain passes do: on its home nodes first, then on all?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from domain.cycle.schedule import Scheduler
from domain.engine import bounds as bounds_module
from domain.engine import slots as slots_module
from domain.engine.homes import Homes
from domain.engine.slots import GroupSlots
from domain.engine.verdicts import AnyVerdict, CycleResult, Placement
from domain.model.events import Event, NodeUpserted, PodUpserted
from domain.model.pods import NodeAffinity, NodeSelectorTerm, PreferredTerm, Requirement
from domain.model.profiles import BUILT_IN_PROFILES
from domain.state.steps import Owned
from tests.depth import examples, some
from tests.oracle.crowd_pair import CrowdPair
from tests.oracle.crowds import size_of
from tests.oracle.pair import Pair
from tests.oracle.placing import Look, Oracle
from tests.oracle.scenarios import Scenario, World, scenarios
from tests.values import node, pod, template

NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)  # an example takes too long to shrink hundreds
homes = settings(
    deadline=None, max_examples=examples(150), phases=NO_SHRINKING, suppress_health_check=list(HealthCheck)
)
shards = st.integers(2, 4)
owned = st.frozensets(st.integers(0, 3), min_size=1, max_size=3)


def shard_of(event: Event, shards_count: int, of_pods: int) -> int:
    """Return the shard of a node's name; pods are of one that the worker holds all the time."""
    return sum(event.node.name.encode()) % shards_count if isinstance(event, NodeUpserted) else of_pods


def learn_homes(oracle: Oracle, scheduler: Scheduler) -> set[str]:
    """Tell the oracle the nodes' ids and which of them are tried first; return these."""
    state = scheduler.state
    ids = {name: entry.ordinal for name, entry in state.nodes.items()}
    oracle.ordinals = {name: ids[name] for name in oracle.ordinals}
    for name, known in oracle.nodes.items():
        known.ordinal = ids[name]
    oracle.home = {name for name in oracle.nodes if ids[name] % state.shards_count in state.own}
    return oracle.home


class HomePair(Pair):
    """A worker of some shards beside the oracle."""

    def __init__(self, world: World, own: frozenset[int], shards_count: int) -> None:
        super().__init__(world)
        self.of_pods = min(own)
        self.scheduler.fold(Owned(frozenset(own), shards_count))

    def feed(self, events: Sequence[Event]) -> None:
        for event in events:
            shard = shard_of(event, self.scheduler.state.shards_count, self.of_pods)
            self.scheduler.fold(event, shard)
            self.oracle.take(event)

    def cycle(self) -> CycleResult:
        home = learn_homes(self.oracle, self.scheduler)
        result = super().cycle()
        divided = 0 < len(home) < len(self.oracle.nodes)
        for verdict in result.tried:
            attempt = result.attempts[verdict.attempt]
            if isinstance(verdict, Placement) and divided and attempt.nodes_home:
                assert verdict.node in home
                assert {candidate.node for candidate in attempt.candidates} <= home
            else:
                assert attempt.nodes_home is msgspec.UNSET
        for attempt in result.attempts:
            looked_at = attempt.nodes_home or attempt.nodes_count
            assert attempt.nodes_home is msgspec.UNSET or attempt.nodes_home == len(home)
            if attempt.reasons != {"no-nodes": 0} and attempt.candidates:
                assert attempt.feasible_count + sum(attempt.reasons.values()) == looked_at
        return result


@settings(homes)
@given(scenario=scenarios(nodes_min=2), shards_count=shards, own=owned)
def test_home_first_is_two_plain_passes(scenario: Scenario, shards_count: int, own: frozenset[int]) -> None:
    HomePair(World(scenario), own, shards_count).run()


@settings(homes, max_examples=examples(60))
@given(
    scenario=scenarios(nodes_min=9, pods_max=300, groups_max=300),
    shards_count=shards,
    own=owned,
    span=st.sampled_from((1, 2, 4)),
    twins_from=st.sampled_from((0, 2, 8)),
)
def test_bounds_hold_for_home_nodes_too(
    scenario: Scenario, shards_count: int, own: frozenset[int], span: int, twins_from: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds_module, "SPAN", span)
        patch.setattr(bounds_module, "EQUAL_ROWS_FROM", twins_from)
        HomePair(World(scenario), own, shards_count).run()


@settings(homes, max_examples=examples(60))
@given(scenario=scenarios(nodes_min=2), owners=st.lists(owned, min_size=6, max_size=6))
@pytest.mark.parametrize("slots_max", [2, 64])
def test_shards_may_come_and_go(scenario: Scenario, owners: Sequence[frozenset[int]], slots_max: int) -> None:
    """What was computed for other home nodes is not used, whatever was kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots_module, "_CACHED_MIN", 2)
        pair = HomePair(World(scenario), owners[-1], 4)
        scheduler, again = pair.scheduler, iter(owners)
        scheduler._slots = GroupSlots(
            scheduler.state, scheduler._snapshot, slots_max=slots_max, bytes_max=1, homes=scheduler._homes
        )
        pair.run(lambda: pair.scheduler.fold(Owned(frozenset(next(again) | {pair.of_pods}), 4)))


@pytest.mark.parametrize("seed", some(range(60)))
def test_rules_between_pods_count_on_all_nodes(seed: int) -> None:
    """One cycle, in which both passes try every pod: what a placement wakes is tried in the next one."""
    run_crowd(seed)


class HomeCrowd(CrowdPair):
    """A crowd seen by a worker of some shards."""

    def same_reasons(self, result: CycleResult, looks: dict[str, Look]) -> None:
        """Leave out home attempts of groups whose first pod may have found no node at home."""
        abroad = {v.pod.signature for v in result.tried if not result.attempts[v.attempt].nodes_home}
        told: list[AnyVerdict] = [
            v
            for v in result.tried
            if v.pod.signature not in abroad or not result.attempts[v.attempt].nodes_home
        ]
        super().same_reasons(CycleResult(result.attempts, told), looks)


def run_crowd(seed: int) -> None:
    pair = HomeCrowd(size_of(seed, work_max=6_000))
    pair.scheduler.fold(Owned(frozenset({seed % 2}), 2 + seed % 3))
    for event in next(iter(pair.crowd.history())):
        pair.scheduler.fold(event, shard_of(event, 2 + seed % 3, seed % 2))
        pair.oracle.take(event)
    learn_homes(pair.oracle, pair.scheduler)
    pair.cycle()


@pytest.mark.wide
def test_a_worker_that_takes_every_node_for_home_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Homes, "among", lambda self, rows: rows >= 0)
    with pytest.raises(AssertionError):
        run_crowds()


def run_crowds() -> None:
    for seed in range(60):
        run_crowd(seed)


@settings(homes, max_examples=examples(30))
@given(scenario=scenarios(), shards_count=shards)
def test_one_owner_of_all_shards_looks_once(scenario: Scenario, shards_count: int) -> None:
    world, again = World(scenario), World(scenario)
    plain, owner = (Scheduler(world.profiles, seed=1) for _ in range(2))
    owner.fold(Owned(frozenset(range(shards_count)), shards_count))
    for scheduler, of in ((plain, world), (owner, again)):
        for event in [*of.first_nodes(), *of.new_pods(scenario.pods)]:
            scheduler.fold(event)
    assert msgspec.json.encode(plain.cycle()) == msgspec.json.encode(owner.cycle())


def test_who_finds_no_node_is_told_of_all_nodes() -> None:
    scheduler = Scheduler(World(Scenario(1, 0, 0, 0, 1, 1)).profiles, seed=1)
    scheduler.fold(Owned(frozenset({0}), 2))
    for i in range(4):
        scheduler.fold(NodeUpserted(node(f"n{i}", cpu=1_000)), i % 2)
    scheduler.fold(PodUpserted(pod("large", template(2_000))))
    result = scheduler.cycle()
    (attempt,) = result.attempts
    assert attempt.nodes_home is msgspec.UNSET
    assert attempt.reasons_at_failure == {"insufficient:cpu": 4}


def _prefers_fast() -> NodeAffinity:
    return NodeAffinity(
        preferred=(PreferredTerm(100, NodeSelectorTerm((Requirement("disk", "In", ("fast",)),))),)
    )


@pytest.mark.parametrize("prefers", [True, False])
def test_a_group_that_prefers_some_nodes_looks_at_all_of_them(prefers: bool) -> None:
    """The node with the label has room for all, and is not home: names, and so shards, decide nothing."""
    affinity = _prefers_fast() if prefers else None
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    scheduler.fold(Owned(frozenset({0}), 2))
    scheduler.fold(NodeUpserted(node("slow", cpu=8_000)), 0)
    scheduler.fold(NodeUpserted(node("fast", cpu=8_000, labels={"disk": "fast"})), 1)
    for i in range(6):
        asked = template(1_000, node_affinity=affinity, profile="default-scheduler")
        scheduler.fold(PodUpserted(pod(f"p{i}", asked)))
    placed = [each for each in scheduler.cycle().verdicts if isinstance(each, Placement)]
    assert [each.node for each in placed] == ["fast" if prefers else "slow"] * 6


def test_lower_priority_takes_no_home_node_before_a_group_that_looks_at_all() -> None:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    scheduler.fold(Owned(frozenset({0}), 2))
    scheduler.fold(NodeUpserted(node("fast", cpu=1_000, labels={"disk": "fast"})), 0)
    scheduler.fold(NodeUpserted(node("slow", cpu=1_000)), 1)
    low = template(1_000, profile="default-scheduler", priority=1)
    high = template(1_000, profile="default-scheduler", priority=2, node_affinity=_prefers_fast())
    scheduler.fold(PodUpserted(pod("low", low)))
    scheduler.fold(PodUpserted(pod("high", high)))
    where = {each.pod.key: each.node for each in scheduler.cycle().verdicts if isinstance(each, Placement)}
    assert where == {"default/high": "fast", "default/low": "slow"}
