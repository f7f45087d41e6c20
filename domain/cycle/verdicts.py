"""What a cycle decided: placements, pods that found no node, and the attempts that explain both."""

from __future__ import annotations

import msgspec

from domain.cycle.matchers import Matcher
from domain.model.decisions import Attempt
from domain.model.pods import PodSpec
from domain.state.changes import NominationEnded


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A pod and the best node for it. ``node_version`` is the node's version with the pod on it.

    ``is_promised``: the node was promised to the pod, so that nothing was scored.
    """

    pod: PodSpec
    arrival: int
    attempt: int
    node: str
    node_version: int
    score: float
    is_promised: bool = False


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A pod that found no node at its first attempt, and waits from now on."""

    pod: PodSpec
    arrival: int
    attempt: int


class Preemption(msgspec.Struct, frozen=True, gc=False):
    """A pod that found no node, and one that is promised to it once its ``victims`` have left.

    ``node_version`` is the node's version with the promise; ``violations`` counts disruption budgets that the
    victims break, and ``budgets`` names all that count them. The promise ends at ``expires_ms`` (log time).
    """

    pod: PodSpec
    arrival: int
    attempt: int
    node: str
    node_version: int
    victims: tuple[PodSpec, ...]
    violations: int
    expires_ms: int
    budgets: tuple[str, ...] = ()


class CycleResult(msgspec.Struct, frozen=True):
    """What a cycle decided, in the order in which pods were placed.

    That is the order (priority, arrival), of those first that were placed on home nodes. Where other workers
    place pods too, ``matchers`` are those of the attempts that have rules over other pods, by their index.
    ``promises`` say which nodes were promised, and which promises ended, each before the verdict with its
    number.
    ``gangs`` says of each gang of which pods were placed how many of these must keep their nodes, so that the
    others may.
    ``strict`` are the indices of attempts that ask for more of a node than its spec and room.
    """

    attempts: list[Attempt]
    verdicts: list[Placement | Failure]
    matchers: dict[int, tuple[Matcher, ...]] = {}
    strict: set[int] = set()
    gangs: dict[str, int] = {}
    promises: list[tuple[int, Preemption | NominationEnded]] = []
