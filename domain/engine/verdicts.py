"""What a cycle decided: placements, pods that found no node, and the attempts that explain both."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from domain.counting.matchers import Matcher
from domain.model.colocation import Amounts
from domain.model.decisions import Attempt
from domain.model.pods import PodSpec
from domain.state.changes import MovesEnded, NominationEnded


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A pod and the best node for it. ``node_version`` is the node's version with the pod on it.

    ``is_nominated``: the pod was nominated for the node, so that nothing was scored.
    """

    pod: PodSpec
    arrival: int
    attempt: int
    node: str
    node_version: int
    score: float
    is_nominated: bool = False


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A pod that found no node at its first attempt, and waits from now on."""

    pod: PodSpec
    arrival: int
    attempt: int


class Preemption(msgspec.Struct, frozen=True, gc=False):
    """A pod that found no node, and is nominated for one once its ``victims`` have left.

    ``node_version`` is the node's version with the nomination; ``violations`` counts disruption budgets that
    the victims break, and ``budgets`` names all that count them. The nomination ends at ``expires_ms`` (log
    time).
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


class Moved(NamedTuple):
    """A pod that leaves a hot node, what it is expected to use, and where a dry run found room for it."""

    pod: PodSpec
    estimate: Amounts
    target: str


class Migration(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Pods leave a hot node, so that it has less to do; what replaces them is placed as any other pod.

    ``shard`` is that of the node, ``node_version`` its version with the decision. ``why`` are the signs by
    which the node is hot, ``budgets`` name the disruption budgets that count the pods.
    """

    node: str
    node_version: int
    shard: int
    why: tuple[str, ...]
    moves: tuple[Moved, ...]
    budgets: tuple[str, ...] = ()


AnyVerdict = Placement | Failure | Preemption | NominationEnded
"""What a cycle may decide about a pod."""


class CycleResult(msgspec.Struct, frozen=True):
    """What a cycle decided, in one order.

    Pods were placed in the order (priority, arrival), those first that were placed on home nodes.

    Attributes
    ----------
    attempts : list of Attempt
        What explains the verdicts, which name them by their index.
    verdicts : list
        Pods that were placed and pods that found no node, and among them which nominations began and ended.
    matchers : dict
        Where other workers place pods too: those of the attempts that have rules over other pods.
    strict : set of int
        The attempts that ask for more of a node than its spec and room.
    gangs : dict
        Of each gang of which pods were placed, how many of these must keep their nodes, so that the others
        may.
    moves : list
        Pods that leave hot nodes, and before these the ones that were to leave and stay.
    looked_at : set of str
        The hot nodes for which pods to move were sought.
    """

    attempts: list[Attempt]
    verdicts: list[AnyVerdict]
    matchers: dict[int, tuple[Matcher, ...]] = {}
    strict: set[int] = set()
    gangs: dict[str, int] = {}
    moves: list[Migration | MovesEnded] = []
    looked_at: set[str] = set()

    @property
    def tried(self) -> list[Placement | Failure]:
        """The verdicts of pods that were placed or found no node."""
        return [each for each in self.verdicts if isinstance(each, Placement | Failure)]
