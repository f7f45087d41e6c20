"""The relay's side of the ledger: what is committed and not yet published."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Stream(enum.StrEnum):
    """What the relay publishes, each with its own cursor per shard."""

    DECISIONS = "decisions"
    DEAD_LETTERS = "dead-letters"
    SCALES = "scales"  # of shard 0 alone


class OutboxItem(NamedTuple):
    """A row to publish."""

    seq: int
    key: bytes | None
    value: bytes


class Timed(NamedTuple):
    """How far a ledger has come in which pods wait, or replicas are hosted.

    ``log_time_ms`` is the newest log time, ``due_ms`` the next one at which time alone lets something be
    decided; None: nothing is timed.
    """

    log_time_ms: int
    due_ms: int | None


class Acknowledged(NamedTuple):
    """What an operator took note of: below this offset of a shard's topic, records that are not the ledger's.

    ``at_ms`` is when that was; None: never, or not known.
    """

    below: int
    at_ms: int | None


NOTHING = Acknowledged(0, None)


class Outbox(Protocol):
    """The relay's side of the ledger."""

    async def shards(self) -> int:
        """Return the number of shards that ``berth init`` laid down (0: not initialised)."""

    async def ledger_name(self, shard: int) -> str:
        """Return which ledger this is, which life of it, and which generation of the shard.

        The name changes where the ledger may have lost what was committed: where a replica took over, a
        backup or dump was restored, or an alarm was raised. None comes back.
        """

    async def acquire(self, shard: int, owner: str, lease_seconds: float) -> int:
        """Return the relay epoch of the shard, or 0 while another relay is alive (as ``Ledger.acquire``)."""

    async def renew_lease(self, shard: int, epoch: int, lease_seconds: float) -> bool:
        """Prolong; False when the epoch is no longer the shard's."""

    async def release(self, shard: int, epoch: int) -> None:
        """Give the shard back, if still held with this epoch."""

    async def published(self, shard: int, stream: Stream) -> int:
        """Return the cursor: the last seq known as published, 0 at first."""

    async def unpublished(
        self, shard: int, stream: Stream, after_seq: int, rows_max: int
    ) -> Sequence[OutboxItem]:
        """Return committed rows with ``seq > after_seq``, in order, without a hole but what was pruned.

        Dead letters and scales are deleted only before the cursor: behind it there is none.
        """

    async def decisions(self, shard: int, seqs: Sequence[int]) -> Sequence[OutboxItem]:
        """Return the decisions with these seqs that are committed, in order."""

    async def kept_from(self, shard: int) -> int:
        """Return the seq from which all decisions are kept; of those before it, some were pruned."""

    async def compared(self, shard: int) -> int:
        """Return below which offset of its topic foreign records were reported."""

    async def raise_alarm(self, shard: int, epoch: int, alarm: str, compared: int) -> bool:
        """Note what is wrong with the topic, for operators, and the offset below which it was compared.

        The shard has another generation from then on, which none had before. An alarm that no operator
        acknowledged stays. False (and nothing written) when the epoch is no longer the shard's.
        """

    async def acknowledge(self) -> Mapping[int, str]:
        """Take back the alarms of all shards and return them. What was compared by then is acknowledged."""

    async def acknowledged(self, shard: int) -> Acknowledged:
        """Return up to where, and when, an operator acknowledged what a shard's topic holds."""

    async def mark_published(self, shard: int, stream: Stream, epoch: int, seq: int) -> bool:
        """Move the cursor forward; False (and nothing written) when the epoch is no longer the shard's."""

    async def timed(self) -> Timed | None:
        """Return how far the ledger has come; None where no pod waits, and nothing is hosted."""

    async def wait(self, shard: int, timeout_seconds: float) -> None:
        """Return when something of a shard may have been committed, or after the time."""

    async def aclose(self) -> None:
        """Release what the outbox holds."""
