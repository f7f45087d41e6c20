"""Moments of the past: what the ledger held after some batches, and before all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from domain.model.errors import BerthError
from domain.model.nodes import NodeSpec
from services.times import BatchId as BatchId

CHANGES_MAX = 10_000
"""Pods, and nodes, that a comparison of two moments lists at most."""


class OutOfReach(BerthError):
    """A moment is before what the ledger can still tell of the past, or is not there yet."""

    code = "out-of-reach"


class Moment(NamedTuple):
    """What was committed by then: a prefix of the journal by ``position``, complete in itself.

    Attributes
    ----------
    position : int
        Of the last row of the journal that counts; 0: none does.
    log_time_ms : int
        The latest log time among those rows.
    batches : sequence of int
        Of each shard, the last batch of its journal that counts.
    seqs : sequence of int
        Of each shard, the number of its first decision that does not.
    asked_ms : int, optional
        The time that was asked for, where one was: it may be long after the latest log time.
    """

    position: int
    log_time_ms: int
    batches: Sequence[int]
    seqs: Sequence[int]
    asked_ms: int | None = None


class PodChange(NamedTuple):
    """Where a pod was at two moments: its node, and whether it waited. Neither: there was no such pod.

    ``evicted`` says that berth had it leave between them.
    """

    pod_uid: str
    namespace: str
    name: str
    node_before: str | None
    node_after: str | None
    waited_before: bool
    waits_after: bool
    evicted: bool


class NodeChange(NamedTuple):
    """What a node offered at two moments, where that differs; None: there was no such node."""

    name: str
    before: NodeSpec | None
    after: NodeSpec | None


class Changes(NamedTuple):
    """What differs between two moments, by uid and by name; ``more``: there are others."""

    pods: Sequence[PodChange]
    nodes: Sequence[NodeChange]
    more: bool


class Totals(NamedTuple):
    """Sums over the cluster; amounts per resource, in canonical units. Pods are those that are seen.

    ``orphaned_count`` are those of ``bound_count`` whose node is deleted.
    """

    nodes_count: int
    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    bound_count: int
    orphaned_count: int
    pending_count: int
    groups_count: int


class Past(Protocol):
    """What is asked of moments; answers about one come from ``Store.as_of``."""

    async def moment(self, at: int | BatchId) -> Moment:
        """Return the moment at a log time in milliseconds, or right after a batch.

        At a log time counts the longest prefix of the journal in which no row is later. A time that has not
        come is now.

        Raises
        ------
        OutOfReach
            The journal or the past does not reach back so far, or there is no such batch.
        """

    async def totals(self, moment: Moment | None, seen: Sequence[str] | None) -> Totals:
        """Return sums over the cluster, of now or as of a moment."""

    async def changes(self, before: Moment, after: Moment, seen: Sequence[str] | None) -> Changes:
        """Return how pods of these namespaces (None: all) and nodes differ, at most ``CHANGES_MAX`` of each.

        Their cost grows with what happened between the moments, not with the cluster.
        """
