"""The scheduler beside the oracle: both see the same events, and must say the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import CycleResult, Placement
from domain.model.decisions import Attempt
from domain.model.events import Event
from tests.oracle.placing import Look, Oracle
from tests.oracle.scenarios import World

Facts = tuple[dict[str, int], int, list[tuple[str, float, dict[str, float]]], dict[str, int], bool]


class Pair:
    """A scheduler and the oracle, fed with the same events."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.scheduler = Scheduler(world.profiles, seed=world.scenario.seed)
        self.oracle = Oracle(world.profiles, seed=world.scenario.seed)
        self._parked: dict[bytes, Facts] = {}

    def feed(self, events: Sequence[Event]) -> None:
        for event in events:
            self.scheduler.fold(event)
            self.oracle.take(event)

    def cycle(self) -> CycleResult:
        result = self.scheduler.cycle()
        assert_same(result, self.oracle.cycle(), self._parked, by_home=self.oracle.home is not None)
        return result

    def run(self, between: Callable[[], object] = lambda: None) -> None:
        """Play the whole scenario: nodes, then in every cycle some pods and some changes."""
        world, scenario = self.world, self.world.scenario
        self.feed(world.first_nodes())
        for i in range(scenario.cycles):
            share = scenario.pods // scenario.cycles + (i == 0) * (scenario.pods % scenario.cycles)
            self.feed(world.new_pods(share))
            self.feed(world.changes(0 if i == 0 else scenario.changes))
            self.cycle()
            between()
        for name, entry in self.scheduler.state.nodes.items():
            on_it = {key for key, pod in self.oracle.pods.items() if pod.node == name}
            assert set(entry.pods) == on_it


def assert_same(
    result: CycleResult, looks: Sequence[Look], parked: dict[bytes, Facts], *, by_home: bool = False
) -> None:
    """Let both place pods. The oracle tries every waiting pod, the scheduler only those worth an attempt.

    ``parked`` remembers the verdict that parked each group. Its later pods get it without an attempt.
    Where home nodes come first, pods that are refused without an attempt are told so before all others.
    """
    found = [
        (v.pod.key, v.node, v.score) if isinstance(v, Placement) else (v.pod.key, "", 0.0)
        for v in result.verdicts
    ]
    expected = [
        (look.pod.key, look.node, look.score) if look.node else (look.pod.key, "", 0.0)
        for look in looks
        if look.node or look.first
    ]
    if by_home:
        assert sorted(found) == sorted(expected)
        found, expected = ([each for each in of if each[1]] for of in (found, expected))
    assert found == expected
    of_group: dict[bytes, list[Look]] = {}
    for look in looks:
        of_group.setdefault(look.pod.signature, []).append(look)
    for signature in parked.keys() - of_group.keys():
        del parked[signature]
    assert {attempt.signature for attempt in result.attempts} <= of_group.keys()
    for verdict in result.tried:
        assert result.attempts[verdict.attempt].signature == verdict.pod.signature
    for signature, group in of_group.items():
        attempts = [attempt for attempt in result.attempts if attempt.signature == signature]
        assert_same_group(attempts, group, parked)


def assert_same_group(attempts: Sequence[Attempt], looks: Sequence[Look], parked: dict[bytes, Facts]) -> None:
    rest = list(looks)
    assert sum(attempt.pods_count for attempt in attempts) <= len(looks)
    for attempt in attempts:
        facts = facts_of(attempt)
        if attempt.bound_count or facts != parked.get(attempt.signature):
            assert facts == expected_facts(rest[: attempt.pods_count])
            assert attempt.bound_count == sum(1 for look in rest[: attempt.pods_count] if look.node)
            del rest[: attempt.pods_count]
        if attempt.reasons_at_failure:
            parked[attempt.signature] = facts
    assert not [look for look in rest if look.node]
    assert not [look for look in looks if (look.node or look.first) and not attempts]


def facts_of(attempt: Attempt) -> Facts:
    return (
        attempt.reasons,
        attempt.unresolvable_count,
        [(candidate.node, candidate.score, candidate.parts) for candidate in attempt.candidates],
        attempt.reasons_at_failure,
        attempt.unresolvable,
    )


def expected_facts(looks: Sequence[Look]) -> Facts:
    first = looks[0]
    without = next((look for look in looks if not look.node), None)
    hopeless = without is not None and without.hopeless
    at_failure = without.reasons if without else {}
    return (first.reasons, first.unresolvable_count, first.candidates, at_failure, hopeless)
