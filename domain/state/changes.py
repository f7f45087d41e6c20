"""What an event changed: the fold's answer, from which the ledger's batch is built."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from domain.colocation.pricing import BillLine
from domain.model.actions import NodeAction
from domain.model.config import ConfigObject
from domain.model.pods import PodSpec
from domain.model.profiles import ProfileRevision
from domain.model.usage import NodeUsage
from domain.state.nominations import Nomination


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """Nothing changed. ``reason`` is counted: see ``SKIP_REASONS``."""

    reason: str = "known"


SKIP_REASONS: Mapping[str, str] = {
    "known": "says nothing new: a duplicate, a heartbeat, the deletion of what is not there",
    "older": "has a lower resourceVersion than what is known of its object",
    "other-uid": "deletes an object of the name that has another uid",
}


class NodeChanged(msgspec.Struct, frozen=True, gc=False):
    """A node's spec was added, changed or removed.

    ``replaced`` is the uid and the last version of the object that had the name before, if it was another.
    """

    name: str
    replaced: tuple[str, int | None] | None = None


class PodWaits(msgspec.Struct, frozen=True, gc=False):
    """A pod has no node: it is new, or its template changed while it waited (``previous``)."""

    pod: PodSpec
    arrival: int
    previous: PodSpec | None = None


class PodRefreshed(msgspec.Struct, frozen=True, gc=False):
    """Only things that do not matter for placing changed, as labels; or a placed pod has devices now."""

    pod: PodSpec
    placed: bool
    arrival: int


class PodRegrouped(msgspec.Struct, frozen=True, gc=False):
    """A pod has another class: its labels changed, or the selectors that tell pods apart."""

    pod: PodSpec
    placed: bool
    arrival: int


class PodAdopted(msgspec.Struct, frozen=True, gc=False):
    """The log says that a pod runs on a node where it was not counted.

    It ran on ``previous_node`` before, or had been waiting as ``waited``, or is new. ``node_version`` is the
    version of the node after the change, None while the node is not known. ``reasons`` say what is amiss with
    the node (``Occupancy.amiss``).
    """

    pod: PodSpec
    node: str
    node_version: int | None
    previous_node: str = ""
    waited: PodSpec | None = None
    reasons: tuple[str, ...] = ()


class PodResized(msgspec.Struct, frozen=True, gc=False):
    """A placed pod has another template: it stays, and counts with what it asks for now."""

    pod: PodSpec
    node: str
    node_version: int | None
    adopted: bool
    reasons: tuple[str, ...]


class PodOrphaned(msgspec.Struct, frozen=True, gc=False):
    """The node on which a pod counts was deleted."""

    pod: PodSpec
    node: str
    node_version: int | None
    reasons: tuple[str, ...]


class PodReturned(msgspec.Struct, frozen=True, gc=False):
    """The node on which a pod counts was deleted, and is there again."""

    pod: PodSpec
    node: str
    node_version: int | None
    reasons: tuple[str, ...]


class PodReleased(msgspec.Struct, frozen=True, gc=False):
    """A pod finished or was deleted. ``node`` is "" if it was waiting."""

    pod: PodSpec
    node: str
    node_version: int | None
    reason: str
    resource_version: int | None


class BindUndone(msgspec.Struct, frozen=True, gc=False):
    """A pod could not be bound to ``node``, where it counted. It waits again, as if it came now."""

    pod: PodSpec
    node: str
    node_version: int | None
    arrival: int


class ClaimRefused(msgspec.Struct, frozen=True, gc=False):
    """The ledger refused what a cycle decided on a pod: a node if it was ``placed``, or its nomination.

    It waits for any node again, as if it came now.
    """

    pod: PodSpec
    arrival: int
    placed: bool


class PodGiven(msgspec.Struct, frozen=True, gc=False):
    """A waiting pod is of a shard that another worker has from now on."""

    pod: PodSpec


class PodMissed(msgspec.Struct, frozen=True, gc=False):
    """A pod that was never known is gone. It is remembered, so that what comes late does not bring it.

    Nothing else changed: the event counts as skipped for ``reason``, see ``SKIP_REASONS``.
    """

    key: str
    uid: str
    resource_version: int | None
    reason: str = "known"


class NominationEnded(msgspec.Struct, frozen=True, gc=False):
    """A pod has no nominated node any more: it was placed (``bound``), or for another reason.

    Of its victims, ``spared`` have not left, and stay.
    """

    pod: PodSpec
    nomination: Nomination
    arrival: int
    reason: str
    spared: tuple[PodSpec, ...] = ()


class FollowRefused(msgspec.Struct, frozen=True, gc=False):
    """What another worker did contradicts what is known here and is passed over: its node or pod, and why."""

    kind: str
    name: str
    message: str


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The event is well formed but contradicts what is known. It becomes a dead letter with the code."""

    path: str
    message: str
    code: str = "conflict"


class NodeMeasured(msgspec.Struct, frozen=True, gc=False):
    """A node's measured usage changed, or was dropped. ``newer``: the measurement is the latest so far.

    ``usage`` is the measurement as it was folded, for workers that fold it elsewhere, where the node may have
    another capacity by then; None where it was dropped. ``bill`` is what pods used by it, and ``unbilled``
    counts those that are not billed, by reason: both where this worker has the shard of usage.
    """

    name: str
    newer: bool = False
    usage: NodeUsage | None = None
    bill: tuple[BillLine, ...] = ()
    unbilled: Mapping[str, int] = {}


class ActionTaken(msgspec.Struct, frozen=True, gc=False):
    """The agent of a node did something there, which is written down."""

    action: NodeAction


class PodResolved(msgspec.Struct, frozen=True, gc=False):
    """What a waiting pod was missing is there: it waits on, in its place, with another template."""

    pod: PodSpec
    arrival: int
    previous: PodSpec


class MovesEnded(msgspec.Struct, frozen=True, gc=False):
    """The time of the moves of a hot node is over, which ``shard`` decided: its ``spared`` pods stay."""

    node: str
    shard: int
    spared: tuple[PodSpec, ...]


class ConfigChanged(msgspec.Struct, frozen=True, gc=False):
    """A configuration object other than a profile changed, or its newest resource version did."""

    object: ConfigObject


class ProfileChanged(msgspec.Struct, frozen=True, gc=False):
    """A profile has a new revision, or a newer resource version of the same one."""

    revision: ProfileRevision


Change = (
    Skipped
    | NodeChanged
    | NodeMeasured
    | ActionTaken
    | PodWaits
    | PodRefreshed
    | PodRegrouped
    | PodAdopted
    | PodResized
    | PodOrphaned
    | PodReturned
    | PodReleased
    | BindUndone
    | ClaimRefused
    | PodGiven
    | PodMissed
    | PodResolved
    | NominationEnded
    | MovesEnded
    | ConfigChanged
    | ProfileChanged
    | Refused
    | FollowRefused
)

LeftToReport = PodOrphaned | PodRefreshed | PodReturned
"""What the last owner of a shard did not get to report, or to do: to give a pod devices."""

OF_NO_NODE = frozenset((ActionTaken, PodWaits, PodRefreshed, PodMissed, Skipped, Refused))
"""Changes that change no node, and nothing of what counts on one."""
