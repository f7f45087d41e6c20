"""Where shards go on in the log, and what became of that where the log lost records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from services.ports.log import TopicPartition


class Position(NamedTuple):
    """Where a shard goes on in a partition, and in which topic that was (None: not noted yet).

    Below ``resync_below`` it reads a topic again that lost records (``services/worker/beginning.py``).
    Records below ``moved_below`` are of before shards were added: whose key has another partition now is not
    this shard's any more.
    """

    next_offset: int
    topic_id: str | None
    resync_below: int | None = None
    moved_below: int | None = None


class Unmentioned(NamedTuple):
    """What the ledger has, and a topic that lost records does not mention: its key, a pod's uid and node."""

    key: str
    uid: str = ""
    node: str = ""


class LogFault(msgspec.Struct, frozen=True, kw_only=True):
    """A partition does not hold what its shard would read next; it goes on at ``goes_on_at`` instead.

    ``code`` is ``recreated``, ``truncated`` (its beginning is gone) or ``tail-lost``. ``first`` and ``end``
    are the log's.
    """

    shard: int
    epoch: int
    at: TopicPartition
    code: str
    next_offset: int
    first: int
    end: int
    goes_on_at: int
    topic_id: str | None
    resync_below: int | None
    unmentioned: Sequence[Unmentioned] = ()

    @property
    def kept(self) -> int:
        """The offset below which records may be those that were there before."""
        return 0 if self.code == "recreated" else self.end
