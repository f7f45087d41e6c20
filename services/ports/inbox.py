"""The inbox: how a gang's events come from the shard that reads them to the one that decides for its pods.

The shard that reads them writes them, numbered, in the transaction in which it moves its offset. The other
one, the home of the gang, takes them in this order, and counts them as it counts records of a partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.ports.log import PODS_TOPIC, Record

_INBOX = "~inbox/"
_HANDED = "~handed/"

Lanes = Mapping[tuple[int, str], int]
"""Shard and topic (as of ``inbox_topic`` and ``handed_topic``) -> the number that comes next."""


def inbox_topic(source: int) -> str:
    """Return what stands for a topic where a shard counts what it took of another one's.

    The partition of it is the home, as that of other topics is the shard that reads it.
    """
    return f"{_INBOX}{source}"


def handed_topic(home: int) -> str:
    """Return what stands for a topic where a shard counts what it handed over to another one."""
    return f"{_HANDED}{home}"


def is_lane(topic: str) -> bool:
    """Say whether a topic is one of these two, whose offset rows begin, at 0, with their first use."""
    return topic.startswith((_INBOX, _HANDED))


def source_of(topic: str) -> int | None:
    """Return the shard that handed over what is read of a topic; None: it is no inbox."""
    return int(topic.removeprefix(_INBOX)) if topic.startswith(_INBOX) else None


def home_of(topic: str) -> int | None:
    """Return the shard to which what is counted of a topic was handed over; None: it is nothing like that."""
    return int(topic.removeprefix(_HANDED)) if topic.startswith(_HANDED) else None


def lanes_of(offsets: Mapping[tuple[int, str, int], int]) -> Lanes:
    """Return how far inboxes are written and read, by the offset rows."""
    return {(shard, topic): count for (shard, topic, _), count in offsets.items() if is_lane(topic)}


class InboxRecord(Record):
    """A record as its home reads it: the number is its offset. ``read`` is the record of the log."""

    read: Record


class Handed(NamedTuple):
    """An event that ``source`` read and handed over to ``home``, the ``number``-th, from 0 on."""

    home: int
    source: int
    number: int
    log_offset: int
    key: bytes | None
    value: bytes | None
    at_ms: int
    seal: bytes | None = None

    def record(self) -> InboxRecord:
        """Return it as its home reads it."""
        read = Record(
            PODS_TOPIC, self.source, self.log_offset, self.key, self.value, self.at_ms, seal=self.seal
        )
        record = InboxRecord(inbox_topic(self.source), self.home, self.number, *read[3:])
        record.read = read
        return record


class Waiting(NamedTuple):
    """Events that ``source`` handed over to ``home`` and that are still to be read: ``lo <= number < hi``."""

    home: int
    source: int
    lo: int
    hi: int


class Forwarded(NamedTuple):
    """All events of a pod that ``shard`` reads go to ``home``.

    The row of the last pod of a key says where other events of the key go, too. When that pod was deleted,
    ``gone_at_ms`` is the log time of it, and ``gone_number`` the number of the last event that was handed
    over of it. Of an earlier pod, ``gone_at_ms`` says at the latest when another one came.
    """

    shard: int
    key: str
    home: int
    uid: str
    gone_number: int | None = None
    gone_at_ms: int | None = None

    @property
    def is_last(self) -> bool:
        """Whether no other pod of the key has come since."""
        return self.gone_number is not None or self.gone_at_ms is None


class Sent(NamedTuple):
    """What a batch handed over, and the pods whose way changed."""

    handed: Sequence[Handed] = ()
    forwarded: Sequence[Forwarded] = ()
