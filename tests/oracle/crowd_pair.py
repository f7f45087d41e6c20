"""The scheduler beside the oracle on a crowd: node for node, and reason for reason.

The oracle knows nothing of groups or classes: it tries every waiting pod in every cycle. So the scheduler
must also find by itself which pods are worth an attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import CycleResult, Failure, Placement
from domain.model.decisions import Attempt
from domain.model.events import Event
from tests.oracle.crowds import Crowd, Size
from tests.oracle.pair import expected_facts, facts_of
from tests.oracle.placing import Look, Oracle
from tests.oracle.restarts import restarted


class CrowdPair:
    """A scheduler and the oracle, fed with the same history."""

    def __init__(self, size: Size) -> None:
        self.crowd = Crowd(size)
        self.scheduler = Scheduler(self.crowd.profiles, seed=size.seed)
        self.oracle = Oracle(self.crowd.profiles, seed=size.seed)
        self.placed_count = self.explained_count = 0
        self._told: set[str] = set()  # the facts of earlier attempts: a parked group tells them once more

    def run(self, between: Callable[[CrowdPair], None] = lambda pair: None) -> None:
        """Play the whole history."""
        for events in self.crowd.history():
            for event in events:
                self.feed(event)
            self.cycle()
            between(self)

    def feed(self, event: Event) -> None:
        self.scheduler.fold(event)
        self.oracle.take(event)

    def cycle(self) -> None:
        had_work = self.scheduler.has_work
        result, looks = self.scheduler.cycle(), self.oracle.cycle()
        placed = [look for look in looks if look.node]
        assert had_work or not placed, f"asleep, though {placed[0].pod.key} fits {placed[0].node}"
        self.same_verdicts(result, looks)
        self.same_reasons(result, {look.pod.key: look for look in looks})
        for look in placed:
            self.crowd.bind(look.pod.key, look.node)
        self.placed_count += len(placed)

    def same_verdicts(self, result: CycleResult, looks: Sequence[Look]) -> None:
        found = [
            (v.pod.key, v.node, v.score) if isinstance(v, Placement) else (v.pod.key, "", 0.0)
            for v in result.verdicts
        ]
        expected = [
            (look.pod.key, look.node, look.score if look.node else 0.0)
            for look in looks
            if look.node or look.first
        ]
        assert found == expected

    def same_reasons(self, result: CycleResult, looks: dict[str, Look]) -> None:
        """Compare what each attempt saw with what its pods saw, where every pod of it got a verdict."""
        of_attempt: dict[int, list[Placement | Failure]] = {}
        for verdict in result.tried:
            of_attempt.setdefault(verdict.attempt, []).append(verdict)
        for i, verdicts in of_attempt.items():
            attempt = result.attempts[i]
            if len(verdicts) == attempt.pods_count and not self._is_told_again(attempt):
                assert facts_of(attempt) == expected_facts([looks[v.pod.key] for v in verdicts])
                self.explained_count += 1
        self._told |= {told(attempt) for attempt in result.attempts}

    def _is_told_again(self, attempt: Attempt) -> bool:
        return not attempt.bound_count and told(attempt) in self._told


def told(attempt: Attempt) -> str:
    return f"{attempt.signature!r} {facts_of(attempt)}"


def restart_at_random(seed: int) -> Callable[[CrowdPair], None]:
    """Return what starts the scheduler anew, now and then, from what the ledger would hold."""
    random = Random(seed)

    def between(pair: CrowdPair) -> None:
        if random.random() < 0.4:
            pair.scheduler = restarted(pair.scheduler, pair.crowd.profiles)

    return between
