"""Steps: what a state folds beside the events of the log.

Own steps are what this worker does itself. Followed ones say what other workers did: they come in the order
of the journal, in which a batch comes after all batches that its worker could have seen. A worker folds what
is of its own shards from the log, and all else from these.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from domain.model.hosting import HostedChange
from domain.model.nodes import NodeSpec
from domain.model.pods import PodLife, PodSpec
from domain.state.moves import Relief
from domain.state.nominations import Nomination

# ------------------------------------------------------------------------------------------------ own steps


class Assumed(msgspec.Struct, frozen=True):
    """Pods that a cycle placed: ``rows[i]`` is the node row of ``keys[i]``. ``specs`` name their devices."""

    keys: Sequence[str]
    rows: np.ndarray
    specs: Mapping[str, PodSpec] = {}


class Forgotten(msgspec.Struct, frozen=True):
    """The ledger refused what a cycle assumed of these pods (key -> arrival): they wait again.

    ``nominations`` are those by which some of them had their nodes: they hold again.
    """

    arrivals: Mapping[str, int]
    nominations: Sequence[Nomination] = ()


class Nominated(msgspec.Struct, frozen=True):
    """A cycle nominates a node for the waiting pod ``key``; the pods of ``victims`` (keys) have to leave it.

    Nominations there of pods ``below`` a priority end; None: below that of the pod.
    """

    key: str
    node: str
    victims: Sequence[str]
    at_ms: int
    expires_ms: int
    below: int | None = None


class Cleared(msgspec.Struct, frozen=True):
    """The nominations of these pods end; ``reason`` says why."""

    keys: Sequence[str]
    reason: str


class Unnominated(msgspec.Struct, frozen=True):
    """The ledger refused the nominations of those of these pods that still have one."""

    keys: Sequence[str]


class Relieved(msgspec.Struct, frozen=True, kw_only=True):
    """A cycle tells pods to leave a hot node: by key, on which node a dry run found room. See ``Relief``."""

    node: str
    shard: int
    targets: Mapping[str, str]
    at_ms: int
    expires_ms: int
    rests_until_ms: int


class ReliefsPassed(msgspec.Struct, frozen=True):
    """Log time has come to ``now_ms``: moves and rests of own shards may be over."""

    now_ms: int


class Unrelieved(msgspec.Struct, frozen=True):
    """The ledger refused the latest reliefs of these nodes."""

    nodes: Sequence[str]


class Reclassify(msgspec.Struct, frozen=True):
    """Pods get the classes that selectors ask for which came or went since the last time."""


class HostedSaid(msgspec.Struct, frozen=True):
    """What this worker, or another one, said of hosted workloads; ``seq`` is the last number that it gave."""

    change: HostedChange
    seq: int = 0


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


class Lent(msgspec.Struct, frozen=True):
    """What nodes lend is brought up to date, for which log time has come to ``now_ms``, 0: to no later one.

    What was measured too long ago lends nothing.
    """

    now_ms: int = 0


class Owned(msgspec.Struct, frozen=True):
    """The worker holds these shards, of ``shards_count``; what others hold is *foreign*.

    ``orphaned`` are keys of pods of the shards that it takes: their last owner told them that their node is
    gone. Yields what that owner did not get to tell.
    """

    shards: frozenset[int]
    shards_count: int
    orphaned: Collection[str] = ()


class Given(msgspec.Struct, frozen=True):
    """The worker gives these shards to others: it knows nothing more of their pods that wait.

    What they placed goes on counting, and pods that are gone stay gone. Cost: O(pods).
    """

    shards: frozenset[int]


# ------------------------------------------------------------------------------------------- followed steps


class NodeFollowed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A batch of another worker raised a node's version by ``changes``.

    ``spec`` is None where only pods came or went. Otherwise it is the node's spec from then on, the
    ``spec_count``-th, and ``deleted`` says whether the node is gone; ``was_gone``, that it was for a while in
    between. ``ordinal`` is its id in the ledger.
    """

    name: str
    ordinal: int
    changes: int
    spec: NodeSpec | None = None
    deleted: bool = False
    was_gone: bool = False
    spec_count: int = 0


class VersionsFollowed(msgspec.Struct, frozen=True, gc=False):
    """A batch of another worker raised the version of ``nodes[i]`` by ``changes[i]``: pods came or went."""

    nodes: Sequence[str]
    changes: Sequence[int]


class PodsFollowed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Pods of other workers count on nodes: pod i on ``nodes[i]``.

    One that moved, or was resized, has left (``PodsLeft``) just before. ``uncounted`` are the uids of those
    that the node's row in the ledger does not count yet, since their worker does not know the node.
    ``placed_ms`` is the log time of each placement; a journal of before says nothing of it.
    """

    pods: Sequence[PodSpec]
    nodes: Sequence[str]
    adopted: Sequence[bool]
    shards: Sequence[int]
    uncounted: frozenset[str] = frozenset()
    placed_ms: Sequence[int] = ()


class PodsLeft(msgspec.Struct, frozen=True, gc=False):
    """Placed pods of other workers are gone, or are about to be placed anew (``PodsFollowed``)."""

    uids: Sequence[str]


class PodFollowedRefreshed(msgspec.Struct, frozen=True, gc=False):
    """Something became known of a placed pod of another worker that does not matter for placing it."""

    uid: str
    resource_version: int | None
    labels: Mapping[str, str]
    life: PodLife | None


class PodsFollowedCounted(msgspec.Struct, frozen=True, gc=False):
    """The rows of their nodes count these pods from now on; see ``PodsFollowed.uncounted``."""

    uids: Sequence[str]


class GoneFollowed(msgspec.Struct, frozen=True, gc=False):
    """Pods and replaced nodes of other workers are gone: ``uids[i]`` of ``keys[i]`` since ``at_ms[i]``."""

    keys: Sequence[str]
    uids: Sequence[str]
    versions: Sequence[int | None]
    at_ms: Sequence[int]


class NominationsFollowed(msgspec.Struct, frozen=True, gc=False):
    """Pods of other workers have nominated nodes, and those with the uids ``ended`` have none any more."""

    nominations: Sequence[Nomination]
    ended: Sequence[str]


class ReliefsFollowed(msgspec.Struct, frozen=True, gc=False):
    """Other workers relieve hot nodes.

    The moves of the nodes ``spared`` are over, and the reliefs of those that have ``rested``.
    """

    reliefs: Sequence[Relief]
    spared: Sequence[str] = ()
    rested: Sequence[str] = ()


OwnStep = (
    Assumed
    | Cleared
    | Forgotten
    | Given
    | HostedSaid
    | Lent
    | Nominated
    | Owned
    | Passed
    | Reached
    | Reclassify
    | ReliefsPassed
    | Relieved
    | Unnominated
    | Unrelieved
    | Written
)

FollowedStep = (
    GoneFollowed
    | NodeFollowed
    | NominationsFollowed
    | PodFollowedRefreshed
    | PodsFollowed
    | PodsFollowedCounted
    | PodsLeft
    | ReliefsFollowed
    | VersionsFollowed
)

Step = OwnStep | FollowedStep
