"""What other workers did, as their journal says: the events by which a worker follows them.

A worker folds what is of its own shards from the log, and all else from these. They come in the order of the
journal, in which a batch comes after all batches that its worker could have seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from domain.model.nodes import NodeSpec
from domain.model.pods import PodLife, PodSpec
from domain.state.nominations import Nomination


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
    """Pods of other workers have nodes promised, and those with the uids ``ended`` have none any more."""

    nominations: Sequence[Nomination]
    ended: Sequence[str]


FollowedEvent = (
    NodeFollowed
    | VersionsFollowed
    | PodsFollowed
    | PodsLeft
    | PodFollowedRefreshed
    | PodsFollowedCounted
    | GoneFollowed
    | NominationsFollowed
)
