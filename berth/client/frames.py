"""The stream of events as it comes: bytes in, frames out, without input or output of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct


class Frame(Struct, frozen=True):
    """What came: an event, or (without a kind) how far the stream is by now."""

    id: str
    kind: str
    data: bytes


class Frames:
    """Cuts what comes into frames."""

    def __init__(self) -> None:
        self._waiting = b""

    def feed(self, part: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole by now."""
        *whole, self._waiting = (self._waiting + part).split(b"\n\n")
        for each in whole:
            fields = _fields(each)
            yield Frame(
                fields.get(b"id", b"").decode(), fields.get(b"event", b"").decode(), fields.get(b"data", b"")
            )


def _fields(frame: bytes) -> Mapping[bytes, bytes]:
    lines = (line.partition(b": ") for line in frame.split(b"\n") if not line.startswith(b":"))
    return {name: value for name, _, value in lines}
