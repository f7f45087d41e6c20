"""What happened, as a reader of the stream gets it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from berth.client import models
from berth.client.errors import BerthError, NoLongerKept, Unavailable, decoded
from berth.client.frames import Frame

_FINAL = ("another-ledger", "not-kept")
_TYPES: Mapping[str, type[models.Decision | models.NodeChange | models.ShardChange]] = {
    "decisions": models.Decision,
    "releases": models.Decision,
    "pending": models.Decision,
    "nodes": models.NodeChange,
    "shards": models.ShardChange,
}


class Event(Struct, frozen=True):
    """Something that happened. Keep its id: `watch(after=id)` goes on behind it.

    ``kind`` is decisions, releases, pending, nodes or shards. A mark (`is_mark`) has no kind and no data: it
    says how far the stream is.
    """

    id: str
    kind: str
    data: models.Decision | models.NodeChange | models.ShardChange | None

    @property
    def decision(self) -> models.Decision | None:
        """The decision, where it is one."""
        return self.data if isinstance(self.data, models.Decision) else None

    @property
    def is_mark(self) -> bool:
        """Whether nothing happened: the id says how far the stream is."""
        return not self.kind


def event_of(frame: Frame) -> Event | None:
    """Return the event of a frame; None: it is of a kind that a later API has, or says nothing at all.

    Raises
    ------
    BadAnswer
        It is not as this client knows it.
    """
    if not frame.kind:
        return Event(frame.id, "", None) if frame.id else None
    known = _TYPES.get(frame.kind)
    return None if known is None else Event(frame.id, frame.kind, decoded(frame.data, known))


def ending(frame: Frame, last_id: str | None) -> BerthError:
    """Return why a stream ended: final (``NoLongerKept``), or to be begun again behind the last id."""
    answer: models.Error = decoded(frame.data, models.Error)
    error = answer.error
    if error.code not in _FINAL:
        return Unavailable(error.message, code=error.code)
    details: Sequence[models.ErrorDetail] = error.details or ()
    final = NoLongerKept(f"{error.message}; the last id was {last_id}", code=error.code, details=details)
    final.last_id = last_id
    return final
