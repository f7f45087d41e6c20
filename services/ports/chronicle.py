"""What happened to a pod, a node or a shard, each source in one order, so that a history merges them."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from domain.model.nodes import NodeSpec
from services.ports.actions import ActionState
from services.ports.pods import DecisionRow
from services.ports.rows import Rows


class Rank(enum.IntEnum):
    """What comes first of one moment."""

    SPEC = 0
    FAULT = 1
    OWNER = 2
    ATTEMPT = 3
    ACTION = 4
    DECISION = 5
    REVISION = 6


class PastPlace(NamedTuple):
    """Where an entry is in a history: by log time, of one moment by when it was recorded, then as follows.

    ``recorded_us`` is in microseconds since the epoch; 0: the ledger does not keep it. A pod is evicted after
    everything else that its batch said of it (``is_last``). ``number`` and ``shard`` tell the rest apart.
    """

    at_ms: int
    recorded_us: int
    rank: int
    is_last: bool
    number: int
    shard: int


class Window(NamedTuple):
    """Which part of a history is read: at most ``limit`` entries behind a place, by one order or the other.

    Times are log time in milliseconds; None: any.
    """

    limit: int
    after: PastPlace | None = None
    newest_first: bool = False
    since_ms: int | None = None
    until_ms: int | None = None


class PastDecision(NamedTuple):
    """A decision in a history."""

    place: PastPlace
    row: DecisionRow


class PastSpec(NamedTuple):
    """A spec that a node got, and whether it is the first one that is known of it."""

    place: PastPlace
    version: int
    spec: NodeSpec
    deleted: bool
    sent_by: str | None
    is_first: bool


class PastAction(NamedTuple):
    """What an agent did, at the log time of its record."""

    place: PastPlace
    state: ActionState


class PastFault(NamedTuple):
    """A partition of the log did not hold what its shard would have read next."""

    place: PastPlace
    topic: str
    partition: int
    epoch: int
    code: str
    next_offset: int
    goes_on_at: int


class JournalKept(NamedTuple):
    """What is kept of a shard's journal: its first and its last batch, and how many between are missing."""

    first: int
    last: int
    missing_count: int


class Chronicle(Protocol):
    """Reads what happened to one object, whatever shards or workers it was that said it.

    A page ends with the row that reaches ``page_bytes_max``, too.
    """

    async def of_pod(
        self, namespace: str, name: str, seen: Collection[str] | None, window: Window
    ) -> Rows[PastDecision]:
        """Return the decisions about pods of this name; ``seen`` as in ``Store.seen_by``."""

    async def on_node(self, node: str, seen: Collection[str] | None, window: Window) -> Rows[PastDecision]:
        """Return the decisions that name a node."""

    async def specs(self, node: str, window: Window) -> Rows[PastSpec]:
        """Return the specs that a node had."""

    async def actions(
        self, nodes: Sequence[str], pod: str | None, seen: Collection[str] | None, window: Window
    ) -> Rows[PastAction]:
        """Return what the agents of nodes did, to one pod (``namespace/name``) or all that is seen."""

    async def faults(self, shard: int) -> Sequence[PastFault]:
        """Return each time that the log of a shard had lost records, the oldest first."""

    async def journal(self, shard: int) -> JournalKept | None:
        """Return what is kept of a shard's journal; None: nothing."""


def recorded_us(at: datetime.datetime | None) -> int:
    """Return a time of the database as a place has it."""
    return 0 if at is None else (at - _EPOCH) // datetime.timedelta(microseconds=1)


def recorded_at(microseconds: int) -> datetime.datetime:
    """Return the time of the database that a place has."""
    return _EPOCH + datetime.timedelta(microseconds=microseconds)


_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def in_window(place: PastPlace, window: Window) -> bool:
    """Return whether an entry is behind the place of a window, and of its time."""
    if window.since_ms is not None and place.at_ms < window.since_ms:
        return False
    if window.until_ms is not None and place.at_ms >= window.until_ms:
        return False
    if window.after is None:
        return True
    return place < window.after if window.newest_first else place > window.after
