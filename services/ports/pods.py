"""Pods in the ledger: where they count, which of them wait, and which are gone."""

from __future__ import annotations

import datetime
from typing import NamedTuple

import msgspec

from domain.model.pods import PodLife
from domain.state.nominations import Victim


class PodRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What every row of a pod holds. ``gang`` names its PodGroup, None where it is placed alone."""

    pod_uid: str
    namespace: str
    name: str
    resource_version: int | None
    signature: bytes
    labels: dict[str, str]
    shard: int
    life: PodLife | None = None
    gang: str | None = None


class PlacementOpened(PodRow, frozen=True, kw_only=True, gc=False):
    """A pod counts on a node from now on (``adopted``: the log said so; else berth decided it).

    ``counted`` is false where its node is not known: the ledger has no row that could count it. ``home`` is
    the shard that reads the pod's events since shards were added; None: that of its decision, as before.
    """

    node: str
    adopted: bool
    seq: int
    at_ms: int
    counted: bool = True
    home: int | None = None


class PlacementClosed(NamedTuple):
    """The open placement of a pod ends."""

    pod_uid: str
    at_ms: int


class PlacementRefreshed(NamedTuple):
    """A change of a placed pod that does not matter for placing."""

    pod_uid: str
    resource_version: int | None
    labels: dict[str, str]
    life: PodLife | None = None


class PendingPod(PodRow, frozen=True, kw_only=True, gc=False):
    """An accepted pod without a node. ``arrival`` orders pods of equal priority, smaller first.

    ``sent_by`` sent the event by which it waits. Here and elsewhere None means: from before this was noted.
    ``tried`` is false while the pod waits for its first attempt, because others had their turn before it.
    """

    arrival: int
    since_ms: int
    sent_by: str | None = None
    tried: bool = True


class NominationRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pending pod has a node nominated until ``expires_ms``; ``victims`` have to leave it before."""

    pod_uid: str
    namespace: str
    name: str
    shard: int
    signature: bytes
    node: str
    at_ms: int
    expires_ms: int
    victims: tuple[Victim, ...] = ()

    @property
    def key(self) -> str:
        """The pod's key."""
        return f"{self.namespace}/{self.name}"


class MoveRow(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """A pod is to leave a hot node until ``expires_ms``, after which the node rests until ``rests_until_ms``.

    ``shard`` is the pod's, ``decided_by`` the shard that decided. ``target`` is where a dry run found room
    for it. ``is_open``: it has not left, and may not stay yet. The others only say how long the node rests.
    """

    node: str
    pod_uid: str
    shard: int
    namespace: str
    name: str
    target: str
    decided_by: int
    at_ms: int
    expires_ms: int
    rests_until_ms: int
    is_open: bool = True

    @property
    def key(self) -> str:
        """The pod's key."""
        return f"{self.namespace}/{self.name}"


class PendingGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Why the pending pods of one signature wait: of ``nodes_count`` nodes, how many per reason code.

    The last one says why they wait now. The first ``attempts_first_max`` and the latest
    ``attempts_latest_max`` stay as the group's history. Equal ones in a row are one entry with a count.
    """

    shard: int
    signature: bytes
    reasons: dict[str, int]
    unresolvable: bool
    cycle_seq: int
    at_ms: int
    profile: str = ""
    profile_revision: int = 0
    nodes_count: int = 0


class GroupAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """``times`` failed attempts of a group in a row with the same reasons; ``number`` counts from 1.

    ``at_ms`` and ``last_at_ms`` are the times of the first and the last one. An attempt counts if a pod began
    to wait at it or if the reasons were new. ``profile_revision`` is 0 if there is no such profile.
    """

    shard: int
    signature: bytes
    number: int
    at_ms: int
    last_at_ms: int
    times: int
    profile: str
    profile_revision: int
    nodes_count: int
    reasons: dict[str, int]
    unresolvable: bool
    cycle_seq: int

    def again(self, group: PendingGroup) -> GroupAttempts | None:
        """Return the same with one more attempt, or None if that one failed for other reasons."""
        if (self.reasons, self.profile_revision) != (group.reasons, group.profile_revision):
            return None
        return msgspec.structs.replace(self, times=self.times + 1, last_at_ms=group.at_ms)


class PodTombstone(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The last thing known of a pod that is gone, so that a late duplicate cannot bring it back.

    Each uid that a name had has its own. Without a namespace it is a node that another one replaced.
    """

    namespace: str
    name: str
    uid: str
    resource_version: int | None
    shard: int
    at_ms: int

    @property
    def key(self) -> str:
        """Namespace and name, or the name of a node."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class DecisionRow(NamedTuple):
    """A decision: its record of ``berth.decisions``, and the columns that the record does not have."""

    shard: int
    seq: int
    signature: bytes
    cycle_seq: int
    recorded_at: datetime.datetime | None
    payload: bytes
