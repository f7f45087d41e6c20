"""Steps: what a worker itself does to its picture of the cluster, beside the events that it folds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from domain.model.pods import PodSpec
from domain.state.nominations import Nomination


class Assumed(msgspec.Struct, frozen=True):
    """Pods that a cycle placed: ``rows[i]`` is the node row of ``keys[i]``. ``specs`` name their devices."""

    keys: Sequence[str]
    rows: np.ndarray
    specs: Mapping[str, PodSpec] = {}


class Forgotten(msgspec.Struct, frozen=True):
    """The ledger did not grant what a cycle assumed of these pods (key -> arrival): they wait again."""

    arrivals: Mapping[str, int]


class Nominated(msgspec.Struct, frozen=True):
    """A cycle promises a node to the waiting pod ``key``; the pods of ``victims`` (keys) have to leave it.

    What is promised there to pods ``below`` a priority ends; None: below that of the pod.
    """

    key: str
    node: str
    victims: Sequence[str]
    at_ms: int
    expires_ms: int
    below: int | None = None


class Cleared(msgspec.Struct, frozen=True):
    """These pods have no node promised any more; ``reason`` says why."""

    keys: Sequence[str]
    reason: str


class Unnominated(msgspec.Struct, frozen=True):
    """The ledger did not grant the nominations of these pods."""

    keys: Sequence[str]


class Repromised(msgspec.Struct, frozen=True):
    """The ledger did not grant that pods were placed on promised nodes: these promises hold again."""

    nominations: Sequence[Nomination]


class Settle(msgspec.Struct, frozen=True):
    """What selectors ask for since the last time begins to tell pods apart."""


class Written(msgspec.Struct, frozen=True):
    """All that ``OwnChanges`` hold is in a batch for the ledger, which has ``placed_ms`` of pods (by key)."""

    placed_ms: Mapping[str, int] = {}


class Passed(msgspec.Struct, frozen=True):
    """Log time has come to ``now_ms``; pods that were gone before ``forget_before_ms`` are forgotten."""

    now_ms: int
    forget_before_ms: int


class Reached(msgspec.Struct, frozen=True):
    """Log time has come to ``now_ms``: pods come later from now on than those that came anywhere before."""

    now_ms: int


class Owned(msgspec.Struct, frozen=True):
    """The worker holds these shards, of ``shards_count``; what others hold is *foreign*.

    ``orphaned`` are keys of pods of the shards that it takes: their last owner told them that their node is
    gone. Yields what that owner did not get to tell.
    """

    shards: frozenset[int]
    shards_count: int
    orphaned: Collection[str] = ()


class Given(msgspec.Struct, frozen=True):
    """The worker gives these shards to others: it knows nothing more of their pods that wait."""

    shards: frozenset[int]


Step = (
    Assumed
    | Cleared
    | Forgotten
    | Given
    | Nominated
    | Owned
    | Passed
    | Reached
    | Repromised
    | Settle
    | Unnominated
    | Written
)
