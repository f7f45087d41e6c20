"""What the agent of a node did there by itself: facts for people, which decide nothing."""

from __future__ import annotations

import enum

import msgspec


class ActionKind(enum.StrEnum):
    """What was done to a box of pods (all but the last), or to a pod."""

    IDLE = "idle"
    WEIGHT = "weight"
    QUOTA = "quota"
    MEMORY_HIGH = "memory-high"
    RECLAIM = "reclaim"
    EVICT = "evict"


AMOUNT_OF = {
    ActionKind.QUOTA: "cpu",
    ActionKind.MEMORY_HIGH: "memory",
    ActionKind.RECLAIM: "memory",
}
"""The resource of which an action may name an amount."""


class NodeAction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One act of the agent of a node, and why.

    ``quality`` is that of the box or of the pod. ``amount`` is what the box has from then on, or what was
    taken back: thousandths of a core, or bytes; None: as much as there is, or the kind has none. ``times``
    acts of one kind on one box, in a row, are one action, the last of them. ``policy`` names what ordered
    it, and its version (``name@version``), "" the defaults. ``pod`` (``namespace/name``) and ``uid`` are
    those of a pod that was ended.
    """

    node: str
    at_ms: int
    kind: ActionKind
    quality: str
    reason: str
    amount: int | None = None
    times: int = 1
    policy: str = ""
    pod: str = ""
    uid: str = ""
