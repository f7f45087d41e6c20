"""What a cycle decided: placements, pods that found no node, and the attempts that explain both."""

from __future__ import annotations

import msgspec

from domain.cycle.matchers import Matcher
from domain.model.decisions import Attempt
from domain.model.pods import PodSpec


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A pod and the best node for it. ``node_version`` is the node's version with the pod on it."""

    pod: PodSpec
    arrival: int
    attempt: int
    node: str
    node_version: int
    score: float


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A pod that found no node at its first attempt, and waits from now on."""

    pod: PodSpec
    arrival: int
    attempt: int


class CycleResult(msgspec.Struct, frozen=True):
    """What a cycle decided, in the order in which pods were placed.

    That is the order (priority, arrival), of those first that were placed on home nodes. Where other workers
    place pods too, ``matchers`` are those of the attempts that have rules over other pods, by their index.
    ``strict`` are the indices of attempts that ask for more of a node than its spec and room.
    """

    attempts: list[Attempt]
    verdicts: list[Placement | Failure]
    matchers: dict[int, tuple[Matcher, ...]] = {}
    strict: set[int] = set()
