"""Checks events exactly as a worker will read them, and appends what berth needs of them to the log."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from domain.model.errors import FieldError
from domain.model.events import Event, ProfileEvent
from services.codec.decode import Decoder
from services.codec.encode import encode_event, event_topic_and_key, topic_and_key
from services.codec.envelope import NAMESPACED_KINDS
from services.codec.kept import kept, stripped
from services.codec.seal import seal
from services.ports.log import Entry, LogWriter, Record, Span


class Outgoing(NamedTuple):
    """A checked event: its topic and its record; if it has an id, the id and a digest of its content.

    ``namespace`` is None for a kind that belongs to none. ``event`` is what a worker will read; None if it
    will read nothing.
    """

    topic: str
    entry: Entry
    kind: str
    namespace: str | None
    id: str | None
    digest: bytes = b""
    event: Event | ProfileEvent | None = None


class Gateway:
    """Turns users' events into records."""

    def __init__(self) -> None:
        self._decoder = Decoder()

    def prepare(self, event: Any) -> Outgoing:
        """Check an event and encode it.

        Raises
        ------
        FieldError
            A worker would refuse it; with the field's path inside the event.
        """
        if not isinstance(event, dict):
            raise FieldError("", "an event is an object {type, object, at, id}")
        thing = event.get("object")
        if not isinstance(thing, dict):
            bare = "; a manifest by itself is no event, it goes here" if "kind" in event else ""
            raise FieldError("object", f"is missing; an event carries the object that it is about{bare}")
        event_type = event.get("type") or ""
        least = kept(event_type, thing)
        topic, key = event_topic_and_key(thing) if least is thing else topic_and_key(least)
        raw = encode_event(event_type, least, event.get("at"), event.get("id"))
        decoded = self._decoder.decode(Record(topic, 0, 0, key, raw, 0))
        if decoded.rejected is not None:
            raise FieldError(decoded.rejected.path, decoded.rejected.message)
        if least is thing:  # JSON takes what a conversion does not
            raw = encode_event(event_type, stripped(thing), event.get("at"), event.get("id"))
        digest = _digest(event) if decoded.id else b""
        kind = thing["kind"]
        namespace = key.decode().split("/")[-2] if kind in NAMESPACED_KINDS else None
        return Outgoing(topic, Entry(key, raw), kind, namespace, decoded.id, digest, decoded.event)


def _digest(event: Any) -> bytes:
    """Return a digest of the content. The order of fields does not matter."""
    content = [event.get("type"), event.get("object"), event.get("at")]
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).digest()


class Appender:
    """Appends checked events to the log, and beside each of them who sent it.

    Parameters
    ----------
    writer : LogWriter
    secret : callable
        Reads the secret of the seals. It is asked for once, at the first append.
    """

    def __init__(self, writer: LogWriter, secret: Callable[[], Awaitable[bytes]]) -> None:
        self._writer = writer
        self._read_secret = secret
        self._secret: bytes | None = None

    async def append(self, events: Sequence[Outgoing], sent_by: str) -> list[Span]:
        """Append events, those of a topic in order; return their positions.

        Topics follow each other in the order in which they first occur; between topics the log has no order.
        """
        if self._secret is None:
            self._secret = await self._read_secret()
        by_topic: dict[str, list[Entry]] = {}
        for event in events:
            key, value, *_ = event.entry
            sealed = seal(self._secret, event.topic, key, value, sent_by)
            by_topic.setdefault(event.topic, []).append(Entry(key, value, sealed))
        return [span for topic, each in by_topic.items() for span in await self._writer.append(topic, each)]
