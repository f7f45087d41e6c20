"""How far shards and relays have come, in memory."""

from __future__ import annotations

import dataclasses

from services.ports.outbox import NOTHING, Acknowledged, Stream


@dataclasses.dataclass
class OffsetRow:
    """How far a shard has come in one partition."""

    epoch: int
    next_offset: int
    topic_id: str | None = None
    resync_below: int | None = None
    moved_below: int | None = None


@dataclasses.dataclass
class CursorRow:
    """What the relay has published of a shard."""

    epoch: int = 0
    holder: object = None
    published: dict[Stream, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(Stream, 0))
    alarm: str | None = None
    compared: int = 0
    generation: int = 0
    acknowledged: Acknowledged = NOTHING
