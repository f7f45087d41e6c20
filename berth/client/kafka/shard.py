"""How far a reader is in one shard's partition, from record to record; no input or output of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from berth.client import models
from berth.client.errors import BadAnswer
from berth.client.following_decisions import Follower
from berth.client.kafka.checkpoint import ShardCheckpoint
from berth.client.kafka.records import decision_of, digest_of, read_of


class Record(Protocol):
    """A record as aiokafka reads it."""

    @property
    def offset(self) -> int:
        """Where it is in its partition."""

    @property
    def value(self) -> bytes | None:
        """What it says."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """What is said beside it."""


class Decided(Struct, frozen=True):
    """A decision, and the labels of its pod."""

    decision: models.Decision
    labels: Mapping[str, str]


class Voided(Struct, frozen=True):
    """Decisions `first` to `last` of a shard never happened: the ledger was set back to before them.

    Of each pod in them its last decision before `first` counts again, until its next one comes. Their numbers
    come again, with other contents.
    """

    shard: int
    first: int
    last: int


Item = Decided | Voided


class Shard:
    """Follows one partition, and finds out whether the topic is the one that was read before.

    The offset in a checkpoint is a hint. It is believed where the topic has the same record there; the topic
    may have been made anew, or cut. Else the reader begins with the first record and passes over what it has.
    """

    def __init__(self, number: int, stored: ShardCheckpoint) -> None:
        self.number = number
        self._follower = Follower(stored.seq, tuple(name.encode("latin-1") for name in stored.names))
        self._offset, self._digest = stored.offset, stored.digest
        self._last: Record | None = None  # of which the digest is made when it is asked for
        self._is_sure = True
        self._has_just_begun = True
        self._has_looked = False  # whether the topic is the same, since a decision was taken
        self._lost_below = 0  # the topic had lost its beginning when it ended there
        self._hole: int | None = None  # the first decision behind those that are missing

    def checkpoint(self) -> ShardCheckpoint:
        """Return how far the reader is."""
        if self._last is not None:
            self._digest, self._last = digest_of(self._last.value, self._last.headers), None
        names = tuple(name.decode("latin-1") for name in self._follower.names)
        return ShardCheckpoint(self._follower.seq, names, self._offset, self._digest)

    def begin(self, first: int, end: int) -> int:
        """Return where to read on in a partition that holds the offsets from ``first`` to before ``end``."""
        self._has_just_begun = True
        if self._offset is not None and first <= self._offset < end:
            self._digest = self.checkpoint().digest
            self._is_sure = False
            return self._offset
        self._is_sure = True
        self._lost_below = end if first > 0 else 0
        return first

    def fold(self, record: Record) -> list[Item] | None:
        """Return what the next record brings; None: read on from where ``begin`` says, and drop the rest.

        Raises
        ------
        BadAnswer
            It is the next decision, and of another shape than this client knows.
        """
        if not self._is_sure:
            self._is_sure = True
            if record.offset == self._offset and digest_of(record.value, record.headers) == self._digest:
                return []
            self._offset = None
            return None
        items: list[Item] | None = self._taken(record)
        if items is not None:
            self._offset, self._last = record.offset, record
            self._has_just_begun = False
        return items

    def _taken(self, record: Record) -> list[Item] | None:
        read = read_of(self.number, record.value, record.headers)
        if read is None:
            return []
        before = self._follower
        follower = Follower(before.seq, tuple(before.names)) if read.name != before.name else before
        seq = before.seq
        step = follower.take_record(read.seq, read.name, read.after)
        if step.is_ahead and not self._has_looked:
            self._has_looked = True
            return None
        if follower is not before and before.names and not self._has_just_begun:
            return None  # a new name says what is void by its first record: it has to be that
        items = list[Item]()
        if step.void_to > step.before:
            items.append(Voided(self.number, step.before + 1, step.void_to))
        if step.is_taken:
            try:
                items.append(Decided(*decision_of(read.value)))
            except msgspec.MsgspecError as error:
                before.seq = seq
                raise BadAnswer(
                    f"decision {self.number}-{read.seq} is not as this client knows it ({error}); "
                    "is the worker of another version?",
                    code="bad-answer",
                ) from None
            self._has_looked, self._hole, self._lost_below = False, None, 0
        elif follower is not before:
            self._hole = None
        if step.is_ahead and self._hole is None:
            self._hole = read.seq
        self._follower = follower
        return items

    @property
    def lost(self) -> tuple[int, int] | None:
        """The first and the last decision that are gone from the topic; None: none is missed for good.

        The broker may have lost the end of the topic: then what is missing follows. But what is missing
        behind the beginning of a topic that retention has cut, and is not in all the rest, does not come.
        """
        is_all_read = self._offset is not None and self._offset + 1 >= self._lost_below > 0
        if self._hole is None or not is_all_read:
            return None
        return self._follower.seq + 1, self._hole - 1

    def behind_the_lost(self) -> ShardCheckpoint:
        """Return how far a reader is that does without the decisions that are lost."""
        assert self._hole is not None
        return ShardCheckpoint(self._hole - 1, self.checkpoint().names)
