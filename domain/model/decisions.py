"""Decisions: the immutable outcome for one pod, with its reasons."""

from __future__ import annotations

import enum

import msgspec


class Outcome(enum.StrEnum):
    """What was decided for a pod."""

    BOUND = "bound"  # berth chose the node
    ADOPTED = "adopted"  # the log said that the pod runs on the node
    UNSCHEDULABLE = "unschedulable"  # no node now; the pod waits
    UNRESOLVABLE = "unresolvable"  # no node, even if every other pod left; the pod waits
    NOMINATED = "nominated"  # a node is set aside while victims leave
    RELEASED = "released"  # the pod finished or was deleted; what it held is free
    EVICTED = "evicted"
    MIGRATED = "migrated"


class Decision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row of the ledger's ``decisions``.

    ``decided_at_ms`` is log time (milliseconds since the epoch, from the events), so that the same log
    gives the same decisions; when the row was written is the ledger's business. ``cycle_seq`` names the
    cycle row that explains it (0: none is needed). ``score`` is the node's total when it was chosen.
    ``profile_revision`` is that of ``profile`` which was in force; None where no profile was asked, or where
    there is none of that name.
    """

    shard: int
    epoch: int
    seq: int
    pod_uid: str
    namespace: str
    name: str
    resource_version: int | None
    outcome: Outcome
    node: str | None
    decided_at_ms: int
    profile: str
    signature: bytes
    profile_revision: int | None = None
    reason: str = ""
    score: float | None = None
    cycle_seq: int = 0


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node that could have been chosen, with its total and its normalised score per plugin."""

    node: str
    score: float
    parts: dict[str, float]


class Cycle(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduling attempt of one group: what all decisions of the attempt share.

    ``reasons`` counts nodes per reason code of the first failing filter. ``candidates`` are the best
    nodes, best first, as the group's first pod of the attempt saw them. ``duration_us`` is that of the
    worker's whole cycle, of which the attempt is a part.
    """

    shard: int
    seq: int
    signature: bytes
    profile: str
    profile_revision: int
    seed: int
    generation: int
    nodes_count: int
    feasible_count: int
    unresolvable_count: int
    reasons: dict[str, int]
    candidates: tuple[Candidate, ...]
    pods_count: int
    bound_count: int
    moved_count: int = 0
    conflict_count: int = 0
    duration_us: int = 0
