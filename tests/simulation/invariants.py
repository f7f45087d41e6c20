"""The invariants by name, and what was found against them."""

from __future__ import annotations

import enum
from collections.abc import Callable

FINDINGS_MAX = 200


class Invariant(enum.StrEnum):
    """What must hold on every day, named by what is seen when it does not."""

    LOST_POD = "a pod is lost: it neither counts on a node nor waits"
    DOUBLE_PLACEMENT = "a pod is placed twice"
    PHANTOM_DECISION = "a decision that no event or no placement backs"
    OVER_CAPACITY = "a placement took a node over what it offers"
    INFEASIBLE_PLACEMENT = "a placement on a node that refuses the pod"
    GHOST = "a pod that was gone is placed again"
    OLD_EVENT_WON = "an older event overwrote a newer one"
    UNRELEASED = "a pod is gone and nobody said so"
    WRONG_LIFE = "the decisions of a pod contradict each other"
    UNTOLD = "a node came or went and its pods were not told"
    WRONG_SPAN = "a placement ends before it begins"
    NOT_DRAINED = "a pod waits although a node has room"
    HOLE_IN_SEQ = "a decision is missing between two others"
    OTHER_TIMELINE = "the topic says something else than the ledger"
    PUBLISHED_TWICE = "a decision was published again without need"
    OFFSET_GAP = "an offset jumped or went back"
    KEY_ORDER = "a shard took records of a partition that is not its own"
    FOREIGN_DECISION = "a shard decided for a pod of another one"
    UNFOUNDED_CONFLICT = "a pod lost its node although nobody changed it"
    UNDOUBTED = "a version is believed that counts pods that lost their node"
    BLIND_GUARD = "a worker does not know what it raised itself"
    NOT_RETRIED = "a pod that lost its node was not tried again"
    WRONG_NOMINATION = "a node is promised to a pod that may not have it"
    BROKEN_PROMISE = "a promise of a node ends without a word, or stays for ever"
    EVICTED_TWICE = "a pod is evicted twice"
    WRONG_EVICTION = "a pod is evicted for no nomination of its node"
    EVICTED_FOR_NOTHING = "a pod is evicted although the preemptor fits beside it"
    WRONG_MOVE = "a pod has to leave a hot node where it does not run, or must stay"
    PART_OF_GANG = "fewer pods of a gang run than the least that it may have"
    FOLLOWED_DIFFERS = "what a worker followed is not what the ledger holds"
    STALE_EPOCH_WRITE = "a batch of a former owner was written"
    VERSION_CHAIN = "the versions of a node are no chain"
    WRONG_SUM = "a node's sum is not that of its pods"
    LEDGER_DIFFERS = "the ledger says something else than its decisions"
    DEAD_LETTERS = "the dead letters are not the broken records"
    LOST_PROFILE = "a profile or a revision is lost"
    LOST_USAGE = "a measurement is lost"
    LENT_TWICE = "a pod borrows what its node does not lend any more"
    STALE_VIEW = "a pod borrows by a measurement that is too old, or by none"
    WRONG_BILL = "the bill is not what the counters of pods say"
    WRONG_PAST = "the past is not what it was"
    LOST_ACTION = "what an agent did is lost, or there twice"
    NO_CONVERGENCE = "events or decisions are stuck"
    STALLED = "work waited and nobody decided, though nothing was wrong"
    HEALTHY_FENCED = "a worker lost a shard because nobody could renew a lease during an outage"
    SLOW_STOP = "a process that was told to stop went on"


class Violation(Exception):
    """Invariants do not hold; ``found`` has each with what was seen."""

    def __init__(self, found: list[tuple[Invariant, str]]) -> None:
        lines = [f"{invariant.name}: {message}" for invariant, message in found[:8]]
        rest = f"\n  … and {len(found) - 8} more" if len(found) > 8 else ""
        super().__init__("\n  " + "\n  ".join(lines) + rest)
        self.found = found


class Findings:
    """Collects violations, so that one does not hide another.

    Attributes
    ----------
    noted : callable
        Called with the invariant of each violation when it is noted.
    """

    def __init__(self) -> None:
        self.found: list[tuple[Invariant, str]] = []
        self.noted: Callable[[Invariant], None] = lambda invariant: None

    def require(self, holds: bool, invariant: Invariant, message: str) -> None:
        """Note a violation unless ``holds``."""
        if not holds and len(self.found) < FINDINGS_MAX:
            self.found.append((invariant, message))
            self.noted(invariant)

    @property
    def names(self) -> set[Invariant]:
        """Return which invariants were violated."""
        return {invariant for invariant, _ in self.found}
